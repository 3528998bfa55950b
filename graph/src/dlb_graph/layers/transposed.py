"""Transposed convolutions of ONNX: where they put things, their values and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dlb_graph.layers.numbers import Array, np

__all__ = ["Places", "places_of", "spread", "spread_gradients"]

#: Every sample and channel, and every axis but the last ones.
_EACH: tuple[Any, ...] = (slice(None), slice(None))
_LAST: tuple[Any, ...] = (Ellipsis,)


@dataclass(frozen=True)
class Places:
    """Where a transposed convolution puts its inputs: a number for each axis except batch and channel.

    Attributes:
        kernel, stride, dilation: as the operator's attributes.
        size: of the input.
        before, after: how much is left out at the start and the end of what all filters cover; a
            negative number adds.
        groups: of channels.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    size: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    groups: int

    @property
    def covered(self) -> tuple[int, ...]:
        """What all filters cover, nothing left out."""
        return tuple(
            (size - 1) * stride + dilation * (kernel - 1) + 1
            for size, stride, dilation, kernel in zip(
                self.size, self.stride, self.dilation, self.kernel
            )
        )

    @property
    def output(self) -> tuple[int, ...]:
        """The size of the output."""
        return tuple(
            covered - before - after
            for covered, before, after in zip(self.covered, self.before, self.after)
        )

    def taps(self) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Each offset in the filter, and the places that it covers."""
        for offset in np.ndindex(*self.kernel):
            yield (
                offset,
                tuple(
                    slice(at * dilation, at * dilation + (size - 1) * stride + 1, stride)
                    for at, dilation, size, stride in zip(
                        offset, self.dilation, self.size, self.stride
                    )
                ),
            )

    def kept(self) -> tuple[slice, ...]:
        """The output, as slices of the larger of it and what is covered."""
        return tuple(
            slice(max(0, before), max(0, before) + output)
            for before, output in zip(self.before, self.output)
        )

    def margins(self) -> list[tuple[int, int]]:
        """What the output has beyond what is covered, on each side of every axis."""
        return [(max(0, -b), max(0, -a)) for b, a in zip(self.before, self.after)]


def places_of(
    attribute: Callable[[str, Any], Any], size: tuple[int, ...], kernel: tuple[int, ...]
) -> Places:
    """The places of a ConvTranspose node, with ``auto_pad`` and ``output_shape`` resolved.

    Args:
        attribute: returns an attribute of the node by name, or the default.
        size: of the input, without batch and channel.
        kernel: of the filter.
    """
    axes = len(kernel)
    stride = tuple(attribute("strides", None) or (1,) * axes)
    dilation = tuple(attribute("dilations", None) or (1,) * axes)
    more = tuple(attribute("output_padding", None) or (0,) * axes)
    pads = tuple(attribute("pads", None) or (0,) * (2 * axes))
    shape = tuple(attribute("output_shape", None) or ())[-axes:]
    mode = attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER") and not shape:
        shape = tuple(n * s for n, s in zip(size, stride))
    if shape:
        left_out = [
            (n - 1) * s + d * (k - 1) + 1 + m - out
            for n, s, d, k, m, out in zip(size, stride, dilation, kernel, more, shape)
        ]
        # What an output_shape adds comes after the end.
        less = tuple(max(0, n) // 2 for n in left_out)
        rest = tuple(n - half for n, half in zip(left_out, less))
        pads = less + rest
        if mode != "SAME_UPPER":
            more_first = tuple(max(0, n) for n in rest)
            pads = more_first + tuple(n - first for n, first in zip(left_out, more_first))
    elif mode == "VALID":
        pads = (0,) * (2 * axes)
    after = tuple(pad - m for pad, m in zip(pads[axes:], more))
    return Places(kernel, stride, dilation, size, pads[:axes], after, attribute("group", 1))


def spread(x: Array, weight: Array, places: Places) -> Array:
    """The transposed convolution, without a bias.

    Args:
        x: [N, C, *size].
        weight: [C, out_channels / groups, *kernel].

    Returns:
        [N, out_channels, *output].
    """
    rows, matrix = _grouped(x, places.groups), _matrices(weight, places.groups)
    channels = weight.shape[1] * places.groups
    sums = np.zeros((len(x), channels, *places.covered), x.dtype)
    for offset, covered in places.taps():
        part = matrix[_LAST + offset].swapaxes(1, 2) @ rows
        sums[_EACH + covered] += part.reshape(len(x), channels, *places.size)
    whole = np.pad(sums, [(0, 0), (0, 0), *places.margins()])
    return np.ascontiguousarray(whole[_EACH + places.kept()])


def spread_gradients(
    x: Array, weight: Array, places: Places, cotangent: Array
) -> tuple[Array, Array]:
    """The gradients of x and of the weight, from that of :func:`spread`'s result."""
    margins = places.margins()
    shape = tuple(n + before + after for n, (before, after) in zip(places.covered, margins))
    whole = np.zeros((*cotangent.shape[:2], *shape), cotangent.dtype)
    whole[_EACH + places.kept()] = cotangent
    inner = tuple(slice(before, before + n) for n, (before, _) in zip(places.covered, margins))
    sums = whole[_EACH + inner]
    rows, matrix = _grouped(x, places.groups), _matrices(weight, places.groups)
    of_rows, of_matrix = np.zeros_like(rows), np.zeros_like(matrix)
    for offset, covered in places.taps():
        taken = _grouped(sums[_EACH + covered], places.groups)
        of_rows += matrix[_LAST + offset] @ taken
        of_matrix[_LAST + offset] = (rows @ taken.swapaxes(2, 3)).sum(axis=0)
    return of_rows.reshape(x.shape), of_matrix.reshape(weight.shape)


def _grouped(x: Array, groups: int) -> Array:
    """[N, C, ...] as [N, groups, C / groups, places]."""
    return x.reshape(len(x), groups, x.shape[1] // groups, -1)


def _matrices(weight: Array, groups: int) -> Array:
    """A weight as [groups, C / groups, out_channels / groups, *kernel]."""
    return weight.reshape(groups, -1, *weight.shape[1:])
