"""How values lie in TensorFlow: feature maps are NHWC, its fast layout on CPU and its default.

Films and volumes are NDHWC in a model that reads them, or whose layers know their channels: TensorFlow's
operators take no other. Any other sample of four axes, such as the windows of a map, lies as it is described.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlb_worker.model import Model, Node

#: Layers that work on each element by itself, so that any order of elements will do.
ELEMENTWISE = {"relu", "relu6", "tanh", "sigmoid", "hard_sigmoid", "gelu", "elementwise", "dropout"}
#: Layers without windows that know channels from other axes.
OF_CHANNELS = {"global_average_pool", "batch_norm", "group_norm", "prelu"}


@dataclass(frozen=True)
class Layout:
    """The order of one value's axes or elements, [N, ...] in both.

    Attributes:
        kind: ``maps`` for feature maps, NHWC or NDHWC, and for [N, C, H * W] with the channels last;
            ``flat`` for flattened ones, in that order; else ``plain``, as canonical.
        shape: [C, H, W] or [C, D, H, W] of what was flattened.
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
            channels, *sizes = self.shape
            maps = array.reshape(len(array), *sizes, channels)
            return np.moveaxis(maps, -1, 1).reshape(len(array), -1)
        return array

    def axes(self, rank: int) -> tuple[int, ...]:
        """The canonical axis for each native one; the batch is 0 in both, and left out."""
        plain = tuple(range(1, rank + 1))
        return (*plain[1:], 1) if self.kind == "maps" else plain

    def native_axis(self, axis: int, rank: int) -> int:
        """The native axis for a canonical one, of a sample of so many axes."""
        return 1 + self.axes(rank).index(axis)


def layouts(model: Model) -> dict[str, Layout]:
    """The layout of the input and of every node's value, by name."""
    films = len(model.input.shape) == 4 or any(map(_reads_a_film, model.nodes))
    ranks = {3, 4} if films else {3}
    by_name = {model.input.name: Layout("maps" if len(model.input.shape) in ranks else "plain")}
    for node in model.nodes:
        by_name[node.name] = _layout(node, by_name[node.inputs[0]], model, ranks)
    return by_name


def _reads_a_film(node: Node) -> bool:
    """Whether a layer reads [C, D, H, W] and knows the channels of it."""
    of_channels = node.kind in OF_CHANNELS or "kernel" in node.attributes
    return len(node.input_shape) == 4 and of_channels


def _layout(node: Node, source: Layout, model: Model, ranks: set[int]) -> Layout:
    """The layout of a node's value, whose (first) input has the layout ``source``.

    Args:
        ranks: how many axes a sample of maps has.

    A flatten that only linear layers read with weights of their own, if need be through elementwise
    ones, keeps NHWC order: their weights are permuted once, when they are loaded, and no activation
    at any step. So do rows and columns that a reshape makes one, where only transposes read it: they
    keep channels last.
    """
    if len(node.shape) in ranks:
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
        (reader.kind == "linear" and not reader.tied_to and not _is_shared(reader, model))
        or (reader.kind in ELEMENTWISE and _absorbed(reader, model))
        for reader in readers
    )


def _is_shared(node: Node, model: Model) -> bool:
    """Whether several nodes compute with its parameters."""
    return bool(node.weights_of) or any(other.weights_of == node.name for other in model.nodes)
