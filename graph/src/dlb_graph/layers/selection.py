"""Layers that choose numbers: by fixed places, by places that another value holds, or the largest."""

from __future__ import annotations

from typing import Any

from dlb_graph.layers.arithmetic import summed
from dlb_graph.layers.base import Gradients, Graph, Layer, Pass, Shape, ShapeMismatch, check_rank
from dlb_graph.layers.movement import MOST_AXES
from dlb_graph.layers.numbers import Array, np
from dlb_graph.layers.reduction import axis_of_sequence, check_axes

__all__ = ["Gather", "GatherElements", "Select", "Slice", "TopK"]


class _OfPlaces(Layer, frozen=True):
    """A layer that takes fixed places of its input."""

    homogeneous = True
    keeps_means = True
    rearranges = True


class Select(_OfPlaces, tag="select", kw_only=True, frozen=True):
    """One index of a sequence [N, T, features] along ``axis``, which is removed; ONNX Gather.

    ``index`` counts from 0, or from the end: -1 is the last.
    """

    axis: int = 1
    index: int

    mistakes = "the place (counted from the other end), or the axis"

    def output_shape(self, inputs: list[Shape]) -> Shape:
        size = inputs[0][axis_of_sequence(self.axis, inputs[0]) - 1]
        if not -size <= self.index < size:
            raise ShapeMismatch(f"index = {self.index} is not one of {size} along axis {self.axis}")
        return (inputs[0][2 - self.axis],)

    def attributes(self, shape: Shape) -> dict[str, Any]:
        return {"axis": self.axis, "index": self.index % shape[self.axis - 1]}

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        index = graph.initializer(f"{name}/index", self.index)
        graph.node("Gather", [*inputs, index], name, axis=self.axis)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        return _placed(read, cotangent, (slice(None),) * self.axis + (self.index,))


class Slice(_OfPlaces, tag="slice", kw_only=True, frozen=True):
    """A range of every axis except the batch, ONNX Slice.

    It takes the indices ``starts``, ``starts + steps``, ... below ``ends``, with one number per axis.
    Negative starts and ends count from the end. Without ``steps``, every step is 1.
    """

    mistakes = "where it begins or ends, or the step"

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    steps: tuple[int, ...] = ()

    def field_fault(self, name: str, value: Any) -> str:
        if name == "steps" and value and min(value) < 1:
            return f"steps = {value} must be at least 1; a gather takes places in any other order"
        return ""

    def output_shape(self, inputs: list[Shape]) -> Shape:
        check_rank(inputs[0], *range(1, MOST_AXES + 1))
        rank = len(inputs[0])
        for name in ("starts", "ends", "steps"):
            numbers = getattr(self, name)
            if len(numbers) != rank and (numbers or name != "steps"):
                raise ShapeMismatch(f"{name} = {numbers} needs {rank} numbers, one per axis")
        for axis, size in enumerate(inputs[0]):
            start, end = self.starts[axis], self.ends[axis]
            within = -size <= start < size and -size <= end <= size
            if not within or not self.places(inputs[0])[axis]:
                raise ShapeMismatch(
                    f"from {start} to {end} is not a range in axis {axis + 1}, which has size {size}"
                )
        return tuple(len(places) for places in self.places(inputs[0]))

    def places(self, shape: Shape) -> tuple[range, ...]:
        """The indices that a slice takes from every axis of a sample, counted from 0."""
        steps = self.steps or (1,) * len(shape)
        return tuple(
            range(*slice(start, end, step).indices(size))
            for start, end, step, size in zip(self.starts, self.ends, steps, shape)
        )

    def attributes(self, shape: Shape) -> dict[str, Any]:
        ranges = ((span.start, span.stop, span.step) for span in self.places(shape))
        return {"ranges": tuple(ranges)}

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        ranges = self.places(shapes[0])
        starts, ends, steps = zip(*((span.start, span.stop, span.step) for span in ranges))
        numbers = starts, ends, range(1, len(ranges) + 1), steps
        within = graph.within(name)
        within.end("Slice", *inputs, *map(within.held, numbers))

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        parts = map(slice, self.starts, self.ends, self.steps or (1,) * len(self.starts))
        return _placed(read, cotangent, (slice(None), *parts))


