"""The sections of a page that are about results as a whole: summary, folders, ratios, runs, the list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from dlb.record import Record
from dlb.report.plain import number_text, plain
from dlb.report.records import result_lines, results_table, tests_table
from dlb.report.table import Table
from dlb_measure.results.between import Pair, differences, other_machine, pairs
from dlb_measure.results.compared import batches_differ, compared_cells
from dlb_measure.results.index import COLUMNS
from dlb_measure.tables.measurements import (
    counted_rounds,
    interval_text,
    measurement_lines,
    measurement_table,
    phases_table,
)
from dlb_report.blocks import (
    Block,
    Data,
    Heading,
    Lines,
    Plot,
    Section,
    Shown,
    Statement,
    data_of,
)
from dlb_report.chosen import Results, Summed, heading_of, heading_of_runs
from dlb_report.figures import ratio_chart
from dlb_report.naming import cell_titles
from dlb_report.sources import Measured
from dlb_report.summary import (
    between_statement,
    disturbed_text,
    measurement_statements,
    run_statements,
)
from dlb_worker.contract import PHASES

__all__ = [
    "Maker",
    "alert_lines",
    "compared_section",
    "list_section",
    "ratios_section",
    "runs_section",
    "section",
    "summary_parts",
]

#: Sentences about a measurement at most.
MOST_STATEMENTS = 24
#: Columns of the list of all results.
_LISTED = (
    "started", "kind", "workload", "adapter", "variant", "batch_size", "threads", "workers", "proof",
    "step_seconds", "samples_per_second", "accuracy", "name",
)  # fmt: skip


# --- summary ---------------------------------------------------------------------------------


def summary_parts(results: Results) -> list[Summed]:
    """Every sentence of the summary. A run is told alone only if no measurement tells of it."""
    parts = []
    for first, second, own in folders_compared(results):
        says = [between_statement(first, second, pair) for pair in own]
        title = (
            f"{second.source} next to {first.source}: {second.measurement.cells[0].workload_name}"
        )
        note = "measured at other times: what drifted in between is in the ratios"
        parts.append(Summed(plain(title, 100), note, says))
    for measured in results.measured:
        heading = heading_of(measured)
        says = list(measurement_statements(measured, results.place_of_baseline(measured)))
        more = [Statement(f"and {len(says) - MOST_STATEMENTS} more, in the table of ratios")]
        says = says if len(says) <= MOST_STATEMENTS else says[:MOST_STATEMENTS] + more
        parts.append(Summed(heading.text, heading.note, says))
    told = {cell.record for each in results.measured for cell in each.measurement.cells}
    for runs in results.commands:
        if any(run.record.name in told for run in runs):
            continue
        heading = heading_of_runs(runs)
        parts.append(
            Summed(heading.text, heading.note, list(run_statements([run.record for run in runs])))
        )
    return parts


def alert_lines(results: Results) -> list[str]:
    """What limits the figures of a measurement: that it is not finished, or that other work used the cores."""
    lines = []
    for measured in results.measured:
        measurement = measured.measurement
        named = plain(measurement.cells[0].workload_name, 60)
        if measurement.ended in ("", "interrupted"):
            done = len({trial.round for trial in measurement.trials})
            lines.append(
                f"{named}: not finished, {done} of {counted_rounds(measurement.rounds)}; "
                "the same command goes on with it"
            )
        if disturbed := disturbed_text(measured):
            lines.append(
                f"{named}: other work used the cores {disturbed}, which makes times longer and intervals "
                "wider; measure again on a quiet machine"
            )
    return _some(list(dict.fromkeys(lines)), 6)


# --- folders next to each other --------------------------------------------------------------


def folders_compared(results: Results) -> Iterator[tuple[Measured, Measured, list[Pair]]]:
    """The last measurements of each workload, of every other folder next to the first; on one machine."""
    for first, second in _candidates(results):
        own = pairs(first.measurement, second.measurement)
        if own and not any(other_machine(first.measurement, second.measurement)):
            yield first, second, own


def _candidates(results: Results) -> Iterator[tuple[Measured, Measured]]:
    by_source: dict[str, dict[str, Measured]] = {}
    for each in results.measured:
        workload = each.measurement.cells[0].workload_name
        by_source.setdefault(each.source, {}).setdefault(workload, each)
    if len(by_source) < 2:
        return
    first, *others = by_source.values()
    for other in others:
        for workload, second in other.items():
            if workload in first:
                yield first[workload], second


def compared_section(results: Results) -> Iterator[Block]:
    """Tables of folders next to each other, and what else differs between them."""
    for first, second in _candidates(results):
        title = f"{second.source} next to {first.source}"
        yield Heading(plain(title, 100), second.measurement.cells[0].workload_name)
        machines = list(other_machine(first.measurement, second.measurement))
        if machines:
            yield Lines(
                [
                    "From two machines, so that no ratio is shown: it would be that of the machines",
                    *map(plain, machines),
                ],
                warning=True,
            )
        names, before = results.titles(second), results.titles(first)
        rows = []
        for pair in pairs(first.measurement, second.measurement):
            times = [
                compared_cells(each.measurement)[place].seconds
                for each, place in ((first, pair.first), (second, pair.second))
            ]
            cells = [before[pair.first], names[pair.second]]
            cells += ["-" if each is None else f"{each * 1e3:.2f}" for each in times]
            if pair.ratio is None or pair.word is None or machines:
                rows.append([*cells, "-", "", ""])
            else:
                interval = interval_text(pair.ratio)
                rows.append([*cells, f"{pair.ratio.ratio:.3f}", interval, pair.word])
        columns = ["before", "after", "before, ms", "after, ms", "times before", "interval", ""]
        table = Table(columns, rows, title, right=columns[2:5])
        yield Shown(table, data_of("folders", columns, rows))
        differ = [f"Also different: {each}" for each in _some(differences_of(first, second))]
        yield Lines([*differ, "Measured at other times: what drifted in between is in the ratios"])


def differences_of(first: Measured, second: Measured) -> list[str]:
    return [plain(each) for each in differences(first.measurement, second.measurement)]


def _some(lines: list[str], most: int = 30) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"and {len(lines) - most} more"]


# --- tables of measurements and runs ---------------------------------------------------------


def ratios_section(results: Results) -> Iterator[Block]:
    """Each measurement's table and plot of ratios."""
    for number, measured in enumerate(results.measured, 1):
        measurement, baseline = measured.measurement, results.place_of_baseline(measured)
        yield heading_of(measured)
        compared = compared_cells(measurement, baseline)
        chart = ratio_chart(
            f"ratios-{number}",
            compared,
            results.titles(measured),
            results.styles(measured),
            baseline,
            "a sample" if batches_differ(measurement) else "a step",
        )
        if chart is not None:
            yield Plot([chart])
        yield Shown(_ratios_table(measured, baseline), _ratios_data(results, measured, number))
        yield Lines([plain(line, 400) for line in _some(measurement_lines(measurement))])
        yield Shown(phases_table(measurement), _trials_data(measured, number), folded=True)


