"""Axes that are resized by interpolation, as products with matrices."""

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence, Tuple

import numpy as np

from dlb_worker.model import Node

__all__ = ["Product", "products"]


@dataclass(frozen=True)
class Product:
    """A matrix times the numbers along an axis of a value.

    The value is read as [rows, size, after], and the product, [rows, new size, after], has ``shape`` again.

    Attributes:
        matrix: float64 [new size, size].
        after: the sizes of all axes after it, multiplied.
        shape: of a sample of the product.
    """

    matrix: np.ndarray
    after: int
    shape: Tuple[int, ...]

    @property
    def size(self) -> int:
        """The size of the axis before it."""
        return int(self.matrix.shape[1])


def products(node: Node, order: Optional[Sequence[int]] = None) -> Iterator[Product]:
    """The products that a resize is, one after another.

    A node's ``taps`` have, for each axis that changes, its number (the batch is 0), the indices of the
    elements that each element of the result is computed from, and their weights.

    Args:
        order: the axis of a sample for each axis of the framework's value, the batch left out; as they are
            by default.
    """
    order = range(1, len(node.input_shape) + 1) if order is None else order
    shape = [node.input_shape[axis - 1] for axis in order]
    for axis, indices, weights in node.taps:
        place = list(order).index(axis)
        matrix = np.zeros((len(indices), shape[place]))
        rows = np.arange(len(indices))[:, None]
        np.add.at(matrix, (rows, np.array(indices)), np.array(weights))
        shape[place] = len(indices)
        after = int(np.prod(shape[place + 1 :], dtype=int))
        yield Product(matrix, after, tuple(shape))
