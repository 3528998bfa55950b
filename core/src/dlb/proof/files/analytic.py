"""What agreement on a few random inputs says about all the others.

Two analytic functions that agree on an open set agree everywhere, so that random inputs decide
(with probability one; as in Schwartz 1980 and Zippel 1979 for polynomials). A kink, a jump or a
bound may lie where no input went. So operators with one count only where both models have the same
one, reading the same values: what lies between them is analytic again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from dlb.graph.evaluate import names_read
from dlb.graph.layout import LAYOUT
from dlb.graph.operations import reader_of
from dlb.graph.reader import Reader
from dlb.graph.trace import Trace, attributes_of
from dlb.proof.files.parting import called, same_values

__all__ = ["clips_shown", "is_analytic", "not_decided"]

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


def not_decided(first: Trace, second: Trace, tolerance: float) -> tuple[str, ...]:
    """Nodes that are not analytic and have no counterpart, in words.

    Args:
        first, second: run on the same random inputs.
        tolerance: within which values are the same.

    Returns:
        Nothing if agreement on these inputs shows agreement on all.
    """
    first, second = (clips_shown(reader_of(each)) for each in (first, second))
    same = same_values(first, second, tolerance)
    ours, theirs = list(_pieces(first)), list(_pieces(second))
    for node in list(ours):
        for other in theirs:
            reads = zip(node.input, other.input)
            if (
                node.op_type == other.op_type
                and len(node.input) == len(other.input)
                and (
                    node.op_type in _REACHED
                    or _attributes(first, node) == _attributes(second, other)
                )
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
    if node.op_type in ("IsNaN", "Where"):
        return _emptied(traced, node)
    return node.op_type in _ANALYTIC


def _emptied(traced: Trace, node: onnx.NodeProto) -> bool:
    """Whether a node puts a constant in the place of rows of a softmax that a mask leaves empty, or looks
    for them: which rows these are does not depend on what is attended to."""
    asks = traced.producers.get(node.input[0]) if node.op_type == "Where" else node
    if asks is None or asks.op_type != "IsNaN":
        return False
    shares = traced.producers.get(asks.input[0])
    if shares is None or shares.op_type != "Softmax":
        return False
    return node is asks or (node.input[2] in shares.output and node.input[1] not in traced.live)


def clips_shown(reader: Reader) -> Trace:
    """Hard sigmoids, and their products with what they read, by the Clip of x + 3 between 0 and 6
    that they have in common, however they are written: all else of them is analytic."""
    traced = reader.trace
    blocks = {
        end: block
        for end, block in reader.blocks.items()
        if block.kind in ("HardSigmoid", "HardSwish")
    }
    if not blocks:
        return traced
    inside = {name for block in blocks.values() for name in block.intermediates}
    values, live = dict(traced.values), set(traced.live)
    nodes: list[onnx.NodeProto] = []
    read = set(traced.outputs)
    for node in reversed(traced.nodes):
        if inside.issuperset(node.output) and read.isdisjoint(node.output):
            continue
        block = blocks.get(node.output[0])
        if block is None:
            nodes.append(node)
            read |= names_read(node)
            continue
        ((x,), y) = block.inputs, node.output[0]
        raised, clipped, low, high = (
            f"{y}/{what}" for what in ("raised", "clipped", "low", "high")
        )
        values[raised] = values[x] + 3
        values[clipped] = np.clip(values[raised], 0, 6)
        values[low], values[high] = (np.array(bound, values[x].dtype) for bound in (0, 6))
        live |= {raised, clipped}
        read.add(x)
        nodes += [
            helper.make_node("Mul", [clipped, x], [y], name=node.name),
            helper.make_node("Clip", [raised, low, high], [clipped], name=called(node)),
            helper.make_node("Add", [x], [raised]),
        ]
    nodes.reverse()
    producers = {name: node for node in nodes for name in node.output if name}
    return replace(
        traced, nodes=tuple(nodes), values=values, live=frozenset(live), producers=producers
    )


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


def _attributes(traced: Trace, node: onnx.NodeProto) -> str:
    """What is written, and what ONNX takes where nothing is."""
    main = ("", "ai.onnx")
    domains = main if node.domain in main else (node.domain,)
    version = max(each.version for each in traced.opsets if each.domain in domains)
    described = onnx.defs.get_schema(node.op_type, version, node.domain)
    defaults = [each.default_value for each in described.attributes.values()]
    whole = helper.make_node(node.op_type, [], [])
    whole.attribute.extend(each for each in defaults if each.type)
    return repr(sorted({**attributes_of(whole), **attributes_of(node)}.items()))