def _ratios_table(measured: Measured, baseline: int) -> Table:
    """The table of the measurement with the ratio first, which a narrow screen shows without scrolling."""
    table = measurement_table(measured.measurement, baseline)
    first = [0, 5, 6, len(table.columns) - 1, 7, 1]
    order = first + [place for place in range(len(table.columns)) if place not in first]
    columns = [table.columns[place] or "result" for place in order]
    return replace(
        table, columns=columns, rows=[[row[place] for place in order] for row in table.rows]
    )


def _ratios_data(results: Results, measured: Measured, number: int) -> Data:
    baseline = results.place_of_baseline(measured)
    titles = cell_titles(measured)
    rows = [
        [
            measured.measurement.name,
            titles[each.cell],
            measured.proof_of(each.cell),
            each.seconds,
            titles[baseline],
            *(
                [None] * 4
                if each.ratio is None
                else [each.ratio.ratio, each.ratio.low, each.ratio.high, each.ratio.rounds]
            ),
            each.word,
        ]
        for each in compared_cells(measured.measurement, baseline)
    ]
    columns = ["measurement", "name", "proof", "seconds", "baseline", "ratio", "low", "high"]
    return data_of(f"ratios-{number}", [*columns, "rounds", "word"], rows)


def _trials_data(measured: Measured, number: int) -> Data:
    """Every figure of every trial."""
    left_out = {"checks", "observed", "failure", "cell", "phases"}
    titles = cell_titles(measured)
    rows = []
    columns: list[str] = []
    for trial in measured.measurement.trials:
        fields: dict[str, Any] = msgspec.to_builtins(trial)
        kept = {name: value for name, value in fields.items() if name not in left_out}
        seen = trial.observed.get("resources", {})
        own = {
            f"resources_{name}": value
            for name, value in seen.items()
            if isinstance(value, (int, float))
        }
        row = {
            "name": titles[trial.cell],
            "proof": measured.proof_of(trial.cell),
            "sound": int(trial.sound),
            **kept,
            **{f"{part}_seconds": value for part, value in trial.phases.items() if part in PHASES},
            **own,
        }
        columns += [name for name in row if name not in columns]
        rows.append(row)
    return data_of(
        f"trials-{number}", columns, [[row.get(name) for name in columns] for row in rows]
    )


