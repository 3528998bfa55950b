"""How values lie in TensorFlow: feature maps are NHWC, its fast layout on CPU and its default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlb import workload as W

#: Layers that work on each element by itself, so that any order of elements will do.
ELEMENTWISE = (*W.layers.Activation, W.Dropout)


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

    def axes(self, rank: int) -> tuple[int, ...]:
        """The canonical axis, the batch being 0, of each native one beside it."""
        plain = tuple(range(1, rank + 1))
        return (*plain[1:], 1) if self.kind == "maps" else plain

    def to_canonical(self, array: np.ndarray) -> np.ndarray:
        if self.kind == "maps":
            return np.ascontiguousarray(np.moveaxis(array, -1, 1))
        if self.kind == "flat":
            channels, height, width = self.shape
            maps = array.reshape(len(array), height, width, channels)
            return np.moveaxis(maps, -1, 1).reshape(len(array), -1)
        return array


def layouts(model: W.Model) -> dict[str, Layout]:
    """The layout of the input and of every node's value, by name.

    A flatten that only linear layers read with weights of their own, if need be through elementwise
    ones, keeps NHWC order: their weights are permuted once, when they are loaded, and no activation
    at any step. Likewise rows and columns that a reshape makes one, where only transposes read it,
    keep channels last.
    """
    shapes = W.infer_shapes(model)
    found = {model.input.name: Layout("maps" if len(model.input.shape) == 3 else "plain")}
    for node in model.wired():
        source = found[node.inputs[0]]
        if len(shapes[node.name]) == 3:
            found[node.name] = Layout("maps")
        elif isinstance(node.layer, W.Flatten) and source.kind == "maps":
            absorbed = _absorbed(node.name, model)
            found[node.name] = Layout("flat", shapes[node.inputs[0]]) if absorbed else Layout()
        elif isinstance(node.layer, W.Reshape) and source.kind == "maps":
            kept = shapes[node.name][0] == shapes[node.inputs[0]][0] and len(shapes[node.name]) == 2
            turned = kept and _read_by(node.name, model, W.Transpose)
            found[node.name] = Layout("maps") if turned else Layout()
        elif isinstance(node.layer, ELEMENTWISE):
            found[node.name] = source
        else:
            found[node.name] = Layout()
    return found


def same_order(shape: tuple[int, ...]) -> bool:
    """Whether maps [C, H, W] flatten alike in NCHW and in NHWC."""
    return shape[0] == 1 or shape[1:] == (1, 1)


def _read_by(name: str, model: W.Model, kind: type) -> bool:
    """Whether layers of one kind alone read a value."""
    readers = [node for node in model.wired() if name in node.inputs]
    return bool(readers) and all(isinstance(reader.layer, kind) for reader in readers)


def _absorbed(name: str, model: W.Model) -> bool:
    readers = [node for node in model.wired() if name in node.inputs]
    return bool(readers) and all(
        (isinstance(reader.layer, W.Linear) and not reader.layer.tied_to)
        or (isinstance(reader.layer, ELEMENTWISE) and _absorbed(reader.name, model))
        for reader in readers
    )


def canonical_axis(axis: int, layout: Layout) -> int:
    """The native axis of a canonical one."""
    return {1: 3, 2: 1, 3: 2}[axis] if layout.kind == "maps" else axis
