"""From values to places in a chart, with ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dlb.report.plain import finite

__all__ = ["Scale", "make_scale", "thinned"]

Array = npt.NDArray[np.float64]
#: Values beyond are drawn at the edge: so differences and ratios of values, with padding, are finite.
LARGEST = 1e130


@dataclass(frozen=True)
class Scale:
    """Values from ``low`` to ``high`` as places from 0 to 1.

    Attributes:
        log: whether places are those of logarithms.
        ticks: values with their texts.
    """

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def at(self, value: float) -> float:
        """The place of a value; of one beyond, that of the edge."""
        return float(self.places(np.array([value]))[0])

    def places(self, values: Array) -> Array:
        """The places of values, from 0 to 1."""
        with np.errstate(all="ignore"):
            clipped = np.clip(np.nan_to_num(values, nan=self.low), self.low, self.high)
            if self.log:
                low, high = math.log(self.low), math.log(self.high)
                found = (np.log(clipped) - low) / (high - low)
            else:
                found = (clipped - self.low) / (self.high - self.low)
        return np.clip(np.nan_to_num(found, nan=0.0), 0.0, 1.0)


def make_scale(
    values: Iterable[float],
    *,
    log: bool = False,
    zero: bool = False,
    padding: float = 0.04,
    most_ticks: int = 5,
) -> Scale:
    """A scale that holds all finite values; of none, it goes from 0 to 1.

    Args:
        log: of logarithms; only if every value is above 0.
        zero: whether it holds 0 as well.
        padding: share that is added at both ends, but not beyond 0.
    """
    held = [max(-LARGEST, min(LARGEST, each)) for each in values if finite(each) is not None] or (
        [] if log else [0.0, 1.0]
    )
    if log and held and min(held) > 0:
        return _log_scale(min(held), max(held), padding, most_ticks)
    low, high = (min(held), max(held)) if held else (0.0, 1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= max(abs(high) * 1e-12, 1 / LARGEST):
        room = abs(high) * 0.1 if abs(high) > 1 / LARGEST else 1.0
        low, high = low - room, high + room
    room = (high - low) * padding
    padded = low - room, high + room
    # What is never below zero is not drawn below zero.
    low = 0.0 if low >= 0 > padded[0] or (zero and low == 0) else padded[0]
    high = padded[1]
    return Scale(low, high, False, tuple(_ticks(low, high, most_ticks)))


def _log_scale(low: float, high: float, padding: float, most: int) -> Scale:
    low, high = max(low, 1 / LARGEST), max(high, 1 / LARGEST)
    if high / low < 1.001:
        low, high = low * 0.9, high * 1.1
    span = max(math.log(high / low), 0.05)
    low, high = low * math.exp(-span * padding), high * math.exp(span * padding)
    decades = math.log10(high / low)
    if decades < 1:
        return Scale(low, high, True, tuple(_ticks(low, high, most)))
    each = 1 if decades >= 2.5 else 3
    stride = 1 if decades <= 6 else math.ceil(decades / most)
    ticks = []
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for digit in (1, 2, 5)[:each]:
            value = digit * 10.0**power
            if low <= value <= high and power % stride == 0:
                ticks.append((value, _text(value, value)))
    return Scale(low, high, True, tuple(ticks or _ticks(low, high, most)))


def _ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Round numbers from low to high: multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((size * power for size in (1, 2, 5, 10) if size * power >= rough), rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(place * step, _text(place * step, step)) for place in range(first, last + 1)]


def _text(value: float, step: float) -> str:
    """The number of a tick, as exact as the step between two asks for."""
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e6:
        text = f"{value:.2e}"
        mantissa, _, exponent = text.partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    decimals = max(0, -math.floor(math.log10(abs(step)) + 1e-9))
    return f"{value:,.{decimals}f}"


def thinned(values: Array, most: int) -> npt.NDArray[np.int64]:
    """The places of the values that are drawn: of each bucket the smallest and the largest.

    So no single slow step is lost, however many there are. Values that are not finite are left out.

    Args:
        values: float64 [n].
        most: places at most.
    """
    finite_places = np.flatnonzero(np.isfinite(values))
    if len(finite_places) <= most:
        return finite_places.astype(np.int64)
    buckets = np.array_split(finite_places, max(1, most // 2))
    kept = {
        int(bucket[place])
        for bucket in buckets
        for place in (np.argmin(values[bucket]), np.argmax(values[bucket]))
    }
    return np.array(sorted(kept), np.int64)
