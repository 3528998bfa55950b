"""Quantities of the papers' tables, from what was measured here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dlb.provenance import available_cores
from dlb.request import Request
from dlb_measure.ratios import CONFIDENCE, spread, t_quantile
from dlb_measure.results.measurement import TrialResult
from dlb_measure.scale import ScaleRow
from dlb_measure.sweeping import CellResult
from dlb_studies.study import Part, QuantityKind

__all__ = ["Figure", "Measured", "figure_of"]


@dataclass(frozen=True)
class Figure:
    """One of our numbers.

    Attributes:
        value: None if there is none.
        estimated: whether it was reckoned from fewer steps than the paper has.
        reason: why there is none.
        proof: of the cell that it comes from.
        low, high: bounds of the 95% interval of its mean over processes; None of a single process.
    """

    value: float | None
    estimated: bool = False
    reason: str = ""
    proof: str = "proven"
    low: float | None = None
    high: float | None = None

    def times(self, factor: float, *, estimated: bool = False) -> Figure:
        """A multiple of it."""
        value, low, high = (
            None if each is None else each * factor for each in (self.value, self.low, self.high)
        )
        return replace(self, value=value, low=low, high=high, estimated=estimated)


@dataclass(frozen=True)
class Measured:
    """What a quantity is made of.

    Attributes:
        part, request: what was run.
        result, trials: what came of it.
        scaled: next to one worker; None if that was not asked for.
        made_up: why samples were made up; empty if they were not.
    """

    part: Part
    request: Request
    result: CellResult
    trials: Sequence[TrialResult]
    scaled: ScaleRow | None
    made_up: str


def figure_of(kind: QuantityKind, measured: Measured) -> Figure:
    """A quantity of a cell."""
    result = measured.result
    if result.failure is not None:
        return Figure(None, reason=f"failed: {result.failure.line}")
    if result.record is None:
        return Figure(None, reason="not run")
    return replace(_KINDS[kind](measured), proof=result.proof)


def _mean(values: Sequence[float | None], reason: str = "no steady state was found") -> Figure:
    """The mean over processes, with Student's interval."""
    known = [each for each in values if each is not None]
    if not known:
        return Figure(None, reason=reason)
    mean = math.fsum(known) / len(known)
    if len(known) < 2:
        return Figure(mean)
    half = t_quantile(CONFIDENCE, len(known) - 1) * spread(known) / math.sqrt(len(known))
    return Figure(mean, low=max(0.0, mean - half), high=mean + half)


def _step_seconds(measured: Measured, *, waiting: bool = False) -> Figure:
    """Mean time of a step over trials; the papers print means."""
    return _mean(
        [
            None if each.mean is None else each.mean + ((each.waiting or 0.0) if waiting else 0.0)
            for each in measured.trials
        ]
    )


def _samples_per_second(measured: Measured) -> Figure:
    found = _mean([each.samples_per_second for each in measured.trials])
    return found if found.value is not None else _alone(measured.result.samples_per_second)


def _alone(value: float | None, reason: str = "no steady state was found") -> Figure:
    """A figure of one process."""
    return Figure(value, reason="" if value is not None else reason)


def _images_per_ms(measured: Measured) -> Figure:
    return _samples_per_second(measured).times(1e-3)


def _iterations(measured: Measured) -> int:
    return measured.part.iterations or measured.request.steps


def _whole_training(measured: Measured) -> float | None:
    """Seconds of the paper's iterations, if so many were trained."""
    iterations, found = _iterations(measured), measured.result.record
    if measured.request.steps < iterations or found is None or found.timing is None:
        return None
    timing = found.timing
    return math.fsum((*timing.step_seconds[:iterations], *timing.data_seconds[:iterations]))


def _training_seconds(measured: Measured) -> Figure:
    """Of the paper's iterations: as they were trained, or reckoned from steady steps."""
    if (taken := _whole_training(measured)) is not None:
        return Figure(taken)
    return _step_seconds(measured, waiting=True).times(_iterations(measured), estimated=True)


def _testing_seconds(measured: Measured) -> Figure:
    """Of the test split at the end."""
    if measured.made_up:
        return Figure(None, reason=measured.made_up)
    found = measured.result.record
    quality = None if found is None else found.quality
    return _alone(None if quality is None else quality.test_seconds, "the test was not timed")


def _epoch_seconds(measured: Measured) -> Figure:
    """Of the training that :func:`_training_seconds` is of: the two belong together."""
    if not measured.part.samples:
        return Figure(None, reason="the study does not say how many samples an epoch has")
    steps = measured.part.samples / measured.request.batch_size
    if (taken := _whole_training(measured)) is not None:
        return Figure(taken * steps / _iterations(measured))
    return _step_seconds(measured, waiting=True).times(steps, estimated=True)


def _accuracy_pct(measured: Measured) -> Figure:
    iterations, result = measured.part.iterations, measured.result
    if measured.made_up:
        return Figure(None, reason=measured.made_up)
    if measured.request.steps < iterations:
        return Figure(None, reason=f"accuracy is that of {iterations} steps; fewer were trained")
    if result.accuracy is None:
        return Figure(None, reason="it was not tested")
    return Figure(result.accuracy * 100)


def _cpu(*names: str) -> Callable[[Measured], Figure]:
    def share(measured: Measured) -> Figure:
        shares = []
        for trial in measured.trials:
            seen = trial.observed.get("resources", {})
            values = [seen.get(name) for name in (*names, "seconds")]
            numbers = [each for each in values if isinstance(each, (int, float))]
            if len(numbers) == len(values) and numbers[-1] > 0:
                shares.append(math.fsum(numbers[:-1]) / numbers[-1] / available_cores() * 100)
        return _mean(shares, "the system does not say it")

    return share


def _memory(name: str) -> Callable[[Measured], Figure]:
    def megabytes(measured: Measured) -> Figure:
        seen = [trial.observed.get("resources", {}).get(name) for trial in measured.trials]
        known = [each / 1e6 for each in seen if isinstance(each, (int, float))]
        return _mean(known, "the system does not say it")

    return megabytes


def _speedup(measured: Measured) -> Figure:
    row = measured.scaled
    if row is None:
        return Figure(None, reason="one worker was not measured")
    if row.workers == 1:
        return Figure(1.0)
    if row.speedup is None:
        return Figure(None, reason="no round has a figure of one worker and of these")
    ratio = row.speedup
    known = math.isfinite(ratio.high)
    return Figure(ratio.ratio, low=ratio.low if known else None, high=ratio.high if known else None)


def _efficiency_pct(measured: Measured) -> Figure:
    return _speedup(measured).times(100 / measured.request.workers)


_KINDS: Mapping[str, Callable[[Measured], Figure]] = {
    "seconds_per_batch": _step_seconds,
    "samples_per_second": _samples_per_second,
    "images_per_ms": _images_per_ms,
    "training_seconds": _training_seconds,
    "testing_seconds": _testing_seconds,
    "epoch_seconds": _epoch_seconds,
    "accuracy_pct": _accuracy_pct,
    "cpu_user_pct": _cpu("cpu_user_seconds"),
    "cpu_system_pct": _cpu("cpu_system_seconds"),
    "cpu_total_pct": _cpu("cpu_user_seconds", "cpu_system_seconds"),
    "memory_avg_mb": _memory("memory_average_bytes"),
    "memory_max_mb": _memory("memory_peak_bytes"),
    "speedup": _speedup,
    "efficiency_pct": _efficiency_pct,
}
