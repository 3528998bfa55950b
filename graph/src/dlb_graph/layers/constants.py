"""Layers with one number for each place of a sample: trained scales and summands, and fixed masks."""

from __future__ import annotations

import math

from dlb_graph.layers.arithmetic import LARGEST_FLOAT32, summed
from dlb_graph.layers.base import Gradients, Graph, Layer, Pass, Shape, ShapeMismatch
from dlb_graph.layers.numbers import Array, np
from dlb_worker.masks import bits_of, kept_places

__all__ = ["Mask", "Scale", "Shift"]


class _OfPlaces(Layer, kw_only=True, frozen=True):
    """A layer with numbers for each axis of a sample, or one that all along an axis share."""

    sizes: tuple[int, ...]

    elementwise = True

    def output_shape(self, inputs: list[Shape]) -> Shape:
        sizes, (shape,) = self.sizes, inputs
        if len(sizes) != len(shape) or any(n not in (1, m) for n, m in zip(sizes, shape)):
            raise ShapeMismatch(
                f"sizes = {list(sizes)} needs, for each axis of a sample, its size or 1"
            )
        return shape


class Scale(_OfPlaces, tag="scale", kw_only=True, frozen=True):
    """Every sample times trained numbers, ONNX Mul.

    Attributes:
        sizes: of the numbers: for each axis of a sample its size, or 1 where all along it share one.

    Parameters: ``scale`` [*sizes], from 1.
    """

    mistakes = "the number, or the axis that it lies along"
    operator = "Mul"
    growing_roles = ("scale",)
    reads_input_again = True

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        return {"scale": self.sizes}

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        scale = read.parameters["scale"]
        of_scale = summed((cotangent * read.input).sum(axis=0), scale.shape)
        return (cotangent * scale,), {"scale": of_scale}


class Shift(_OfPlaces, tag="shift", kw_only=True, frozen=True):
    """Every sample plus trained numbers, ONNX Add.

    Attributes:
        sizes: of the numbers: for each axis of a sample its size, or 1 where all along it share one.

    Parameters: ``bias`` [*sizes], from 0.
    """

    mistakes = "the number, or the axis that it lies along"
    operator = "Add"
    keeps_means = True

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        return {"bias": self.sizes}

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        return (cotangent,), {"bias": summed(cotangent.sum(axis=0), self.sizes)}


class Mask(_OfPlaces, tag="mask", kw_only=True, frozen=True):
    """Numbers in fixed places are replaced by one number, ONNX Where with a constant condition.

    The gradient passes where numbers are kept.

    Attributes:
        sizes: of the mask: for each axis of a sample its size, or 1 where all along it share one place.
        kept: the places that stay: bits in row-major order, packed by :func:`numpy.packbits`, as
            hexadecimal text; see :func:`dlb_worker.masks.packed`.
        value: what replaces the others, finite in float32.
    """

    mistakes = "the mask turned round, its place, or the number for what is hidden"

    kept: str
    value: float

    constant_numbers = True

    def fault(self) -> str:
        if not abs(self.value) <= LARGEST_FLOAT32:
            limits = f"from {-LARGEST_FLOAT32} to {LARGEST_FLOAT32}"
            return f"value = {self.value} must be finite in float32, {limits}"
        try:
            bits = bits_of(self.kept)
        except ValueError:
            return "kept must be hexadecimal text, two digits for each eight places"
        places = math.prod(self.sizes)
        if len(bits) != -(-places // 8) * 8 or bits[places:].any():
            return (
                f"kept has {len(bits)} bits; sizes = {list(self.sizes)} needs {places}, "
                "and zeros up to a multiple of eight"
            )
        if bits[:places].all() or not bits.any():
            return (
                f"kept keeps {'every number' if bits.any() else 'no number'}; leave the layer out"
            )
        return ""

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        within = graph.within(name)
        kept = within.held(kept_places(self.resolved(shapes[0])))
        within.end("Where", kept, *inputs, within.held(self.value))

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        kept = kept_places(self.resolved(read.input.shape[1:]))
        return (np.where(kept, cotangent, cotangent.dtype.type(0)),), {}
