"""The samples that a workload trains on: from its data set, or synthetic ones that fit its model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.data.augmentation import crop_box
from dlb.data.description import DataSetDescription
from dlb.data.load import load_described, normalise
from dlb.data.locate import find_described
from dlb.data.npz import ChunkedArray, write_npz
from dlb.data.own import own_data, own_kinds
from dlb.data.registry import PACKAGE, data_set, has_named_data_sets
from dlb.data.source import ChooseCrop, ModelSignature, Source, array_source, real_source
from dlb.data.text import word_source
from dlb.errors import RequestError, UnknownNameError
from dlb_graph.losses import CTC, classes_and_places
from dlb_graph.workload import (
    Augmentation,
    Data,
    Loss,
    Model,
    SoftmaxCrossEntropy,
    Workload,
    infer_shapes,
    type_name,
)
from dlb_graph.workload.model import SYNTHETIC
from dlb_graph.workload.noise import embedding_entries, noise

__all__ = [
    "Splits",
    "ctc_steps",
    "model_signature",
    "open_split",
    "proof_inputs",
    "proof_labels",
    "random_labels",
    "read_labels",
    "read_samples",
    "replace_missing_data",
    "with_data",
    "write_samples",
]

Array = npt.NDArray[Any]
SYNTHETIC_SAMPLES = {"train": 2048, "test": 512}
#: Seeds of synthetic data. Like a data set, the data do not depend on the run's seed.
_SEEDS = {"train": 1, "test": 2}
#: Samples that are read and written at a time.
_CHUNK = 256
_PLAIN = SoftmaxCrossEntropy()


class Splits:
    """The splits of a workload's samples: each is opened once, when it is asked for.

    That raises a :class:`RequestError` if the data set is missing, or does not fit the model.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    @cached_property
    def training(self) -> Source:
        return open_split(self.workload, "train")

    @cached_property
    def test(self) -> Source:
        return open_split(self.workload, "test")

    @cached_property
    def count(self) -> int:
        """The number of training samples.

        Raises:
            UnknownNameError: there is no such data set.
            RequestError: the samples must be opened to be counted, and cannot be opened.
        """
        name = self.workload.data.name
        if name == SYNTHETIC:
            return SYNTHETIC_SAMPLES["train"]
        if name not in own_kinds() and data_set(name).format != "words":
            return data_set(name).split("train").n_samples
        return self.training.count

    def fit(self, workload: Workload) -> bool:
        """Whether they are the samples of this workload too."""
        parts = (workload.data, workload.model, workload.loss)
        return parts == (self.workload.data, self.workload.model, self.workload.loss)

    def close(self) -> None:
        """Forget what is open; their number stays."""
        for name in ("training", "test"):
            self.__dict__.pop(name, None)


def with_data(workload: Workload, named: str) -> Workload:
    """The workload with other data, ``NAME`` or ``NAME:PATH``; the normalisation stays the same."""
    name, _, path = named.partition(":")
    data = msgspec.structs.replace(workload.data, name=name, path=path, labels="")
    return msgspec.structs.replace(workload, data=data)


def replace_missing_data(workload: Workload, report: Callable[[str], None]) -> Workload:
    """The workload, with synthetic samples if its data set is not on this machine.

    The proof of a model holds for any data.

    Args:
        workload: the workload to prove.
        report: receives a message if the data are replaced.

    Raises:
        UnknownNameError: there is no such data set, and the package with named ones is installed.
    """
    name = workload.data.name
    if name == SYNTHETIC or workload.data.path:
        return workload
    reason = f"data set '{name}' is not on this machine"
    try:
        folder = own_data(name).find() if name in own_kinds() else find_described(data_set(name))
    except UnknownNameError:
        if has_named_data_sets():
            raise
        folder, reason = None, f"data set '{name}' is unknown here; more are in {PACKAGE}"
    if folder is not None:
        return workload
    report(f"{reason}: proving on synthetic samples")
    data = Data(name=SYNTHETIC, augmentation=workload.data.augmentation)
    return msgspec.structs.replace(workload, data=data)


def open_split(workload: Workload, split: str) -> Source:
    """Open a split of a workload's data, or of its synthetic data.

    Raises:
        RequestError: the data set is missing, or does not fit the model.
    """
    data, model = workload.data, workload.model
    if data.name in own_kinds():
        source = own_data(data.name).open(data, split, model_signature(model))
    elif data.path or data.labels:
        if data.name != SYNTHETIC:
            data_set(data.name)  # one that is not known here has an error of its own
        raise RequestError(
            f"data.path and data.labels are for local data ({', '.join(sorted(own_kinds()))}); data "
            f"set '{data.name}' is found by its name: leave them out, or set DLB_DATA_DIR"
        )
    elif data.name == SYNTHETIC:
        return _synthetic_source(workload, split)
    else:
        source = _data_set_source(data_set(data.name), split, model_signature(model))
    _check_fit(workload, source)
    return _with_targets(workload, source)


