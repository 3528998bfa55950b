"""``dlb sweep``: every combination of some settings, proven and measured in the same rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dlb.cli.options import OUT, Asked, with_options, workload_argument, workload_options
from dlb.cli.output import interrupted, note, print_json
from dlb.settings import AXES, in_command
from dlb_measure.cli.rounds import ROUNDS, plan_of

if TYPE_CHECKING:
    from dlb_measure.matrix import Matrix
    from dlb_measure.plan import Plan
    from dlb_measure.sweeping import Swept

__all__ = ["DRY_RUN", "run_cells", "run_groups", "show_matrix", "status_of", "sweep_command"]

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
@workload_argument()
@click.option(
    "--vary",
    multiple=True,
    required=True,
    metavar="NAME=VALUE,VALUE",
    help="A setting or a field of the workload, and its values: threads=1,2 or optimizer.learning_rate="
    "0.01,0.1. Repeat for several.",
)
@workload_options("sweep")
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
def sweep_command(
    asked: Asked,
    vary: Sequence[str],
    skip_refused: bool,
    most_cells: int,
    baseline: int,
    dry_run: bool,
    as_json: bool,
    executor: str,
    **options: Any,
) -> int:
    """Prove and measure WORKLOAD in every combination of some settings, on adapters.

    Each cell is proven, trained and recorded once, as by dlb run. Then all are measured in the same
    rounds. A sweep that was interrupted or killed goes on when the same command is given again.

    Settings that vary: threads, batch_size, workers, steps, epochs, seed, dtype, device, input, strategy,
    variant, data; every other name is a field of the workload, as --set takes it.
    """
    from dlb.errors import RequestError
    from dlb_measure.matrix import axes_of, check_size, make_cells

    plan = plan_of(options)
    axes = axes_of(vary)
    context = click.get_current_context()
    for axis in axes:
        name = AXES[axis.name].name if axis.name in AXES else ""
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise click.UsageError(f"{in_command(name)} and --vary {axis.name} exclude each other")
    resolver = asked.resolver(trial_steps=None if plan is None else plan.trial_steps)
    # Before environments are made: a matrix that is too large for one adapter is so for all.
    check_size(axes, max(1, len(set(asked.adapters))), most_cells)
    matrix = make_cells(
        resolver, asked.find(), axes, asked.settings, most=most_cells, skip_refused=skip_refused
    )
    if baseline > len(matrix.cells):
        raise RequestError(f"--baseline {baseline}: there are {len(matrix.cells)} cells")
    return show_matrix(
        matrix, plan, baseline=baseline - 1, dry_run=dry_run, as_json=as_json, executor=executor
    )


def show_matrix(
    matrix: Matrix, plan: Plan | None, *, baseline: int, dry_run: bool, as_json: bool, executor: str
) -> int:
    """Tell what the cells of a matrix cost, and run them unless that was all."""
    from dlb_measure.cli.sweep_progress import Counted
    from dlb_measure.cli.sweep_tables import estimate_line, print_swept, show_costs, swept_document
    from dlb_measure.estimate import estimate
    from dlb_measure.executors import make_executor, sweep_on

    estimates = estimate([cell.request for cell in matrix.cells], plan)
    if dry_run:
        return show_costs(matrix, estimates, plan, as_json)
    if executor:
        titles = [cell.title for cell in matrix.cells]
        swept = sweep_on(make_executor(executor), matrix.cells, plan, Counted(titles))
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


def run_groups(
    matrices: Sequence[Matrix], estimates: Sequence[Any], plan: Plan | None
) -> list[Swept]:
    """Run the cells of several matrices, each measured by itself.

    Args:
        estimates: of all cells.
    """
    from dlb_measure.cli.sweep_progress import sweep_reporter
    from dlb_measure.sweeping import sweep_groups

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
        return interrupted("the same command goes on with what has ended")
    return 0 if swept.passed else 1
