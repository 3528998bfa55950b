"""Recognises what a trace has: layers that several operators are, linear layers, and rounded constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from onnx import NodeProto

from dlb_graph.layers.decimals import ROUNDING, is_sixth, unrounded
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.blocks import attention, gelu, hard_sigmoid, layer_normalization
from dlb_graph.truth.copies import repeated_value
from dlb_graph.truth.decomposed_lrn import response_normalization
from dlb_graph.truth.elementwise_blocks import decomposed, prelu
from dlb_graph.truth.layout import before_expand, before_layout
from dlb_graph.truth.linear_parts import part_of_linear
from dlb_graph.truth.merged_windows import RescaledPool, first_windows, rescaled_pool
from dlb_graph.truth.norm_blocks import group_normalization, rms_normalization
from dlb_graph.truth.recognised import Block, LinearOutput, Recognised
from dlb_graph.truth.trace import Trace, attributes_of

__all__ = ["constant_operand", "linear_matrix", "recognise", "scaled_pool"]


def recognise(traced: Trace) -> Recognised:
    """What is recognised in a trace."""
    known = Recognised(traced)
    for node in traced.nodes:
        for output in node.output:
            if output in traced.live:
                _recognise(known, node, output)
    return known


def _recognise(known: Recognised, node: NodeProto, output: str) -> None:
    repeated = repeated_value(known.trace, node, output)
    if repeated is not None:
        known.originals[output] = known.original(repeated)
        return
    for recogniser in _RECOGNISERS.get(node.op_type, ()):
        block = recogniser(known, node)
        if block is not None:
            known.blocks[output] = block
            known.nominal_values.update(block.nominal_values)
            return
    if node.op_type in ("Gemm", "MatMul"):
        matrix = linear_matrix(known.trace, node)
        if matrix is not None:
            biased = known.trace.constant(node, 2) is not None
            known.linear[output] = LinearOutput(len(matrix), biased)
    elif node.op_type == "Split":
        part = part_of_linear(known, output)
        if part is not None:
            known.linear[output] = part.output
    elif node.op_type == "Pow":
        _read_exponent(known, node)
    elif node.op_type in _ARITHMETIC and len(known.trace.live_inputs(node)) == 1:
        _read_arithmetic(known, node, output)


def linear_matrix(trace: Trace, node: NodeProto) -> Array | None:
    """The constant matrix [out, in] that a Gemm or MatMul multiplies by; None for other products.

    A matrix on the left of a MatMul is along the axis before the last.
    """
    left, weight, raw = trace.constant(node, 0), trace.constant(node, 1), attributes_of(node)
    if node.op_type == "MatMul" and left is not None and left.ndim == 2:
        return left
    scaled = any(raw.get(name, 1.0) != 1.0 for name in ("alpha", "beta"))
    if weight is None or weight.ndim != 2 or scaled or raw.get("transA", 0):
        return None
    return weight if raw.get("transB", 0) else weight.T


def constant_operand(trace: Trace, node: NodeProto, index: int) -> Array:
    """The constant that arithmetic with a value reads, of one sample if it is repeated for each."""
    constant = np.asarray(trace.values[before_expand(trace, node.input[index])])
    shape = trace.values[node.input[1 - index]].shape
    axis = trace.batch_axis(shape)
    if constant.ndim == len(shape) and (constant == constant.take([0], axis)).all():
        return constant.take([0], axis)
    return constant


def scaled_pool(trace: Trace, node: NodeProto, index: int) -> RescaledPool | None:
    """The pooling whose output a Mul or Div scales by its constant input ``index``, or None."""
    constant = constant_operand(trace, node, index)
    scale = 1 / constant if node.op_type == "Div" else constant
    value, scale = before_layout(trace, node.input[1 - index], scale)
    windows = first_windows(trace, value)
    if windows is None or windows[0].op_type != "AveragePool":
        return None
    return rescaled_pool(trace, windows[0], scale, windows[1])


def _read_arithmetic(known: Recognised, node: NodeProto, output: str) -> None:
    """A bias of a linear layer, a constant that changes nothing, or the rounded scale of a pooling."""
    trace = known.trace
    if len(node.input) != 2:
        if len(node.input) == 1:
            known.originals[output] = known.original(node.input[0])
        return
    index = 1 if node.input[0] in trace.live else 0
    name, constant = node.input[1 - index], constant_operand(trace, node, index)
    shifts = node.op_type in ("Add", "Sum") or (node.op_type == "Sub" and index == 1)
    scales = node.op_type == "Mul" or (node.op_type == "Div" and index == 1)
    pooling = scaled_pool(trace, node, index) if scales else None
    if pooling is not None:
        exact = pooling.scale if node.op_type == "Mul" else 1 / pooling.scale
        if pooling.channels is None and constant.size == exact.size:
            exact = exact.reshape(constant.shape)
            if np.allclose(constant, exact, rtol=ROUNDING, atol=0):
                known.nominal_values[node.input[index]] = exact
        return
    linear = known.linear_output(name)
    if shifts and linear is not None and not linear.biased and constant.size == linear.features:
        known.linear[output] = LinearOutput(linear.features, biased=True)
    elif constant.size == 1 and np.all(constant == (0 if shifts else 1)) and (shifts or scales):
        known.originals[output] = known.original(name)


def _read_exponent(known: Recognised, node: NodeProto) -> None:
    exponent = known.trace.constant(node, 1)
    if exponent is not None and exponent.size == 1:
        number = float(exponent.ravel()[0])
        if unrounded(number) != number:
            known.nominal_values[node.input[1]] = unrounded(number)


def _normalisation(known: Recognised, node: NodeProto) -> Block | None:
    """The normalisation that ends in a node, or None.

    One group is a layer normalisation too, with a scale for each number. With scales of one, a normalisation of
    features is also one of as many steps: then it is of features.
    """
    groups = group_normalization(known, node)
    if groups is not None and groups.attributes.get("groups", 1) == 1:
        return groups
    return layer_normalization(known, node) or groups or rms_normalization(known, node)


def _hard_operator(known: Recognised, node: NodeProto) -> Block | None:
    """A hard sigmoid as a layer has it, or its product with its input, as if decomposed."""
    raw = attributes_of(node)
    if node.op_type == "HardSigmoid" and not (
        is_sixth(raw.get("alpha", 0.2)) and raw.get("beta", 0.5) == 0.5
    ):
        return None
    return Block(node.op_type, {}, (node.input[0],))


_ARITHMETIC = ("Add", "Sum", "Sub", "Mul", "Div")
_RECOGNISERS: Mapping[str, tuple[Callable[[Recognised, NodeProto], Block | None], ...]] = {
    "Relu": (hard_sigmoid,),
    **dict.fromkeys(("HardSigmoid", "HardSwish"), (_hard_operator,)),
    **dict.fromkeys(("Clip", "Max", "Min"), (hard_sigmoid, decomposed)),
    **dict.fromkeys(("Log", "Neg", "Where"), (decomposed,)),
    **dict.fromkeys(("Gemm", "MatMul"), (attention,)),
    **dict.fromkeys(
        _ARITHMETIC, (gelu, _normalisation, hard_sigmoid, prelu, decomposed, response_normalization)
    ),
}
