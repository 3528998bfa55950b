"""Batch normalisations by numbers that the graph computes, as ONNX's arithmetic.

Keras's layer normalisation is exported so: each row is a channel, with a mean and a variance of its own.
"""

from __future__ import annotations

import onnx

from dlb.graph.node_writer import NodeWriter, shapes_of
from dlb.graph.trace import Trace, attributes_of

__all__ = ["with_live_statistics"]


def with_live_statistics(model: onnx.ModelProto, traced: Trace) -> onnx.ModelProto:
    """The model with each such BatchNormalization written out; itself if it has none.

    Args:
        traced: a run of the model.
    """
    chosen = {
        node.output[0]
        for node in model.graph.node
        if node.op_type == "BatchNormalization" and not traced.live.isdisjoint(node.input[1:])
    }
    if not chosen:
        return model
    result, shapes = onnx.ModelProto(), shapes_of(model)
    result.CopyFrom(model)
    del result.graph.node[:]
    for node in model.graph.node:
        if not chosen.intersection(node.output[:1]):
            result.graph.node.append(node)
            continue
        write = NodeWriter(model, node, shapes)
        _write_out(write, traced.values[node.input[0]].ndim)
        result.graph.node.extend(write.nodes)
        result.graph.initializer.extend(write.constants)
    return result


def _write_out(write: NodeWriter, rank: int) -> None:
    by_channel = write.shape(-1, *[1] * (rank - 2))
    scale, shift, mean, variance = (
        write.add("Reshape", write.input(place), by_channel) for place in range(1, 5)
    )
    epsilon = write.held(attributes_of(write.node).get("epsilon", 1e-5))
    root = write.add("Sqrt", write.add("Add", variance, epsilon))
    normal = write.add("Div", write.add("Sub", write.input(0), mean), root)
    write.end(write.add("Add", write.add("Mul", normal, scale), shift))
