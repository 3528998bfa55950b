"""What a loss is to dlb: the class that every kind derives from.

A kind is one class in a file of its own: fields, what its targets are, its value, gradient and difference in
NumPy, and its ONNX nodes. :data:`dlb_graph.losses.LOSSES` has them all. An entry in each adapter follows.

Frameworks halve a loss, divide it by a number of their own, or take its mean over other numbers. So each
formula is written out. Every loss is a mean over all samples, so that the workers of a distributed run, which
have equal shares of a batch, compute that of the whole batch.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from dlb_graph.layers.base import Graph, Shape
from dlb_graph.layers.numbers import Array, np

__all__ = [
    "LABELS",
    "LOSS",
    "MAP_AXES",
    "Loss",
    "Shape",
    "TargetKind",
    "class_axis",
    "classes_and_places",
    "ratio",
]

#: Names of the targets and of the value in a graph.
LABELS = "labels"
LOSS = "loss"
#: Axes of a map, [classes, H, W]. Outputs of fewer axes have their classes last.
MAP_AXES = 3
#: What the targets of samples are. ``class``: int64 [N], [N, T] for outputs [N, T, classes], or [N, H, W] for
#: outputs [N, classes, H, W], each below the number of classes. ``share``: real numbers from 0 to 1, in the
#: outputs' shape. ``number``: any real numbers, in that shape. ``label_sequence``: int64 [N, labels], classes
#: in their order, -1 after the last of a sample that has fewer.
TargetKind = Literal["class", "share", "number", "label_sequence"]


class Loss(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """A loss of a batch's outputs and targets: immutable, compared by value, unknown fields are rejected.

    Outputs are float64 or float32 [batch, ...], and results are computed in their type.

    Class attributes:
        targets: what the targets of samples are.
        power: a small loss is in proportion to this power of the errors.
    """

    targets: ClassVar[TargetKind]
    power: ClassVar[int] = 1

    @property
    def reads_integers(self) -> bool:
        """Whether targets are classes, int64; else they are real numbers of the outputs' shape."""
        return self.targets in ("class", "label_sequence")

    def target_shape(self, outputs: Shape) -> Shape:
        """The shape of a sample's targets, for outputs of a shape."""
        return outputs

    def fault(self, outputs: Shape) -> str:
        """What is wrong with its numbers for outputs of a shape; "" if nothing is."""
        return ""

    def value_and_gradient(self, outputs: Array, targets: Array) -> tuple[float, Array]:
        """The mean loss, and its gradient with respect to the outputs."""
        raise NotImplementedError

    def difference(self, outputs: Array, base: Array, targets: Array) -> float:
        """The loss of ``outputs`` minus that of ``base``, without the digits that subtracting both loses."""
        raise NotImplementedError

    def add_nodes(self, graph: Graph, outputs: str, shape: tuple[int, ...]) -> None:
        """Add the ONNX nodes from ``outputs``, of a shape of samples, and :data:`LABELS` to :data:`LOSS`."""
        raise NotImplementedError

    def steepness(self, outputs: Array, targets: Array) -> float:
        """How many times the loss may be off by an error that every output has."""
        return 1.0

    def cancellation(self, outputs: Array, targets: Array) -> float:
        """How many times the gradient multiplies the relative error of what it is a difference of."""
        return 1.0

    def accuracy(self, outputs: Array, targets: Array) -> float | None:
        """The share of predictions that are right; None for a loss of no decisions."""
        return None


def class_axis(outputs: tuple[int, ...]) -> int:
    """The axis of a sample's outputs that has the classes: the last, but the first of a map."""
    return 0 if len(outputs) == MAP_AXES else len(outputs) - 1


def classes_and_places(outputs: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Of a sample's outputs, the number of classes, and the shape of its labels."""
    axis = class_axis(outputs)
    return outputs[axis], (*outputs[:axis], *outputs[axis + 1 :])


def ratio(whole: Array, left: Array) -> float:
    """The norm of what a difference is of over the difference's, at least 1; 1 if there is none."""
    before, after = np.linalg.norm(whole), np.linalg.norm(left)
    return max(1.0, float(before / after)) if np.isfinite(before) and after > 0 else 1.0
