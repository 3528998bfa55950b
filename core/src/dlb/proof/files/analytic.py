"""What agreement on a few random inputs says about all the others.

Two analytic functions that agree on an open set agree everywhere, so that random inputs decide
(with probability one; as in Schwartz 1980 and Zippel 1979 for polynomials). A kink, a jump or a
bound may lie where no input went. So operators with one count only where both models have the same
one, reading the same values: what lies between them is analytic again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

from dlb.graph.layout import LAYOUT
from dlb.graph.trace import Trace, attributes_of
from dlb.proof.files.parting import called, same_values

__all__ = ["is_analytic", "not_decided"]

# fmt: off
_ANALYTIC = LAYOUT | {
    "Add", "AveragePool", "BatchNormalization", "Concat", "Conv", "ConvTranspose", "Cos",
    "Cosh", "CumSum", "Div", "Dropout", "Einsum", "Erf", "Exp", "Expand", "Gelu", "Gemm",
    "GlobalAveragePool", "GroupNormalization", "InstanceNormalization", "LRN", "LSTM",
    "LayerNormalization", "Log", "LogSoftmax", "LpNormalization", "MatMul", "Mean", "Mish",
    "Mul", "Neg", "Pad", "Pow", "RMSNormalization", "Reciprocal", "ReduceL2", "ReduceLogSumExp",
    "ReduceMean", "ReduceSum", "ReduceSumSquare", "Sigmoid", "Sin", "Sinh", "Slice", "Softmax",
    "Softplus", "Split", "Sqrt", "Sub", "Sum", "Swish", "Tanh", "Tile",
}
# fmt: on
#: Noise reaches every piece of these, so that equal values tell how their attributes are meant.
_REACHED = frozenset(("MaxPool", "Relu"))


def not_decided(first: Trace, second: Trace, gate: float) -> tuple[str, ...]:
    """Nodes that are not analytic and have no counterpart, in words.

    Args:
        first, second: run on the same random inputs.
        gate: within which values are the same.

    Returns:
        Nothing if agreement on these inputs shows agreement on all.
    """
    same = same_values(first, second, gate)
    ours, theirs = list(_pieces(first)), list(_pieces(second))
    for node in list(ours):
        for other in theirs:
            reads = zip(node.input, other.input)
            if (
                node.op_type == other.op_type
                and len(node.input) == len(other.input)
                and (node.op_type in _REACHED or _attributes(node) == _attributes(other))
                and all(_alike(first, a, second, b, same) for a, b in reads)
                and other.output[0] in same.get(node.output[0], [])
            ):
                ours.remove(node)
                theirs.remove(other)
                break
    return tuple(f"{node.op_type} '{called(node)}'" for node in (*ours, *theirs))


def is_analytic(traced: Trace, node: onnx.NodeProto) -> bool:
    """Whether what a node makes of its inputs has no kink, no jump, no bound and no choice."""
    if node.op_type == "Cast":
        return traced.values[node.output[0]].dtype == traced.values[node.input[0]].dtype
    if node.op_type == "Gather":
        return node.input[1] not in traced.live
    return node.op_type in _ANALYTIC


def _pieces(traced: Trace) -> Iterator[onnx.NodeProto]:
    """Nodes on the way from the inputs that are not analytic."""
    for node in traced.nodes:
        if not traced.live.isdisjoint(node.output) and not is_analytic(traced, node):
            yield node


def _alike(first: Trace, a: str, second: Trace, b: str, same: dict[str, list[str]]) -> bool:
    if not a or not b:
        return a == b
    if a in first.live or b in second.live:
        return b in same.get(a, [])
    return np.array_equal(first.values[a], second.values[b])


def _attributes(node: onnx.NodeProto) -> str:
    return repr(sorted(attributes_of(node).items()))
