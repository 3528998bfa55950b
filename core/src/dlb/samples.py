"""The samples that a workload trains on: of its data set, or made up to fit its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.catalogue import data_set
from dlb.data.load import load_described, normalise
from dlb.errors import RequestError
from dlb.workload import Embedding, Model, Workload, infer_shapes

__all__ = ["SYNTHETIC", "Samples", "count_samples", "load_samples", "noise", "random_labels"]

Array = npt.NDArray[Any]
#: The name of data that are made up; no data set can have it.
SYNTHETIC = "synthetic"
SYNTHETIC_SAMPLES = {"train": 2048, "test": 512}
#: Of what is made up: the same whatever the run's seed, as a data set is.
_SEEDS = {"train": 1, "test": 2}


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
    """
    if workload.data.name == SYNTHETIC:
        return SYNTHETIC_SAMPLES["train"]
    return data_set(workload.data.name).split("train").n_samples


def load_samples(workload: Workload, split: str, dtype: str) -> Samples:
    """Read a split, normalised as the workload says; or make one up.

    Raises:
        RequestError: the data set is not there, or does not fit the model.
    """
    data, model = workload.data, workload.model
    if data.name == SYNTHETIC:
        count, seed = SYNTHETIC_SAMPLES[split], _SEEDS[split]
        inputs = noise(model, seed, count)
        if model.input.kind == "real":
            inputs = inputs.astype(dtype)
        return Samples(inputs, random_labels(model, seed, count), "made up from a fixed seed")
    read = load_described(data_set(data.name), split)
    shape = read.images.shape[1:]
    if model.input.kind != "real" or shape != model.input.shape:
        kind = "indices" if model.input.kind == "index" else "real numbers"
        raise RequestError(
            f"workload '{workload.name}' reads {kind} of shape {list(model.input.shape)}; data set "
            f"'{data.name}' has real numbers of shape {list(shape)}; '{SYNTHETIC}' fits any model"
        )
    return Samples(
        normalise(read.images, data.mean, data.std, dtype), read.labels, str(read.folder)
    )


def noise(model: Model, seed: int, samples: int) -> Array:
    """[samples, ...] of noise, float32, or int64 below the entries of the embedding it feeds."""
    generator = np.random.default_rng(seed)
    shape = (samples, *model.input.shape)
    if model.input.kind == "real":
        return generator.standard_normal(shape, dtype=np.float32)
    fed = [node.layer for node in model.wired() if model.input.name in node.inputs]
    entries = min(layer.entries for layer in fed if isinstance(layer, Embedding))
    return generator.integers(0, entries, shape, dtype=np.int64)


def random_labels(model: Model, seed: int, samples: int) -> Array:
    """int64 [samples], or [samples, T] for logits [T, classes]: each below the classes."""
    *steps, classes = infer_shapes(model)[model.nodes[-1].name]
    return np.random.default_rng(seed + 1000).integers(0, classes, (samples, *steps), np.int64)
