"""Charts of values over steps, seconds or sizes: a line for each name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dlb_report.charts import Chart, Dot, Label, Legend, Line, Rule, line_path
from dlb_report.scales import make_scale

__all__ = ["Curve", "Point", "curves_chart", "distances_chart", "points_chart"]

Array = npt.NDArray[np.float64]
#: Smallest distance that is drawn; one of 0 is drawn there.
LEAST_DISTANCE = 1e-18


@dataclass(frozen=True)
class Curve:
    """Values of one name.

    Attributes:
        x, y: float64 [n].
        marked: whether each point has a marker, for few points.
    """

    name: str
    style: int
    x: Array
    y: Array
    marked: bool = False


def curves_chart(
    name: str,
    title: str,
    curves: Sequence[Curve],
    x_title: str,
    y_title: str,
    most: int,
    *,
    zero: bool = False,
) -> Chart | None:
    """Lines of values; None if no value is finite."""
    curves = [each for each in curves if np.isfinite(each.y).any()]
    if not curves:
        return None
    ys = np.concatenate([each.y[np.isfinite(each.y)] for each in curves])
    low, high = float(ys.min()), float(ys.max())
    log = low > 0 and high / low > 100
    y = make_scale([low, high], log=log, zero=zero and not log, most_ticks=4)
    ends = np.concatenate([each.x[np.isfinite(each.x)] for each in curves])
    x = make_scale([0.0, float(ends.max())] if len(ends) else [], padding=0.0)
    alone = len(curves) == 1
    lines = [
        Line(each.style, line_path(x, y, each.x, each.y, most), each.name, alone) for each in curves
    ]
    dots = [
        Dot(each.style, x.at(float(a)), 1 - y.at(float(b)), f"{each.name}: {b:.4g} at {a:.4g}")
        for each in curves
        if each.marked
        for a, b in zip(each.x[-200:], each.y[-200:])
        if np.isfinite(b)
    ]
    return Chart(
        name,
        title,
        f"{title} for {', '.join(each.name for each in curves)}. The table and the data have the figures.",
        240,
        x,
        x_title,
        y,
        y_title + (", logarithmic" if log else ""),
        lines=lines,
        dots=dots,
        legend=[Legend(each.style, each.name) for each in curves],
    )


@dataclass(frozen=True)
class Point:
    """A value of a name at a size."""

    name: str
    style: int
    x: float
    y: float


def points_chart(
    name: str, title: str, points: Sequence[Point], x_title: str, y_title: str
) -> Chart | None:
    """Values at a few sizes, joined by lines for each name; sizes are spaced by their logarithms."""
    points = [each for each in points if each.x > 0 and each.y > 0]
    if not points:
        return None
    sizes = sorted({each.x for each in points})
    x = make_scale(sizes, log=True, padding=0.06)
    y = make_scale([each.y for each in points], zero=True, most_ticks=4)
    by_name: dict[tuple[str, int], list[Point]] = {}
    for each in sorted(points, key=lambda point: point.x):
        by_name.setdefault((each.name, each.style), []).append(each)
    lines, dots = [], []
    for (label, style), own in by_name.items():
        xs, ys = np.array([each.x for each in own]), np.array([each.y for each in own])
        lines.append(Line(style, line_path(x, y, xs, ys, 200), label))
        dots += [
            Dot(style, x.at(each.x), 1 - y.at(each.y), f"{label}: {each.y:,.4g} at {each.x:,.4g}")
            for each in own[:200]
        ]
    ticks, last = [], -1.0
    for size in sizes:
        if x.at(size) - last > 0.08:
            ticks.append((x.at(size), f"{size:,.0f}"))
            last = x.at(size)
    return Chart(
        name,
        title,
        f"{title} for {', '.join(label for label, _ in by_name)}. The table has the figures.",
        240,
        x,
        x_title,
        y,
        y_title,
        lines=lines,
        dots=dots,
        legend=[Legend(style, label) for label, style in by_name],
        more_ticks=ticks,
    )


def distances_chart(
    name: str,
    checks: Sequence[tuple[str, float | None, Sequence[tuple[str, int, float, bool]]]],
) -> Chart | None:
    """The worst distance of each check on a logarithmic scale, next to its tolerance.

    Args:
        checks: name, tolerance, and of each adapter: name, style, distance, and whether it passed.
    """
    checks = [each for each in checks if each[2]]
    if not checks:
        return None
    values = [max(LEAST_DISTANCE, min(each[2], 1e3)) for _, _, own in checks for each in own]
    tolerances = [each[1] for each in checks if each[1]]
    x = make_scale([LEAST_DISTANCE, *values, *tolerances], log=True, padding=0.02)
    rows = len(checks)
    rules, dots, labels, names = [], [], [], {}
    for place, (check, tolerance, own) in enumerate(checks):
        middle = (place + 0.7) / rows
        labels.append(Label(0.0, (place + 0.36) / rows, check))
        if tolerance:
            at = x.at(tolerance)
            rules.append(Rule(at, (place + 0.42) / rows, (place + 0.9) / rows, strong=True))
        for number, (adapter, style, distance, passed) in enumerate(own):
            # One below the other, so that none is hidden.
            aside = (number - (len(own) - 1) / 2) * min(0.14, 0.36 / len(own)) / rows
            names[adapter] = style
            verdict = "" if passed else ", failed"
            text = f"{adapter}, {check}: {distance:.1e}{verdict}"
            dots.append(Dot(style, x.at(max(distance, LEAST_DISTANCE)), middle + aside, text))
            if not passed:
                labels.append(Label(1.0, (place + 0.36) / rows, f"{adapter} failed", "end", True))
    return Chart(
        name,
        "Worst distance of each check; the upright line is its tolerance",
        "The worst relative L2 distance of each check; the upright line is its tolerance. The table has the "
        "figures.",
        40 * rows,
        x,
        "relative L2 distance; 0 is drawn at 1e-18",
        rules=rules,
        dots=dots,
        labels=labels,
        legend=[Legend(style, adapter) for adapter, style in names.items()],
    )
