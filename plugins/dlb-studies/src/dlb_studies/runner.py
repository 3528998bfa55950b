"""A study from its plan to its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlb.adapters import AdapterEnvironment, describe_environment
from dlb.errors import WorkerError
from dlb_measure.matrix import Matrix
from dlb_measure.plan import Plan
from dlb_measure.scale import scale_rows
from dlb_measure.sweeping import Swept
from dlb_studies.figures import Figure, Measured, figure_of
from dlb_studies.plan import StudyPart, StudyPlan
from dlb_studies.study import Fact, Quantity, Study
from dlb_studies.table import Entry, StudyTable, entries_of_published, make_tables

__all__ = ["StudyResult", "fact_tables", "published_tables", "run_study"]


@dataclass(frozen=True)
class StudyResult:
    """What came of a study.

    Attributes:
        study: the study.
        tables: published numbers and ours.
        ours: our numbers alone.
        sweeps: of each part that was begun.
        reasons: why something is empty, a line each.
        interrupted: whether the user interrupted it.
    """

    study: Study
    tables: Sequence[StudyTable]
    ours: Sequence[Entry]
    sweeps: Sequence[Swept]
    reasons: Sequence[str]
    interrupted: bool = False

    @property
    def passed(self) -> bool:
        """Whether everything that was run was proven."""
        return not self.interrupted and all(each.passed for each in self.sweeps)


def run_study(
    study: Study,
    path: Path,
    planned: StudyPlan,
    sweep: Callable[[Sequence[Matrix], Plan], Sequence[Swept]],
) -> StudyResult:
    """Run a study: one sweep, whose parts are measured each by itself.

    Args:
        path: the study's file.
        sweep: runs the cells of all parts, and reports how far it is.
    """
    ours: list[Entry] = []
    sweeps = sweep([part.matrix for part in planned.parts], planned.plan)
    reasons = [*_unmeasured(study), *planned.reasons]
    for part, swept in zip(planned.parts, sweeps):
        ours += _entries(study, part, swept)
        if part.made_up:
            reasons.append(f"{part.part.workload}: {part.made_up}")
    reasons += [
        f"{each.labels.get(study.tool, '')}, {each.quantity}: {each.ours.reason}"
        for each in ours
        if each.ours is not None and each.ours.reason
    ]
    tables = make_tables(study, entries_of_published(study, path), ours)
    interrupted = any(each.interrupted for each in sweeps)
    return StudyResult(study, tables, ours, sweeps, list(dict.fromkeys(reasons)), interrupted)


def published_tables(study: Study, path: Path) -> list[StudyTable]:
    """The tables of a study without ours."""
    return make_tables(study, entries_of_published(study, path), ())


def fact_tables(
    study: Study, path: Path, environments: Sequence[AdapterEnvironment]
) -> tuple[list[StudyTable], list[str]]:
    """The tables of a study of facts, with what the adapters report, and why something is empty."""
    quantity = study.quantities[0].name if study.quantities else "value"
    entries, reasons = [], []
    for environment in environments:
        try:
            described = describe_environment(environment)
        except WorkerError as error:
            reasons.append(f"{environment.adapter}: could not report what it can: {error}")
            continue
        tool = study.tools.get(environment.adapter, environment.adapter)
        for fact in study.facts:
            labels = {study.rows[0]: fact.row, study.columns[0]: f"{tool}, here"}
            entries.append(Entry(labels, quantity, _fact(fact, environment.adapter, described)))
    reasons += [f"{fact.row}: {fact.reason}" for fact in study.facts if fact.reason]
    return make_tables(study, entries_of_published(study, path), entries), reasons


def _fact(fact: Fact, adapter: str, described: dict[str, object]) -> str:
    entries = described["adapters"]
    assert isinstance(entries, (list, tuple))
    own: dict[str, object] = next((each for each in entries if each["name"] == adapter), {})
    given = described["strategies"]
    assert isinstance(given, (list, tuple))
    strategies = [each for each in given if adapter in each["frameworks"]]
    if fact.of == "onnx":
        return str(own.get("exporter") or "no")
    if fact.of == "strategies":
        return ", ".join(f"data ({each['name']})" for each in strategies) or "none"
    if fact.of == "backends":
        names = [name for each in strategies for name in each.get("backends", ())]
        return ", ".join(dict.fromkeys(names)) or "none"
    return ""


def _unmeasured(study: Study) -> list[str]:
    return [f"{each.name}: {each.reason}" for each in study.quantities if not each.kind]


def _entries(study: Study, part: StudyPart, swept: Swept) -> list[Entry]:
    """Our numbers of a part."""
    cells, results = part.matrix.cells, swept.results()
    scaled = scale_rows(swept, cells) if part.part.workers else [None] * len(cells)
    entries = []
    for place, (cell, labels, result, row) in enumerate(zip(cells, part.labels, results, scaled)):
        own = swept.places[place] if swept.places else None
        trials = [
            each
            for each in (swept.measurement.trials if swept.measurement is not None else ())
            if each.cell == own and each.failure is None
        ]
        measured = Measured(part.part, cell.request, result, trials, row, part.made_up)
        for quantity in study.quantities:
            if quantity.kind:
                figure = figure_of(quantity.kind, measured)
                entries.append(Entry(labels, quantity.name, _number(quantity, figure), ours=figure))
    return entries


def _number(quantity: Quantity, figure: Figure) -> str:
    if figure.value is None:
        return ""
    mark = "~" if figure.estimated else ""
    word = "" if figure.proof == "proven" else f" {figure.proof}"
    low, high, digits = figure.low, figure.high, quantity.digits
    known = low is not None and high is not None
    interval = f" ({low:.{digits}f} to {high:.{digits}f})" if known else ""
    return f"{mark}{figure.value:.{digits}f}{interval}{word}"
