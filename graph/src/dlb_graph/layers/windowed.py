"""Layers with windows: their sizes, what is left out, and the gradient of what windows read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from dlb_graph.layers.base import Layer, fields_of
from dlb_graph.layers.numbers import Array, np
from dlb_graph.layers.windows import Window, padded, window_of

__all__ = ["Pads", "Sizes", "Windowed", "scatter"]

#: A number for each axis of a window: height and width, or depth, height and width.
Sizes = tuple[int, ...]
#: What is added or left out before each axis of a window, then after each (ONNX order).
Pads = tuple[int, ...]
#: The attributes of ONNX operators that fields are.
_ATTRIBUTES = {
    "kernel": "kernel_shape",
    "stride": "strides",
    "pads": "pads",
    "output_padding": "output_padding",
    "dilation": "dilations",
    "groups": "group",
    "ceil_mode": "ceil_mode",
    "count_include_pad": "count_include_pad",
}
#: Every sample and channel.
EACH: tuple[Any, ...] = (slice(None), slice(None))


class Windowed(Layer, frozen=True):
    """Base class of layers with windows. Sizes that are left out get a number for each of the kernel's axes."""

    if TYPE_CHECKING:
        kernel: Sizes
        stride: Sizes
        pads: Pads

    window_axes = (2, 3)

    def __post_init__(self) -> None:
        for name, default in self.window_defaults().items():
            if getattr(self, name) == ():
                msgspec.structs.force_setattr(self, name, default)

    def window_defaults(self) -> dict[str, Sizes]:
        """The values of fields that follow from the kernel's axes where they are left out."""
        axes = len(self.kernel)
        defaults = {
            "stride": (1,) * axes,
            "pads": (0,) * (2 * axes),
            "output_padding": (0,) * axes,
            "dilation": (1,) * axes,
        }
        return {
            field.name: defaults[field.name]
            for field in fields_of(type(self))
            if field.name in defaults and not field.required
        }

    def field_fault(self, name: str, value: Any) -> str:
        """There are as many numbers as the windows have axes."""
        if name != "kernel":
            return ""
        if len(value) not in self.window_axes:
            counts = " or ".join(str(count) for count in self.window_axes)
            return f"kernel = {value} must have {counts} numbers"
        for field in ("stride", "pads", "output_padding", "dilation"):
            numbers = getattr(self, field, None)
            needed = len(value) * (2 if field == "pads" else 1)
            if numbers is not None and len(numbers) != needed:
                return (
                    f"{field} = {numbers} needs {needed} numbers, "
                    f"for kernel = {value} has {len(value)} axes"
                )
        return ""

    def onnx_attributes(self) -> dict[str, Any]:
        return {
            name: getattr(self, field)
            for field, name in _ATTRIBUTES.items()
            if hasattr(self, field)
        }

    def window(self, x: Array) -> Window:
        """Its windows over x [N, C, ...]."""
        return window_of(self.onnx_attributes().get, x.shape[2:], self.kernel)


def scatter(x: Array, window: Window, parts: Callable[[tuple[int, ...]], Array]) -> Array:
    """The gradient of x from those of its windows, ``parts(offset)`` [N, C, *output] for each offset."""
    sums = np.zeros_like(padded(x, window, 0.0))
    for offset in np.ndindex(*window.kernel):
        places = tuple(
            slice(at * dilation, at * dilation + (count - 1) * stride + 1, stride)
            for at, dilation, count, stride in zip(
                offset, window.dilation, window.output, window.stride
            )
        )
        sums[EACH + places] += parts(offset)
    inner = (slice(before, before + size) for before, size in zip(window.before, window.size))
    gradient: Array = sums[EACH + tuple(inner)]
    return gradient
