"""What was found, in sentences: which is faster, by how much, how sure that is, and whether it is proven."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dlb.measure.comparison import Compared
from dlb.measure.ratios import Ratio, Word
from dlb.record import Record
from dlb.report.measurements import counted_rounds
from dlb.report.page.blocks import Statement
from dlb.report.page.naming import cell_titles, labelled, run_title
from dlb.report.page.sources import Measured
from dlb.results.between import Pair
from dlb.results.compared import batches_differ, compared_cells

__all__ = [
    "between_statement",
    "interval_of",
    "joint_status",
    "measurement_statements",
    "ratio_text",
    "run_statements",
]

#: Statuses from the best to the worst; of two, the worse one counts.
_ORDER = ("proven", "within rounding", "diverged", "unproven", "deviates")


def joint_status(*statuses: str) -> str:
    """The status of a figure that is about several: the worst."""
    return max(statuses, key=lambda status: _ORDER.index(status) if status in _ORDER else 9)


def ratio_text(value: float, exact: bool = False) -> str:
    """``1.31``; close to 1, or if it is known exactly, with a further digit."""
    if not math.isfinite(value):
        return "any number"
    if value >= 1000 or value < 0.001:
        return f"{value:.2e}"
    return f"{value:.3f}" if exact or 0.9 < value < 1.1 else f"{value:.2f}"


def _is_exact(ratio: Ratio) -> bool:
    """Whether its interval is too narrow for two digits behind the point."""
    return 0 < ratio.high - ratio.low < 0.03


def measurement_statements(measured: Measured, baseline: int) -> Iterator[Statement]:
    """A sentence for each cell next to the baseline; of a single cell, its time."""
    titles = [
        labelled(title, measured.proof_of(place))
        for place, title in enumerate(cell_titles(measured))
    ]
    for compared in compared_cells(measured.measurement, baseline):
        status = measured.proof_of(compared.cell)
        if compared.ratio is None or compared.word is None:
            if compared.cell == baseline and len(titles) > 1:
                continue
            yield _alone(titles[compared.cell], compared, status)
            continue
        both = joint_status(status, measured.proof_of(baseline))
        yield _ratio(
            titles[compared.cell], titles[baseline], compared.ratio, compared.word, both, measured
        )


def _alone(title: str, compared: Compared, status: str) -> Statement:
    if compared.seconds is None:
        return Statement(title, "no figure", "no trial has a steady state", status)
    milliseconds = f"{compared.seconds * 1e3:,.2f} ms"
    return Statement(f"{title} takes {milliseconds} for a step", milliseconds, "", status)


def _ratio(
    title: str, other: str, ratio: Ratio, word: Word, status: str, measured: Measured
) -> Statement:
    rounds = counted_rounds(ratio.rounds)
    # Of other batch sizes, the times of samples are compared.
    sample = batches_differ(measured.measurement)
    counted = f"{rounds}, by the time of a sample" if sample else rounds
    if word in ("faster", "slower"):
        # The faster one is named first, so that the figure is always above 1.
        fast, slow = (title, other) if word == "faster" else (other, title)
        shown = ratio.inverse if word == "faster" else ratio
        figure = f"{ratio_text(shown.ratio, _is_exact(shown))} times faster"
        return Statement(
            f"{fast} is {figure} than {slow}", figure, f"{interval_of(shown)}, {counted}", status
        )
    of = "a sample" if sample else "a step"
    times = f"{ratio_text(ratio.ratio, _is_exact(ratio))} times its time of {of}"
    detail = f"{times}, {interval_of(ratio)}, {rounds}"
    if word == "same":
        margin = f"{measured.measurement.margin:.1%}".replace(".0%", "%")
        figure = f"same within {margin}"
        return Statement(f"{title} is as fast as {other}, within {margin}", figure, detail, status)
    text = f"{title} next to {other}: unclear which is faster"
    return Statement(text, "unclear", detail, status)


def interval_of(ratio: Ratio) -> str:
    """``1.27 to 1.35``."""
    if not math.isfinite(ratio.high) or ratio.rounds < 2:
        return "interval unknown"
    exact = _is_exact(ratio)
    return f"{ratio_text(ratio.low, exact)} to {ratio_text(ratio.high, exact)}"


def between_statement(first: Measured, second: Measured, pair: Pair) -> Statement:
    """A cell of one results folder next to the same cell of another."""
    statuses = first.proof_of(pair.first), second.proof_of(pair.second)
    before = labelled(cell_titles(first)[pair.first], statuses[0])
    after = labelled(cell_titles(second)[pair.second], statuses[1])
    status = joint_status(*statuses)
    one, other = f"{before} in {first.source}", f"{after} in {second.source}"
    if pair.ratio is None or pair.word is None:
        return Statement(other, "no figure", "no steady trial on one side", status)
    return _ratio(other, one, pair.ratio, pair.word, status, second)


def run_statements(records: list[Record]) -> Iterator[Statement]:
    """The single runs of one command: their times, which say nothing of which is faster."""
    for record in records:
        title, timing = run_title(record), record.timing
        if record.failure is not None:
            yield Statement(title, "failed", record.failure.line, record.proof)
        elif timing is None:
            yield Statement(f"{title}: proof alone", "not timed", "", record.proof)
        else:
            step = f"{timing.median * 1e3:,.2f} ms"
            detail = f"quartiles {timing.lower_quartile * 1e3:,.2f} to {timing.upper_quartile * 1e3:,.2f}"
            yield Statement(
                f"{title}: {step} a step in one process",
                step,
                f"{detail}, one process",
                record.proof,
            )