def read_samples(
    workload: Workload,
    source: Source,
    samples: npt.NDArray[np.int64],
    dtype: str,
    resized_crops: npt.NDArray[np.uint32] | None = None,
) -> Array:
    """The inputs of samples, [n, ...], normalised as the workload says.

    Args:
        workload: the workload, which has the normalisation and the augmentation.
        source: the split.
        samples: int64 [n], indices of samples.
        dtype: dtype of real inputs; indices are int64.
        resized_crops: uint32 [n, 22], as in :class:`dlb.data.batches.SampleSchedule`; None for
            whole images.

    Raises:
        DataError: a file cannot be read.
    """
    data = workload.data
    if resized_crops is None:
        inputs = source.read(samples)
    else:
        inputs = source.read_crops(samples, _crop_chooser(resized_crops, data.augmentation))
    if source.kind == "pixels":
        return normalise(inputs, data.mean, data.std, dtype)
    return inputs if source.kind == "index" else inputs.astype(dtype)


def read_labels(source: Source, samples: npt.NDArray[np.int64], dtype: str) -> Array:
    """The labels of samples: int64, or targets of a dtype."""
    labels = source.labels[samples]
    return labels.astype(dtype) if labels.dtype.kind == "f" else labels


def _crop_chooser(draws: npt.NDArray[np.uint32], augmentation: Augmentation) -> ChooseCrop:
    return lambda row, height, width: crop_box(draws[row], height, width, augmentation)


def write_samples(
    workload: Workload,
    source: Source,
    samples: npt.NDArray[np.int64],
    dtype: str,
    path: Path,
    resized_crops: npt.NDArray[np.uint32] | None = None,
) -> None:
    """Write ``inputs`` and ``labels`` of samples to an .npz file, in chunks.

    Args:
        workload, source, samples, dtype, resized_crops: as in :func:`read_samples`.
        path: the file to write.

    Raises:
        RequestError: the disk has no room for them.
    """

    def input_chunks() -> Iterator[Array]:
        for first in range(0, len(samples), _CHUNK):
            chunk = slice(first, first + _CHUNK)
            crops = None if resized_crops is None else resized_crops[chunk]
            yield read_samples(workload, source, samples[chunk], dtype, crops)

    input_dtype = np.dtype(np.int64 if source.kind == "index" else dtype)
    labels = read_labels(source, samples, dtype)
    write_npz(
        path,
        {
            "inputs": ChunkedArray((len(samples), *source.shape), input_dtype, input_chunks()),
            "labels": ChunkedArray(labels.shape, labels.dtype, [labels]),
        },
    )


def model_signature(model: Model) -> ModelSignature:
    """The shapes and ranges of a model's input and labels."""
    classes, steps = classes_and_places(infer_shapes(model)[model.nodes[-1].name])
    entries = embedding_entries(model) if model.input.kind == "index" else 0
    return ModelSignature(model.input.kind, model.input.shape, steps, classes, entries)


def random_labels(model: Model, seed: int, samples: int, loss: Loss = _PLAIN) -> Array:
    """Labels that a loss reads.

    For classes, int64 [samples], or [samples, T] for logits [T, classes], each below ``classes``, and an eighth
    of them the label that is ignored. For sequences of labels, int64 [samples, labels]. Else float32, of the
    outputs' shape: 0 and 1 for shares, and normal noise for numbers.
    """
    outputs = infer_shapes(model)[model.nodes[-1].name]
    generator, kind = np.random.default_rng(seed + 1000), loss.targets
    if kind == "class":
        classes, places = classes_and_places(outputs)
        labels = generator.integers(0, classes, (samples, *places), np.int64)
        return _with_ignored(labels, loss, generator)
    if isinstance(loss, CTC):
        return _label_sequences(loss, outputs, samples, generator)
    shape = (samples, *outputs)
    if kind == "share":
        return generator.integers(0, 2, shape).astype(np.float32)
    return generator.standard_normal(shape, dtype=np.float32)


def proof_inputs(model: Model, seed: int, samples: int) -> Array:
    """Noise for a proof: as :func:`noise`, but indices include every entry that there is room for.

    An adapter that treats an entry differently, for example entry 0 as padding, is found only with it.
    """
    inputs = noise(model, seed, samples)
    if model.input.kind == "real":
        return inputs
    return _covering(inputs, embedding_entries(model), seed)