class Gather(_OfPlaces, tag="gather", kw_only=True, frozen=True):
    """Indices along ``axis`` in any order, with repetition, ONNX Gather.

    ``indices`` count from 0, or from the end: -1 is the last.
    """

    mistakes = "places that are shifted or counted from the other end, or the axis"

    axis: int = 1
    indices: tuple[int, ...]

    def output_shape(self, inputs: list[Shape]) -> Shape:
        check_rank(inputs[0], *range(1, MOST_AXES + 1))
        check_axes("axis", self.axis, (self.axis,), inputs[0])
        axis = self.axis - 1
        size = inputs[0][axis]
        invalid = [index for index in self.indices if not -size <= index < size]
        if invalid:
            raise ShapeMismatch(f"index {invalid[0]} is not one of {size} along axis {self.axis}")
        return (*inputs[0][:axis], len(self.indices), *inputs[0][axis + 1 :])

    def attributes(self, shape: Shape) -> dict[str, Any]:
        size = shape[self.axis - 1]
        return {"axis": self.axis, "indices": tuple(index % size for index in self.indices)}

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        indices = graph.initializer(f"{name}/indices", self.indices)
        graph.node("Gather", [*inputs, indices], name, axis=self.axis)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        gradient = np.zeros(read.input.shape, cotangent.dtype)
        before = (slice(None),) * self.axis
        for place, index in enumerate(self.indices):
            gradient[before + (index,)] += cotangent[before + (place,)]
        return (gradient,), {}


class GatherElements(Layer, tag="gather_elements", kw_only=True, frozen=True):
    """Numbers of a value in places along an axis that another value holds, ONNX GatherElements.

    The value is the first input, the indices are the second: whole numbers from 0. One beyond an end counts
    as that end. The inputs have equally many axes; any other axis of size 1 is repeated as often as the other
    input's. The indices get no gradient.

    Attributes:
        axis: 1 or more; the batch is 0.
    """

    mistakes = "the axis, or places that are shifted"

    axis: int

    joins = True

    def output_shape(self, inputs: list[Shape]) -> Shape:
        if len(inputs) != 2 or len(inputs[0]) != len(inputs[1]):
            raise ShapeMismatch("it needs two inputs with equally many axes: a value, and indices")
        first, second = inputs
        check_axes("axis", self.axis, (self.axis,), first)
        along = self.axis - 1
        shape = list(map(max, first, second))
        shape[along] = second[along]
        others = [sizes for axis, sizes in enumerate(zip(*inputs)) if axis != along]
        if any(len({*sizes} - {1}) > 1 for sizes in others):
            raise ShapeMismatch("each axis but that of the indices must have one size, or size 1")
        return tuple(shape)

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        """Indices within bounds; both inputs with equal sizes along all other axes."""
        along, within = self.axis - 1, graph.within(name)
        bounds = within.held(0.0), within.held(float(shapes[0][along] - 1))
        indices = within.cast(within.add("Clip", inputs[1], *bounds), np.int64)
        both = [inputs[0], indices]
        common = list(map(max, *shapes))
        for place, shape in enumerate(shapes):
            sizes = [size if axis == along else common[axis] for axis, size in enumerate(shape)]
            if list(shape) != sizes:
                both[place] = within.add("Expand", both[place], within.held([1, *sizes]))
        within.end("GatherElements", *both, axis=self.axis)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        """The gradients of the value, whose numbers may be gathered several times, and of the indices: 0."""
        value, indices = read.inputs
        axis = self.axis
        sizes = list(map(max, value.shape, cotangent.shape))
        sizes[axis] = value.shape[axis]
        gradient = np.zeros(sizes, cotangent.dtype)
        within = np.clip(indices, 0, sizes[axis] - 1).astype(np.int64)
        places: list[Array] = list(np.indices(cotangent.shape, sparse=True))
        places[axis] = np.broadcast_to(within, cotangent.shape)
        np.add.at(gradient, tuple(places), cotangent)
        return (summed(gradient, value.shape), np.zeros_like(indices)), {}


class TopK(Layer, tag="top_k", kw_only=True, frozen=True):
    """Where the k largest numbers along an axis are, the indices of ONNX TopK, as real numbers from 0.

    The largest comes first; of equal numbers, the one with the lower index. Nothing is differentiated
    through an index: the gradient is 0.

    Attributes:
        axis: 1 or more; the batch is 0.
        k: how many, 1 or more.
        largest: false for the smallest, from the smallest up.
    """

    mistakes = "the largest for the smallest, the order of equal numbers, or the axis"

    axis: int
    k: int = 1
    largest: bool = True

    def output_shape(self, inputs: list[Shape]) -> Shape:
        (shape,) = inputs
        check_axes("axis", self.axis, (self.axis,), shape)
        if not 1 <= self.k <= shape[self.axis - 1]:
            raise ShapeMismatch(
                f"k = {self.k} must be from 1 to {shape[self.axis - 1]}, the size of axis {self.axis}"
            )
        return (*shape[: self.axis - 1], self.k, *shape[self.axis :])

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        k = graph.initializer(f"{name}/k", [self.k])
        outputs = [f"{name}/values", f"{name}/indices"]
        graph.node("TopK", [*inputs, k], outputs, axis=self.axis, largest=int(self.largest))
        graph.cast(outputs[1], name, graph.dtype)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        return (np.zeros_like(read.input),), {}


def _placed(read: Pass, cotangent: Array, index: tuple[Any, ...]) -> Gradients:
    """The gradient of a layer that takes some places of its input, none of them twice."""
    gradient = np.zeros(read.input.shape, cotangent.dtype)
    gradient[index] = cotangent
    return (gradient,), {}
