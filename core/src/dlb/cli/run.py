"""``dlb run`` and ``dlb verify``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlb.cli import INTERRUPTED
from dlb.cli.options import (
    CERTIFICATE,
    ON,
    OUT,
    SEED,
    VARIABLES,
    VARIANT,
    WORKERS,
    reading_options,
    with_options,
)
from dlb.cli.output import note, print_json, print_warnings, set_option
from dlb.cli.rounds import ROUNDS, TEST_EVERY, plan_of, test_times
from dlb.proof.certificate import CHECK_GROUPS

if TYPE_CHECKING:
    from dlb.execution.measure import Plan
    from dlb.execution.run import Outcome
    from dlb.reading import Reading
    from dlb.request import Request
    from dlb.results.measurement import Measurement

__all__ = ["run_command", "verify_command"]

#: Rounds of a run that asks for no number, no precision and no budget end within so many seconds.
RUN_SECONDS = 180.0


def shared_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that ``run`` and ``verify`` have in common."""
    options = [
        ON,
        set_option,
        click.option(
            "--batch-size",
            type=int,
            metavar="N",
            help="Samples a step, all workers together. Default: the workload's.",
        ),
        click.option(
            "--dtype",
            type=click.Choice(["float32", "float64"]),
            default="float32",
            show_default=True,
        ),
        click.option(
            "--strategy",
            default="",
            metavar="NAME",
            help="Distributed strategy; see: dlb list strategies.",
        ),
        click.option(
            "--workers",
            type=int,
            default=1,
            show_default=True,
            metavar="N",
            help="Worker processes of the strategy.",
        ),
        VARIANT,
        click.option(
            "--data",
            metavar="NAME[:PATH]",
            help="Data set to use instead of the workload's; PATH is for your own. See: dlb data list.",
        ),
        VARIABLES,
        SEED,
        *WORKERS,
    ]
    decorated: Callable[..., Any] = with_options(options)(reading_options(function))
    return decorated


@click.command("run")
@click.argument("workload")
@shared_options
@click.option(
    "--prove-again", is_flag=True, help="Make the proof again, even if one was kept that holds."
)
@click.option("--steps", type=int, metavar="N", help="Training steps.")
@click.option(
    "--epochs",
    type=int,
    metavar="N",
    help="Passes over the data, instead of steps. Default: the workload's.",
)
@click.option(
    "--warmup",
    type=int,
    metavar="N",
    help="First steps left out of the summary. Default: 10, or a tenth of few steps.",
)
@click.option(
    "--input",
    "input_mode",
    type=click.Choice(["pipeline", "memory"]),
    default="pipeline",
    show_default=True,
    help="The framework's own input pipeline, or data already in memory.",
)
@TEST_EVERY
@with_options(ROUNDS)
@OUT
def run_command(**options: Any) -> int:
    """Train WORKLOAD on adapters, time it, export it, and prove that the same model ran.

    WORKLOAD is a name (see: dlb list workloads), a .toml file, or an .onnx file, which is trained
    from its own weights.
    """
    steps, epochs = options.pop("steps"), options.pop("epochs")
    options |= test_times(options.pop("test_every"))
    options["plan"] = plan_of(options, RUN_SECONDS)
    if steps is not None and epochs is not None:
        raise click.UsageError("--steps and --epochs exclude each other")
    return execute("run", steps, epochs, **options)


