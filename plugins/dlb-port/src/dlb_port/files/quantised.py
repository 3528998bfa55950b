"""Two files of which one is the other, quantised.

A quantiser rounds weights and activations to steps, and merges a ReLU into the bounds of the integers after it.
Without its roundings, and with the other file's weights where these are half a step away at most, the quantised
file then is the other one, operator by operator and weight by weight.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb_graph.comparing.counterparts import transpositions
from dlb_graph.comparing.foldings import foldings
from dlb_graph.files.model_file import ModelFile, nodes_within
from dlb_graph.pairs.runs import FilePair, trace_file
from dlb_graph.truth.trace import Trace, attributes_of
from dlb_port.files.weights import weights_of

__all__ = ["quantised_side", "without_rounding"]

Array = npt.NDArray[Any]

_INTEGER_PRODUCTS = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
_LINEAR_PRODUCTS = {"QLinearConv": "Conv", "QLinearMatMul": "MatMul"}
_ROUNDING = {
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "QuantizeLinear",
    *_INTEGER_PRODUCTS,
    *_LINEAR_PRODUCTS,
}
#: What a weight may be off by, in steps: half of one, and float32's rounding of the scale.
_HALF = 0.5 + 1e-3
#: The bound of a ReLU6, as far as integers hold it.
_SIX = 6.0


def quantised_side(pair: FilePair) -> int | None:
    """0 or 1 if only that file computes with integers of few bits; None if neither or both do."""
    quantised = [
        any(node.op_type in _ROUNDING for node in nodes_within(file.model.graph.node))
        for file in (pair.first, pair.second)
    ]
    return quantised.index(True) if sum(quantised) == 1 else None


def without_rounding(pair: FilePair, side: int) -> tuple[FilePair, int] | None:
    """The pair with the quantised file as it would be without rounding, and how many weights were rounded.

    Args:
        side: the place of the quantised file.

    Returns:
        None if a rounded weight is none of the other file's.
    """
    (file, inputs), (plain, plain_inputs) = pair.sides[side], pair.sides[1 - side]
    rounded = _Unrounded(file, trace_file(file, inputs[0]))
    bounded = rounded.written(every_bound=True)
    traced = trace_file(bounded, inputs[0])
    known = traced.values
    passed = {
        name for name, each in rounded.bounds.items() if _passes(known[f"{name}/before"], each)
    }
    own = trace_file(plain, plain_inputs[0])
    candidates = [weight.values for weight in weights_of(own)]
    candidates += [values for values, _ in foldings(own)]
    for name, (values, step) in rounded.weights.items():
        exact = _unrounded(candidates, values, step)
        if exact is None:
            return None
        rounded.weights[name] = (exact, step)
    unrounded = rounded.written(bounds=passed)
    other = replace(pair, first=unrounded) if side == 0 else replace(pair, second=unrounded)
    return other, len(rounded.weights)


def _passes(values: Array, bounds: tuple[float, float]) -> bool:
    """Whether numbers are outside of bounds, so that these are an operator of the other file."""
    return bool((values < bounds[0]).any() or (values > bounds[1]).any())


def _unrounded(candidates: Sequence[Array], values: Array, step: Array) -> Array | None:
    """The first of some weights, in the layout of another, of which no number is over half a step away."""
    for candidate in candidates:
        if candidate.size != values.size or candidate.dtype.kind != "f":
            continue
        for arranged in transpositions(candidate, values):
            exact = arranged.reshape(values.shape)
            if (np.abs(exact - values) <= _HALF * step).all():
                return exact
    return None


@dataclass
class _Unrounded:
    """A quantised model, and its nodes without rounding.

    Attributes:
        weights: by name, what integers stand for, and the size of their steps.
        bounds: by name of a value that is rounded, the bounds that a ReLU or a ReLU6 may have become.
    """

    file: ModelFile
    traced: Trace
    weights: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)

    def written(self, bounds: Collection[str] = (), *, every_bound: bool = False) -> ModelFile:
        """The model without rounding, with some bounds as operators, or with all."""
        model = onnx.ModelProto()
        model.CopyFrom(self.file.model)
        scales = self._scales_after()
        ones = {name for name, _ in scales.values()}
        nodes: list[onnx.NodeProto] = []
        for node in self.file.model.graph.node:
            for new in self._new(node, scales, ones):
                limits = self.bounds.get(new.output[0])
                if limits and (every_bound or new.output[0] in bounds):
                    nodes += _bounded(new, limits)
                else:
                    nodes.append(new)
        del model.graph.node[:]
        del model.graph.value_info[:]
        model.graph.node.extend(nodes)
        held = {tensor.name for tensor in model.graph.initializer}
        model.graph.initializer.extend(
            numpy_helper.from_array(values.astype(np.float32), name)
            for name, (values, _) in self.weights.items()
            if name not in held
        )
        for value in model.graph.output:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
        return replace(self.file, model=model)

    def _new(
        self, node: onnx.NodeProto, scales: Mapping[str, tuple[str, Array]], ones: Set[str]
    ) -> Iterator[onnx.NodeProto]:
        """The nodes in the place of one."""
        operator, output = node.op_type, node.output[0]
        if output not in self.traced.live and operator != "DequantizeLinear":
            yield node
        elif operator == "DequantizeLinear" and output not in self.traced.live:
            values = self.traced.values[output]
            scale = self._along(node, 1, values.ndim, attributes_of(node).get("axis", 1))
            self.weights.setdefault(output, (values, np.broadcast_to(scale, values.shape)))
        elif operator == "Gather" and (scaled := self._table_scale(node)) is not None:
            yield self._lookup(node, scaled)
        elif operator in ("DequantizeLinear", "DynamicQuantizeLinear"):
            yield helper.make_node("Identity", [node.input[0]], [output], node.name)
        elif operator == "QuantizeLinear":
            self._bound(node, output, node.input[1], node.input[2:])
            yield helper.make_node("Identity", [node.input[0]], [output], node.name)
        elif operator in _LINEAR_PRODUCTS:
            self._bound(node, output, node.input[6], node.input[7:8])
            yield self._linear_product(node)
        elif operator in _INTEGER_PRODUCTS:
            yield self._integer_product(node, scales)
        elif output in ones:  # the scale of a product, which is part of its weights
            return
        elif operator == "Mul" and not ones.isdisjoint(node.input):
            (value,) = (name for name in node.input if name not in ones)
            yield helper.make_node("Identity", [value], [output], node.name)
        else:
            yield node

    def _scales_after(self) -> dict[str, tuple[str, Array]]:
        """By integer product of dynamic quantisation, what scales it, and the share of its weights."""
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.traced.nodes:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        dynamic = {
            node.output[1] for node in self.traced.nodes if node.op_type == "DynamicQuantizeLinear"
        }
        found = {}
        for node in self.traced.nodes:
            if node.op_type not in _INTEGER_PRODUCTS:
                continue
            casts = readers.get(node.output[0], [])
            last = readers.get(casts[0].output[0], []) if len(casts) == 1 else []
            if len(last) != 1 or casts[0].op_type != "Cast" or last[0].op_type != "Mul":
                continue
            (scale,) = (name for name in last[0].input if name != casts[0].output[0])
            product = self.traced.producers.get(scale)
            if product is None or product.op_type != "Mul" or dynamic.isdisjoint(product.input):
                continue
            others = [name for name in product.input if name not in self.traced.live]
            if others:
                found[node.output[0]] = (scale, self.traced.values[others[0]])
        return found

    def _table_scale(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        """The node that scales the rows of a constant table of integers that a Gather looks up."""
        if node.input[0] in self.traced.live:
            return None
        readers = [other for other in self.traced.nodes if node.output[0] in other.input]
        scales = len(readers) == 1 and readers[0].op_type == "DequantizeLinear"
        return readers[0] if scales and self.traced.values[readers[0].input[1]].size == 1 else None

    def _lookup(self, node: onnx.NodeProto, scaled: onnx.NodeProto) -> onnx.NodeProto:
        """A Gather of a table of integers as one of real numbers."""
        integers = self.traced.values[node.input[0]].astype(np.float64)
        zero = self.traced.values[scaled.input[2]].item() if len(scaled.input) > 2 else 0
        step = np.full(integers.shape, float(self.traced.values[scaled.input[1]].item()))
        table = f"{node.input[0]}/real"
        self.weights.setdefault(table, ((integers - zero) * step, step))
        names = [table, node.input[1]]
        return helper.make_node("Gather", names, node.output[:1], node.name, **attributes_of(node))

    def _linear_product(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """QLinearConv or QLinearMatMul as a product of real numbers."""
        conv = node.op_type == "QLinearConv"
        names = [node.input[0], self._weight(node, 3, 4, 5, 0 if conv else -1)]
        if conv and len(node.input) > 8:
            step = self.traced.values[node.input[1]] * self.traced.values[node.input[4]]
            values = self.traced.values[node.input[8]]
            step = np.broadcast_to(step.reshape(-1), values.shape)
            names.append(f"{node.input[8]}/real")
            self.weights.setdefault(names[-1], (values * step, step))
        attributes = attributes_of(node) if conv else {}
        operator = _LINEAR_PRODUCTS[node.op_type]
        return helper.make_node(operator, names, node.output[:1], node.name, **attributes)

    def _integer_product(
        self, node: onnx.NodeProto, scales: Mapping[str, tuple[str, Array]]
    ) -> onnx.NodeProto:
        """ConvInteger or MatMulInteger as a product with weights that are scaled."""
        conv = node.op_type == "ConvInteger"
        zero = 3 if len(node.input) > 3 else None
        _, scale = scales.get(node.output[0], ("", np.ones(())))
        weight = self._weight(node, 1, None, zero, 0 if conv else -1, scale)
        attributes = attributes_of(node) if conv else {}
        operator = _INTEGER_PRODUCTS[node.op_type]
        return helper.make_node(
            operator, [node.input[0], weight], node.output[:1], node.name, **attributes
        )

    def _weight(
        self,
        node: onnx.NodeProto,
        place: int,
        scale: int | None,
        zero: int | None,
        axis: int,
        given: Array | None = None,
    ) -> str:
        """The name of an input as real numbers; that of a value that depends on the input is its own."""
        name: str = node.input[place]
        if name in self.traced.live:
            return name
        integers = self.traced.values[name].astype(np.float64)
        shape = [1] * integers.ndim
        shape[axis] = -1
        step = self._along(node, scale, integers.ndim, axis) if scale is not None else given
        step = np.asarray(step, np.float64)
        if scale is None and step.size > 1:
            step = step.reshape(shape)
        moved = integers - (self._along(node, zero, integers.ndim, axis) if zero is not None else 0)
        step = np.broadcast_to(step.reshape(()) if step.size == 1 else step, integers.shape)
        self.weights.setdefault(f"{name}/real", (moved * step, step))
        return f"{name}/real"

    def _along(self, node: onnx.NodeProto, place: int, rank: int, axis: int) -> Array:
        """A scale or a zero point, along an axis if there are several numbers."""
        values = np.asarray(self.traced.values[node.input[place]], np.float64)
        shape = [1] * rank
        if values.size > 1:
            shape[axis] = -1
        return values.reshape(shape)

    def _bound(self, node: onnx.NodeProto, output: str, scale: str, zeros: Collection[str]) -> None:
        """Note the bounds of a value that is rounded, if they may be those of a ReLU or a ReLU6."""
        if scale in self.traced.live or self.traced.values[scale].size > 1:
            return
        step = float(self.traced.values[scale].item())
        limits = np.iinfo(self.traced.values[output].dtype)
        zero = int(self.traced.values[next(iter(zeros))].item()) if list(zeros) else 0
        high = (limits.max - zero) * step
        if zero == limits.min and node.input[0] in self.traced.producers:
            self.bounds[output] = (0.0, _SIX if abs(high - _SIX) <= step else np.inf)


def _bounded(node: onnx.NodeProto, limits: tuple[float, float]) -> list[onnx.NodeProto]:
    """A node and the ReLU or ReLU6 after it."""
    (output,) = node.output
    before = onnx.NodeProto()
    before.CopyFrom(node)
    before.output[0] = f"{output}/before"
    if limits[1] == np.inf:
        return [before, helper.make_node("Relu", [before.output[0]], [output])]
    name = f"{output}/bounds"
    names = [f"{name}{place}" for place in range(len(limits))]
    bounds = [
        helper.make_node("Constant", [], [each], value_float=limit)
        for each, limit in zip(names, limits)
    ]
    clip = helper.make_node("Clip", [before.output[0], f"{name}0", f"{name}1"], [output])
    return [before, *bounds, clip]