def proof_labels(model: Model, seed: int, samples: int, loss: Loss = _PLAIN) -> Array:
    """Labels for a proof: as :func:`random_labels`, but with every class that there is room for.

    Shares are quarters, since an adapter that takes them for classes is right for 0 and 1.
    """
    kind = loss.targets
    if kind == "class":
        classes, _ = classes_and_places(infer_shapes(model)[model.nodes[-1].name])
        covering = _covering(random_labels(model, seed, samples), classes, seed + 1000)
        return _with_ignored(covering, loss, np.random.default_rng(seed + 1000))
    labels = random_labels(model, seed, samples, loss)
    if kind == "share":
        quarters = np.random.default_rng(seed + 1000).integers(0, 5, labels.shape)
        return (_covering(quarters, 5, seed + 1000) / 4).astype(np.float32)
    return labels


def _label_sequences(
    loss: CTC, outputs: tuple[int, ...], samples: int, generator: np.random.Generator
) -> Array:
    """Sequences of one to all labels, as many as have a path whatever they are, -1 after the last."""
    steps, classes = outputs
    longest = max(1, min(loss.most_labels, (steps + 1) // 2))
    labels = generator.integers(0, classes - 1, (samples, loss.most_labels), np.int64)
    labels += labels >= loss.blank
    lengths = generator.integers(1, longest + 1, samples)
    return np.where(np.arange(loss.most_labels) < lengths[:, None], labels, -1)


def _with_ignored(labels: Array, loss: Loss, generator: np.random.Generator) -> Array:
    """Labels of which an eighth, but one at least of several, are what the loss ignores, if it does."""
    if not isinstance(loss, SoftmaxCrossEntropy) or loss.ignore_index is None:
        return labels
    count = max(labels.size // 8, min(labels.size - 1, 1))
    ignoring: Array = labels.copy()
    ignoring.reshape(-1)[generator.permutation(labels.size)[:count]] = loss.ignore_index
    return ignoring


def _covering(drawn: Array, count: int, seed: int) -> Array:
    """Integers below ``count`` with some replaced, so that as many as possible occur.

    The first and the last integer come first, since code treats these differently by mistake.
    """
    generator = np.random.default_rng((seed, count))
    inner = 1 + generator.permutation(max(count - 2, 0))
    wanted = np.concatenate([[0, count - 1][:count], inner]).astype(drawn.dtype)[: drawn.size]
    covering: Array = drawn.copy()
    places = generator.permutation(drawn.size)[: len(wanted)]
    covering.reshape(-1)[places] = wanted
    return covering


def _synthetic_source(workload: Workload, split: str) -> Source:
    count, seed, model = SYNTHETIC_SAMPLES[split], _SEEDS[split], workload.model
    labels, where = random_labels(model, seed, count, workload.loss), "made up from a fixed seed"
    if model.input.kind != "real":
        return array_source("index", noise(model, seed, count), labels, where)
    # Large images take a gigabyte and half a minute for a split of which few are read.
    return real_source(
        model.input.shape, partial(_synthetic_sample, model.input.shape, seed), labels, where
    )


def _synthetic_sample(shape: tuple[int, ...], seed: int, sample: int) -> Array:
    """Noise, float32, that depends on the seed and the sample's index alone."""
    return np.random.default_rng((seed, sample)).standard_normal(shape, dtype=np.float32)


def _data_set_source(
    description: DataSetDescription, split: str, signature: ModelSignature
) -> Source:
    if description.format == "words":
        return word_source(description, split, signature)
    images = load_described(description, split)
    return array_source("pixels", images.images, images.labels, str(images.folder))


def _check_fit(workload: Workload, source: Source) -> None:
    """Raise a RequestError if a split does not fit the model's input."""
    name, signature = f"'{workload.data.name}'", model_signature(workload.model)
    if source.shape != signature.shape or (source.kind == "index") != (signature.kind == "index"):
        kind = "indices" if signature.kind == "index" else "real numbers"
        raise RequestError(
            f"workload '{workload.name}' reads {kind} of shape {list(signature.shape)}; data set "
            f"{name} has {source.kind_name} of shape {list(source.shape)}; '{SYNTHETIC}' fits any "
            "model"
        )
    if source.kind != "pixels" and (set(workload.data.mean), set(workload.data.std)) != (
        {0.0},
        {1.0},
    ):
        raise RequestError(
            f"data set {name} has {'indices' if source.kind == 'index' else 'numbers'} that are "
            "not normalised; data.mean and data.std are for images (uint8): leave them out"
        )
    if source.kind == "index":
        indices = source.read(np.arange(source.count))
        if indices.min() < 0 or indices.max() >= signature.entries:
            raise RequestError(
                f"data set {name} has indices from {indices.min()} to {indices.max()}; the embedding "
                f"of workload '{workload.name}' has {signature.entries} entries, 0 to "
                f"{signature.entries - 1}"
            )


def _with_targets(workload: Workload, source: Source) -> Source:
    """The split with labels as the loss reads them.

    Raises:
        RequestError: they do not fit the loss, or the model's outputs.
    """
    if isinstance(workload.loss, CTC):
        _check_label_sequences(workload, workload.loss, source)
        return source
    if workload.loss.targets == "class":
        _check_classes(workload, source)
        return source
    name, loss = f"'{workload.data.name}'", type_name(workload.loss)
    shape = infer_shapes(workload.model)[workload.model.nodes[-1].name]
    labels = source.labels
    if labels.shape[1:] == shape[:-1] and shape[-1] == 1:
        labels = labels[..., None]
    if labels.shape[1:] != shape:
        raise RequestError(
            f"the loss of workload '{workload.name}', {loss}, reads targets of the shape of its outputs, "
            f"{list(shape)} a sample; data set {name} has labels of shape {list(labels.shape[1:])}"
        )
    with np.errstate(over="ignore"):
        finite = np.isfinite(labels.astype(np.float32)).all()
    least, largest = labels.min(), labels.max()
    if not finite:
        raise RequestError(
            f"data set {name} has targets from {least:g} to {largest:g}, which float32 cannot hold"
        )
    if workload.loss.targets == "share" and (least < 0 or largest > 1):
        raise RequestError(
            f"data set {name} has targets from {least:g} to {largest:g}; the loss of workload "
            f"'{workload.name}', {loss}, reads targets from 0 to 1"
        )
    return replace(source, labels=labels.astype(np.float64))


def _check_classes(workload: Workload, source: Source) -> None:
    """Raise a RequestError if labels are not the classes that the model predicts."""
    name, signature = f"'{workload.data.name}'", model_signature(workload.model)
    if source.labels.shape[1:] != signature.steps:
        raise RequestError(
            f"workload '{workload.name}' predicts labels of shape {list(signature.steps)} a sample; "
            f"data set {name} has {list(source.labels.shape[1:])}"
        )
    if source.labels.dtype.kind != "i":
        raise RequestError(
            f"data set {name} has labels that are no integers, and the loss of workload '{workload.name}', "
            f"{type_name(workload.loss)}, reads classes; for targets of real numbers, choose another loss"
        )
    labels, ignored = source.labels, getattr(workload.loss, "ignore_index", None)
    if ignored is not None:
        labels = labels[labels != ignored]
        if not labels.size:
            raise RequestError(f"data set {name} has no label but loss.ignore_index = {ignored}")
    least, largest = int(labels.min()), int(labels.max())
    if least < 0 or largest >= signature.classes:
        hint = ", and loss.ignore_index may name one that counts nothing" if ignored is None else ""
        raise RequestError(
            f"data set {name} has the label {largest if least >= 0 else least}; workload "
            f"'{workload.name}' predicts {signature.classes} classes, labels 0 to "
            f"{signature.classes - 1}{hint}"
        )


def _check_label_sequences(workload: Workload, loss: CTC, source: Source) -> None:
    """Raise a RequestError if labels are no sequences of classes that the outputs have steps for."""
    name, labels = f"data set '{workload.data.name}'", source.labels
    steps, classes = infer_shapes(workload.model)[workload.model.nodes[-1].name]
    if labels.shape[1:] != (loss.most_labels,) or labels.dtype.kind != "i":
        kind = "integers" if labels.dtype.kind == "i" else "no integers"
        raise RequestError(
            f"the loss of workload '{workload.name}', ctc, reads {loss.most_labels} integers a sample "
            f"(loss.most_labels); {name} has labels of shape {list(labels.shape[1:])} a sample, {kind}"
        )
    outside = (labels < -1) | (labels >= classes) | (labels == loss.blank)
    gaps = (labels[:, 1:] >= 0) & (labels[:, :-1] < 0)
    needed = ctc_steps(labels)
    for wrong, reason in (
        (
            outside.any(axis=1),
            f"a label that is none of the classes 0 to {classes - 1} without the blank",
        ),
        (gaps.any(axis=1), "a label after a -1, which ends them"),
        (needed > steps, f"labels that take more steps than the {steps} of the outputs"),
    ):
        if wrong.any():
            raise RequestError(f"{name}, sample {int(wrong.argmax())}: {reason} (loss: ctc)")


def ctc_steps(labels: Array) -> Array:
    """The steps that a path of each sample's labels takes at least: a blank lies between two that are equal.

    Args:
        labels: [N, labels], -1 after the last.
    """
    repeated = (labels[:, 1:] == labels[:, :-1]) & (labels[:, 1:] >= 0)
    return np.asarray((labels >= 0).sum(axis=1) + repeated.sum(axis=1))
