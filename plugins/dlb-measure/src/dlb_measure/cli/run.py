"""``dlb run`` with rounds of new processes after the proof."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from dlb.cli.options import (
    DETAILS,
    OUT,
    Asked,
    with_options,
    workload_argument,
    workload_options,
)
from dlb.cli.output import interrupted, note, print_answer, print_json
from dlb_measure.cli.rounds import QUICK, ROUNDS, plan_of

if TYPE_CHECKING:
    from dlb.execution.run import Outcome
    from dlb.request import Request
    from dlb_measure.plan import Plan

__all__ = ["run_command"]

#: Rounds of a run that asks for no number, no precision and no budget end within so many seconds.
RUN_SECONDS = 180.0
#: A quick run that names no adapters takes so many.
QUICK_ADAPTERS = 2


@click.command("run")
@workload_argument()
@workload_options("run")
@with_options([*ROUNDS, QUICK, DETAILS])
@OUT
def run_command(asked: Asked, as_json: bool, **options: Any) -> int:
    """Train WORKLOAD on adapters, time it, export it, and prove that the same model ran.

    WORKLOAD is a name (see: dlb list workloads), a .toml file, or an .onnx file, which is trained
    from its own weights.
    """
    from dlb.cli.tables import outcome_document
    from dlb.provenance import OtherWork
    from dlb_measure.cli.measurements import measurement_document

    plan = plan_of(options, RUN_SECONDS)
    other_work = OtherWork()
    resolver = asked.resolver(
        trial_steps=None if plan is None else plan.trial_steps, command="run", report=note
    )
    request = resolver.resolve(asked.settings, asked.find)
    if plan is not None and plan.quick and not asked.adapters:
        request = replace(request, environments=request.environments[:QUICK_ADAPTERS])
    outcome = _run_and_measure(request, plan, other_work.cores(), as_json)
    measurement = outcome.measurement
    if as_json:
        document = outcome_document(outcome)
        if measurement is not None:
            document["measurement"] = measurement_document(measurement)
        print_json(document)
    else:
        print_answer(outcome.answer().line)
    if outcome.interrupted or (measurement is not None and measurement.ended == "interrupted"):
        return interrupted("finished records and trials are kept")
    sound = measurement is None or all(trial.sound for trial in measurement.trials)
    return 0 if outcome.passed and sound else 1


def _run_and_measure(
    request: Request, plan: Plan | None, other_cores: float, as_json: bool
) -> Outcome:
    """Run, then measure in rounds; unless a document is asked for, print each result when it is known.

    Args:
        other_cores: that other processes use now.
    """
    from dlb.cli.tables import print_outcome
    from dlb.execution import kept_proofs
    from dlb.execution.run import run
    from dlb.provenance import available_cores
    from dlb.record import MOST_OTHER_CORES, check_folder
    from dlb_measure.cli.measurements import print_measurement
    from dlb_measure.cli.run_progress import plan_line, run_reporter
    from dlb_measure.estimate import estimate
    from dlb_measure.measure import measure_cells, quick_request, ready_cells
    from dlb_measure.results.compared import threads_wait
    from dlb_measure.tables.measurements import few_steps

    if request.out is not None:
        check_folder(request.out)
    adapters = [environment.adapter for environment in request.environments]
    key = kept_proofs.proof_key(request)
    kept = not request.prove_again and kept_proofs.find(key) is not None
    if plan is not None and plan.quick:
        request, key = quick_request(request, kept), key if kept else ""
    single = [replace(request, environments=[each]) for each in request.environments]
    estimates = estimate(single, plan, kept)
    note(f"dlb: {request.workload.name} on {plan_line(adapters, estimates, plan)}")
    if other_cores > MOST_OTHER_CORES * available_cores():
        times = "this takes longer, and times and ratios are not a quiet machine's"
        if threads_wait(request.threads * request.workers, other_cores, available_cores()):
            times = (
                "while that lasts, threads wait for cores and no ratio is settled; wait, or measure with "
                "--threads 1"
            )
        note(f"dlb: other processes use {other_cores:.1f} of {available_cores()} cores: {times}")
    for line in () if plan is None else few_steps(plan.trial_steps or request.steps):
        note(f"dlb: {line}")
    with run_reporter(adapters, estimates, plan, quiet=as_json) as reporter:
        outcome = run(request, reporter, key=key)
        if not as_json:
            with reporter.results():
                print_outcome(outcome)
        ran = any(each.timing is not None for each in outcome.records if each.failure is None)
        if plan is not None and ran and not outcome.interrupted:
            outcome.measurement = measure_cells(ready_cells(request, outcome), plan, reporter)
    if outcome.measurement is not None and not as_json:
        print_measurement(outcome.measurement)
    return outcome
