"""What a page shows, and what all its sections share: titles, looks, series, headings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from dlb import contents
from dlb.errors import RecordError, UnknownNameError
from dlb.record import Options
from dlb.report.plain import plain
from dlb_measure.verdict import Verdict, verdict_line, verdict_of
from dlb_report.blocks import (
    Heading,
    Statement,
)
from dlb_report.naming import Looks, cell_titles, labelled, run_title
from dlb_report.sources import Array, Measured, Run, Source

__all__ = [
    "Results",
    "Summed",
    "answer_of",
    "fact_lines",
    "heading_of",
    "heading_of_runs",
    "title_of",
]

#: Letters of a title.
MOST_TITLE = 300


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
            try:
                self._series[digest] = contents.read_arrays(measured.folder, digest)
            except RecordError as error:
                self.trouble[f"series {plain(digest, 16)}"] = error.message
                self._series[digest] = {}
        return self._series[digest]

    @staticmethod
    def _named(title: str, source: str) -> str:
        return f"{title}, {plain(source, 40)}" if source else title


def title_of(results: Results, measured: Measured) -> str:
    """What a measurement says in short, after the title of its workload, or its name if no record has one."""
    cell = measured.measurement.cells[0]
    titles = [
        run.record.workload.get("title") for run in results.runs if run.record.name == cell.record
    ]
    known = [each.strip() for each in titles if isinstance(each, str) and each.strip()]
    line = verdict_line(_verdict(results, measured), short=True)
    return plain(f"{plain((known or [cell.workload_name])[0], 100)}: {line}", MOST_TITLE)


def _verdict(results: Results, measured: Measured) -> Verdict:
    return verdict_of(measured.measurement, results.place_of_baseline(measured))


def heading_of(measured: Measured) -> Heading:
    """What was measured, when and where."""
    measurement = measured.measurement
    options = measurement.cells[0].options
    threads = sorted({cell.options.threads for cell in measurement.cells})
    sizes = sorted({cell.options.batch_size for cell in measurement.cells})
    note = _note(options, sizes, threads, measurement.started)
    if measurement.quick:
        note += "; quick"
    if measurement.ended in ("", "interrupted"):
        note += "; not finished"
    return Heading(_where(measurement.cells[0].workload_name, measured.source), plain(note))


def heading_of_runs(runs: Sequence[Run]) -> Heading:
    record = runs[0].record
    options = record.options
    note = _note(options, [options.batch_size], [options.threads], record.started)
    note += "; quick" if record.command == "quick" else ""
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


def answer_of(results: Results) -> str:
    """What the last measurement says, as commands do; empty without one."""
    if not results.measured:
        return ""
    last = max(results.measured, key=lambda each: each.measurement.started)
    # That most trials were disturbed is an alert of its own.
    line = verdict_line(replace(_verdict(results, last), disturbed=0))
    return plain(f"{_where(last.measurement.cells[0].workload_name, last.source)}: {line}", 1000)


def fact_lines(results: Results) -> list[str]:
    """How much there is, and the machines that it comes from."""
    kinds = [row["kind"] for source in results.sources for row in source.rows]
    shown = {"measurement": len(results.measured), "run": len(results.runs)}
    counted, fewer = [], []
    for kind, most in shown.items():
        count = kinds.count(kind)
        if count:
            counted.append(f"{count:,} {kind}{'' if count == 1 else 's'}")
        if 0 < most < count:
            fewer.append(f"the last {most:,} {kind}{'' if most == 1 else 's'}")
    machines = [each.measurement.machine for each in results.measured]
    machines += [run.record.machine for run in results.runs]
    texts = [
        f"{each.get('cpu')}, {each.get('available_cores')} cores, {each.get('system')}"
        for each in machines
    ]
    detail = f"; shown in detail: {' and '.join(fewer)}" if fewer else ""
    lines = [" and ".join(counted) + detail] if counted else []
    return [plain(line) for line in [*lines, *list(dict.fromkeys(texts))[:6]]]
