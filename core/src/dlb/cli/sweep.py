"""``dlb sweep``: every combination of some settings, proven and measured in the same rounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlb.cli import INTERRUPTED
from dlb.cli.options import (
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

if TYPE_CHECKING:
    from dlb.execution.measure import Plan
    from dlb.execution.sweep import Swept
    from dlb.matrix import Matrix
    from dlb.reading import Reading

__all__ = [
    "DRY_RUN",
    "SHARED",
    "run_cells",
    "run_groups",
    "show_matrix",
    "status_of",
    "sweep_command",
]

#: What cells have in common.
SHARED = (
    ON,
    set_option,
    click.option(
        "--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True
    ),
    VARIANT,
    click.option(
        "--data", metavar="NAME[:PATH]", help="Data set to use instead of the workload's."
    ),
    VARIABLES,
    SEED,
    *WORKERS,
    click.option("--steps", type=int, metavar="N", help="Training steps of each cell's run."),
    click.option(
        "--epochs",
        type=int,
        metavar="N",
        help="Passes over the data, instead of steps. Default: the workload's.",
    ),
    click.option(
        "--warmup",
        type=int,
        metavar="N",
        help="First steps left out of the summary. Default: 10, or a tenth of few steps.",
    ),
    click.option(
        "--input",
        "input",
        type=click.Choice(["pipeline", "memory"]),
        default="pipeline",
        show_default=True,
        help="The framework's own input pipeline, or data already in memory.",
    ),
)
DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Print the cells and what they will cost, and start nothing."
)
#: How a matrix is run.
MATRIX = (
    DRY_RUN,
    click.option(
        "--skip-refused",
        is_flag=True,
        help="Leave out combinations that cannot be run, in place of refusing the whole.",
    ),
    click.option(
        "--most-cells",
        type=click.IntRange(1),
        default=1000,
        show_default=True,
        metavar="N",
        help="Refuse a matrix of more cells.",
    ),
)


@click.command("sweep")
@click.argument("workload")
@click.option(
    "--vary",
    multiple=True,
    required=True,
    metavar="NAME=VALUE,VALUE",
    help="A setting or a field of the workload, and its values: threads=1,2 or optimizer.learning_rate="
    "0.01,0.1. Repeat for several.",
)
@click.option(
    "--batch-size", type=int, metavar="N", help="Samples a step. Default: the workload's."
)
@with_options(SHARED)
@click.option("--strategy", default="", metavar="NAME", help="Distributed strategy.")
@click.option("--workers", type=int, default=1, show_default=True, metavar="N", help="Its workers.")
@TEST_EVERY
@with_options(ROUNDS)
@click.option(
    "--baseline",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="CELL",
    help="The cell that ratios are to, by its number in --dry-run.",
)
@with_options(MATRIX)
@click.option(
    "--executor",
    default="",
    metavar="NAME[://ADDRESS]",
    help="Run each cell as a job of its own, as dask://HOST:8786 or slurm; packages bring executors.",
)
@OUT
@reading_options
def sweep_command(vary: Sequence[str], baseline: int, **options: Any) -> int:
    """Prove and measure WORKLOAD in every combination of some settings, on adapters.

    Each cell is proven, trained and recorded once, as by dlb run. Then all are measured in the same
    rounds. A sweep that was interrupted or killed goes on when the same command is given again.

    Settings that vary: threads, batch_size, workers, steps, epochs, seed, dtype, device, input, strategy,
    variant, data; every other name is a field of the workload, as --set takes it.
    """
    from dlb.matrix import axes_of

    options |= test_times(options.pop("test_every"))
    plan = plan_of(options)
    axes = axes_of(vary)
    names = {axis.name: f"--{axis.name.replace('_', '-')}" for axis in axes}
    context = click.get_current_context()
    for name, flag in names.items():
        parameter = {"variant": "variants"}.get(name, name)
        source = context.get_parameter_source(parameter)
        if source is not None and source.name == "COMMANDLINE":
            raise click.UsageError(f"{flag} and --vary {name} exclude each other")
    if {"steps", "epochs"} <= {*names, *(n for n in ("steps", "epochs") if options[n] is not None)}:
        raise click.UsageError("steps and epochs exclude each other")
    return run_matrix(axes, plan, baseline=baseline - 1, **options)


def run_matrix(
    axes: Sequence[Any],
    plan: Plan | None,
    *,
    workload: str,
    reading: Reading,
    adapters: tuple[str, ...],
    changes: tuple[str, ...],
    variants: tuple[str, ...],
    provision: bool,
    source: Path | None,
    out: Path,
    as_json: bool,
    dry_run: bool,
    skip_refused: bool,
    most_cells: int,
    baseline: int,
    executor: str,
    **settings: Any,
) -> int:
    """Make the cells, tell what they cost, run them, and print what came of it."""
    from dlb.adapters import find_adapters
    from dlb.catalogue import load_with_file
    from dlb.errors import RequestError
    from dlb.matrix import Settings, check_size, make_cells

    print_warnings()
    if source is not None and not provision:
        raise RequestError("--from says what --provision makes environments from; add --provision")
    for name in ("batch_size", "steps", "epochs", "threads", "workers"):
        if settings[name] is not None and settings[name] < 1:
            flag = name.replace("_", "-")
            raise RequestError(f"--{flag} is {settings[name]}; it must be 1 or more")
    described, imported = load_with_file(workload, reading)
    # Before environments are made: a matrix that is too large for one adapter is so for all.
    check_size(axes, max(1, len(set(adapters))), most_cells)
    environments = find_adapters(adapters, provision=provision, source=source, report=note)
    matrix = make_cells(
        described,
        imported,
        environments,
        axes,
        Settings(variants=variants, changes=changes, **settings),
        out,
        most=most_cells,
        skip_refused=skip_refused,
    )
    if not baseline < len(matrix.cells):
        raise RequestError(f"--baseline {baseline + 1}: there are {len(matrix.cells)} cells")
    return show_matrix(
        matrix, plan, baseline=baseline, dry_run=dry_run, as_json=as_json, executor=executor
    )


def show_matrix(
    matrix: Matrix,
    plan: Plan | None,
    *,
    baseline: int,
    dry_run: bool,
    as_json: bool,
    executor: str,
) -> int:
    """Tell what the cells of a matrix cost, and run them unless that was all."""
    from dlb.cli.sweep_tables import (
        estimate_line,
        matrix_document,
        print_matrix,
        print_swept,
        swept_document,
    )
    from dlb.execution.estimate import estimate

    estimates = estimate([cell.request for cell in matrix.cells], plan)
    if dry_run:
        if as_json:
            print_json(matrix_document(matrix, estimates, plan))
        else:
            print_matrix(matrix, estimates, plan)
        return 0
    if executor:
        swept = run_elsewhere(matrix, plan, executor)
    else:
        note(f"dlb: {estimate_line(matrix, estimates, plan)}")
        swept = run_cells(matrix, estimates, plan)
    if as_json:
        print_json(swept_document(swept, baseline))
    else:
        print_swept(swept, matrix, baseline)
    return status_of(swept)


def run_cells(matrix: Matrix, estimates: Sequence[Any], plan: Plan | None) -> Swept:
    """Run the cells, and report how far it is on standard error."""
    (swept,) = run_groups([matrix], estimates, plan)
    return swept


def run_elsewhere(matrix: Matrix, plan: Plan | None, executor: str) -> Swept:
    """Run the cells by an executor."""
    from dlb.cli.sweep_progress import Counted
    from dlb.execution.executors import make_executor, sweep_on

    titles = [cell.title for cell in matrix.cells]
    return sweep_on(make_executor(executor), matrix.cells, plan, Counted(titles))


def run_groups(
    matrices: Sequence[Matrix], estimates: Sequence[Any], plan: Plan | None
) -> list[Swept]:
    """Run the cells of several matrices, each measured by itself.

    Args:
        estimates: of all cells.
    """
    from dlb.cli.sweep_progress import sweep_reporter
    from dlb.execution.sweep import sweep_groups

    groups = [matrix.cells for matrix in matrices]
    # Of several workloads, each cell says which it is of.
    several = len({group[0].request.workload.name for group in groups}) > 1
    titles = [
        f"{cell.request.workload.name}, {cell.title}" if several else cell.title
        for group in groups
        for cell in group
    ]
    with sweep_reporter(titles, estimates, plan, [len(group) for group in groups]) as reporter:
        return sweep_groups(groups, plan, reporter)


def status_of(swept: Swept) -> int:
    """The exit status."""
    if swept.interrupted:
        note("dlb: interrupted; the same command goes on with what has ended, no process is left")
        return INTERRUPTED
    return 0 if swept.passed else 1
