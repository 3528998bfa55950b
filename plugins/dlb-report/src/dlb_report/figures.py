"""The charts of a measurement: ratios, distributions of step times, and steps as they ran."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dlb_measure.comparison import Compared
from dlb_measure.results.measurement import TrialResult
from dlb_measure.verdict import interval_of, ratio_text
from dlb_report.charts import (
    Area,
    Band,
    Chart,
    Dot,
    Label,
    Legend,
    Line,
    Rule,
    Span,
    area_path,
    line_path,
)
from dlb_report.scales import Scale, make_scale

__all__ = [
    "distribution_chart",
    "phases_chart",
    "ratio_chart",
    "shares_chart",
    "steps_chart",
    "steps_scale",
]

Array = npt.NDArray[np.float64]
#: Pixels of a row with a name.
ROW = 76
#: Where a row's name, its figures and its marks are, as shares of the row.
_NAME, _VALUE, _MARK = 0.22, 0.44, 0.74
BINS = 72


def _row(place: int, share: float, rows: int) -> float:
    return (place + share) / rows


def ratio_chart(
    name: str,
    compared: Sequence[Compared],
    titles: Sequence[str],
    styles: Sequence[int],
    baseline: int,
    of: str,
) -> Chart | None:
    """Ratios to the baseline with their intervals; None if there is none.

    Args:
        of: what the times are of: ``a step`` or ``a sample``.
    """
    held = [(each, each.ratio) for each in compared if each.ratio is not None]
    if not held:
        return None
    bounds = [
        value
        for _, ratio in held
        for value in (ratio.ratio, ratio.low, ratio.high)
        if 0 < value < math.inf
    ]
    x = make_scale([1.0, *bounds], log=True, padding=0.08)
    rows = len(held)
    spans, dots, labels = [], [], []
    for place, (each, ratio) in enumerate(held):
        y, style = _row(place, _MARK, rows), styles[each.cell]
        known = ratio.low > 0 and math.isfinite(ratio.high)
        interval = interval_of(ratio)
        text = f"{titles[each.cell]}: {ratio_text(ratio.ratio)} times, {interval}, {each.word}"
        if known:
            spans.append(Span(style, x.at(ratio.low), x.at(ratio.high), y, title=text))
        dots.append(Dot(style, x.at(ratio.ratio), y, text))
        labels.append(Label(0.0, _row(place, _NAME, rows), titles[each.cell], strong=True))
        says = f"{ratio_text(ratio.ratio)} ({interval}) {each.word}"
        labels.append(Label(0.0, _row(place, _VALUE, rows), says))
    other = titles[baseline]
    return Chart(
        name,
        f"Time of {of} as a multiple of {other}",
        f"Ratios of times of {of} to {other} with 95% intervals; left of 1 is faster. The table has the "
        "figures.",
        ROW * rows,
        x,
        "left of 1 is faster",
        rules=[Rule(x.at(1.0), strong=True)],
        spans=spans,
        dots=dots,
        labels=labels,
    )


def distribution_chart(
    name: str,
    steady: Mapping[int, Sequence[Array]],
    medians: Mapping[int, float],
    titles: Sequence[str],
    styles: Sequence[int],
) -> Chart | None:
    """How steady step times are distributed: a silhouette for each cell, quartiles, and each trial's median.

    Args:
        steady: seconds of steady steps, by cell, of each trial.
        medians: by cell, the seconds that every other place of the report has.
    """
    pooled = {
        cell: np.concatenate(list(parts)) * 1e3 for cell, parts in steady.items() if len(parts)
    }
    pooled = {cell: values[np.isfinite(values)] for cell, values in pooled.items()}
    pooled = {cell: values for cell, values in pooled.items() if len(values)}
    if not pooled:
        return None
    ends = [np.percentile(values, (0.5, 99.5)) for values in pooled.values()]
    low, high = min(float(each[0]) for each in ends), max(float(each[1]) for each in ends)
    x = make_scale([low, high], log=low > 0 and high / low > 8, padding=0.06)
    rows = len(pooled)
    areas, spans, dots, labels, rules = [], [], [], [], []
    edges = np.linspace(0, 1, BINS + 1)
    for place, (cell, values) in enumerate(pooled.items()):
        style, base = styles[cell], _row(place, 0.72, rows)
        counted, _ = np.histogram(x.places(values), edges)
        heights = np.repeat(counted / max(1, counted.max()), 2)
        across = np.repeat(edges, 2)[1:-1]
        areas.append(Area(style, _silhouette(across, heights, base, 0.42 / rows)))
        quartiles, middle = np.percentile(values, (25, 75)), medians[cell] * 1e3
        text = (
            f"{titles[cell]}: median {middle:.2f} ms, quartiles {quartiles[0]:.2f} to "
            f"{quartiles[1]:.2f}, {len(values):,} steps"
        )
        line = _row(place, 0.79, rows)
        spans.append(
            Span(style, x.at(float(quartiles[0])), x.at(float(quartiles[1])), line, True, text)
        )
        rules.append(
            Rule(x.at(middle), _row(place, 0.72, rows), _row(place, 0.86, rows), strong=True)
        )
        for number, part in enumerate(steady[cell]):
            if len(part):
                median = float(np.median(part)) * 1e3
                title = f"{titles[cell]}, trial {number + 1}: median {median:.2f} ms"
                dots.append(Dot(style, x.at(median), _row(place, 0.93, rows), title, small=True))
        labels.append(Label(0.0, _row(place, 0.2, rows), titles[cell], strong=True))
        labels.append(Label(1.0, _row(place, 0.2, rows), f"{middle:.2f} ms", "end"))
    return Chart(
        name,
        "How long steady steps take",
        "Histograms of the times of steady steps with quartiles, and the median of each process. The table "
        "has the figures.",
        84 * rows,
        x,
        "ms a step",
        areas=areas,
        spans=spans,
        dots=dots,
        labels=labels,
        rules=rules,
    )


def _silhouette(across: Array, heights: Array, base: float, height: float) -> str:
    unit = make_scale([0.0, 1.0], padding=0.0)
    return area_path(unit, across, heights, base, height)


def phases_chart(
    name: str,
    phases: Mapping[int, Mapping[str, float]],
    titles: Sequence[str],
    order: Sequence[str],
) -> Chart | None:
    """The parts of a step, one after the other.

    Args:
        phases: seconds of each part, by cell.
        order: the parts' names, as they run.
    """
    phases = {cell: parts for cell, parts in phases.items() if sum(parts.values()) > 0}
    if not phases:
        return None
    x = make_scale([0.0, *(sum(parts.values()) * 1e3 for parts in phases.values())], zero=True)
    spans, labels, rows = [], [], len(phases)
    for place, (cell, parts) in enumerate(phases.items()):
        begin = 0.0
        for style, part in enumerate(order):
            end = begin + max(0.0, parts.get(part, 0.0)) * 1e3
            text = f"{titles[cell]}, {part}: {end - begin:.2f} ms"
            spans.append(Span(style, x.at(begin), x.at(end), _row(place, 0.74, rows), True, text))
            begin = end
        says = ", ".join(f"{part} {parts[part] * 1e3:.2f}" for part in order if part in parts)
        labels.append(Label(0.0, _row(place, 0.2, rows), titles[cell], strong=True))
        labels.append(Label(0.0, _row(place, 0.46, rows), f"{says} ms"))
    return Chart(
        name,
        "The parts of a step",
        f"Medians of {', '.join(order)}, one after the other. The table of phases has the figures.",
        70 * rows,
        x,
        "ms, in this order",
        spans=spans,
        labels=labels,
        legend=[Legend(f"part{style}", part) for style, part in enumerate(order)],
    )


def shares_chart(
    name: str,
    shares: Mapping[int, Sequence[float | None]],
    titles: Sequence[str],
    what: Sequence[str],
) -> Chart | None:
    """Shares of what the machine does at most, for each cell.

    Args:
        shares: of each of ``what``, by cell; None if it is not known.
    """
    known = [each for own in shares.values() for each in own if each is not None]
    if not known:
        return None
    x = make_scale([0.0, 100.0, *(each * 100 for each in known)], zero=True)
    dots, labels, rows = [], [], len(shares)
    for place, (cell, own) in enumerate(shares.items()):
        labels.append(Label(0.0, _row(place, 0.34, rows), titles[cell], strong=True))
        for style, share in enumerate(own):
            if share is not None:
                text = f"{titles[cell]}: {share:.1%} of {what[style]}"
                dots.append(
                    Dot(style, x.at(share * 100), _row(place, 0.6 + 0.2 * style, rows), text)
                )
    return Chart(
        name,
        "Share of what this machine does at most",
        f"Shares of {' and of '.join(what)}. The table has the figures.",
        50 * rows,
        x,
        "%",
        rules=[Rule(x.at(100.0), strong=True)],
        dots=dots,
        labels=labels,
        legend=[Legend(style, text) for style, text in enumerate(what)],
    )


def steps_scale(series: Sequence[Array]) -> Scale:
    """One scale, in ms, for the steps of all cells; logarithmic if the longest is far above the median."""
    every = np.concatenate([np.zeros(0), *series]) * 1e3
    shown = every[np.isfinite(every) & (every > 0)]
    if not len(shown):
        return make_scale([])
    spread = float(shown.max()) / float(np.median(shown))
    return make_scale([float(shown.min()), float(shown.max())], log=spread > 4, most_ticks=4)


def steps_chart(
    name: str,
    title: str,
    style: int,
    trials: Sequence[tuple[TrialResult, Array]],
    y: Scale,
    most: int,
) -> Chart | None:
    """The steps of a cell, trial after trial, with warm-up and disturbances.

    Args:
        trials: each with the seconds of all its steps.
        y: the scale that the charts of all cells share.
        most: points of the line at most.
    """
    trials = [(trial, seconds) for trial, seconds in trials if len(seconds)]
    if not trials:
        return None
    every = np.concatenate([seconds for _, seconds in trials]) * 1e3
    if not np.any(np.isfinite(every) & (every > 0)):
        return None
    total = len(every)
    x = make_scale([0.0, float(total)], padding=0.0)
    bands, rules, ticks, legends = [], [], [], {}
    begin = 0
    # A text needs a quarter of the width of a telephone.
    apart, last, named = total * 0.26, -math.inf, -1
    for trial, seconds in trials:
        end = begin + len(seconds)
        warm = min(len(seconds), max(0, trial.first_steady))
        if trial.disturbed:
            bands.append(Band(begin / total, end / total, "disturbed"))
            legends["disturbed"] = "disturbed by other work, or repeated"
        elif trial.again:
            bands.append(Band(begin / total, end / total, "again"))
            legends["again"] = "second process of a round, next to itself"
        if warm:
            bands.append(Band(begin / total, (begin + warm) / total, "warmup"))
            legends["warmup"] = "before the steady state, left out"
        if begin:
            rules.append(Rule(begin / total))
        if begin - last >= apart and trial.round != named:
            ticks.append((begin / total, f"round {trial.round + 1}"))
            last, named = begin, trial.round
        begin = end
    path = line_path(x, y, np.arange(total, dtype=np.float64), every, most)
    return Chart(
        name,
        title,
        f"Times of {total:,} steps of {title}, in {len(trials)} processes one after the other. The table has "
        "the figures of each process.",
        170,
        x,
        "steps, process after process",
        y,
        "ms a step" + (", logarithmic" if y.log else ""),
        bands=bands,
        rules=rules,
        lines=[Line(style, path, title, solid=True)],
        legend=[Legend(kind, text) for kind, text in sorted(legends.items())],
        more_ticks=ticks,
    )
