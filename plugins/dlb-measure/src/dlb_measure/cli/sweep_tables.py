"""The matrix of a sweep before it starts, and what came of it, as tables and documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from dlb.cli.output import Detail, detail, echo, print_answer, print_json, print_table, say
from dlb.provenance import machine_facts
from dlb.settings import in_command
from dlb_measure.cli.measurements import measurement_document
from dlb_measure.cli.sweep_progress import duration
from dlb_measure.estimate import Estimate, total_seconds
from dlb_measure.matrix import Matrix, SweepCell, value_text, words_of
from dlb_measure.plan import Plan
from dlb_measure.results.compared import batches_differ
from dlb_measure.sweeping import CellResult, Swept
from dlb_measure.tables.measurements import counted_rounds, interval_text, measurement_lines
from dlb_measure.verdict import verdict_line, verdict_of

__all__ = [
    "estimate_line",
    "matrix_document",
    "print_end",
    "print_matrix",
    "print_swept",
    "result_document",
    "show_costs",
    "status_text",
    "swept_document",
    "varied_columns",
]


def varied_columns(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The names of what was varied, and each row's values as text."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return names, [[value_text(row.get(name, "")) for name in names] for row in rows]


def estimate_line(matrix: Matrix, estimates: Sequence[Estimate], plan: Plan | None) -> str:
    """What will be done, and how long it will take."""
    count = len(matrix.cells)
    proofs = sum(not each.proof_kept for each in estimates)
    parts = [f"{count} cell{_s(count)}", f"{proofs} to prove, {count - proofs} with a kept proof"]
    if plan is not None:
        trials = plan.rounds * (count + 1)
        parts.append(f"then {plan.rounds} round{_s(plan.rounds)} of {trials} trials together")
    unknown = sum(not each.measured for each in estimates)
    rough = (
        f"; {unknown} by the number of operations alone, which can be wrong by several times"
        if unknown
        else ""
    )
    return f"{', '.join(parts)}: about {duration(total_seconds(estimates, plan))}{rough}"


def show_costs(
    matrix: Matrix, estimates: Sequence[Estimate], plan: Plan | None, as_json: bool
) -> int:
    """All that ``--dry-run`` does; its exit status."""
    if as_json:
        print_json(matrix_document(matrix, estimates, plan))
    else:
        print_matrix(matrix, estimates, plan)
    return 0


def print_matrix(matrix: Matrix, estimates: Sequence[Estimate], plan: Plan | None) -> None:
    """Print every cell with what it will cost."""
    names, varied = varied_columns([dict(cell.varied) for cell in matrix.cells])
    rows = [
        [
            str(place),
            cell.adapter,
            *values,
            str(each.steps),
            "kept" if each.proof_kept else "new",
            f"{each.run_seconds:.0f}",
            f"{each.trial_seconds:.1f}",
            f"{each.memory_bytes / 2**20:,.0f}",
        ]
        for place, (cell, values, each) in enumerate(zip(matrix.cells, varied, estimates), 1)
    ]
    after = ["steps", "proof", "run s", "trial s", "MiB"]
    columns = ["cell", "adapter", *_short(names), *after]
    print_table(columns, rows, right=["cell", "steps", "run s", "trial s", "MiB"])
    for line in _left_out(matrix):
        echo(line)
    for line in memory_lines(matrix.cells, estimates):
        echo(line)
    say(estimate_line(matrix, estimates, plan))


def memory_lines(cells: Sequence[SweepCell], estimates: Sequence[Estimate]) -> list[str]:
    """Cells that need more memory than the machine has."""
    memory = machine_facts().get("memory_bytes")
    if not isinstance(memory, int):
        return []
    return [
        f"{cell.title}: needs about {each.memory_bytes / 2**30:.1f} GiB, and this machine has "
        f"{memory / 2**30:.1f}"
        for cell, each in zip(cells, estimates)
        if each.memory_bytes > memory and cell.request.device == "cpu"
    ]


def matrix_document(
    matrix: Matrix, estimates: Sequence[Estimate], plan: Plan | None
) -> dict[str, Any]:
    """The document of ``--dry-run --json``."""
    return {
        "cells": [
            {
                "adapter": cell.adapter,
                "workload": cell.request.workload.name,
                "varied": dict(cell.varied),
                "estimate": msgspec.to_builtins(each),
            }
            for cell, each in zip(matrix.cells, estimates)
        ],
        "repeated": list(matrix.repeated),
        "refused": [
            {"cell": cell, "reason": reason(in_command)} for cell, reason in matrix.refused
        ],
        "seconds": total_seconds(estimates, plan),
    }


def print_swept(swept: Swept, matrix: Matrix, baseline: int = 0) -> None:
    """Print a row for each cell, and what a reader must know of the trials."""
    measurement, results = swept.measurement, swept.results(baseline)
    names, varied = varied_columns([dict(each.varied) for each in results])
    rows = [
        [each.adapter, *values, *_figures(each), status_text(each)]
        for each, values in zip(results, varied)
    ]
    title = f"{results[0].workload}: {len(results)} cell{_s(len(results))}"
    if measurement is not None:
        title += f", {counted_rounds(measurement.done)} of new processes, 95% intervals"
    right = ["median ms", "samples/s", "accuracy", "times"]
    columns = ["adapter", *_short(names), *right, "interval", "", "proof"]
    print_table(columns, rows, title, right=right)
    base = swept.baseline_place(baseline)
    if base is not None and measurement is not None:
        by = "a sample" if batches_differ(measurement) else "a step"
        cell = measurement.cells[base]
        what = ", ".join([cell.adapter, *words_of(cell.varied)])
        echo(f"times: the time of {by} next to that of {what}")
    if any(swept.alone):
        echo(
            "times: the time of a sample next to that of the first cell without a ratio. Cells ran by an "
            "executor, at other times and perhaps on other machines: what differs there is in the ratios"
        )
    for line in _left_out(matrix):
        echo(line)
    print_end(swept, baseline)


def print_end(swept: Swept, baseline: int = 0) -> None:
    """Print what failed, what a reader must know of the trials, and the answer; with ``-v`` each proof."""
    from dlb.cli.tables import print_certificate

    for each in swept.results(baseline):
        what = ", ".join([each.adapter, *words_of(each.varied)])
        if each.record is not None and each.record.certificate and detail() >= Detail.PHASES:
            echo(f"\n{what}")
            print_certificate(each.record.certificate)
        if each.failure is not None:
            say(f"{what} failed: {each.failure.line}")
    for line in measurement_lines(swept.measurement) if swept.measurement else ():
        echo(line)
    echo(f"Sweep: sweeps/{swept.sweep.name}.json")
    print_answer(swept_answer(swept, baseline))


def swept_answer(swept: Swept, baseline: int) -> str:
    """The sentence that answers: who takes how much of whose time; without rounds, how much is proven."""
    if swept.measurement is not None:
        place = swept.baseline_place(baseline) or 0
        return verdict_line(verdict_of(swept.measurement, place))
    proven = sum(each is not None and each.proof == "proven" for each in swept.records)
    return f"{proven} of {len(swept.records)} cells proven; not measured in rounds."


def swept_document(swept: Swept, baseline: int = 0) -> dict[str, Any]:
    """The document of ``--json``."""
    measurement = swept.measurement
    return {
        "answer": swept_answer(swept, baseline),
        "sweep": swept.sweep.name,
        "cells": [result_document(each) for each in swept.results(baseline)],
        "measurement": None
        if measurement is None
        else measurement_document(measurement, swept.baseline_place(baseline) or 0),
        "interrupted": swept.interrupted,
    }


def result_document(each: CellResult) -> dict[str, Any]:
    """What came of a cell, as plain data; its record by name."""
    document: dict[str, Any] = msgspec.to_builtins(replace(each, record=None))
    return {**document, "record": "" if each.record is None else each.record.name}


def _figures(each: CellResult) -> list[str]:
    timed, ratio = each.seconds is not None, each.ratio
    return [
        f"{each.seconds * 1e3:.2f}" if each.seconds is not None else "-",
        "-" if each.samples_per_second is None else f"{each.samples_per_second:,.0f}",
        "-" if each.accuracy is None else f"{each.accuracy:.1%}",
        f"{ratio.ratio:.3f}" if ratio is not None else "1" if timed else "-",
        interval_text(ratio) if ratio is not None else "",
        each.word or "",
    ]


def status_text(each: CellResult) -> str:
    """The word for a cell: that of its proof, or why it has none."""
    if each.failure is not None:
        return "failed"
    return each.proof if each.record is not None else "not run"


def _left_out(matrix: Matrix) -> list[str]:
    lines = []
    if matrix.repeated:
        count = len(matrix.repeated)
        lines.append(
            f"Left out: {count} combination{_s(count)} that {'is' if count == 1 else 'are'} the same "
            f"as another cell, such as {matrix.repeated[0]}"
        )
    lines += [f"Left out: {cell}: {reason(in_command)}" for cell, reason in matrix.refused]
    return lines


def _short(names: Sequence[str]) -> list[str]:
    return [name.rpartition(".")[2] for name in names]


def _s(count: int) -> str:
    return "" if count == 1 else "s"
