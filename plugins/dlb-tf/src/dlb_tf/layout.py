"""How values lie in TensorFlow: feature maps are NHWC, its fast layout on CPU and its default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlb_worker.model import Model, Node

#: Layers that work on each element by itself, so that any order of elements will do.
ELEMENTWISE = {"relu", "relu6", "tanh", "sigmoid", "hard_sigmoid", "gelu", "elementwise", "dropout"}


@dataclass(frozen=True)
class Layout:
    """The order of one value's axes or elements, [N, ...] in both.

    Attributes:
        kind: ``maps`` for feature maps, NHWC, and for [N, C, H * W] with the channels last; ``flat``
            for flattened ones, in NHWC order; else ``plain``, as canonical.
        shape: [C, H, W] of what was flattened.
    """

    kind: Literal["plain", "maps", "flat"] = "plain"
    shape: tuple[int, ...] = ()

    def to_native(self, array: np.ndarray) -> np.ndarray:
        if self.kind == "maps":
            return np.ascontiguousarray(np.moveaxis(array, 1, -1))
        if self.kind == "flat":
            maps = array.reshape(len(array), *self.shape)
            return np.moveaxis(maps, 1, -1).reshape(len(array), -1)
        return array

    def to_canonical(self, array: np.ndarray) -> np.ndarray:
        if self.kind == "maps":
            return np.ascontiguousarray(np.moveaxis(array, -1, 1))
        if self.kind == "flat":
            channels, height, width = self.shape
            maps = array.reshape(len(array), height, width, channels)
            return np.moveaxis(maps, -1, 1).reshape(len(array), -1)
        return array

    def axes(self, rank: int) -> tuple[int, ...]:
        """The canonical axis for each native one; the batch is 0 in both, and left out."""
        plain = tuple(range(1, rank + 1))
        return (*plain[1:], 1) if self.kind == "maps" else plain

    def native_axis(self, axis: int) -> int:
        """The native axis for a canonical one."""
        return {1: 3, 2: 1, 3: 2}[axis] if self.kind == "maps" else axis


def layouts(model: Model) -> dict[str, Layout]:
    """The layout of the input and of every node's value, by name."""
    by_name = {model.input.name: Layout("maps" if len(model.input.shape) == 3 else "plain")}
    for node in model.nodes:
        by_name[node.name] = _layout(node, by_name[node.inputs[0]], model)
    return by_name


def _layout(node: Node, source: Layout, model: Model) -> Layout:
    """The layout of a node's value, whose (first) input has the layout ``source``.

    A flatten that only linear layers read with weights of their own, if need be through elementwise
    ones, keeps NHWC order: their weights are permuted once, when they are loaded, and no activation
    at any step. So do rows and columns that a reshape makes one, where only transposes read it: they
    keep channels last.
    """
    if len(node.shape) == 3:
        return Layout("maps")
    if node.kind in ELEMENTWISE:
        return source
    if source.kind == "maps":
        if node.kind == "flatten" and _absorbed(node, model):
            return Layout("flat", node.input_shape)
        if node.kind == "reshape" and len(node.shape) == 2 and node.shape[0] == node.input_shape[0]:
            readers = {reader.kind for reader in model.readers(node.name)}
            return Layout("maps" if readers == {"transpose"} else "plain")
    return Layout()


def _absorbed(node: Node, model: Model) -> bool:
    """Whether only linear layers read a node's value, and permute their own weights for it."""
    readers = model.readers(node.name)
    return bool(readers) and all(
        (reader.kind == "linear" and not reader.tied_to)
        or (reader.kind in ELEMENTWISE and _absorbed(reader, model))
        for reader in readers
    )
