"""Layers that are one arithmetic function: of each number, of two values, or along axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, Union

import msgspec

from dlb.workload.resizing import Coordinates, ResizeMode, resized
from dlb_worker.masks import bits_of

__all__ = [
    "FUNCTION_NUMBERS",
    "Binary",
    "Elementwise",
    "ElementwiseFunction",
    "GatherElements",
    "Mask",
    "MatMul",
    "Primitive",
    "Reduce",
    "Resize",
    "Scale",
    "Shift",
    "Softmax",
    "TopK",
    "Where",
    "elementwise_fault",
    "mask_fault",
    "primitive_shape",
    "resize_fault",
    "where_fault",
]


class _Primitive(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base class: immutable, compared by value, unknown fields are rejected."""


ElementwiseFunction = Literal[
    "abs",
    "acos",
    "acosh",
    "affine",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "celu",
    "clip",
    "cos",
    "cosh",
    "elu",
    "erf",
    "exp",
    "floor",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "log",
    "mish",
    "neg",
    "pow",
    "reciprocal",
    "round",
    "selu",
    "sign",
    "silu",
    "sin",
    "sinh",
    "softplus",
    "softsign",
    "sqrt",
    "straight_through_round",
    "tan",
]

#: The numbers that a function needs, by function; ``clip`` needs one of its two.
FUNCTION_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "affine": ("alpha", "beta"),
    "celu": ("alpha",),
    "clip": ("min", "max"),
    "elu": ("alpha",),
    "hard_sigmoid": ("alpha", "beta"),
    "leaky_relu": ("alpha",),
    "pow": ("alpha",),
}


class Elementwise(_Primitive, tag="elementwise", kw_only=True, frozen=True):
    """A function of each number, the ONNX operator of the same meaning.

    Attributes:
        function: its name; :data:`dlb.graph.elementwise.FUNCTIONS` has the formulas.
            ``straight_through_round`` is ``round`` with the gradient of the identity, by which quantised
            networks are trained (Bengio et al. 2013, arXiv:1308.3432).
        alpha: a number of ``affine``, ``celu``, ``elu``, ``hard_sigmoid``, ``leaky_relu`` and ``pow``.
        beta: a number of ``affine`` and ``hard_sigmoid``.
        min, max: bounds of ``clip``; without one, that side has none.
    """

    function: ElementwiseFunction
    alpha: float | None = None
    beta: float | None = None
    min: float | None = None
    max: float | None = None

    @property
    def numbers(self) -> dict[str, float]:
        """The function's numbers by name."""
        given = {name: getattr(self, name) for name in ("alpha", "beta", "min", "max")}
        return {name: float(number) for name, number in given.items() if number is not None}


def elementwise_fault(layer: Elementwise) -> str:
    """What is wrong with a layer's numbers; "" if nothing is."""
    needed, numbers = FUNCTION_NUMBERS.get(layer.function, ()), layer.numbers
    extra = [name for name in numbers if name not in needed]
    if extra:
        return f"function '{layer.function}' has no {extra[0]}; leave it out"
    missing = [name for name in needed if name not in numbers]
    if layer.function == "clip":
        if len(missing) == len(needed):
            return "function 'clip' needs min, max or both"
        if not missing and not numbers["min"] < numbers["max"]:
            return f"min = {layer.min} must be below max = {layer.max}"
    elif missing:
        return f"function '{layer.function}' needs {' and '.join(missing)}"
    if not all(map(math.isfinite, numbers.values())):
        return "its numbers must be finite"
    if layer.function == "affine" and (layer.alpha == 0 or (layer.alpha, layer.beta) == (1, 0)):
        return f"alpha = {layer.alpha} and beta = {layer.beta} make a constant, or change nothing"
    if layer.function == "pow" and layer.alpha in (0, 1):
        return f"alpha = {layer.alpha} makes a constant, or changes nothing"
    if layer.function in ("celu", "hard_sigmoid") and not numbers["alpha"] > 0:
        return f"alpha = {layer.alpha} must be above 0"
    return ""


