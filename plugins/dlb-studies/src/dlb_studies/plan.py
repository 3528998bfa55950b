"""The cells that a study runs here, and why others are not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from dlb.adapters import AdapterEnvironment, known_adapters
from dlb.catalogue import load_with_file
from dlb.errors import RequestError
from dlb.provenance import available_cores
from dlb.resolver import Resolver
from dlb.samples import replace_missing_data
from dlb.settings import Settings
from dlb_measure.matrix import NONE, Matrix, NoCells, SweepCell, axes_of, make_cells, with_values
from dlb_measure.plan import Plan
from dlb_measure.scale import scale_cells, strategies_of
from dlb_studies.study import HERE, Part, Run, Study, label_text

__all__ = ["StudyPart", "StudyPlan", "plan_study"]


@dataclass(frozen=True)
class StudyPart:
    """The cells of a part.

    Attributes:
        part: as the study has it.
        matrix: its cells.
        labels: of each cell.
        made_up: why samples were made up; empty if the data are the workload's.
        data_set: the name of the data set that is missing; empty if none is.
    """

    part: Part
    matrix: Matrix
    labels: Sequence[Mapping[str, str]]
    made_up: str
    data_set: str


@dataclass(frozen=True)
class StudyPlan:
    """What is run.

    Attributes:
        parts: with one cell or more each.
        plan: how they are measured.
        reasons: why something of the study is not run here, a line each.
    """

    parts: Sequence[StudyPart]
    plan: Plan
    reasons: Sequence[str]

    @property
    def made_up(self) -> dict[str, list[str]]:
        """By the data set that is missing, the workloads whose samples are made up."""
        found: dict[str, list[str]] = {}
        for part in self.parts:
            if part.data_set and part.part.workload not in found.setdefault(part.data_set, []):
                found[part.data_set].append(part.part.workload)
        return found


def plan_study(
    study: Study,
    path: Path,
    environments: Sequence[AdapterEnvironment],
    out: Path,
    *,
    quick: bool,
    rounds: int | None = None,
) -> StudyPlan:
    """The cells of a study.

    Args:
        path: the study's file, from which the paths of workloads start.
        environments: of the adapters that it runs on.
        quick: whether in its quick form.
        rounds: in place of the study's.

    Raises:
        RequestError: a workload or a setting of the study is unknown, or nothing of it can be run here.
    """
    rule = study.quick if quick else study.run
    if rounds is not None:
        rule = msgspec.structs.replace(rule, rounds=rounds)
    reasons = _missing_adapters(study, environments)
    parts: list[StudyPart] = []
    for part in study.parts:
        if quick and not part.quick:
            reasons.append(f"{_name(part)}: not part of the quick form")
            continue
        chosen = [
            each for each in environments if not part.adapters or each.adapter in part.adapters
        ]
        if not chosen:
            reasons.append(
                f"{_name(part)}: runs on {', '.join(part.adapters)} alone, which is not here"
            )
            continue
        made = _part(study, part, path, chosen, rule, out, quick, reasons)
        if made is not None:
            parts.append(made)
    if not parts:
        raise RequestError(f"nothing of study '{study.name}' can be run here: {'; '.join(reasons)}")
    return StudyPlan(parts, rule, reasons)


def _part(
    study: Study,
    part: Part,
    path: Path,
    environments: Sequence[AdapterEnvironment],
    rule: Run,
    out: Path,
    quick: bool,
    reasons: list[str],
) -> StudyPart | None:
    named = part.workload
    is_file = named.endswith((".toml", ".onnx"))
    workload, imported = load_with_file(str(path.parent / named) if is_file else named)
    told: list[str] = []
    data_set = workload.data.name
    workload = replace_missing_data(workload, told.append)
    made_up = told[0].partition(":")[0] + ": samples are made up" if told else ""
    given = {**part.settings, **(part.quick_settings if quick else {})}
    vary = {**part.vary, **(part.quick_vary if quick else {})}
    given = {name: value for name, value in given.items() if name not in vary}
    settings = with_values(Settings(), given)
    steps = rule.steps or part.iterations or settings.steps
    settings = replace(
        settings,
        steps=steps,
        epochs=None if steps else settings.epochs,
        warmup=None if rule.warmup < 0 else rule.warmup,
    )
    resolver = Resolver(workload, imported, out=out)
    matrix: Matrix
    if part.workers:
        try:
            cells = _scaled(part, environments, resolver, settings, vary)
        except RequestError as error:
            reasons.append(f"{_name(part)}: {error.message}")
            return None
        matrix = Matrix(cells)
    else:
        try:
            matrix = make_cells(resolver, environments, axes_of(vary), settings, skip_refused=True)
        except NoCells as error:
            reasons.append(f"{_name(part)}: {error.message}")
            return None
    reasons += [f"{_name(part)}, {cell}: {reason(str)}" for cell, reason in matrix.refused]
    labels = [_labels(study, part, cell, given) for cell in matrix.cells]
    return StudyPart(part, matrix, labels, made_up, data_set if told else "")


def _scaled(
    part: Part,
    environments: Sequence[AdapterEnvironment],
    resolver: Resolver,
    settings: Settings,
    vary: Mapping[str, Sequence[Any]],
) -> list[SweepCell]:
    """Cells of several workers; only the batch size varies beside."""
    others = set(vary) - {"batch_size"}
    if others:
        raise RequestError(f"with workers, batch_size alone can vary, and not {', '.join(others)}")
    cores, workers = available_cores(), sorted({1, *(n for n in part.workers)})
    threads = part.threads or max(1, cores // max(workers))
    able = [count for count in workers if count * threads <= cores]
    return scale_cells(
        resolver,
        environments,
        strategies_of(environments, part.strategies, lenient=True),
        able,
        list(vary.get("batch_size", (settings.batch_size,))),
        replace(settings, threads=threads),
        weak=False,
    )


def _labels(study: Study, part: Part, cell: SweepCell, given: Mapping[str, Any]) -> dict[str, str]:
    request = cell.request
    labels: dict[str, Any] = {
        "workload": part.workload,
        "batch_size": request.batch_size,
        "threads": request.threads,
        "workers": request.workers,
        "strategy": request.strategy or "-",
        "adapter": cell.adapter,
        "iterations": part.iterations or "",
        study.hardware: HERE,
        study.tool: study.tools.get(cell.adapter, cell.adapter),
        **given,
        **cell.varied,
        **part.labels,
    }
    if labels["strategy"] in ("", NONE):
        labels["strategy"] = "-"
    return {name: label_text(value) for name, value in labels.items()}


def _name(part: Part) -> str:
    return ", ".join([part.workload, *(label_text(value) for value in part.labels.values())])


def _missing_adapters(study: Study, environments: Sequence[AdapterEnvironment]) -> list[str]:
    here = {each.adapter for each in environments}
    return [
        f"{tool}: adapter '{adapter}' is not here or was not asked for"
        + (f" (dlb env create {adapter})" if adapter in known_adapters() else "")
        for adapter, tool in study.tools.items()
        if adapter not in here
    ]
