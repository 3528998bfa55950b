"""Reads masks: numbers in fixed places that are replaced by one number."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.masks import constant_mask
from dlb.imported.importer import Importer
from dlb.imported.layers import unsupported
from dlb.imported.samples_first import enlarged
from dlb.imported.views import ValueView, of_a_sample
from dlb.workload.primitives import Mask
from dlb_worker.masks import packed

__all__ = ["add_mask", "where"]

Array = npt.NDArray[Any]


def where(importer: Importer, node: onnx.NodeProto) -> ValueView:
    """A Where with a constant condition, one value and one constant number."""
    if importer.trace.constant(node, 0) is None:
        raise unsupported(node, "its condition depends on the input")
    found = constant_mask(importer.trace, node)
    if found is None:
        raise unsupported(
            node, "only one value and one constant number in fixed places are supported"
        )
    if not found.kept.any():
        raise unsupported(node, "makes a constant of the input")
    view = enlarged(importer, node, found.name)
    return view if found.kept.all() else add_mask(importer, node, view, found.kept, found.value)


def add_mask(
    importer: Importer, node: onnx.NodeProto, view: ValueView, kept: Array, value: float
) -> ValueView:
    """A mask of a view.

    Args:
        kept: the places that stay, bool in the view's shape.
        value: what replaces the others.
    """
    shape, index_map = importer.shape(view), importer.index_map_of(view)
    if not np.array_equal(np.sort(index_map, axis=None), np.arange(np.prod(shape))):
        raise unsupported(node, "masks a part of a layer's value")
    canonical = np.empty(kept.size, bool)
    canonical[index_map.ravel()] = kept.ravel()
    sample = of_a_sample(canonical.reshape(shape))
    if sample is None:
        raise unsupported(node, "its mask differs between samples")
    layer = Mask(sizes=sample.shape, kept=packed(sample), value=value)
    return ValueView(importer.add(node, layer, [view.layer], shape), view.index_map)
