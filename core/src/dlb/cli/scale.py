"""``dlb scale``: how much faster several workers are than one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlb.cli.options import OUT, reading_options, with_options
from dlb.cli.output import echo, note, print_json, print_table, print_warnings
from dlb.cli.rounds import ROUNDS, plan_of
from dlb.cli.sweep import DRY_RUN, SHARED, run_cells, status_of

if TYPE_CHECKING:
    from dlb.execution.measure import Plan
    from dlb.execution.scale import ScaleRow
    from dlb.execution.sweep import Swept
    from dlb.measure.ratios import Ratio
    from dlb.reading import Reading

__all__ = ["scale_command"]


@click.command("scale")
@click.argument("workload")
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME",
    help="Distributed strategy; repeat for several. Default: all that the adapters have.",
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
@with_options(SHARED)
@with_options(ROUNDS)
@DRY_RUN
@OUT
@reading_options
def scale_command(**options: Any) -> int:
    """Measure WORKLOAD with several workers next to one: throughput, speed-up, efficiency.

    One worker runs without a strategy. Every worker has the same number of threads: by default, all
    cores divided by the largest number of workers.
    """
    plan = plan_of(options)
    if plan is None:
        raise click.UsageError("--rounds 0 measures nothing")
    workers = sorted({1, *_numbers("--workers", options.pop("workers"))})
    given = options.pop("batch_sizes")
    sizes = [None] if given is None else _numbers("--batch-size", given)
    return _scale(plan, workers, sizes, **options)


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


def _scale(
    plan: Plan,
    workers: Sequence[int],
    batch_sizes: Sequence[int | None],
    *,
    workload: str,
    reading: Reading,
    adapters: tuple[str, ...],
    strategies: tuple[str, ...],
    weak: bool,
    changes: tuple[str, ...],
    variants: tuple[str, ...],
    threads: int | None,
    provision: bool,
    source: Path | None,
    out: Path,
    as_json: bool,
    dry_run: bool,
    **settings: Any,
) -> int:
    from dlb.adapters import find_adapters
    from dlb.catalogue import load_with_file
    from dlb.cli.options import check_workers
    from dlb.cli.sweep_tables import estimate_line, matrix_document, print_matrix
    from dlb.execution.estimate import estimate
    from dlb.execution.scale import scale_cells, scale_rows, strategies_of
    from dlb.matrix import Matrix, Settings, request_maker
    from dlb.provenance import available_cores

    print_warnings()
    check_workers({"source": source, "provision": provision, "threads": threads})
    described, imported = load_with_file(workload, reading)
    environments = find_adapters(adapters, provision=provision, source=source, report=note)
    cores, most = available_cores(), max(workers)
    cells = scale_cells(
        request_maker(described, imported, environments, out),
        environments,
        strategies_of(environments, strategies),
        workers,
        batch_sizes,
        Settings(
            threads=threads or max(1, cores // most), variants=variants, changes=changes, **settings
        ),
        weak=weak,
    )
    matrix = Matrix(cells)
    estimates = estimate([cell.request for cell in cells], plan)
    if dry_run and as_json:
        print_json(matrix_document(matrix, estimates, plan))
    elif dry_run:
        print_matrix(matrix, estimates, plan)
    if dry_run:
        return 0
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


def _document(swept: Swept, rows: Sequence[ScaleRow]) -> dict[str, Any]:
    from dlb.cli.sweep_tables import result_document, swept_document

    document = swept_document(swept)
    document["rows"] = [
        {
            "result": result_document(row.result),
            "strategy": row.strategy,
            "workers": row.workers,
            "batch_size": row.batch_size,
            "speedup": row.speedup,
            "efficiency": row.efficiency,
        }
        for row in rows
    ]
    return document


def _print(swept: Swept, rows: Sequence[ScaleRow]) -> None:
    from dlb.cli.sweep_tables import status_text
    from dlb.report.measurements import interval_text, measurement_lines

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
    measurement = swept.measurement
    done = 0 if measurement is None else len({each.round for each in measurement.trials})
    title = f"{rows[0].result.workload}: {done} rounds of new processes, 95% intervals"
    print_table(columns, shown, title, right=numbers)
    for row in rows:
        if row.result.failure is not None:
            name = f"{row.result.adapter}, {row.strategy or 'no strategy'}, {row.workers} workers"
            echo(f"{name} failed: {row.result.failure.line}")
    if measurement is not None:
        for line in measurement_lines(measurement):
            echo(line)
    echo(f"Sweep: sweeps/{swept.sweep.name}.json")