def runs_section(results: Results) -> Iterator[Block]:
    """Single runs: one process of each adapter."""
    for runs in results.commands:
        records: list[Record] = [run.record for run in runs]
        yield heading_of_runs(runs)
        yield Shown(results_table(records), main=not results.measured)
        tests = tests_table(records)
        if tests.rows:
            yield Shown(tests, folded=True, main=False)
        lines = [
            *result_lines(records),
            *(f"{each.adapter} failed: {each.failure.line}" for each in records if each.failure),
        ]
        if lines:
            yield Lines([plain(line, 400) for line in lines], warning=True)


# --- everything that was chosen --------------------------------------------------------------


def list_section(results: Results) -> Iterator[Block]:
    """Every result that was chosen, and the files that could not be read."""
    rows: list[list[str]] = []
    every: list[list[Any]] = []
    for source in results.sources:
        for row in source.rows:
            if len(rows) < results.rows:
                cells = [_cell(name, row[name]) for name in _LISTED]
                rows.append([plain(source.label, 40), *cells] if results.several else cells)
            every.append([source.label, *(row[name] for name in COLUMNS)])
    if every:
        columns = [_title(name) for name in _LISTED]
        columns = ["folder", *columns] if results.several else columns
        last = (
            f"the last {len(rows):,} of {len(every):,}"
            if len(rows) < len(every)
            else f"{len(rows):,}"
        )
        right = ("batch size", "threads", "workers", "step ms", "samples/s", "accuracy")
        table = Table(columns, rows, f"All results: {last}", right)
        yield Shown(table, data_of("results", ["folder", *COLUMNS], every), len(rows) > 20, False)
    yield from skipped_blocks(results)


def skipped_blocks(results: Results) -> Iterator[Block]:
    """Files that could not be read, by name."""
    skipped = [
        (f"{source.label}/{file}" if results.several else file, reason)
        for source in results.sources
        for file, reason in source.skipped.items()
    ]
    skipped += list(results.trouble.items())
    if skipped:
        lines = [f"{plain(file, 120)} is skipped: {plain(reason)}" for file, reason in skipped]
        yield Lines(_some(lines, 50), warning=True)


def _title(name: str) -> str:
    return {"step_seconds": "step ms", "samples_per_second": "samples/s"}.get(
        name, name.replace("_", " ")
    )


def _cell(name: str, value: Any) -> str:
    if value is None or value == "":
        return "-"
    if name == "step_seconds":
        return number_text(value * 1e3)
    if name == "samples_per_second":
        return number_text(value)
    if name == "accuracy":
        return f"{value:.1%}" if 0 <= value <= 1 else number_text(value)
    if name == "started":
        return plain(str(value)[:19].replace("T", " "))
    return plain(value, 80)


#: Makes the blocks of a section.
Maker = Callable[[Results], Iterator[Block]]


def section(name: str, title: str, lead: str, blocks: Iterator[Block]) -> Section | None:
    """A section; None if there is nothing to show."""
    made = list(blocks)
    return Section(name, title, lead, made) if made else None
