"""Where the largest numbers are, and numbers in places that another value holds."""

from __future__ import annotations

import math
from typing import Any

import mxnet as mx

from dlb_mxnet.modules import EXPORTING, Operator, plain
from dlb_worker.model import Node

Shape = tuple[int, ...]
#: What stand for operators of ONNX in an export.
TOP_K, GATHER_ELEMENTS = "dlb_top_k", "dlb_gather_elements"


class TopK(Operator):
    """Indices of the largest or smallest numbers; of several, one after the other.

    F.topk and F.argsort put any of equal numbers first, and F.argmax the first.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(axis=node.axis, k=node.k, largest=node.largest)
        self.size = node.input_shape[node.axis - 1]

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        if EXPORTING.get():
            return F.Custom(inputs, op_type=TOP_K, **self.arguments)
        rows = F.BlockGrad(F.swapaxes(plain(F, inputs), self.axis, -1))
        first = F.argmax if self.largest else F.argmin
        found = []
        for _ in range(self.k):
            found.append(first(rows, axis=-1))
            taken = F.one_hot(found[-1], depth=self.size)
            never = F.ones_like(rows) * (-math.inf if self.largest else math.inf)
            rows = F.where(taken, never, rows)
        return F.BlockGrad(F.swapaxes(F.stack(*found, axis=-1), self.axis, -1))


class GatherElements(Operator):
    """Numbers in places along an axis: a take of all numbers of a batch, in rows."""

    def __init__(self, node: Node) -> None:
        value, places = (str(shape) for shape in node.input_shapes)
        super().__init__(axis=node.axis, value_shape=value, places_shape=places)
        before = [*map(max, *node.input_shapes)]
        before[node.axis - 1], before[-1] = before[-1], before[node.axis - 1]
        self.before = tuple(before[:-1])
        self.size, self.count = (shape[node.axis - 1] for shape in node.input_shapes)

    def hybrid_forward(self, F: Any, inputs: Any, places: Any) -> Any:
        if EXPORTING.get():
            return F.Custom(inputs, places, op_type=GATHER_ELEMENTS, **self.arguments)
        rows, indices = (
            F.reshape(self._repeated(F, each, size), shape=(-1, size))
            for each, size in ((inputs, self.size), (places, self.count))
        )
        first = F.cast(F.contrib.arange_like(indices, axis=0), "int64") * self.size
        indices = F.cast(F.clip(indices, 0, self.size - 1), "int64")
        indices = F.broadcast_add(indices, F.expand_dims(first, 1))
        found = F.take(F.reshape(rows, shape=(-1,)), indices, mode="clip")
        found = F.reshape(found, shape=(-1, *self.before, self.count))
        return F.swapaxes(found, self.axis, -1)

    def _repeated(self, F: Any, value: Any, size: int) -> Any:
        rows = F.swapaxes(plain(F, value), self.axis, -1)
        return F.broadcast_to(rows, shape=(0, *self.before, size))


@mx.operator.register(TOP_K)
class TopKShapes(mx.operator.CustomOpProp):
    """The shapes of what stands for a TopK. It is never run."""

    def __init__(self, **attributes: str) -> None:
        super().__init__(need_top_grad=False)
        self.axis, self.k = int(attributes["axis"]), int(attributes["k"])

    def infer_shape(self, shapes: list[Shape]) -> tuple[list[Shape], list[Shape], list[Shape]]:
        (shape,) = shapes
        return shapes, [(*shape[: self.axis], self.k, *shape[self.axis + 1 :])], []


@mx.operator.register(GATHER_ELEMENTS)
class GatherElementsShapes(mx.operator.CustomOpProp):
    """The shapes of what stands for a GatherElements. It is never run."""

    def __init__(self, **attributes: str) -> None:
        super().__init__(need_top_grad=False)
        self.axis = int(attributes["axis"])

    def list_arguments(self) -> list[str]:
        return ["data", "indices"]

    def infer_shape(self, shapes: list[Shape]) -> tuple[list[Shape], list[Shape], list[Shape]]:
        output = [*map(max, *shapes)]
        output[self.axis] = shapes[1][self.axis]
        return shapes, [tuple(output)], []