@click.command("verify")
@click.argument("workload", required=False, metavar="WORKLOAD")
@shared_options
@click.option(
    "--group",
    "groups",
    multiple=True,
    type=click.Choice(["all", *CHECK_GROUPS]),
    help="Run only the checks of this group; repeat for several. Default: all.",
)
@click.option(
    "--steps",
    "trajectory_steps",
    type=int,
    metavar="N",
    help="Training steps of the trajectory. Default: 20.",
)
@CERTIFICATE
@click.argument("extra_arguments", nargs=-1, metavar="")
@click.option("--model", "former_models", multiple=True, hidden=True)
@click.option("--level", "former_groups", multiple=True, hidden=True)
def verify_command(
    workload: str | None,
    groups: tuple[str, ...],
    trajectory_steps: int | None,
    extra_arguments: tuple[str, ...],
    former_models: tuple[str, ...],
    former_groups: tuple[str, ...],
    **options: Any,
) -> int:
    """Prove that adapters build, differentiate, update and export the same WORKLOAD.

    Exit status 0: every check that was asked for passed. The result counts as proven only if all
    groups were run.

    WORKLOAD may be an .onnx file: then adapters are proven to compute what the file computes.

    See dlb port for models of your own, and dlb diff for two ONNX files.
    """
    _refuse_former(workload, extra_arguments, former_models, former_groups)
    from dlb.request import TRAJECTORY_STEPS, VERIFY_STEPS

    chosen = CHECK_GROUPS if "all" in groups or not groups else groups
    return execute(
        "verify",
        VERIFY_STEPS,
        None,
        workload=str(workload),
        warmup=0,
        input_mode="pipeline",
        out=None,
        groups=frozenset(chosen),
        trajectory_steps=TRAJECTORY_STEPS if trajectory_steps is None else trajectory_steps,
        **options,
    )


def _refuse_former(
    workload: str | None,
    extra_arguments: tuple[str, ...],
    former_models: tuple[str, ...],
    former_groups: tuple[str, ...],
) -> None:
    """Refuse options of earlier versions, with the present spelling.

    Raises:
        click.UsageError: an option or an argument belongs to an earlier version, or WORKLOAD is missing.
    """
    if former_models:
        models = " ".join(former_models)
        raise click.UsageError(f"models of your own have a command: dlb port {models}")
    if former_groups:
        words = " ".join(f"--group {group}" for group in former_groups)
        raise click.UsageError(f"--level is called --group now; write: {words}")
    if workload is None:
        raise click.UsageError("Missing argument 'WORKLOAD'")
    if extra_arguments:
        names = (workload, *extra_arguments)
        if all(name.endswith(".onnx") for name in names):
            raise click.UsageError(f"files have a command: dlb diff {' '.join(names)}")
        raise click.UsageError(f"Got unexpected extra argument ({' '.join(extra_arguments)})")


