"""Where a file's logits are, and what loss is behind them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb_graph.comparing.read_facts import NodeIsLoss
from dlb_graph.truth.layout import LAYOUT
from dlb_graph.truth.trace import Trace, attributes_of
from dlb_graph.workload import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy, SquaredError

__all__ = ["find_logits", "is_share", "loss_of", "nodes_after"]

#: Operators after the logits that are part of the loss in training: of classes, and of shares.
_SOFTMAX, _SIGMOID = ("Softmax", "LogSoftmax"), "Sigmoid"
_COPIES = ("Cast", "Identity")


def find_logits(traced: Trace, output: str, opset: int) -> tuple[str, list[NodeIsLoss]]:
    """The value before a last softmax over the classes, the choice of the largest, or a last sigmoid.

    There is a fact for each.
    """
    name, found = output, list[NodeIsLoss]()
    while name in traced.producers:
        node = traced.producers[name]
        shape = traced.values[name].shape
        if node.op_type == "ArgMax" and not found and shape:
            read = traced.values[node.input[0]].shape
            axis = attributes_of(node).get("axis", 0) % len(read)
            if [axis] == [place for place in range(1, len(read)) if read[place] > 1][-1:]:
                found, output, name = [_is_loss(node)], node.input[0], node.input[0]
                continue
        if node.op_type in _SOFTMAX:
            axis = attributes_of(node).get("axis", -1 if opset >= 13 else 1) % len(shape)
            axes = (axis, *range(axis + 1, len(shape))) if opset < 13 else (axis,)
            large = [axis for axis in range(1, len(shape)) if shape[axis] > 1]
            classes = [axis for axis in axes if axis in large]
            if axis > 0 and classes == large[-1:] and len(large) < 3:
                return node.input[0], [*found, _is_loss(node)]
        elif node.op_type == _SIGMOID and len(shape) > 1:
            return node.input[0], [_is_loss(node)]
        elif share := _share_of_pair(traced, node):
            return share.input[0], [*found, _is_loss(share)]
        if node.op_type not in (*LAYOUT, "Cast"):
            break
        name = node.input[0]
    return output, found


def _share_of_pair(traced: Trace, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """The sigmoid of two classes whose probabilities a node joins, 1 - p and p; None if it does not."""
    if node.op_type != "Concat" or len(node.input) != 2:
        return None
    shape = traced.values[node.output[0]].shape
    other, share = (_without_copies(traced, name) for name in node.input)
    difference, sigmoid = traced.producers.get(other), traced.producers.get(share)
    if difference is None or sigmoid is None or shape[-1] != 2 or len(shape) != 2:
        return None
    if difference.op_type != "Sub" or sigmoid.op_type != _SIGMOID:
        return None
    ones = traced.constant(difference, 0)
    is_rest = _without_copies(traced, difference.input[1]) == share
    return sigmoid if ones is not None and is_rest and bool((ones == 1).all()) else None


def _without_copies(traced: Trace, name: str) -> str:
    """The value that a value is, past nodes that only pass it on."""
    while (node := traced.producers.get(name)) is not None and node.op_type in _COPIES:
        name = node.input[0]
    return name


def _is_loss(node: onnx.NodeProto) -> NodeIsLoss:
    return NodeIsLoss(node=node.name or node.output[0], operator=node.op_type)


def nodes_after(traced: Trace, logits: str) -> onnx.ModelProto | None:
    """A model of the nodes between the logits and the output; None if there are none."""
    nodes: list[onnx.NodeProto] = []
    needed = {traced.outputs[0]}
    for node in reversed(traced.nodes):
        if needed.isdisjoint(node.output) or logits in node.output:
            continue
        needed |= {name for name in node.input if name in traced.live} - {logits}
        if node.op_type in _SOFTMAX:
            # Operator sets before 13 apply the softmax to the axis and to all axes after it.
            shape = traced.values[node.output[0]].shape
            large_axes = [axis for axis, size in enumerate(shape) if axis and size > 1]
            node = helper.make_node(
                node.op_type, node.input, node.output, axis=max(large_axes, default=1)
            )
        nodes.insert(0, node)
    if not nodes:
        return None
    constants = {name for node in nodes for name in node.input if name not in traced.live}
    graph = helper.make_graph(
        nodes,
        "after",
        [helper.make_tensor_value_info(logits, TensorProto.DOUBLE, None)],
        [helper.make_tensor_value_info(traced.outputs[0], TensorProto.DOUBLE, None)],
        [numpy_helper.from_array(traced.values[name], name) for name in sorted(constants) if name],
    )
    return helper.make_model(graph, opset_imports=traced.opsets)


def loss_of(shape: tuple[int, ...], has_classes: bool, share: bool) -> Loss:
    """What a file, which says nothing about it, is trained by.

    What a sigmoid reads is trained to be a share, as a single output of each sample or step is. Numbers for
    classes are logits, and all others are numbers.
    """
    if share or (has_classes and shape[-1] == 1):
        return BinaryCrossEntropy()
    return SoftmaxCrossEntropy() if has_classes else SquaredError()


def is_share(facts: Sequence[NodeIsLoss]) -> bool:
    """Whether the loss begins with a sigmoid."""
    return any(fact.operator == _SIGMOID for fact in facts)
