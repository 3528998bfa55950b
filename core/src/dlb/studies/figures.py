"""Quantities of the papers' tables, from what was measured here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dlb.execution.scale import ScaleRow
from dlb.execution.sweep import CellResult
from dlb.provenance import available_cores
from dlb.request import Request
from dlb.results.measurement import TrialResult
from dlb.studies.study import Part, QuantityKind

__all__ = ["Figure", "Measured", "figure_of"]


@dataclass(frozen=True)
class Figure:
    """One of our numbers.

    Attributes:
        value: None if there is none.
        estimated: whether it was reckoned from fewer steps than the paper has.
        reason: why there is none.
        proof: of the cell that it comes from.
    """

    value: float | None
    estimated: bool = False
    reason: str = ""
    proof: str = "proven"


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
    made = _KINDS[kind](measured)
    return Figure(made.value, made.estimated, made.reason, result.proof)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return math.fsum(known) / len(known) if known else None


def _step_seconds(measured: Measured, *, waiting: bool = False) -> float | None:
    """Mean time of a step over trials; the papers print means. Without trials, that of the run."""
    step = _mean([each.mean for each in measured.trials])
    if step is None:
        return None
    return step + ((_mean([each.waiting for each in measured.trials]) or 0.0) if waiting else 0.0)


def _plain(value: float | None, reason: str = "no steady state was found") -> Figure:
    return Figure(value, reason="" if value is not None else reason)


def _seconds_per_batch(measured: Measured) -> Figure:
    return _plain(_step_seconds(measured))


def _samples_per_second(measured: Measured) -> Figure:
    return _plain(measured.result.samples_per_second)


def _images_per_ms(measured: Measured) -> Figure:
    speed = measured.result.samples_per_second
    return _plain(None if speed is None else speed / 1e3)


def _training_seconds(measured: Measured) -> Figure:
    """Of the paper's iterations: as they were trained, or reckoned from steady steps."""
    iterations, found = measured.part.iterations, measured.result.record
    iterations = iterations or measured.request.steps
    if measured.request.steps >= iterations and found is not None and found.timing is not None:
        timing = found.timing
        taken = (*timing.step_seconds[:iterations], *timing.data_seconds[:iterations])
        return Figure(math.fsum(taken))
    step = _step_seconds(measured, waiting=True)
    return _plain(None) if step is None else Figure(step * iterations, estimated=True)


def _testing_seconds(measured: Measured) -> Figure:
    """Of the test split at the end."""
    if measured.made_up:
        return Figure(None, reason=measured.made_up)
    found = measured.result.record
    quality = None if found is None else found.quality
    return _plain(None if quality is None else quality.test_seconds, "the test was not timed")


def _epoch_seconds(measured: Measured) -> Figure:
    if not measured.part.samples:
        return Figure(None, reason="the study does not say how many samples an epoch has")
    step = _step_seconds(measured, waiting=True)
    steps = measured.part.samples / measured.request.batch_size
    return _plain(None) if step is None else Figure(step * steps, estimated=True)


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
        return _plain(_mean(shares), "the system does not say it")

    return share


def _memory(name: str) -> Callable[[Measured], Figure]:
    def megabytes(measured: Measured) -> Figure:
        seen = [trial.observed.get("resources", {}).get(name) for trial in measured.trials]
        known = [each / 1e6 for each in seen if isinstance(each, (int, float))]
        return _plain(_mean(known), "the system does not say it")

    return megabytes


def _speedup(measured: Measured) -> Figure:
    row = measured.scaled
    if row is None:
        return Figure(None, reason="one worker was not measured")
    if row.workers == 1:
        return Figure(1.0)
    reason = "no round has a figure of one worker and of these"
    return _plain(None if row.speedup is None else row.speedup.ratio, reason)


def _efficiency_pct(measured: Measured) -> Figure:
    speedup = _speedup(measured)
    if speedup.value is None:
        return speedup
    return Figure(speedup.value * 100 / measured.request.workers)


_KINDS: Mapping[str, Callable[[Measured], Figure]] = {
    "seconds_per_batch": _seconds_per_batch,
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
