"""``dlb run`` and ``dlb verify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from dlb.cli.options import CERTIFICATE, DETAILS, OUT, Asked, workload_argument, workload_options
from dlb.cli.output import interrupted, line_writer, note, print_answer, print_json
from dlb.proof.certificate import CHECK_GROUPS

if TYPE_CHECKING:
    from dlb.adapters import AdapterEnvironment

__all__ = ["run_command", "verify_command"]


@click.command("run")
@workload_argument()
@workload_options("run")
@OUT
@DETAILS
def run_command(asked: Asked, as_json: bool) -> int:
    """Train WORKLOAD on adapters, time it, export it, and prove that the same model ran.

    WORKLOAD is a name (see: dlb list workloads), a .toml file, or an .onnx file, which is trained
    from its own weights. With the package dlb-measure, it is then measured in rounds of new processes.
    """
    return execute("run", asked, as_json)


def _without_all(
    context: click.Context, parameter: click.Parameter, groups: tuple[str, ...]
) -> tuple[str, ...]:
    return CHECK_GROUPS if "all" in groups or not groups else groups


@click.command("verify")
@workload_argument(required=False, metavar="WORKLOAD")
@workload_options(
    "verify",
    groups={"type": click.Choice(["all", *CHECK_GROUPS, "distributed"]), "callback": _without_all},
    steps={"help": "Training steps of the trajectory. Default: 20."},
)
@CERTIFICATE
@DETAILS
@click.argument("extra_arguments", nargs=-1, metavar="")
def verify_command(
    asked: Asked, as_json: bool, certificate: Path | None, extra_arguments: tuple[str, ...]
) -> int:
    """Prove that adapters build, differentiate, update and export the same WORKLOAD.

    Exit status 0: every check that was asked for passed. The result counts as proven only if all
    groups were run.

    WORKLOAD may be an .onnx file: then adapters are proven to compute what the file computes.

    See dlb port for models of your own, and dlb diff for two ONNX files.
    """
    _refuse_arguments(asked.workload, extra_arguments)
    return execute("verify", asked, as_json, certificate=certificate)


def _refuse_arguments(workload: str | None, extra_arguments: tuple[str, ...]) -> None:
    """Raises click.UsageError: WORKLOAD is missing, or there are several."""
    if workload is None:
        raise click.UsageError("Missing argument 'WORKLOAD'")
    if extra_arguments:
        names = (workload, *extra_arguments)
        if all(name.endswith(".onnx") for name in names):
            raise click.UsageError(f"files have a command: dlb diff {' '.join(names)}")
        raise click.UsageError(f"Got unexpected extra argument ({' '.join(extra_arguments)})")


def execute(
    command: Literal["run", "verify"],
    asked: Asked,
    as_json: bool,
    *,
    certificate: Path | None = None,
) -> int:
    """Make the request, run the workload, and print the results."""
    from dlb.cli.tables import outcome_document, print_outcome
    from dlb.execution.run import run
    from dlb.progress import make_reporter
    from dlb.proof.certificate import check_destination
    from dlb.proof.certificate import write as write_certificate
    from dlb.record import check_folder

    def find() -> list[AdapterEnvironment]:
        check_destination(certificate)
        return asked.find()

    request = asked.resolver(command=command, report=note).resolve(asked.settings, find)
    if request.out is not None:
        check_folder(request.out)
    adapters = [environment.adapter for environment in request.environments]
    with make_reporter(adapters, line_writer()) as reporter:
        outcome = run(request, reporter)
    if certificate is not None:
        write_certificate(outcome.certificate, certificate)
    if as_json:
        print_json(outcome_document(outcome))
    else:
        print_outcome(outcome)
        print_answer(outcome.answer().line)
    if outcome.interrupted:
        return interrupted()
    return 0 if outcome.passed else 1
