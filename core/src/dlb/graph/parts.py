"""Parts of what one linear layer makes: queries, keys and values may come of one matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.graph.layout import LAYOUT, places_taken
from dlb.graph.reader import Operation, Reader
from dlb.graph.trace import attributes_of

__all__ = ["Part", "features_taken", "part_of_linear"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Part:
    """Some of the features that a linear layer makes, of every row.

    Attributes:
        whole: the layer.
        features: which they are.
        places: int64 in the shape of the value: where each of its numbers lies in the rows of these
            features, [..., features].
    """

    whole: Operation
    features: list[int]
    index_map: Array


def part_of_linear(reader: Reader, name: str) -> Part | None:
    """What a Split, a Slice or a Gather takes of a linear layer's features, however they were
    arranged before; None for any other value."""
    trace = reader.trace
    node = trace.producers.get(name)
    if node is None or node.op_type not in ("Split", "Slice", "Gather"):
        return None
    taken = places_taken(trace, node, list(node.output).index(name))
    arranging, first = [], node.input[0]
    while (made := trace.producers.get(first)) and made.op_type in LAYOUT:
        arranging.append(made)
        first = made.input[0]
    source = reader.source.get(first, -1)
    if taken is None or source < 0 or reader.found[source].kind != "Linear":
        return None
    if made is None or made.op_type not in ("Gemm", "MatMul", "Add"):
        return None
    value = trace.values[first]
    places = np.arange(value.size).reshape(value.shape)
    for each in reversed(arranging):
        if each.op_type == "Transpose":
            places = places.transpose(attributes_of(each).get("perm"))
        places = places.reshape(trace.values[each.output[0]].shape)
    for axis, indices in taken.items():
        places = places.take(list(indices), axis)
    places = places.reshape(trace.values[name].shape)
    found = features_taken(places, value.size, value.shape[-1])
    if found is None:
        return None
    features, in_rows = found
    return Part(reader.found[source], [int(each) for each in features], in_rows)


def features_taken(places: Array, size: int, count: int) -> tuple[Array, Array] | None:
    """Places in rows of so many features, as features taken of every row.

    Args:
        places: int64 of any shape, positions among ``size`` numbers.
        count: features of a row.

    Returns:
        the features, the least first, and in the shape of ``places`` where each lies in the rows of
        these features; None where they are not each feature once, the same of every row.
    """
    rows, along = np.divmod(places, count)
    features = np.unique(along)
    # Each once, and as many as rows and features can give.
    if len(np.unique(places)) != places.size or places.size * count != size * len(features):
        return None
    return features, rows * len(features) + np.searchsorted(features, along)
