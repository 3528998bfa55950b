"""Which values of a graph depend on the numbers of its inputs."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from dlb_graph.truth.evaluate import names_read

__all__ = ["keep_needed", "live_names"]

#: Operators whose result depends on the shape of what they read only.
_READS_SHAPE = {"Shape", "Size"}
#: Operators whose output may have another shape for other numbers of any input.
# fmt: off
_SHAPED_BY_ALL = {
    "Compress", "ConstantOfShape", "If", "Loop", "NonMaxSuppression", "NonZero", "Range",
    "SequenceAt", "Unique",
}
#: Operators whose output may have another shape for other numbers of any input but the first.
_SHAPED_BY_OTHERS = {
    "CenterCropPad", "Expand", "OneHot", "Pad", "Reshape", "Resize", "Slice", "Split", "Squeeze",
    "Tile", "TopK", "Unsqueeze", "Upsample",
}
# fmt: on


def live_names(nodes: Iterable[onnx.NodeProto], inputs: Iterable[str]) -> set[str]:
    """Names of the values that depend on the inputs' numbers, inputs included.

    A shape is a constant, unless numbers decide it: how many numbers are not 0, for example.

    Args:
        nodes: in an order in which each node follows its inputs.
        inputs: names of the graph's inputs.
    """
    live, of_live_shape = set(inputs), set[str]()
    for node in nodes:
        outputs, reads = [name for name in node.output if name], names_read(node)
        if node.op_type == "CastLike":  # the second gives its type alone
            reads = set(node.input[:1])
        if not reads.isdisjoint(of_live_shape):
            of_live_shape.update(outputs)
            live.update(outputs)
        if node.op_type not in _READS_SHAPE and not reads.isdisjoint(live):
            live.update(outputs)
        shaping = _SHAPED_BY_OTHERS if node.op_type in _SHAPED_BY_OTHERS else _SHAPED_BY_ALL
        decisive = node.input[1:] if shaping is _SHAPED_BY_OTHERS else reads
        if node.op_type in shaping and not live.isdisjoint(decisive):
            of_live_shape.update(outputs)
    return live


def keep_needed(graph: onnx.GraphProto) -> None:
    """Remove nodes and inputs that the output does not depend on."""
    needed = {value.name for value in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            needed |= names_read(node)
            nodes.append(node)
    if len(nodes) < len(graph.node):
        del graph.node[:]
        graph.node.extend(reversed(nodes))
    held = {tensor.name for tensor in graph.initializer}
    kept = [value for value in graph.input if value.name in needed or value.name in held]
    del graph.input[:]
    graph.input.extend(kept)
