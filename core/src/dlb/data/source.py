"""One split as a run sees it: how many samples, their labels, and the inputs of any of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dlb.data.augmentation import Part
from dlb.errors import DataError

__all__ = ["ChoosePart", "Kind", "Source", "Wanted", "every_tenth", "of_arrays"]

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

#: ``pixels`` are uint8 [C, H, W], to be normalised; ``real`` are taken as they are; ``index`` are
#: rows of an embedding.
Kind = Literal["pixels", "real", "index"]

#: The part of one of the images asked for, by its place among them, its height and its width.
ChoosePart = Callable[[int, int, int], Part]

_NAMES = {"pixels": "real numbers", "real": "real numbers", "index": "indices"}


@dataclass(frozen=True)
class Source:
    """One split, of which any samples can be read.

    Attributes:
        kind: what the inputs are.
        shape: of one input.
        labels: int64 [N] or [N, T].
        read: the inputs of samples by index, [n, *shape]: uint8, floating or int64.
        read_parts: the same of parts of images, each resized to ``shape``.
        where: what they are read from, for the record.
        decoded: whether each sample costs work to read, so that only those that are needed are.
    """

    kind: Kind
    shape: tuple[int, ...]
    labels: Indices
    read: Callable[[Indices], Array]
    read_parts: Callable[[Indices, ChoosePart], Array]
    where: str
    decoded: bool = False

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(self.labels)

    @property
    def kind_name(self) -> str:
        """The kind, in words."""
        return _NAMES[self.kind]

    def take(self, samples: Indices) -> Source:
        """Some of the samples, as a split of their own."""
        return replace(
            self,
            labels=self.labels[samples],
            read=lambda some: self.read(samples[some]),
            read_parts=lambda some, choose: self.read_parts(samples[some], choose),
        )


@dataclass(frozen=True)
class Wanted:
    """What a model reads and predicts.

    Attributes:
        kind, shape: of its input.
        steps: () where it gives logits [classes], (T,) where [T, classes].
        classes: labels are below it.
        entries: indices are below it.
    """

    kind: Literal["real", "index"]
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    classes: int
    entries: int = 0


def of_arrays(kind: Kind, inputs: Array, labels: Indices, where: str) -> Source:
    """A split that is in memory; ``inputs`` are [N, ...]."""

    def read_parts(some: Indices, choose: ChoosePart) -> Array:
        from dlb.data.images import resize_parts

        return resize_parts(inputs[some], choose)

    return Source(kind, inputs.shape[1:], labels, lambda some: inputs[some], read_parts, where)


def every_tenth(source: Source, split: str) -> Source:
    """Of data without splits: samples 10, 20, 30... to test on, the others to train on.

    Raises:
        DataError: there are fewer than ten.
    """
    if source.count < 10:
        raise DataError(
            f"{source.where}: has {source.count} samples; every tenth is kept for testing, so 10 "
            "are needed, or a test split of its own"
        )
    numbers = np.arange(source.count)
    return source.take(numbers[(numbers % 10 == 9) == (split == "test")])
