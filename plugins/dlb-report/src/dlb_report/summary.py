"""What was found, in sentences: which is faster, by how much, how sure that is, and whether it is proven."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dlb.proof.certificate import with_variant
from dlb.record import Record
from dlb.report.plain import plain
from dlb_measure.comparison import Compared, own_ratio
from dlb_measure.ratios import Ratio, Word
from dlb_measure.results.between import Pair
from dlb_measure.results.compared import batches_differ, compared_cells
from dlb_measure.tables.measurements import CHANGING, counted_rounds
from dlb_measure.verdict import interval_of, is_exact, ratio_text
from dlb_report.blocks import Statement
from dlb_report.naming import cell_titles, labelled, run_title
from dlb_report.sources import Measured

__all__ = [
    "between_statement",
    "disturbed_text",
    "joint_status",
    "measurement_statements",
    "run_statements",
    "runs_headline",
    "slower_text",
]

#: Share of the trials that count from which disturbances are said of the whole measurement.
MOST_DISTURBED = 0.25
#: Statuses from the best to the worst; of two, the worse one counts.
_ORDER = ("proven", "within rounding", "diverged", "unproven", "deviates")


def joint_status(*statuses: str) -> str:
    """The status of a figure that is about several: the worst."""
    return max(statuses, key=lambda status: _ORDER.index(status) if status in _ORDER else 9)


def slower_text(ratio: Ratio) -> tuple[str, str]:
    """How much slower, and the interval: ``26% slower``, ``2% to 56%``; from twice the time on, multiples.

    Args:
        ratio: above 1.
    """
    known = math.isfinite(ratio.high) and ratio.rounds > 1
    if ratio.ratio >= 2:
        return f"{ratio_text(ratio.ratio)} times as slow", interval_of(ratio)
    digits = 1 if is_exact(ratio) else 0
    bounds = f"{_percent(ratio.low, digits)} to {_percent(ratio.high, digits)}"
    return f"{_percent(ratio.ratio, digits)} slower", bounds if known else "interval unknown"


def _percent(ratio: float, digits: int) -> str:
    """A ratio as what it is above 1: ``26%``."""
    return f"{ratio - 1:.{digits}%}" if ratio < 1000 else f"{ratio:.2e} times"


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
    text = f"{title} takes {milliseconds} for a step"
    return Statement(text, milliseconds, "", status, f"{title}, a step")


def _ratio(
    title: str, other: str, ratio: Ratio, word: Word, status: str, measured: Measured
) -> Statement:
    rounds = counted_rounds(ratio.rounds)
    # Of other batch sizes, the times of samples are compared.
    of = ", by the time of a sample" if batches_differ(measured.measurement) else ""
    if word in ("faster", "slower"):
        # The slower one is named first, so that the figure is always above 0.
        slow, fast = (title, other) if word == "slower" else (other, title)
        figure, interval = slower_text(ratio if word == "slower" else ratio.inverse)
        than = "than" if figure.endswith("slower") else "as"
        text = f"{slow} is {figure} ({interval}) {than} {fast}"
        about = f"{interval}: {slow} {than} {fast}"
        return Statement(text, figure, f"{rounds}{of}", status, about)
    times = f"{ratio_text(ratio.ratio)} of its time, {interval_of(ratio)}, {rounds}{of}"
    if word == "same":
        margin = f"{measured.measurement.margin:.1%}".replace(".0%", "%")
        figure = f"same within {margin}"
        text = f"{title} is as fast as {other}, within {margin}"
        return Statement(text, figure, times, status, f"{title} and {other}")
    text = f"{title} and {other} cannot be told apart"
    return Statement(text, "unclear", f"{times}: {unclear_reason(measured, ratio)}", status)


def disturbed_text(measured: Measured) -> str:
    """``in 28 of 36 trials``, if other work took cores in many trials that count; empty if it did not."""
    trials = measured.measurement.trials
    counted = {(each.cell, each.round, each.again): each.disturbed for each in trials}
    if sum(counted.values()) < MOST_DISTURBED * len(counted) or not any(counted.values()):
        return ""
    return f"in {sum(each.disturbed for each in trials)} of {len(trials)} trials"


def unclear_reason(measured: Measured, ratio: Ratio) -> str:
    """Why it is not said which is faster, and what helps."""
    if ratio.rounds < 2:
        return "one round has no interval; measure more with --rounds"
    if disturbed := disturbed_text(measured):
        return f"other work used the cores {disturbed}; measure again on a quiet machine"
    own = own_ratio(measured.measurement.trials, len(measured.measurement.cells))
    if ratio.low <= 1 <= ratio.high:
        more = "more rounds (--rounds) make it narrower"
        if own is not None and own.width > CHANGING:
            more = "the speed of this machine changes, and --order alternating makes it narrower"
        return f"the interval holds 1; {more}"
    apart = "" if own is None else f", which was {ratio_text(own.ratio)}"
    return f"the ratio is not beyond that of a framework next to itself in the same rounds{apart}"


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
            text, about = (
                f"{title}: {step} a step in one process",
                f"{title}, a step in one process",
            )
            yield Statement(text, step, detail, record.proof, about)


def runs_headline(records: list[Record]) -> str:
    """What one command found without rounds: the statuses of its proof."""
    by_status: dict[str, list[str]] = {}
    for record in records:
        status = "failed" if record.failure is not None else record.proof
        name = with_variant(record.framework or record.adapter, record.options.variant)
        by_status.setdefault(status, []).append(plain(name, 60))
    title = records[0].workload.get("title")
    workload = title if isinstance(title, str) and title.strip() else records[0].workload_name
    said = ", ".join(f"{' and '.join(names[:4])} {status}" for status, names in by_status.items())
    return plain(f"{workload}: {said}; measured in one process, so not compared", 300)
