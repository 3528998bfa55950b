"""Maps that a convolution or a pooling reads: one of each sample, or several, as those of windows or steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.windows import Window
from dlb.imported.importer import Importer
from dlb.imported.one_axis import add_map, sizes_of
from dlb.imported.views import ValueView, positions, rows_by_sample, view_of
from dlb.workload import layers as L

__all__ = ["Maps", "maps_of_samples"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Maps:
    """What windows read.

    Attributes:
        layer: its map, or the maps of each sample as a film, [N, C, maps, ...].
        order: int64, the places of the maps of all samples, those of the first sample first; None for one map.
    """

    layer: str
    order: Array | None = None

    def sizes(self, numbers: Sequence[int], neutral: int) -> tuple[int, ...]:
        """A number for each axis of a window; ``neutral`` along axes that the file's value does not have."""
        if self.order is None:
            return sizes_of(numbers, neutral)
        return (neutral, *map(int, numbers))

    def pads(self, window: Window) -> tuple[int, ...]:
        """Pads in ONNX's order."""
        return *self.sizes(window.before, 0), *self.sizes(window.after, 0)

    def add(
        self,
        importer: Importer,
        node: onnx.NodeProto,
        layer: L.Layer,
        weights: Mapping[str, Array] | None = None,
    ) -> ValueView:
        """Add a layer that reads it, and return the view of the node's value."""
        if self.order is None:
            return add_map(importer, node, layer, self.layer, weights)
        batch = importer.layers[self.layer].shape[0]
        _, channels, *sizes = importer.value_shape(node.output[0])
        shape = (batch, channels, len(self.order) // batch, *sizes)
        name = importer.add(node, layer, [self.layer], shape, weights)
        maps = positions(shape).swapaxes(1, 2).reshape(-1, channels, *sizes)
        return view_of(name, maps[np.argsort(self.order)], shape)


def maps_of_samples(importer: Importer, name: str) -> Maps | None:
    """Several maps of each sample, [maps of all samples, C, ...], as a film; None if each sample has one."""
    view, index_map = importer.view(name), importer.index_map(name)
    batch, *sample = importer.shape(view)
    if index_map.ndim not in (3, 4) or len(index_map) <= batch:
        return None
    order = rows_by_sample(index_map.reshape(len(index_map), -1)[:, 0] // math.prod(sample), batch)
    if order is None:
        return None
    films = index_map[order].reshape(batch, -1, *index_map.shape[1:]).swapaxes(1, 2)
    found = importer.materialise(name, films)
    whole = found.index_map is None and importer.shape(found) == films.shape
    return Maps(found.layer, order) if whole else None
