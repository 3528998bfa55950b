"""The sections of a page, in their order: the summary first, then what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from dlb.errors import RecordError, UnknownNameError
from dlb.record import Options, Record
from dlb.report.measurements import (
    measurement_lines,
    measurement_table,
    phases_table,
)
from dlb.report.page.blocks import (
    Block,
    Data,
    Heading,
    Lines,
    Section,
    Shown,
    Statement,
    data_of,
)
from dlb.report.page.naming import Looks, cell_titles, labelled, run_title
from dlb.report.page.sources import Array, Measured, Run, Source
from dlb.report.page.summary import between_statement, measurement_statements, run_statements
from dlb.report.plain import number_text, plain
from dlb.report.records import result_lines, results_table, tests_table
from dlb.report.table import Table
from dlb.results.between import Pair, differences, other_machine, pairs
from dlb.results.compared import batches_differ, compared_cells
from dlb.results.index import COLUMNS
from dlb_worker.contract import PHASES

__all__ = ["Results", "Summed", "fact_lines", "summary_parts"]

#: Sentences about a measurement at most.
MOST_STATEMENTS = 24
#: Columns of the list of all results.
_LISTED = (
    "started", "kind", "workload", "adapter", "variant", "batch_size", "threads", "workers", "proof",
    "step_seconds", "samples_per_second", "accuracy", "name",
)  # fmt: skip


@dataclass(frozen=True)
class Summed:
    """The statements about one measurement or one command."""

    title: str
    note: str
    statements: Sequence[Statement]


@dataclass
class Results:
    """What a page shows, and what all its sections share.

    Attributes:
        baseline: adapter that ratios are to; the first of each measurement if empty.
        points: points of a line at most.
        rows: rows of the list of results at most.
        trouble: series that could not be read, with the reason; filled while sections are made.
    """

    sources: Sequence[Source]
    baseline: str = ""
    points: int = 2000
    rows: int = 500
    looks: Looks = field(default_factory=Looks)
    trouble: dict[str, str] = field(default_factory=dict)
    _series: dict[str, dict[str, Array]] = field(default_factory=dict)

    @property
    def several(self) -> bool:
        return len(self.sources) > 1

    @cached_property
    def measured(self) -> list[Measured]:
        """Measurements with trials, of all folders."""
        every = [each for source in self.sources for each in source.measurements]
        return [each for each in every if each.measurement.trials]

    @cached_property
    def runs(self) -> list[Run]:
        return [each for source in self.sources for each in source.runs]

    @cached_property
    def commands(self) -> list[list[Run]]:
        """Runs of one command together, the last first."""
        by_proof: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs:
            by_proof.setdefault((run.source, run.certificate), []).append(run)
        return [sorted(own, key=lambda run: run.record.name) for own in by_proof.values()]

    def place_of_baseline(self, measured: Measured) -> int:
        names = [cell.adapter for cell in measured.measurement.cells]
        return names.index(self.baseline) if self.baseline in names else 0

    def check_baseline(self) -> None:
        """Check that the baseline is there.

        Raises:
            UnknownNameError: no measurement has it.
        """
        names = [cell.adapter for each in self.measured for cell in each.measurement.cells]
        if self.baseline and self.baseline not in names:
            raise UnknownNameError("adapter of the measurements:", self.baseline, names, "")

    def titles(self, measured: Measured) -> list[str]:
        """Titles of the cells, each with its status and, of several folders, the folder."""
        return [
            self._named(labelled(title, measured.proof_of(place)), measured.source)
            for place, title in enumerate(cell_titles(measured))
        ]

    def title(self, run: Run) -> str:
        """The title of a run, as :meth:`titles`."""
        status = "failed" if run.record.failure else run.record.proof
        return self._named(labelled(run_title(run.record), status), run.source)

    def styles(self, measured: Measured) -> list[int]:
        """The look of each cell."""
        return [self.looks.of(title) for title in self.titles(measured)]

    def series(self, measured: Measured, digest: str) -> dict[str, Array]:
        """The series of a file; empty if it cannot be read, which is then said."""
        if not digest:
            return {}
        if digest not in self._series:
            from dlb import contents

            try:
                self._series[digest] = contents.read_arrays(measured.folder, digest)
            except RecordError as error:
                self.trouble[f"series {plain(digest, 16)}"] = error.message
                self._series[digest] = {}
        return self._series[digest]

    @staticmethod
    def _named(title: str, source: str) -> str:
        return f"{title}, {plain(source, 40)}" if source else title


def heading_of(measured: Measured) -> Heading:
    """What was measured, when and where."""
    measurement = measured.measurement
    options = measurement.cells[0].options
    threads = sorted({cell.options.threads for cell in measurement.cells})
    sizes = sorted({cell.options.batch_size for cell in measurement.cells})
    note = _note(options, sizes, threads, measurement.started)
    if measurement.ended in ("", "interrupted"):
        note += "; not finished"
    return Heading(_where(measurement.cells[0].workload_name, measured.source), plain(note))


def heading_of_runs(runs: Sequence[Run]) -> Heading:
    record = runs[0].record
    options = record.options
    note = _note(options, [options.batch_size], [options.threads], record.started)
    return Heading(_where(record.workload_name, runs[0].source), plain(note))


def _note(options: Options, sizes: Sequence[int], threads: Sequence[int], started: str) -> str:
    counted = " or ".join(str(each) for each in threads[:8])
    several = "" if counted == "1" else "s"
    batches = " or ".join(str(each) for each in sizes[:8])
    return (
        f"batch size {batches}, {options.dtype}, {options.device}, {counted} thread{several}; "
        f"{started[:16].replace('T', ' ')} UTC"
    )


def _where(workload: str, source: str) -> str:
    return plain(f"{workload}, in {source}" if source else workload, 100)


def fact_lines(results: Results) -> list[str]:
    """How much there is, and the machines that it comes from."""
    kinds = [row["kind"] for source in results.sources for row in source.rows]
    counted = [
        f"{kinds.count(kind):,} {kind}{'' if kinds.count(kind) == 1 else 's'}"
        for kind in ("measurement", "run")
        if kind in kinds
    ]
    shown = (
        f", of which the last {len(results.measured)} and {len(results.runs)} are shown in detail"
    )
    several = len(kinds) > len(results.measured) + len(results.runs)
    machines = [each.measurement.machine for each in results.measured]
    machines += [run.record.machine for run in results.runs]
    texts = [
        f"{each.get('cpu')}, {each.get('available_cores')} cores, {each.get('system')}"
        for each in machines
    ]
    lines = [" and ".join(counted) + (shown if several else "")] if counted else []
    return [plain(line) for line in [*lines, *list(dict.fromkeys(texts))[:6]]]


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
    from dlb.report.measurements import interval_text

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
    from dlb.report.page.blocks import Plot
    from dlb.report.page.figures import ratio_chart

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
        yield Shown(
            measurement_table(measurement, baseline), _ratios_data(results, measured, number)
        )
        yield Lines([plain(line, 400) for line in _some(measurement_lines(measurement))])
        yield Shown(phases_table(measurement), _trials_data(measured, number), folded=True)


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
