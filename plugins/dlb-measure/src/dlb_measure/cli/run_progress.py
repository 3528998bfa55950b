"""What ``dlb run`` shows while it runs: each adapter's result when proven, the ratios after each round."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dlb.cli.output import echo, note, show_table
from dlb.progress import Silent, loss_text
from dlb.proof.certificate import with_variant
from dlb.record import Record
from dlb.report.records import share_text
from dlb_measure.cli.sweep_progress import Lines, duration, sweep_reporter
from dlb_measure.estimate import Estimate, total_seconds
from dlb_measure.plan import Plan
from dlb_measure.results.measurement import Measurement
from dlb_measure.tables.measurements import measurement_table

__all__ = ["plan_line", "run_reporter"]


def plan_line(adapters: Sequence[str], estimates: Sequence[Estimate], plan: Plan | None) -> str:
    """What will be done, and about how long it takes."""
    kept = sum(each.proof_kept for each in estimates)
    count = len(adapters)
    proofs = "kept proofs" if kept == count else f"{count - kept} to prove"
    if plan is not None and plan.quick and kept != count:
        proofs = "quick, without a proof of more than the timed model"
    parts = [f"{', '.join(adapters)}: {proofs}"]
    seconds = total_seconds(estimates, plan)
    if plan is not None:
        rounds = f"then {plan.rounds} rounds of {plan.trials_a_round(count)} new processes each"
        rounds += ", all side by side" if plan.quick else ""
        if plan.until == "settled":
            rounds += ", fewer once every word is settled"
        most = "" if plan.budget_seconds is None else f", {duration(plan.budget_seconds)} at most"
        parts.append(rounds + most)
    rough = "" if all(each.measured for each in estimates) else ", roughly"
    return f"{'; '.join(parts)}; about {duration(seconds)} in all{rough}"


class RunReporter(Silent):
    """Shows progress on standard error, and results on standard output when they are known.

    Args:
        lines: shows the progress.
        adapters: their names, in the order in which they are run.
        quiet: standard output is kept for a document; a line about each adapter goes to standard error.
    """

    def __init__(self, lines: Lines, adapters: Sequence[str], quiet: bool) -> None:
        self._lines, self._adapters, self._quiet = lines, list(adapters), quiet
        self._began = time.monotonic()
        lines.cell(0)

    def phase(self, adapter: str, text: str) -> None:
        self._lines.phase(adapter, text)

    def steps(self, adapter: str, done: int, total: int, loss: float) -> None:
        self._lines.steps(adapter, done, total, loss)

    def trial(self, place: int, number: int, count: int) -> None:
        self._lines.trial(place, number, count)

    def recorded(self, ended: Record) -> None:
        place = self._adapters.index(ended.adapter)
        self._lines.left.run_ended(place, ended)
        line = f"{_record_line(ended)} (after {duration(time.monotonic() - self._began)})"
        with self._lines.results():
            note(line) if self._quiet else echo(line)
        if place + 1 < len(self._adapters):
            self._lines.cell(place + 1)

    def round_ended(self, measurement: Measurement) -> None:
        if not self._quiet:
            with self._lines.results():
                show_table(measurement_table(measurement))

    @contextmanager
    def results(self) -> Iterator[None]:
        """While results are printed on standard output."""
        with self._lines.results():
            yield


@contextmanager
def run_reporter(
    adapters: Sequence[str], estimates: Sequence[Estimate], plan: Plan | None, *, quiet: bool
) -> Iterator[RunReporter]:
    """The reporter of a run of several adapters; arguments as :class:`RunReporter`."""
    with sweep_reporter(adapters, estimates, plan, kind="adapter", phases=True) as lines:
        yield RunReporter(lines, adapters, quiet)


def _record_line(record: Record) -> str:
    """One adapter's result: the status of its proof, the first check that did not pass, times and quality."""
    name = with_variant(record.adapter, record.options.variant)
    if record.failure:
        return f"{name}: failed, {record.proof}: {record.failure.line}"
    parts = []
    timing, quality = record.timing, record.quality
    if timing is not None:
        parts.append(f"{timing.median * 1e3:.2f} ms a step")
        parts.append(f"{timing.samples_per_second:,.0f} samples/s")
    if quality is not None and quality.losses:
        last = quality.losses[-1]
        parts.append("loss not a number" if last is None else f"loss {loss_text(last)}")
        if quality.test_accuracy is not None:
            parts.append(f"accuracy {share_text(quality.test_accuracy)}")
    certificate = record.certificate
    if record.proof != "proven" and certificate is not None:
        own = [result for result in certificate.checks if result.adapter == record.adapter]
        verdict = "failed" if record.proof == "deviates" else "not run"
        parts += [f"{each.check}: {verdict}" for each in own if each.verdict == verdict][:1]
    return f"{name}: {record.proof}; {', '.join(parts)}"
