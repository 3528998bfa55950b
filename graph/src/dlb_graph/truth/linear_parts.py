"""Slices of a linear layer's features: one matrix may produce queries, keys and values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlb_graph.layers.numbers import Array
from dlb_graph.truth.layout import LAYOUT, selected_indices
from dlb_graph.truth.recognised import LinearOutput, Recognised
from dlb_graph.truth.trace import attributes_of

__all__ = ["LinearPart", "part_of_linear", "selected_features"]


@dataclass(frozen=True)
class LinearPart:
    """Some features that a linear layer computes, in every row.

    Attributes:
        output: of a layer of these features alone.
        index_map: int64 in the shape of the value: where each number lies in the rows of that output.
    """

    output: LinearOutput
    index_map: Array


def part_of_linear(known: Recognised, name: str) -> LinearPart | None:
    """The features of a linear layer that a Split, Slice or Gather selects, else None.

    Layout operators may come between the layer and the selection.
    """
    trace = known.trace
    node = trace.producers.get(name)
    if node is None or node.op_type not in ("Split", "Slice", "Gather"):
        return None
    indices_by_axis = selected_indices(trace, node, list(node.output).index(name))
    layout_nodes, name_before = [], node.input[0]
    while (producer := trace.producers.get(name_before)) and producer.op_type in LAYOUT:
        layout_nodes.append(producer)
        name_before = producer.input[0]
    whole = known.linear_output(name_before)
    if indices_by_axis is None or whole is None:
        return None
    if producer is None or producer.op_type not in ("Gemm", "MatMul", "Add"):
        return None
    value = trace.values[name_before]
    index_map = np.arange(value.size).reshape(value.shape)
    for layout_node in reversed(layout_nodes):
        if layout_node.op_type == "Transpose":
            index_map = index_map.transpose(attributes_of(layout_node).get("perm"))
        index_map = index_map.reshape(trace.values[layout_node.output[0]].shape)
    for axis, indices in indices_by_axis.items():
        index_map = index_map.take(list(indices), axis)
    index_map = index_map.reshape(trace.values[name].shape)
    selected = selected_features(index_map, value.size, value.shape[-1])
    if selected is None:
        return None
    features, index_in_rows = selected
    return LinearPart(LinearOutput(len(features), whole.biased), index_in_rows)


def selected_features(positions: Array, size: int, count: int) -> tuple[Array, Array] | None:
    """Positions in rows of features, as features that are selected from every row.

    Args:
        positions: int64 of any shape, positions among ``size`` numbers.
        count: features of a row.

    Returns:
        the features in ascending order, and int64 in the shape of ``positions``: where each lies in
        the rows of these features. None if they are not each feature once, equal in every row.
    """
    rows, feature_numbers = np.divmod(positions, count)
    features = np.unique(feature_numbers)
    # Each position once, and as many as rows times features.
    if len(np.unique(positions)) != positions.size or positions.size * count != size * len(
        features
    ):
        return None
    return features, rows * len(features) + np.searchsorted(features, feature_numbers)