class Binary(_Primitive, tag="binary", kw_only=True, frozen=True):
    """A function of two values, ONNX Add, Sub, Mul, Div, Max or Min.

    The values have equally many axes. An axis of size 1 is repeated as often as the other value's. Of two
    equal numbers, max and min give each half of the gradient.
    """

    function: Literal["add", "sub", "mul", "div", "max", "min"]


class Where(_Primitive, tag="where", kw_only=True, frozen=True):
    """Of two values the first where a condition is not 0, else the second, ONNX Where.

    The condition is the first input. The inputs have equally many axes. An axis of size 1 is repeated as
    often as the others'. The condition gets no gradient.

    Attributes:
        first, second: a number instead of that value, which is then no input; one of them at most.
    """

    first: float | None = None
    second: float | None = None


class MatMul(_Primitive, tag="matmul", kw_only=True, frozen=True):
    """The matrix product of two values [N, ..., rows, k] and [N, ..., k, columns], ONNX MatMul."""


class Scale(_Primitive, tag="scale", kw_only=True, frozen=True):
    """Every sample times trained numbers, ONNX Mul.

    Attributes:
        sizes: of the numbers: for each axis of a sample its size, or 1 where all along it share one.

    Parameters: ``scale`` [*sizes], from 1.
    """

    sizes: tuple[int, ...]


class Shift(_Primitive, tag="shift", kw_only=True, frozen=True):
    """Every sample plus trained numbers, ONNX Add.

    Attributes:
        sizes: of the numbers: for each axis of a sample its size, or 1 where all along it share one.

    Parameters: ``bias`` [*sizes], from 0.
    """

    sizes: tuple[int, ...]


class Mask(_Primitive, tag="mask", kw_only=True, frozen=True):
    """Numbers in fixed places are replaced by one number, ONNX Where with a constant condition.

    The gradient passes where numbers are kept.

    Attributes:
        sizes: of the mask: for each axis of a sample its size, or 1 where all along it share one place.
        kept: the places that stay: bits in row-major order, packed by :func:`numpy.packbits`, as
            hexadecimal text; see :func:`dlb_worker.masks.packed`.
        value: what replaces the others, finite in float32.
    """

    sizes: tuple[int, ...]
    kept: str
    value: float


def where_fault(layer: Where) -> str:
    """What is wrong with a layer's numbers; "" if nothing is."""
    given = [number for number in (layer.first, layer.second) if number is not None]
    if len(given) == 2:
        return "first and second are both numbers; leave one out"
    if not all(abs(number) <= _LARGEST for number in given):
        return f"its number must be finite in float32, from {-_LARGEST} to {_LARGEST}"
    return ""


#: The largest finite number of float32.
_LARGEST = 3.4028234663852886e38


