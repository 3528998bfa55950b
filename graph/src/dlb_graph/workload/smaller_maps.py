"""A model on smaller feature maps, for checks that larger ones would not make stronger.

Steps of an optimizer and weights at their extremes say the same of a map of 84 x 84 pixels as of one of
224 x 224, at a seventh of the cost. Forward passes and gradients are compared at the run's own size, and so are
the audited steps of the run.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dlb_graph.errors import WorkloadError
from dlb_graph.layers.windowed import Windowed
from dlb_graph.workload.model import Model
from dlb_graph.workload.shapes import infer_shapes, parameter_shapes

__all__ = ["on_smaller_maps"]

#: Sizes that are tried, in eighths of the input's.
EIGHTHS = range(2, 7)
#: A map that had so many places on an axis keeps as many.
LEAST = 2


def on_smaller_maps(model: Model) -> Model:
    """The model on the smallest input that exercises each layer as its own does; itself if there is none.

    Parameters are the same. No map that had two places on an axis has fewer, and no window is larger than
    its map that was not.
    """
    if len(model.input.shape) != 3:
        return model
    whole = infer_shapes(model)
    channels, *size = model.input.shape
    for eighths in EIGHTHS:
        shape = (channels, *(count * eighths // 8 for count in size))
        smaller = msgspec.structs.replace(
            model, input=msgspec.structs.replace(model.input, shape=shape)
        )
        try:
            shapes = infer_shapes(smaller)
        except WorkloadError:
            continue
        alike = parameter_shapes(smaller) == parameter_shapes(model)
        if alike and _exercises(smaller, shapes, whole):
            return smaller
    return model


def _exercises(
    model: Model, shapes: Mapping[str, tuple[int, ...]], whole: Mapping[str, tuple[int, ...]]
) -> bool:
    for node in model.wired():
        for name in (*node.inputs, node.name):
            if any(size < min(own, LEAST) for size, own in zip(shapes[name], whole[name])):
                return False
        if isinstance(node.layer, Windowed):
            kernel = node.layer.kernel
            dilation = getattr(node.layer, "dilation", (1,) * len(kernel))
            reaches = [spread * (size - 1) + 1 for spread, size in zip(dilation, kernel)]
            sizes = zip(reaches, shapes[node.inputs[0]][1:], whole[node.inputs[0]][1:])
            if any(size < min(own, reach) for reach, size, own in sizes):
                return False
    return True
