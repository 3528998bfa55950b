"""Noise that a model reads."""

from __future__ import annotations

import numpy as np

from dlb_graph.layers import Embedding
from dlb_graph.layers.numbers import Array
from dlb_graph.workload.model import Model

__all__ = ["embedding_entries", "noise"]


def noise(model: Model, seed: int, samples: int) -> Array:
    """Noise [samples, ...]: float32, or int64 below the entries of the embedding that reads it."""
    generator = np.random.default_rng(seed)
    shape = (samples, *model.input.shape)
    if model.input.kind == "real":
        return generator.standard_normal(shape, dtype=np.float32)
    return generator.integers(0, embedding_entries(model), shape, dtype=np.int64)


def embedding_entries(model: Model) -> int:
    """The entries of the smallest table that looks up the input of a model."""
    readers = [node.layer for node in model.wired() if model.input.name in node.inputs]
    return min(layer.entries for layer in readers if isinstance(layer, Embedding))