def mask_fault(layer: Mask) -> str:
    """What is wrong with a mask whatever it reads; "" if nothing is."""
    if not abs(layer.value) <= _LARGEST:
        return f"value = {layer.value} must be finite in float32, from {-_LARGEST} to {_LARGEST}"
    try:
        bits = bits_of(layer.kept)
    except ValueError:
        return "kept must be hexadecimal text, two digits for each eight places"
    places = math.prod(layer.sizes)
    if len(bits) != -(-places // 8) * 8 or bits[places:].any():
        return (
            f"kept has {len(bits)} bits; sizes = {list(layer.sizes)} needs {places}, "
            "and zeros up to a multiple of eight"
        )
    if bits[:places].all() or not bits.any():
        return f"kept keeps {'every number' if bits.any() else 'no number'}; leave the layer out"
    return ""


class Resize(_Primitive, tag="resize", kw_only=True, frozen=True):
    """Every axis of a sample resized by interpolation, ONNX Resize in the modes linear and cubic.

    Each axis is resized by itself: an element of the result is a weighted sum of two (linear) or four
    (cubic, Keys 1981) elements along the axis. An element before the first counts as the first, and one
    after the last as the last. :func:`dlb.workload.resizing.taps_of` has the formulas.

    Attributes:
        sizes: of every axis of a sample after it.
        mode: of the interpolation.
        coordinates: where an element of the result lies among those that it reads.
        cubic_a: the coefficient of the cubic kernel.
        exclude_outside: cubic elements outside count nothing instead, and the weights of the others
            are divided by their sum.
        scales: by which every axis was multiplied, where that is not its size after over that before;
            the sizes are rounded down. Empty for none.
    """

    sizes: tuple[int, ...]
    mode: ResizeMode = "linear"
    coordinates: Coordinates = "half_pixel"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    scales: tuple[float, ...] = ()


def resize_fault(layer: Resize) -> str:
    """What is wrong with a resize whatever it reads; "" if nothing is."""
    if not layer.sizes or min(layer.sizes) < 1:
        return f"sizes = {list(layer.sizes)} needs a size of at least 1 for each axis of a sample"
    if layer.scales and len(layer.scales) != len(layer.sizes):
        return f"scales = {list(layer.scales)} needs a number for each of {len(layer.sizes)} axes, or none"
    if not all(math.isfinite(scale) and scale > 0 for scale in layer.scales):
        return f"scales = {list(layer.scales)} must be finite and above 0"
    if layer.exclude_outside and layer.mode == "linear":
        return "exclude_outside is of mode 'cubic'"
    return ""


class Softmax(_Primitive, tag="softmax", kw_only=True, frozen=True):
    """exp(x) over the sum of exp(x) along an axis, ONNX Softmax; with ``log`` its logarithm, LogSoftmax.

    Attributes:
        axis: 1 or more; the batch is 0.
    """

    axis: int
    log: bool = False


class Reduce(_Primitive, tag="reduce", kw_only=True, frozen=True):
    """One number of all along some axes, ONNX ReduceMean, ReduceSum, ReduceMax or ReduceMin.

    Of several largest or smallest numbers, each gets an equal share of the gradient.

    Attributes:
        axes: 1 or more; the batch is 0.
        keepdims: whether they stay, with size 1.
    """

    function: Literal["mean", "sum", "max", "min"]
    axes: tuple[int, ...]
    keepdims: bool = False


class TopK(_Primitive, tag="top_k", kw_only=True, frozen=True):
    """Where the k largest numbers along an axis are, the indices of ONNX TopK, as real numbers from 0.

    The largest comes first; of equal numbers, the one with the lower index. Nothing is differentiated
    through an index: the gradient is 0.

    Attributes:
        axis: 1 or more; the batch is 0.
        k: how many, 1 or more.
        largest: false for the smallest, from the smallest up.
    """

    axis: int
    k: int = 1
    largest: bool = True


class GatherElements(_Primitive, tag="gather_elements", kw_only=True, frozen=True):
    """Numbers of a value in places along an axis that another value holds, ONNX GatherElements.

    The value is the first input, the indices are the second: whole numbers from 0. One beyond an end counts
    as that end. The inputs have equally many axes; any other axis of size 1 is repeated as often as the other
    input's. The indices get no gradient.

    Attributes:
        axis: 1 or more; the batch is 0.
    """

    axis: int


#: Those whose shapes have rules of their own.
Primitive = Union[
    Binary, Where, MatMul, Scale, Shift, Mask, Resize, Softmax, Reduce, TopK, GatherElements
]


def primitive_shape(layer: Primitive, inputs: Sequence[tuple[int, ...]]) -> tuple[int, ...] | str:
    """The shape of a sample of a layer's value; as text, why it cannot take those of its inputs."""
    first = inputs[0]
    if isinstance(layer, (Binary, Where)):
        numbers = isinstance(layer, Binary) or (layer.first, layer.second) != (None, None)
        count, shown = (2, "two") if numbers else (3, "three")
        if len(inputs) != count or len(set(map(len, inputs))) > 1:
            return f"it needs {shown} inputs with equally many axes; put a reshape before one"
        if any(len({*sizes} - {1}) > 1 for sizes in zip(*inputs)):
            return "each axis must have one size, or size 1"
        return tuple(map(max, *inputs))
    if isinstance(layer, MatMul):
        return _product_shape(inputs)
    if isinstance(layer, (Scale, Shift, Mask)):
        sizes = layer.sizes
        if len(sizes) != len(first) or any(n not in (1, m) for n, m in zip(sizes, first)):
            return f"sizes = {list(sizes)} needs, for each axis of a sample, its size or 1"
        return first
    if isinstance(layer, Resize):
        return _resized_shape(layer, first)
    if isinstance(layer, GatherElements):
        return _gathered_shape(layer, inputs)
    axes = layer.axes if isinstance(layer, Reduce) else (layer.axis,)
    if len(set(axes)) != len(axes) or not all(1 <= axis <= len(first) for axis in axes):
        name = "axes" if isinstance(layer, Reduce) else "axis"
        return f"{name} = {getattr(layer, name)} must be from 1 (the batch is 0) to {len(first)}"
    if isinstance(layer, Softmax):
        return first
    if isinstance(layer, TopK):
        if not 1 <= layer.k <= first[layer.axis - 1]:
            return f"k = {layer.k} must be from 1 to {first[layer.axis - 1]}, the size of axis {layer.axis}"
        return (*first[: layer.axis - 1], layer.k, *first[layer.axis :])
    if len(axes) == len(first) and not layer.keepdims:
        return "no axis would be left; set keepdims"
    places = ((n, axis in axes) for axis, n in enumerate(first, 1))
    return tuple(1 if gone else n for n, gone in places if layer.keepdims or not gone)


def _product_shape(inputs: Sequence[tuple[int, ...]]) -> tuple[int, ...] | str:
    if len(inputs) != 2 or len(inputs[0]) != len(inputs[1]) or len(inputs[0]) < 2:
        return "it needs two inputs [rows, k] and [k, columns], or with the same axes before both"
    first, second = inputs
    if first[:-2] != second[:-2] or first[-1] != second[-2]:
        return "the last axis of the first must be as long as the one before the last of the second"
    return (*first[:-1], second[-1])


def _gathered_shape(
    layer: GatherElements, inputs: Sequence[tuple[int, ...]]
) -> tuple[int, ...] | str:
    if len(inputs) != 2 or len(inputs[0]) != len(inputs[1]):
        return "it needs two inputs with equally many axes: a value, and indices"
    first, second = inputs
    if not 1 <= layer.axis <= len(first):
        return f"axis = {layer.axis} must be from 1 (the batch is 0) to {len(first)}"
    along = layer.axis - 1
    shape = list(map(max, first, second))
    shape[along] = second[along]
    others = [sizes for axis, sizes in enumerate(zip(*inputs)) if axis != along]
    if any(len({*sizes} - {1}) > 1 for sizes in others):
        return "each axis but that of the indices must have one size, or size 1"
    return tuple(shape)


def _resized_shape(layer: Resize, shape: tuple[int, ...]) -> tuple[int, ...] | str:
    if len(layer.sizes) != len(shape):
        return (
            f"sizes = {list(layer.sizes)} needs {len(shape)} sizes, one for each axis of a sample"
        )
    scaled = tuple(map(resized, shape, layer.scales))
    if layer.scales and scaled != layer.sizes:
        return f"scales = {list(layer.scales)} makes sizes {list(scaled)}, not {list(layer.sizes)}"
    if layer.sizes == shape and set(layer.scales) <= {1}:
        return "it has these sizes already; leave the layer out"
    return layer.sizes
