"""One split of a data set, of which any samples can be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dlb.data.augmentation import CropBox
from dlb.errors import DataError

__all__ = [
    "ChooseCrop",
    "Kind",
    "ModelSignature",
    "Source",
    "array_source",
    "real_source",
    "split_every_tenth",
]

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

#: ``pixels`` are uint8 [C, H, W] and are normalised; ``real`` are not normalised; ``index`` are rows of
#: an embedding.
Kind = Literal["pixels", "real", "index"]

#: From the index of an image in the request, its height and its width: the crop.
ChooseCrop = Callable[[int, int, int], CropBox]

_NAMES = {"pixels": "real numbers", "real": "real numbers", "index": "indices"}


@dataclass(frozen=True)
class Source:
    """One split, of which any samples can be read.

    Attributes:
        kind: the kind of the inputs.
        shape: the shape of one input.
        labels: int64 [N], [N, T] or [N, H, W], or targets: [N, ...], integers or real numbers.
        read: reads the inputs of samples by index, [n, *shape]: uint8, floating or int64.
        read_crops: the same for crops of images, each resized to ``shape``.
        where: where the samples are read from, for the record.
        decoded: whether each sample must be decoded, so that reading all of them is slow.
    """

    kind: Kind
    shape: tuple[int, ...]
    labels: Array
    read: Callable[[Indices], Array]
    read_crops: Callable[[Indices, ChooseCrop], Array]
    where: str
    decoded: bool = False

    @property
    def count(self) -> int:
        """The number of samples."""
        return len(self.labels)

    @property
    def kind_name(self) -> str:
        """The kind as text for messages."""
        return _NAMES[self.kind]

    def take(self, samples: Indices) -> Source:
        """The split of the samples with these indices."""
        return replace(
            self,
            labels=self.labels[samples],
            read=lambda indices: self.read(samples[indices]),
            read_crops=lambda indices, choose: self.read_crops(samples[indices], choose),
        )


@dataclass(frozen=True)
class ModelSignature:
    """The shapes and ranges of a model's input and labels.

    Attributes:
        kind, shape: kind and shape of the input.
        steps: () for logits [classes], (T,) for logits [T, classes], (H, W) for logits [classes, H, W].
        classes: the number of classes; labels are below it.
        entries: the entries of the embedding; input indices are below it. 0 for real inputs.
    """

    kind: Literal["real", "index"]
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    classes: int
    entries: int = 0


def array_source(kind: Kind, inputs: Array, labels: Array, where: str) -> Source:
    """A split of arrays in memory; ``inputs`` are [N, ...]."""
    return _source(kind, inputs.shape[1:], labels, where, lambda rows: inputs[rows])


def real_source(
    shape: tuple[int, ...], compute: Callable[[int], Array], labels: Array, where: str
) -> Source:
    """A split of real numbers that are computed when they are read, and not kept.

    Args:
        shape: of one input.
        compute: an input, float32 of that shape, from its index.
        labels: of all.
    """

    def read(rows: Indices) -> Array:
        inputs = np.empty((len(rows), *shape), np.float32)
        for place, row in enumerate(rows):
            inputs[place] = compute(int(row))
        return inputs

    return _source("real", shape, labels, where, read)


def _source(
    kind: Kind,
    shape: tuple[int, ...],
    labels: Array,
    where: str,
    read: Callable[[Indices], Array],
) -> Source:
    def read_crops(indices: Indices, choose: ChooseCrop) -> Array:
        from dlb.data.resizing import resize_crops

        return resize_crops(read(indices), choose)

    return Source(kind, shape, labels, read, read_crops, where)


def split_every_tenth(source: Source, split: str) -> Source:
    """A split of data without splits: samples 10, 20, 30... are for testing, the others for training.

    Raises:
        DataError: there are fewer than ten samples.
    """
    if source.count < 10:
        raise DataError(
            f"{source.where}: has {source.count} samples; every tenth is kept for testing, so 10 "
            "are needed, or a test split of its own"
        )
    numbers = np.arange(source.count)
    return source.take(numbers[(numbers % 10 == 9) == (split == "test")])
