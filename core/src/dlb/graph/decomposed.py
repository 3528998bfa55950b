"""Layers that exporters write out as several operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from dlb.graph.decimals import decimal, six_digits
from dlb.graph.layout import LAYOUT
from dlb.graph.trace import Trace, attributes_of

__all__ = ["local_response_normalization", "numbers_of_normalization"]


def local_response_normalization(
    trace: Trace, source: Mapping[str, int], division: onnx.NodeProto
) -> dict[str, Any] | None:
    """Attributes of the LRN that ends in a Div, as torch and MXNet write it, or None.

    ``x / (bias + alpha * mean of squares over the channels around) ** beta``, where the mean is a
    three-dimensional average pooling of the padded squares with the channels as an axis, which
    counts the padding.
    """
    x, denominator = division.input
    power = _maker(trace, denominator, "Pow")
    if power is None:
        return None
    beta = _number(trace, power.input[1])
    added, bias = _with_number(trace, power.input[0], "Add")
    pooled, alpha = _with_number(trace, added, "Mul")
    pool = _maker(trace, pooled, "AveragePool")
    if pool is None or beta is None or bias is None or alpha is None:
        return None
    given = attributes_of(pool)
    size, *others = given["kernel_shape"]
    pads = given.get("pads", [0] * 6)
    padding = _maker(trace, pool.input[0], "Pad")
    squared = pool.input[0] if padding is None else padding.input[0]
    before = pads[0]
    if padding is not None:
        widths = np.asarray(attributes_of(padding).get("pads", trace.constant(padding, 1)))
        if len(widths) != 10 or np.count_nonzero(np.delete(widths, (2, 7))):
            return None
        before += int(widths[2])
    square = _maker(trace, squared, "Mul", "Pow")
    if square is None or any(source[name] != source[x] for name in _live(trace, square)):
        return None
    if square.op_type == "Pow" and _number(trace, square.input[1]) != 2.0:
        return None
    if others != [1, 1] or set(given.get("strides", [1])) != {1}:
        return None
    if any(pads) and not given.get("count_include_pad", 0):
        return None
    return {
        "size": int(size),
        "before": int(before),
        "alpha": six_digits(alpha),
        "beta": six_digits(beta),
        "bias": six_digits(bias),
    }


def _maker(trace: Trace, name: str, *kinds: str) -> onnx.NodeProto | None:
    """The node behind a value, layout operators passed over, if it is of one of the kinds."""
    node = trace.producers.get(name)
    while node is not None and node.op_type in LAYOUT:
        node = trace.producers.get(node.input[0])
    return node if node is not None and node.op_type in kinds else None


def _number(trace: Trace, name: str) -> float | None:
    if name in trace.live or trace.values[name].size != 1:
        return None
    return float(trace.values[name].ravel()[0])


def _with_number(trace: Trace, name: str, kind: str) -> tuple[str, float | None]:
    """The live input and the number of a node that has one of each."""
    node = _maker(trace, name, kind)
    live = [] if node is None else _live(trace, node)
    if node is None or len(live) != 1:
        return "", None
    (other,) = (each for each in node.input if each != live[0])
    return live[0], _number(trace, other)


def _live(trace: Trace, node: onnx.NodeProto) -> list[str]:
    return [name for name in node.input if name in trace.live]


def numbers_of_normalization(trace: Trace, node: onnx.NodeProto) -> dict[str, float]:
    """The single numbers of a response normalisation that is written out and ends in a node, by name,
    as the decimals that were meant."""
    found, waiting = {}, [node.input[1]]
    while waiting:
        name = waiting.pop()
        if name not in trace.live:
            found[name] = decimal(float(np.ravel(trace.values[name])[0]))
        elif trace.producers[name].op_type in ("Pow", "Add", "Mul"):
            waiting += trace.producers[name].input
    return found
