"""The samples that a workload trains on: of its data set, or made up to fit its model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.data.augmentation import part_of
from dlb.data.description import DataSetDescription
from dlb.data.load import load_described, normalise
from dlb.data.local import LOCAL, find_own, open_local
from dlb.data.locate import find_described
from dlb.data.npz import Pieces, write_pieces
from dlb.data.registry import data_set
from dlb.data.source import ChoosePart, Source, Wanted, of_arrays
from dlb.data.text import described_words
from dlb.errors import RequestError
from dlb.workload import Augmentation, Data, Embedding, Model, Workload, infer_shapes

__all__ = [
    "SYNTHETIC",
    "Samples",
    "count_samples",
    "load_samples",
    "noise",
    "open_split",
    "random_labels",
    "read_samples",
    "wanted",
    "with_data",
    "with_data_here",
    "write_samples",
]

Array = npt.NDArray[Any]
#: The name of data that are made up; no data set can have it.
SYNTHETIC = "synthetic"
SYNTHETIC_SAMPLES = {"train": 2048, "test": 512}
#: Of what is made up: the same whatever the run's seed, as a data set is.
_SEEDS = {"train": 1, "test": 2}
#: Samples that are read, and written, at a time.
_PIECE = 256


@dataclass(frozen=True)
class Samples:
    """One split.

    Attributes:
        inputs: [N, ...] of the dtype asked for, or int64 for indices.
        labels: int64 [N], or [N, T] where the logits are [T, classes].
        where: what they were read from.
    """

    inputs: Array
    labels: Array
    where: str


def count_samples(workload: Workload) -> int:
    """How many samples a workload trains on.

    Raises:
        UnknownNameError: there is no such data set.
        RequestError: they must be looked at to be counted, and cannot be.
    """
    name = workload.data.name
    if name == SYNTHETIC:
        return SYNTHETIC_SAMPLES["train"]
    if name not in LOCAL and data_set(name).format != "words":
        return data_set(name).split("train").n_samples
    return open_split(workload, "train").count


def with_data(workload: Workload, named: str) -> Workload:
    """A workload on other data, ``NAME`` or ``NAME:PATH``; images are normalised as they were."""
    name, _, path = named.partition(":")
    data = msgspec.structs.replace(workload.data, name=name, path=path, labels="")
    return msgspec.structs.replace(workload, data=data)


def with_data_here(workload: Workload, report: Callable[[str], None]) -> Workload:
    """A workload to be proven: itself, or on made-up samples where its data set is not on this
    machine, which ``report`` is told. What is proven of a model holds for any.

    Raises:
        UnknownNameError: there is no such data set.
    """
    name = workload.data.name
    if name == SYNTHETIC or workload.data.path:
        return workload
    found = find_own(name) if name in LOCAL else find_described(data_set(name))
    if found is not None:
        return workload
    report(f"data set '{name}' is not on this machine: proving on made-up samples")
    data = Data(name=SYNTHETIC, augmentation=workload.data.augmentation)
    return msgspec.structs.replace(workload, data=data)


def open_split(workload: Workload, split: str) -> Source:
    """A split of a workload's data, or of what is made up for it.

    Raises:
        RequestError: the data set is not there, or does not fit the model.
    """
    data, model = workload.data, workload.model
    if data.name in LOCAL:
        source = open_local(data, split, wanted(model))
    elif data.path or data.labels:
        raise RequestError(
            f"data.path and data.labels are of local data ({', '.join(sorted(LOCAL))}); data set "
            f"'{data.name}' is found by its name: leave them out, or set DLB_DATA_DIR"
        )
    elif data.name == SYNTHETIC:
        return _made_up(model, split)
    else:
        source = _described(data_set(data.name), split, wanted(model))
    _check_fit(workload, source)
    return source


def load_samples(workload: Workload, split: str, dtype: str) -> Samples:
    """Read a split, normalised as the workload says; or make one up.

    Raises:
        RequestError: the data set is not there, or does not fit the model.
    """
    source = open_split(workload, split)
    inputs = read_samples(workload, source, np.arange(source.count), dtype)
    return Samples(inputs, source.labels, source.where)


def read_samples(
    workload: Workload,
    source: Source,
    samples: npt.NDArray[np.int64],
    dtype: str,
    parts: npt.NDArray[np.uint32] | None = None,
) -> Array:
    """The inputs of some samples, [n, ...], normalised as the workload says.

    Args:
        workload, source: what reads, and what is read.
        samples: int64 [n].
        dtype: of real inputs.
        parts: as in :class:`dlb.data.batches.Visits`; None: the images themselves.

    Raises:
        DataError: a file cannot be read.
    """
    data = workload.data
    if parts is None:
        inputs = source.read(samples)
    else:
        inputs = source.read_parts(samples, _choose(parts, data.augmentation))
    if source.kind == "pixels":
        return normalise(inputs, data.mean, data.std, dtype)
    return inputs if source.kind == "index" else inputs.astype(dtype)


def _choose(parts: npt.NDArray[np.uint32], augmentation: Augmentation) -> ChoosePart:
    return lambda place, height, width: part_of(parts[place], height, width, augmentation)


def write_samples(
    workload: Workload,
    source: Source,
    samples: npt.NDArray[np.int64],
    dtype: str,
    path: Path,
    parts: npt.NDArray[np.uint32] | None = None,
) -> None:
    """Write ``inputs`` and ``labels`` of some samples into an .npz file, a piece at a time.

    Args:
        workload, source, samples, dtype, parts: as in :func:`read_samples`.
        path: of the file.

    Raises:
        RequestError: there is no room for them.
    """

    def pieces() -> Iterator[Array]:
        for first in range(0, len(samples), _PIECE):
            some = slice(first, first + _PIECE)
            of = None if parts is None else parts[some]
            yield read_samples(workload, source, samples[some], dtype, of)

    kept = np.dtype(np.int64 if source.kind == "index" else dtype)
    labels = source.labels[samples]
    write_pieces(
        path,
        {
            "inputs": Pieces((len(samples), *source.shape), kept, pieces()),
            "labels": Pieces(labels.shape, labels.dtype, [labels]),
        },
    )


def wanted(model: Model) -> Wanted:
    """What a model reads and predicts."""
    *steps, classes = infer_shapes(model)[model.nodes[-1].name]
    entries = _entries(model) if model.input.kind == "index" else 0
    return Wanted(model.input.kind, model.input.shape, tuple(steps), classes, entries)


def noise(model: Model, seed: int, samples: int) -> Array:
    """[samples, ...] of noise, float32, or int64 below the entries of the embedding it feeds."""
    generator = np.random.default_rng(seed)
    shape = (samples, *model.input.shape)
    if model.input.kind == "real":
        return generator.standard_normal(shape, dtype=np.float32)
    return generator.integers(0, _entries(model), shape, dtype=np.int64)


def random_labels(model: Model, seed: int, samples: int) -> Array:
    """int64 [samples], or [samples, T] for logits [T, classes]: each below the classes."""
    *steps, classes = infer_shapes(model)[model.nodes[-1].name]
    return np.random.default_rng(seed + 1000).integers(0, classes, (samples, *steps), np.int64)


def _entries(model: Model) -> int:
    fed = [node.layer for node in model.wired() if model.input.name in node.inputs]
    return min(layer.entries for layer in fed if isinstance(layer, Embedding))


def _made_up(model: Model, split: str) -> Source:
    count, seed = SYNTHETIC_SAMPLES[split], _SEEDS[split]
    return of_arrays(
        "real" if model.input.kind == "real" else "index",
        noise(model, seed, count),
        random_labels(model, seed, count),
        "made up from a fixed seed",
    )


def _described(described: DataSetDescription, split: str, want: Wanted) -> Source:
    if described.format == "words":
        return described_words(described, split, want)
    read = load_described(described, split)
    return of_arrays("pixels", read.images, read.labels, str(read.folder))


def _check_fit(workload: Workload, source: Source) -> None:
    """Raises RequestError where a split is not what the model reads or predicts."""
    name, want = f"'{workload.data.name}'", wanted(workload.model)
    if source.shape != want.shape or (source.kind == "index") != (want.kind == "index"):
        kind = "indices" if want.kind == "index" else "real numbers"
        raise RequestError(
            f"workload '{workload.name}' reads {kind} of shape {list(want.shape)}; data set "
            f"{name} has {source.kind_name} of shape {list(source.shape)}; '{SYNTHETIC}' fits any "
            "model"
        )
    if source.labels.shape[1:] != want.steps:
        raise RequestError(
            f"workload '{workload.name}' predicts labels of shape {list(want.steps)} a sample; data "
            f"set {name} has {list(source.labels.shape[1:])}"
        )
    if source.kind != "pixels" and (set(workload.data.mean), set(workload.data.std)) != (
        {0.0},
        {1.0},
    ):
        raise RequestError(
            f"data set {name} has {'indices' if source.kind == 'index' else 'numbers'} that are "
            "taken as they are; data.mean and data.std are of images (uint8): leave them out"
        )
    if source.kind == "index":
        used = source.read(np.arange(source.count))
        if used.min() < 0 or used.max() >= want.entries:
            raise RequestError(
                f"data set {name} has indices from {used.min()} to {used.max()}; the embedding of "
                f"workload '{workload.name}' has {want.entries} entries, 0 to {want.entries - 1}"
            )
    least, largest = int(source.labels.min()), int(source.labels.max())
    if least < 0 or largest >= want.classes:
        raise RequestError(
            f"data set {name} has the label {largest if least >= 0 else least}; workload "
            f"'{workload.name}' predicts {want.classes} classes, labels 0 to {want.classes - 1}"
        )
