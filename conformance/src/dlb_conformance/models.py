"""Small models, and weights and batches that leave no term of a formula at zero or one."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from dlb_graph import workload as W
from dlb_graph.layers import Shape
from dlb_graph.losses import classes_and_places

from .subject import BATCH, PLAIN_LOSS

CLASSES = 5


def chain(shape: Shape, *layers: W.Layer, kind: str = "real") -> W.Model:
    """Layers one after another, called by their type and place: conv1, relu2, ..."""
    nodes = tuple(
        W.Node(name=f"{W.type_name(layer)}{place}", layer=layer)
        for place, layer in enumerate(layers, 1)
    )
    return W.Model(input=W.Input(shape=shape, kind=kind), nodes=nodes)  # type: ignore[arg-type]


def classifier(shape: Shape, *layers: W.Layer, kind: str = "real") -> W.Model:
    """A :func:`chain` that ends in logits: feature maps are flattened first."""
    reached = list(W.infer_shapes(chain(shape, *layers, kind=kind)).values())[-1]
    head: tuple[W.Layer, ...] = (W.Linear(out_features=CLASSES),)
    if len(reached) > 2:
        head = (W.Flatten(), *head)
    return chain(shape, *layers, *head, kind=kind)


def graph(
    shape: Shape, *nodes: tuple[str, W.Layer | str, tuple[str, ...]], kind: str = "real"
) -> W.Model:
    """Layers by name, with the names that each reads. The name of another stands for it and its weights."""
    layers: dict[str, W.Layer] = {}
    made = []
    for name, layer, reads in nodes:
        weights_of = layer if isinstance(layer, str) else ""
        layers[name] = layers[layer] if isinstance(layer, str) else layer
        made.append(W.Node(name=name, layer=layers[name], inputs=reads, weights_of=weights_of))
    return W.Model(
        input=W.Input(shape=shape, kind=kind),  # type: ignore[arg-type]
        nodes=tuple(made),
    )


def busy_model(types: Collection[str]) -> W.Model:
    """A model of these layer types whose steps take long: convolutions, or else linear layers."""
    logits = W.Linear(out_features=64)
    if {"conv", "relu", "flatten"} <= set(types):
        conv = W.Conv(out_channels=32, kernel=(5, 5))
        return chain((8, 32, 32), conv, W.ReLU(), W.Flatten(), logits)
    return chain((1024,), W.Linear(out_features=2048), logits)


def random_weights(model: W.Model, seed: int = 0) -> dict[str, np.ndarray]:
    """Every parameter and state, float32, none of them at a default, activations of order 1."""
    random = np.random.default_rng(seed)
    found = {}
    for name, shape in W.parameter_shapes(model).items():
        parameter = name.split(".")[1]
        normal = random.standard_normal(shape)
        if parameter in ("scale", "variance"):
            value = 0.5 + random.random(shape) * 1.5
        elif len(shape) == 1:
            value = 0.3 * normal
        else:
            value = normal / math.sqrt(math.prod(shape[1:]))
        found[name] = value.astype(np.float32)
    return found


def random_batch(
    model: W.Model,
    dtype: str = "float64",
    *,
    samples: int = BATCH,
    seed: int = 1,
    loss: W.Loss = PLAIN_LOSS,
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (of numbers that float32 holds), and labels as a loss reads them: int64, or real."""
    random = np.random.default_rng(seed)
    shape = (samples, *model.input.shape)
    if model.input.kind == "index":
        entries = min(
            node.layer.entries for node in model.nodes if isinstance(node.layer, W.Embedding)
        )
        inputs = random.integers(0, entries, shape)
    else:
        inputs = random.standard_normal(shape).astype(np.float32).astype(dtype)
    outputs = list(W.infer_shapes(model).values())[-1]
    if loss.targets == "class":
        classes, places = classes_and_places(outputs)
        labels = random.integers(0, classes, (samples, *places))
        if isinstance(loss, W.SoftmaxCrossEntropy) and loss.ignore_index is not None:
            labels.reshape(-1)[::3] = loss.ignore_index
        return inputs, labels
    if isinstance(loss, W.CTC):
        labels = random.integers(0, outputs[1] - 1, (samples, loss.most_labels))
        labels += labels >= loss.blank
        labels[:, 1::2] = labels[:, ::2][:, : labels[:, 1::2].shape[1]]  # repeated ones
        lengths = random.permutation(np.arange(samples) % (loss.most_labels + 1))
        return inputs, np.where(np.arange(loss.most_labels) < lengths[:, None], labels, -1)
    targets = random.standard_normal((samples, *outputs)).astype(np.float32)
    if loss.targets == "share":
        targets = np.clip(targets, 0, 1)  # half of them 0, a sixth 1
    return inputs, targets.astype(dtype)
