"""Poolings: gluon's own, and those that MXNet does not have as the registry needs them."""

from __future__ import annotations

import ast
from functools import reduce
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock, nn

from dlb_mxnet.modules import EXPORTING, Operator, Padded, plain
from dlb_worker.model import Node
from dlb_worker.poolings import average_factors, even_pads, reaching_pads, rounds_up

Shape = tuple[int, ...]
#: What stands for a max pooling with dilation in an export, as one operator.
STAND_IN = "dlb_dilated_max_pool"
#: Blocks by the number of axes of their windows.
MAX_POOLS = {2: nn.MaxPool2D, 3: nn.MaxPool3D}
AVERAGE_POOLS = {2: nn.AvgPool2D, 3: nn.AvgPool3D}
WHOLE_MAPS = {2: nn.GlobalAvgPool2D, 3: nn.GlobalAvgPool3D}


class PaddedAverage(Padded):
    """Average pooling over the padding, and a factor where the padding is not to be counted."""

    def __init__(self, layer: HybridBlock, pads: Shape, factor: np.ndarray, dtype: str) -> None:
        super().__init__(layer, pads, 0.0)
        with self.name_scope():
            weight = mx.nd.array(factor[None, None], dtype=dtype)
            self.weight = self.params.get_constant("weight", weight)

    def hybrid_forward(self, F: Any, inputs: Any, weight: Any = None) -> Any:
        return F.broadcast_mul(super().hybrid_forward(F, inputs), weight)


class DilatedMaxPool(Operator):
    """Composed of slices and maximum, along one axis after another, since MXNet has none.

    Of two equal numbers, the operator gives the first the gradient. The last axis comes first, so that the
    first of a window gets it. It is exported as one operator.

    Args:
        size: of the maps, height and width, or depth too.
    """

    def __init__(self, kernel: Shape, stride: Shape, dilation: Shape, size: Shape) -> None:
        super().__init__(kernel=kernel, stride=stride, dilation=dilation)
        self.size = size

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        if EXPORTING.get():
            return F.Custom(inputs, op_type=STAND_IN, **self.arguments)
        inputs = plain(F, inputs)  # a slice may fail in oneDNN's layouts
        sizes = [*zip(self.size, self.kernel, self.stride, self.dilation)]
        for axis in reversed(range(len(sizes))):
            size, kernel, stride, dilation = sizes[axis]
            last = (size - dilation * (kernel - 1) - 1) // stride * stride + 1
            before = (None,) * (axis + 2)
            taps = [
                F.slice(
                    inputs,
                    begin=(*before, start),
                    end=(*before, start + last),
                    step=(*(1 for _ in before), stride),
                )
                for start in range(0, dilation * kernel, dilation)
            ]
            inputs = reduce(F.broadcast_maximum, taps)
        return inputs


@mx.operator.register(STAND_IN)
class StandIn(mx.operator.CustomOpProp):
    """The shapes of a max pooling of ONNX. It is never run."""

    def __init__(self, **attributes: str) -> None:
        super().__init__(need_top_grad=False)
        names = ("kernel", "stride", "dilation")
        self.sizes = [*zip(*(ast.literal_eval(attributes[name]) for name in names))]

    def infer_shape(self, shapes: list[Shape]) -> tuple[list[Shape], list[Shape], list[Shape]]:
        windows = (
            (size - dilation * (kernel - 1) - 1) // stride + 1
            for size, (kernel, stride, dilation) in zip(shapes[0][2:], self.sizes)
        )
        return shapes, [(*shapes[0][:2], *windows)], []


def max_pool(node: Node) -> HybridBlock:
    up = _rounds_up(node)
    axes, pads = len(node.kernel), reaching_pads(node)
    if max(node.dilation) > 1:
        padded = zip(pads[:axes], node.input_shape[1:], pads[axes:])
        pool = DilatedMaxPool(node.kernel, node.stride, node.dilation, tuple(map(sum, padded)))
        return Padded(pool, pads, float("-inf")) if any(pads) else pool
    if up is not None:
        return MAX_POOLS[axes](node.kernel, node.stride, node.pads[:axes], ceil_mode=up)
    return Padded(MAX_POOLS[axes](node.kernel, node.stride), pads, float("-inf"))


def average_pool(node: Node, dtype: str) -> HybridBlock:
    up, axes = _rounds_up(node), len(node.kernel)
    kind = AVERAGE_POOLS[axes]
    # MXNet can round up here too, but ONNX Runtime before 1.31 then counts all of an exported kernel.
    counted = node.count_include_pad and any(node.pads)
    if up is not None and not (up and counted):
        return kind(
            node.kernel, node.stride, node.pads[:axes], ceil_mode=up, count_include_pad=counted
        )
    pool = kind(node.kernel, node.stride)
    pads, factor = reaching_pads(node), average_factors(node)
    if (factor == 1).all():
        return Padded(pool, pads, 0.0)
    return PaddedAverage(pool, pads, factor, dtype)


def global_average_pool(node: Node) -> HybridBlock:
    return WHOLE_MAPS[len(node.input_shape) - 1]()


def _rounds_up(node: Node) -> bool | None:
    """How MXNet's own pooling rounds; None where MXNet has no such pooling. Its pads are even."""
    return rounds_up(node) if even_pads(node) else None
