"""Axes that are resized by interpolation, as matrices."""

from typing import Iterator, Tuple

import numpy as np

from dlb_worker.model import Node

__all__ = ["axis_matrices"]


def axis_matrices(node: Node) -> Iterator[Tuple[int, np.ndarray]]:
    """Each axis that a resize changes, in order, with its weights, float64 [size after, size before].

    The batch is axis 0. A node's ``taps`` have for each of these axes its number, the indices of the
    elements that each element of the result is computed from, and their weights.
    """
    for axis, indices, weights in node.taps:
        rows = np.arange(len(indices))[:, None]
        matrix = np.zeros((len(indices), node.input_shape[axis - 1]))
        np.add.at(matrix, (rows, np.array(indices)), np.array(weights))
        yield axis, matrix
