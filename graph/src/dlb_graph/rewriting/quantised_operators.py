"""ONNX Runtime's operators of quantised numbers, as ONNX's own of what these stand for.

Each dequantises its inputs, computes an operator of real numbers, and quantises the result. Their meaning:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dlb_graph.rewriting.node_writer import NodeWriter, Rule

__all__ = ["RULES"]


#: The first operator set in which scales lie along an axis.
_ALONG_AN_AXIS = 13


def _given(*names: str) -> list[str]:
    return [name for name in names if name]


def _real(write: NodeWriter, place: int, **axis: int) -> str:
    """An input as real numbers; its scale and zero point come after it."""
    return _real_of(write, *(write.input(number) for number in range(place, place + 3)), **axis)


def _real_of(write: NodeWriter, *names: str, **axis: int) -> str:
    """Integers as real numbers, by a scale, which may lie along an axis, and a zero point."""
    along: dict[str, Any] = axis if write.opset >= _ALONG_AN_AXIS else {}
    return write.add("DequantizeLinear", *_given(*names), **along)


def _end(write: NodeWriter, value: str, place: int) -> bool:
    """Quantise the result by the scale and the zero point at a place and after it."""
    scale, zero = write.input(place), write.input(place + 1)
    return write.end(write.add("QuantizeLinear", value, *_given(scale, zero)))


def _of_one(operator: str, *attributes: str) -> Rule:
    """An operator of one value: with it, the scale and zero point of it and of the result."""

    def rule(write: NodeWriter) -> bool:
        if write.attributes.get("channels_last", 0):
            return False
        settings = {name: write.attributes[name] for name in attributes if name in write.attributes}
        return _end(write, write.add(operator, _real(write, 0), **settings), 3)

    return rule


def _of_two(operator: str) -> Rule:
    def rule(write: NodeWriter) -> bool:
        return _end(write, write.add(operator, _real(write, 0), _real(write, 3)), 6)

    return rule


def _concat(write: NodeWriter) -> bool:
    values = [_real(write, place) for place in range(2, len(write.node.input), 3)]
    return _end(write, write.add("Concat", *values, axis=write.attributes["axis"]), 0)


def _where(write: NodeWriter) -> bool:
    chosen = write.add("Where", write.input(0), _real(write, 1), _real(write, 4))
    return _end(write, chosen, 7)


def _gemm(write: NodeWriter) -> bool:
    """The integers that are added have both scales; without a scale of its own the result stays real."""
    settings = {
        name: write.attributes[name] for name in ("transA", "transB") if name in write.attributes
    }
    second = _real(write, 3, axis=0 if settings.get("transB", 0) else 1)
    value = write.add("Gemm", _real(write, 0), second, **settings)
    if write.input(6):
        scale = write.add("Mul", write.input(1), write.input(4))
        value = write.add("Add", value, _real_of(write, write.input(6), scale, axis=0))
    alpha = write.attributes.get("alpha", 1.0)
    value = value if alpha == 1.0 else write.add("Mul", value, write.tensor(alpha))
    return _end(write, value, 7) if write.input(7) else write.end(value)


def _product_to_real(write: NodeWriter) -> bool:
    """MatMulIntegerToFloat: two of integers, both scales, both zero points, and what is added."""
    first = write.add("DequantizeLinear", *_given(*(write.input(place) for place in (0, 2, 4))))
    second = write.add("DequantizeLinear", *_given(*(write.input(place) for place in (1, 3, 5))))
    return write.end(write.sum(write.add("MatMul", first, second), write.input(6)))


def _dynamic_product(write: NodeWriter, x: str, weight: str, scale: str, zero: str) -> str:
    """A value, quantised by its least and largest number, times a matrix of integers."""
    names = [f"{write.node.output[0]}/{len(write.nodes)}/{part}" for part in ("q", "scale", "zero")]
    write.add_all("DynamicQuantizeLinear", [x], names)
    product = write.add("MatMulInteger", names[0], weight, names[2], *_given(zero))
    return write.add(
        "Mul", write.add("Cast", product, to=write.element), write.add("Mul", names[1], scale)
    )


def _backwards(write: NodeWriter, name: str) -> str:
    return write.add("Slice", name, *(write.tensor([n], np.int64) for n in (-1, -(2**62), 0, -1)))


def _lstm(write: NodeWriter) -> bool:
    """DynamicQuantizeLSTM: all steps are quantised at once, the state at each. No peepholes or lengths."""
    attributes, x = write.attributes, write.input(0)
    settings = {name: value for name, value in attributes.items() if value}
    if settings.keys() - {"direction", "hidden_size"} or write.input(4) or write.input(7):
        return False
    size, direction = attributes["hidden_size"], attributes.get("direction", "forward")
    backward = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[direction]
    batch = write.add(
        "Slice", write.add("Shape", x), write.tensor([1], np.int64), write.tensor([2], np.int64)
    )
    zeros = write.add(
        "ConstantOfShape", write.add("Concat", batch, write.tensor([size], np.int64), axis=0)
    )
    ends = list[list[str]]()
    for place, reverse in enumerate(backward):
        of_x, of_state = (
            [write.place(write.input(k), place) if write.input(k) else "" for k in (first, *others)]
            for first, *others in ((1, 8, 9), (2, 10, 11))
        )
        gates = _dynamic_product(write, x, *of_x)
        if write.input(3):
            gates = write.sum(
                gates, *write.cut(write.place(write.input(3), place), 4 * size, 8 * size)
            )
        gates = _backwards(write, gates) if reverse else gates
        states = [write.place(write.input(k), place) if write.input(k) else zeros for k in (5, 6)]
        inner = write.inner()
        state, cell, step = (f"{inner.node.output[0]}/{name}" for name in ("state", "cell", "step"))
        both = inner.add("Add", step, _dynamic_product(inner, state, *of_state))
        # In the order of ONNX: input, output, forget, cell.
        gate = inner.parts(both, 4)
        i, o, f = (inner.add("Sigmoid", name) for name in gate[:3])
        kept = inner.add("Mul", i, inner.add("Tanh", gate[3]))
        kept = inner.add("Add", inner.add("Mul", f, cell), kept)
        value = inner.add("Mul", o, inner.add("Tanh", kept))
        body = inner.body([state, cell, step], [value, kept, inner.add("Identity", value)])
        names = [f"{write.node.output[0]}/{place}/{part}" for part in ("h", "c", "y")]
        write.add_all("Scan", [*states, gates], names, body=body, num_scan_inputs=1)
        names[2] = _backwards(write, names[2]) if reverse else names[2]
        ends.append(names)
    for number, (part, axis) in enumerate(zip((2, 0, 1), (1, 0, 0))):
        if write.uses(number):
            raised = [write.raised(names[part], axis) for names in ends]
            write.end(write.joined(raised, axis), number)
    return True


def _quantize(write: NodeWriter, operator: str) -> bool:
    settings = {name: write.attributes[name] for name in ("axis",) if name in write.attributes}
    return write.end(write.add(operator, *_given(*write.node.input), **settings))


_WINDOWS = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
RULES: dict[str, Rule] = {
    "DynamicQuantizeLSTM": _lstm,
    "DequantizeLinear": lambda write: _quantize(write, "DequantizeLinear"),
    "MatMulIntegerToFloat": _product_to_real,
    "QGemm": _gemm,
    "QLinearAdd": _of_two("Add"),
    "QLinearAveragePool": _of_one("AveragePool", *_WINDOWS),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _of_one("GlobalAveragePool"),
    "QLinearLeakyRelu": _of_one("LeakyRelu", "alpha"),
    "QLinearMul": _of_two("Mul"),
    "QLinearSigmoid": _of_one("Sigmoid"),
    "QLinearSoftmax": _of_one("Softmax", "axis"),
    "QLinearWhere": _where,
    "QuantizeLinear": lambda write: _quantize(write, "QuantizeLinear"),
}
