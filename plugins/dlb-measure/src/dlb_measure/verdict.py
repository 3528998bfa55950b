"""What a measurement says, as facts and in one sentence: which is faster, by how much, whether it is proven.

Commands, documents, reports and notebooks show the same sentence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlb.printable import printable
from dlb.proof.certificate import ProofStatus
from dlb_measure.comparison import own_ratio
from dlb_measure.ratios import Ratio, Word, rounds_to_find
from dlb_measure.results.compared import (
    batches_differ,
    compared_cells,
    framework_names,
)
from dlb_measure.results.measurement import Measurement

__all__ = [
    "Standing",
    "Verdict",
    "interval_of",
    "is_exact",
    "ratio_text",
    "verdict_line",
    "verdict_of",
]

#: Where frameworks cannot be told apart, what the measurement would have found is said of this difference.
DIFFERENCE = 0.03
#: And how many rounds would find it with this probability, if no more than these.
POWER, MOST_ROUNDS = 0.9, 1000
#: What a quick run proves of the timed model itself.
QUICK_CHECKS = "weights, a forward pass in float32 and steps drawn at random"
_PROVEN = ("proven", "within rounding")


@dataclass(frozen=True)
class Standing:
    """One framework in a verdict.

    Attributes:
        name: the framework, with what tells it from another cell of the same.
        proof: the status of its proof; ``unproven`` too if that of a trial is.
        seconds: of a step; None if it was not measured.
        ratio, word: its time next to the baseline's; None of the baseline, and if one was not measured.
        reason: why it was not measured.
        oversubscribed: whether threads waited for cores, so that the ratio says nothing.
    """

    name: str
    proof: ProofStatus
    seconds: float | None
    ratio: Ratio | None = None
    word: Word | None = None
    reason: str = ""
    oversubscribed: bool = False


@dataclass(frozen=True)
class Verdict:
    """What a measurement says.

    Attributes:
        baseline: what the others are compared with.
        others: in the order of the measurement.
        margin: frameworks that differ by less count as the same.
        own: ratio of a framework and itself in the same rounds; None without a second trial.
        sample: whether times are those of a sample, since steps have different numbers of them.
        quick: whether it was a quick run.
        trials, disturbed: how many there are, and during how many other work used the cores.
    """

    baseline: Standing
    others: Sequence[Standing]
    margin: float
    own: Ratio | None = None
    sample: bool = False
    quick: bool = False
    trials: int = 0
    disturbed: int = 0

    @property
    def every(self) -> list[Standing]:
        return [self.baseline, *self.others]


def verdict_of(measurement: Measurement, baseline: int = 0) -> Verdict:
    """The facts, next to a baseline, the place of a cell."""
    names = framework_names(measurement)
    standings = []
    for each in compared_cells(measurement, baseline):
        trials = [trial for trial in measurement.trials if trial.cell == each.cell]
        failures = [trial.failure.line for trial in trials if trial.failure is not None]
        unproven = any(trial.unproven for trial in trials)
        standings.append(
            Standing(
                names[each.cell],
                "unproven" if unproven else measurement.cells[each.cell].proof,
                each.seconds,
                each.ratio,
                each.word,
                (failures or ["no steady state" if trials else "rounds ended before"])[0],
                each.oversubscribed,
            )
        )
    return Verdict(
        standings.pop(baseline),
        standings,
        measurement.margin,
        own_ratio(measurement.trials, len(measurement.cells)),
        batches_differ(measurement),
        measurement.quick,
        len(measurement.trials),
        sum(trial.disturbed for trial in measurement.trials),
    )


def verdict_line(verdict: Verdict, short: bool = False) -> str:
    """The sentence. What is not proven, was not measured or was mostly disturbed comes first.

    Args:
        short: as a title: without intervals, reasons, disturbances and what would have been found.
    """
    every = verdict.every
    open_ones = [each for each in every if each.proof not in _PROVEN]
    missing = [
        each.name if short else f"{each.name} ({each.reason})"
        for each in every
        if each.seconds is None
    ]
    begin = "Quick: " if verdict.quick else ""
    if verdict.quick and {each.proof for each in every} == {"unproven"}:
        begin = f"Quick, and not proven beyond {QUICK_CHECKS}. "
    elif open_ones:
        names = [f"{each.name} ({each.proof})" for each in open_ones]
        begin += f"Not proven: {_joined(names)}. "
    begin += f"Not measured: {_joined(missing)}. " if missing else ""
    waited = any(each.oversubscribed for each in every)
    if (2 * verdict.disturbed > verdict.trials or waited) and not short:
        begin += f"Other work used the cores in {verdict.disturbed} of {verdict.trials} processes. "
    end = "" if open_ones else _proof(every)
    return printable(f"{begin}{_compared(verdict, short)}{end}{'' if short else '.'}")


def _proof(every: Sequence[Standing]) -> str:
    """``; both proven``."""
    statuses = {each.proof for each in every}
    if len(statuses) == 1:
        count = {1: "", 2: "both "}.get(len(every), "all ")
        return f"; {count}{every[0].proof}"
    return "; " + ", ".join(f"{each.name} {each.proof}" for each in every)


def _compared(verdict: Verdict, short: bool) -> str:
    """Every framework next to the baseline."""
    baseline = verdict.baseline
    measured = [each for each in verdict.others if each.ratio is not None]
    of = "time of a sample" if verdict.sample else "time"
    if not measured:
        if baseline.seconds is None:
            return "Nothing is compared"
        return f"{baseline.name} takes {baseline.seconds * 1e3:,.2f} ms a step"
    found = "" if short else _found(measured, verdict)
    if len(measured) == 1:
        return _single(measured[0], verdict, of, short) + found
    standing = [(1.0, f"{baseline.name} 1")]
    for each in measured:
        assert each.ratio is not None
        said = {"unclear": "cannot be told apart", "same": "the same"}.get(str(each.word), "")
        notes = "; ".join(filter(None, ["" if short else interval_of(each.ratio), said]))
        text = f"{each.name} {ratio_text(each.ratio.ratio, is_exact(each.ratio))}"
        standing.append((each.ratio.ratio, f"{text} ({notes})" if notes else text))
    ordered = ", ".join(text for _, text in sorted(standing))
    return f"Fastest first, in {_of(baseline.name)} {of}: {ordered}{found}"


def _single(other: Standing, verdict: Verdict, of: str, short: bool) -> str:
    """One framework next to the baseline."""
    ratio, name, baseline = other.ratio, other.name, verdict.baseline.name
    assert ratio is not None
    interval = "" if short else f" ({interval_of(ratio)})"
    if other.word == "same":
        margin = _percent(verdict.margin)
        return f"{name} and {baseline} take the same {of} within {margin}{interval}"
    if other.word == "unclear":
        if not math.isfinite(ratio.high):
            return f"{name} took {_times(ratio, baseline, of)} in one round, which says little"
        return f"{name} and {baseline} cannot be told apart{interval}"
    return f"{name} takes {_times(ratio, baseline, of)}{interval}"


def _times(ratio: Ratio, baseline: str, of: str) -> str:
    """``0.70 of PyTorch's time``, ``1.41 times PyTorch's time``."""
    word = "of" if ratio.ratio < 1 else "times"
    return f"{ratio_text(ratio.ratio, is_exact(ratio))} {word} {_of(baseline)} {of}"


def _found(measured: Sequence[Standing], verdict: Verdict) -> str:
    """Where frameworks cannot be told apart, what would have been found, of the widest; or what to do."""
    if any(each.oversubscribed for each in measured):
        return "; threads waited for cores: wait for the other work to end, or measure with --threads 1"
    unclear = [each.ratio for each in measured if each.word == "unclear"]
    ratios = [ratio for ratio in unclear if ratio is not None and ratio.spread]
    if not ratios:
        return ""
    widest = max(ratios, key=lambda each: each.spread)
    difference = max(DIFFERENCE, verdict.margin)
    text = (
        f"; a difference of {_percent(difference)} would have been found with "
        f"{widest.power(difference):.0%}"
    )
    rounds = rounds_to_find(widest.spread, difference, POWER, MOST_ROUNDS)
    least = f"{rounds} rounds" if rounds < MOST_ROUNDS else f"more than {MOST_ROUNDS:,} rounds"
    text += f", and takes {least} to be found with {POWER:.0%}"
    if any(each is not None and not each.low <= 1 <= each.high for each in ratios):
        assert verdict.own is not None
        apart = math.expm1(abs(math.log(verdict.own.ratio)))
        text += f"; a framework next to itself differed by {apart:.1%}"
    return text


def _joined(names: Sequence[str]) -> str:
    """``A, B and C``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _of(name: str) -> str:
    return f"{name}'" if name.endswith("s") else f"{name}'s"


def _percent(share: float) -> str:
    return f"{share:.1%}".replace(".0%", "%")


def is_exact(ratio: Ratio) -> bool:
    """Whether its interval is too narrow for two digits behind the point."""
    return 0 < ratio.high - ratio.low < 0.03


def ratio_text(value: float, exact: bool = False) -> str:
    """``1.31``; close to 1, or if it is known exactly, with a further digit."""
    return _number(value, exact or 0.9 < value < 1.1)


def _number(value: float, exact: bool) -> str:
    if not math.isfinite(value):
        return "any number"
    if value >= 1000 or value < 0.001:
        return f"{value:.2e}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3f}" if exact else f"{value:.2f}"


def interval_of(ratio: Ratio) -> str:
    """``1.27 to 1.35``."""
    if not math.isfinite(ratio.high) or ratio.rounds < 2:
        return "interval unknown"
    near = is_exact(ratio) or (ratio.low > 0.9 and ratio.high < 1.1)
    return " to ".join(_number(each, near) for each in (ratio.low, ratio.high))
