"""Charts as data: what is drawn where, as shares of the width and of the height.

A chart has no size of its own in a page: places along x are percentages, so that texts keep their size on a
telephone and on a desk. ``templates/chart.svg.jinja`` draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dlb_report.scales import Scale, thinned

__all__ = [
    "STYLES",
    "Area",
    "Band",
    "Chart",
    "Dot",
    "Label",
    "Legend",
    "Line",
    "Rule",
    "Span",
    "area_path",
    "line_path",
]

Array = npt.NDArray[np.float64]
#: How many looks there are: 8 colours, each with 8 markers and patterns of lines.
STYLES = 64
#: A line's path has whole numbers from 0 to this.
UNITS = 10_000


@dataclass(frozen=True)
class Line:
    """A line through points; ``path`` is in :data:`UNITS`, from the upper left. One that is alone is solid."""

    style: int
    path: str
    name: str
    solid: bool = False


@dataclass(frozen=True)
class Area:
    """A filled shape."""

    style: int
    path: str


@dataclass(frozen=True)
class Band:
    """A part of the width that stands for something; ``kind`` is ``warmup``, ``disturbed`` or ``again``."""

    begin: float
    end: float
    kind: str


@dataclass(frozen=True)
class Span:
    """A line from one place to another at a height, with ends: an interval; or thick, without: quartiles."""

    style: int
    begin: float
    end: float
    y: float
    thick: bool = False
    title: str = ""


@dataclass(frozen=True)
class Dot:
    """A marker; ``small`` for one of many."""

    style: int
    x: float
    y: float
    title: str
    small: bool = False


@dataclass(frozen=True)
class Rule:
    """A line across the chart at a place of x; with ``top`` and ``bottom``, only between them."""

    x: float
    top: float = 0.0
    bottom: float = 1.0
    strong: bool = False


@dataclass(frozen=True)
class Label:
    """A text at a place."""

    x: float
    y: float
    text: str
    anchor: str = "start"
    strong: bool = False


@dataclass(frozen=True)
class Legend:
    """What a look stands for; ``style`` is a number, or the class of a filled box."""

    style: int | str
    text: str


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        name: of its file, and of its place in the page.
        title: what it shows.
        summary: what it shows, in words, for those who do not see it.
        height: of the plot, in pixels.
        x, y: scales; y is None where rows have names.
        x_title, y_title: what they are of, with the unit.
        more_ticks: ticks of x with texts that stand for no value of the scale.
    """

    name: str
    title: str
    summary: str
    height: int
    x: Scale
    x_title: str
    y: Scale | None = None
    y_title: str = ""
    bands: Sequence[Band] = ()
    areas: Sequence[Area] = ()
    lines: Sequence[Line] = ()
    rules: Sequence[Rule] = ()
    spans: Sequence[Span] = ()
    dots: Sequence[Dot] = ()
    labels: Sequence[Label] = ()
    legend: Sequence[Legend] = ()
    more_ticks: Sequence[tuple[float, str]] = field(default=())

    @property
    def x_ticks(self) -> list[tuple[float, str]]:
        """Places from 0 to 1 with texts."""
        if self.more_ticks:
            return list(self.more_ticks)
        return [(self.x.at(value), text) for value, text in self.x.ticks]

    @property
    def y_ticks(self) -> list[tuple[float, str]]:
        """Places from 0, the top, to 1 with texts."""
        if self.y is None:
            return []
        return [(1 - self.y.at(value), text) for value, text in self.y.ticks]


def line_path(x: Scale, y: Scale, xs: Array, ys: Array, most: int) -> str:
    """A path through points, thinned; empty of none."""
    return _path(x, y, xs, ys, thinned(ys, most))


def area_path(x: Scale, xs: Array, heights: Array, bottom: float, height: float) -> str:
    """A closed shape on a base line: ``heights`` from 0 to 1 stand for shares of ``height``."""
    across = np.rint(x.places(xs) * UNITS).astype(int)
    down = np.rint((bottom - heights * height) * UNITS).astype(int)
    base = round(bottom * UNITS)
    points = "L".join(f"{a} {b}" for a, b in zip(across, down))
    return f"M{across[0]} {base}L{points}L{across[-1]} {base}Z" if len(across) else ""


def _path(x: Scale, y: Scale, xs: Array, ys: Array, kept: npt.NDArray[np.int64]) -> str:
    if not len(kept):
        return ""
    across = np.rint(x.places(xs[kept]) * UNITS).astype(int)
    down = np.rint((1 - y.places(ys[kept])) * UNITS).astype(int)
    # A lone point is a dot: a line of no length with round ends.
    more = "h0" if len(kept) == 1 else ""
    return "M" + "L".join(f"{a} {b}" for a, b in zip(across, down)) + more
