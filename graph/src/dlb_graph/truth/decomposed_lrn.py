"""Local response normalisation that an exporter decomposed into several operators."""

from __future__ import annotations

import numpy as np
import onnx

from dlb_graph.layers.decimals import decimal, six_digits
from dlb_graph.truth.layout import LAYOUT
from dlb_graph.truth.recognised import Block, Recognised
from dlb_graph.truth.trace import Trace, attributes_of

__all__ = ["response_normalization"]


def response_normalization(known: Recognised, end: onnx.NodeProto) -> Block | None:
    """The LRN that ends in a Div, as torch and MXNet write it, or None.

    ``x / (bias + alpha * mean of squares over the channels around) ** beta``. The mean is a
    three-dimensional average pooling of the padded squares, with the channels as an axis. It counts
    the padding.
    """
    trace = known.trace
    if end.op_type != "Div" or not trace.live.issuperset(end.input):
        return None
    x, denominator = end.input
    power = _producer(trace, denominator, "Pow")
    if power is None:
        return None
    beta = _number(trace, power.input[1])
    added, bias = _input_and_number(trace, power.input[0], "Add")
    pooled, alpha = _input_and_number(trace, added, "Mul")
    pool = _producer(trace, pooled, "AveragePool")
    if pool is None or beta is None or bias is None or alpha is None:
        return None
    pool_attributes = attributes_of(pool)
    size, *other_sizes = pool_attributes["kernel_shape"]
    pads = pool_attributes.get("pads", [0] * 6)
    padding = _producer(trace, pool.input[0], "Pad")
    squared = pool.input[0] if padding is None else padding.input[0]
    before = pads[0]
    if padding is not None:
        widths = np.asarray(attributes_of(padding).get("pads", trace.constant(padding, 1)))
        if len(widths) != 10 or np.count_nonzero(np.delete(widths, (2, 7))):
            return None
        before += int(widths[2])
    square = _producer(trace, squared, "Mul", "Pow")
    if square is None or any(
        known.original(name) != known.original(x) for name in trace.live_inputs(square)
    ):
        return None
    if square.op_type == "Pow" and _number(trace, square.input[1]) != 2.0:
        return None
    if other_sizes != [1, 1] or set(pool_attributes.get("strides", [1])) != {1}:
        return None
    if any(pads) and not pool_attributes.get("count_include_pad", 0):
        return None
    attributes = {
        "size": int(size),
        "before": int(before),
        "alpha": six_digits(alpha),
        "beta": six_digits(beta),
        "bias": six_digits(bias),
    }
    return Block("LRN", attributes, (x,), nominal_values=_constants(trace, end))


def _producer(trace: Trace, name: str, *kinds: str) -> onnx.NodeProto | None:
    """The node that produces a value, layout operators skipped, if it is of one of the kinds."""
    node = trace.producers.get(name)
    while node is not None and node.op_type in LAYOUT:
        node = trace.producers.get(node.input[0])
    return node if node is not None and node.op_type in kinds else None


def _number(trace: Trace, name: str) -> float | None:
    """The value of a constant that is a single number, else None."""
    if name in trace.live or trace.values[name].size != 1:
        return None
    return float(trace.values[name].ravel()[0])


def _input_and_number(trace: Trace, name: str, kind: str) -> tuple[str, float | None]:
    """The live input and the constant number of a node that has one of each."""
    node = _producer(trace, name, kind)
    live = [] if node is None else trace.live_inputs(node)
    if node is None or len(live) != 1:
        return "", None
    (constant,) = (name for name in node.input if name != live[0])
    return live[0], _number(trace, constant)


def _constants(trace: Trace, node: onnx.NodeProto) -> dict[str, float]:
    """The constants of a decomposed LRN that ends in a node, by name, as decimals."""
    constants, waiting = {}, [node.input[1]]
    while waiting:
        name = waiting.pop()
        if name not in trace.live:
            constants[name] = decimal(float(np.ravel(trace.values[name])[0]))
        elif trace.producers[name].op_type in ("Pow", "Add", "Mul"):
            waiting += trace.producers[name].input
    return constants