def execute(
    command: str,
    steps: int | None,
    epochs: int | None,
    *,
    workload: str,
    reading: Reading,
    adapters: tuple[str, ...],
    provision: bool,
    source: Path | None,
    batch_size: int | None,
    threads: int | None,
    warmup: int | None,
    variants: tuple[str, ...],
    changes: tuple[str, ...],
    data: str | None,
    as_json: bool,
    certificate: Path | None = None,
    plan: Plan | None = None,
    **request_options: Any,
) -> int:
    """Fill in defaults, find the adapters, run the workload, and print the results."""
    from dlb.adapters import check_strategy, find_adapters
    from dlb.catalogue import load_with_file
    from dlb.cli.measurements import measurement_document
    from dlb.cli.tables import outcome_document, print_outcome
    from dlb.errors import RequestError
    from dlb.execution.run import run
    from dlb.progress import make_reporter
    from dlb.proof.certificate import check_destination
    from dlb.proof.certificate import write as write_certificate
    from dlb.provenance import OtherWork, available_cores
    from dlb.request import Request, check, share_cores
    from dlb.samples import count_samples, replace_missing_data, with_data
    from dlb.variants import choose
    from dlb.workload.changes import with_changes

    other_work = OtherWork()
    print_warnings()
    described, imported = load_with_file(workload, reading)
    described = with_changes(described, changes, keep_model=imported is not None)
    if data is not None:
        described = with_data(described, data)
    if command == "verify":
        described = replace_missing_data(described, note)
    samples_a_step = described.batch_size if batch_size is None else batch_size
    samples = count_samples(described)
    if epochs is not None and epochs < 1:
        raise RequestError(f"--epochs is {epochs}; it must be 1 or more")
    if not 1 <= samples_a_step <= samples:
        raise RequestError(
            f"--batch-size is {samples_a_step}; it must be from 1 to the {samples} training samples of "
            f"'{described.data.name}'"
        )
    count = (
        steps if steps is not None else (epochs or described.epochs) * (samples // samples_a_step)
    )
    workers = request_options["workers"]
    request = Request(
        workload=described,
        environments=(),
        batch_size=samples_a_step,
        steps=count,
        warmup=min(10, count // 10) if warmup is None else warmup,
        threads=max(1, available_cores() // max(1, workers)) if threads is None else threads,
        command=command,
        imported=imported,
        **request_options,
    )
    check(request)
    if plan is not None and plan.trial_steps is not None and plan.trial_steps <= request.warmup:
        raise RequestError(
            f"--trial-steps is {plan.trial_steps}; it must be more than the {request.warmup} steps of --warmup"
        )
    check_destination(certificate)
    if source is not None and not provision:
        raise RequestError("--from says what --provision makes environments from; add --provision")
    environments = find_adapters(adapters, provision=provision, source=source, report=note)
    if request.strategy:
        check_strategy(request.strategy, environments)
    request = replace(request, environments=environments, variants=choose(variants, environments))
    if command == "verify":
        at_once, worker_threads = share_cores(
            available_cores(), len(environments), threads, workers=workers, device=request.device
        )
        request = replace(request, at_once=at_once, threads=worker_threads)
    if command == "verify":
        with make_reporter([environment.adapter for environment in environments]) as reporter:
            outcome = run(request, reporter)
        measurement = None
    else:
        outcome, measurement = _run_and_measure(request, plan, other_work.cores(), as_json)
    interrupted = outcome.interrupted or (
        measurement is not None and measurement.ended == "interrupted"
    )
    if certificate is not None:
        write_certificate(outcome.certificate, certificate)
    if as_json:
        document = outcome_document(outcome)
        if measurement is not None:
            document["measurement"] = measurement_document(measurement)
        print_json(document)
    elif command == "verify":
        print_outcome(outcome)
    if interrupted:
        note("dlb: interrupted; finished records and trials are kept, no process is left")
        return INTERRUPTED
    sound = measurement is None or all(trial.sound for trial in measurement.trials)
    return 0 if outcome.passed and sound else 1


def _run_and_measure(
    request: Request, plan: Plan | None, other_cores: float, as_json: bool
) -> tuple[Outcome, Measurement | None]:
    """Run, then measure in rounds; unless a document is asked for, print each result when it is known.

    Args:
        other_cores: that other processes use now.
    """
    from dlb.cli.measurements import print_measurement
    from dlb.cli.run_progress import plan_line, run_reporter
    from dlb.cli.tables import print_outcome
    from dlb.execution import kept_proofs
    from dlb.execution.estimate import estimate
    from dlb.execution.measure import measure
    from dlb.execution.run import run
    from dlb.provenance import available_cores
    from dlb.record import MOST_OTHER_CORES, check_folder

    if request.out is not None:
        check_folder(request.out)
    adapters = [environment.adapter for environment in request.environments]
    key = kept_proofs.proof_key(request)
    kept = not request.prove_again and kept_proofs.find(key) is not None
    single = [replace(request, environments=[each]) for each in request.environments]
    estimates = estimate(single, plan, kept)
    note(f"dlb: {request.workload.name} on {plan_line(adapters, estimates, plan)}")
    if other_cores > MOST_OTHER_CORES * available_cores():
        note(
            f"dlb: other processes use {other_cores:.1f} of {available_cores()} cores: this takes longer, and "
            "times and ratios are not a quiet machine's"
        )
    measurement = None
    with run_reporter(adapters, estimates, plan, quiet=as_json) as reporter:
        outcome = run(request, reporter, key=key)
        if not as_json:
            with reporter.results():
                print_outcome(outcome)
        ran = any(each.timing is not None for each in outcome.records if each.failure is None)
        if plan is not None and ran and not outcome.interrupted:
            measurement = measure(request, outcome, plan, reporter)
    if measurement is not None and not as_json:
        print_measurement(measurement)
    return outcome, measurement
