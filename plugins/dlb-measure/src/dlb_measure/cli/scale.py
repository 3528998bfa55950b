"""``dlb scale``: how much faster several workers are than one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from dlb.cli.options import OUT, Asked, with_options, workload_argument, workload_options
from dlb.cli.output import note, print_json, print_table
from dlb_measure.cli.rounds import ROUNDS, plan_of
from dlb_measure.cli.sweep import DRY_RUN, run_cells, status_of

if TYPE_CHECKING:
    from dlb_measure.ratios import Ratio
    from dlb_measure.scale import ScaleRow
    from dlb_measure.sweeping import Swept

__all__ = ["scale_command"]


@click.command("scale")
@workload_argument()
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME",
    help="Distributed strategy; repeat for several. Default, and `all`: all that the adapters have.",
)
@click.option(
    "--workers",
    default="1,2",
    show_default=True,
    metavar="N,N",
    help="Numbers of workers; one is always measured too.",
)
@click.option(
    "--batch-size",
    "batch_sizes",
    metavar="N,N",
    help="Samples a step, all workers together. Default: the workload's.",
)
@click.option("--weak", is_flag=True, help="Batch sizes are of each worker, so that steps grow.")
@workload_options("scale")
@with_options(ROUNDS)
@DRY_RUN
@OUT
def scale_command(
    asked: Asked,
    strategies: tuple[str, ...],
    workers: str,
    batch_sizes: str | None,
    weak: bool,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Measure WORKLOAD with several workers next to one: throughput, speed-up, efficiency.

    One worker runs without a strategy. Every worker has the same number of threads: by default, all
    cores divided by the largest number of workers.
    """
    from dlb.provenance import available_cores
    from dlb_measure.cli.sweep_tables import estimate_line, show_costs
    from dlb_measure.estimate import estimate
    from dlb_measure.matrix import Matrix
    from dlb_measure.scale import scale_cells, scale_rows, strategies_of

    plan = plan_of(options)
    if plan is None:
        raise click.UsageError("--rounds 0 measures nothing")
    counts = sorted({1, *_numbers("--workers", workers)})
    sizes = [None] if batch_sizes is None else _numbers("--batch-size", batch_sizes)
    cores, most = available_cores(), max(counts)
    resolver = asked.resolver(trial_steps=None if plan is None else plan.trial_steps)
    environments = asked.find()
    cells = scale_cells(
        resolver,
        environments,
        strategies_of(environments, strategies),
        counts,
        sizes,
        replace(asked.settings, threads=asked.settings.threads or max(1, cores // most)),
        weak=weak,
    )
    matrix = Matrix(cells)
    estimates = estimate([cell.request for cell in cells], plan)
    if dry_run:
        return show_costs(matrix, estimates, plan, as_json)
    if most > cores:
        note(f"dlb: {most} workers share {cores} cores: speed-ups say little")
    note(f"dlb: {estimate_line(matrix, estimates, plan)}")
    swept = run_cells(matrix, estimates, plan)
    rows = scale_rows(swept, cells)
    if as_json:
        print_json(_document(swept, rows))
    else:
        _print(swept, rows)
    return status_of(swept)


def _numbers(flag: str, text: str) -> list[int]:
    """Numbers, each of them once.

    Raises:
        click.UsageError: the text has another form.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 0 < int(word) < 2**31 for word in words):
        raise click.UsageError(f"{flag} {text}: give whole numbers, 1 or more, such as 1,2")
    numbers = [int(word) for word in words]
    if len(set(numbers)) < len(numbers):
        raise click.UsageError(f"{flag} {text}: give each number once")
    return numbers


def _document(swept: Swept, rows: Sequence[ScaleRow]) -> dict[str, Any]:
    from dlb_measure.cli.sweep_tables import result_document, swept_document

    document = swept_document(swept)
    document["rows"] = [{**vars(row), "result": result_document(row.result)} for row in rows]
    return document


def _print(swept: Swept, rows: Sequence[ScaleRow]) -> None:
    from dlb_measure.cli.sweep_tables import print_end, status_text
    from dlb_measure.tables.measurements import interval_text

    def ratio_cells(ratio: Ratio | None) -> list[str]:
        return ["-", ""] if ratio is None else [f"{ratio.ratio:.2f}", interval_text(ratio)]

    shown = [
        [
            row.result.adapter,
            row.strategy or "-",
            str(row.workers),
            str(row.batch_size),
            "-" if row.result.seconds is None else f"{row.result.seconds * 1e3:.2f}",
            "-"
            if row.result.samples_per_second is None
            else f"{row.result.samples_per_second:,.0f}",
            *(["1", ""] if row.workers == 1 else ratio_cells(row.speedup)),
            *(["1", ""] if row.workers == 1 else ratio_cells(row.efficiency)),
            status_text(row.result),
        ]
        for row in rows
    ]
    numbers = ["workers", "batch", "median ms", "samples/s", "speed-up", "efficiency"]
    columns = ["adapter", "strategy", *numbers[:5], "interval", "efficiency", "interval ", "proof"]
    done = swept.measurement.done if swept.measurement else 0
    title = f"{rows[0].result.workload}: {done} rounds of new processes, 95% intervals"
    print_table(columns, shown, title, right=numbers)
    print_end(swept)
