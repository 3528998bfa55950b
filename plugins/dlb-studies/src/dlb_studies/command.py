"""``dlb study``: tables and figures of papers, measured again here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlb.cli.options import ANSWERED, OUT, with_options
from dlb.cli.output import (
    Detail,
    Group,
    detail,
    echo,
    interrupted,
    json_option,
    note,
    print_answer,
    print_json,
    print_table,
    show_rows,
)

if TYPE_CHECKING:
    from dlb.report.table import Table
    from dlb_measure.matrix import Matrix
    from dlb_measure.plan import Plan
    from dlb_measure.sweeping import Swept
    from dlb_studies.plan import StudyPlan
    from dlb_studies.study import Study
    from dlb_studies.table import StudyTable

__all__ = ["study_command"]

#: Lines of doubts and of reasons that are shown; --json has all.
_MOST_LINES = 25
_RECKONED = "~: reckoned from the mean of steady steps, not trained to the end"
_INTERVALS = (
    "(a to b): the 95% interval of the mean over processes; a number without one is of one process"
)
_FORM = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "latex"]),
    default="table",
    show_default=True,
    help="How tables are printed.",
)


@click.group("study", cls=Group)
def study_command() -> None:
    """Tables and figures of papers, measured again here."""


@study_command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the studies."""
    from dlb.errors import DlbError
    from dlb_studies.catalogue import study_paths
    from dlb_studies.study import read

    rows = []
    for name, path in study_paths().items():
        try:
            study = read(path)
        except DlbError as error:  # of a package: the others are shown all the same
            rows.append([name, f"cannot be used: {error}", ""])
            continue
        rows.append([name, study.title, study.source])
    show_rows("studies", ["study", "title", "source"], rows, as_json, shown=2)


@study_command.command("show")
@click.argument("name")
@_FORM
@json_option
def show_command(name: str, form: str, as_json: bool) -> None:
    """Show a study: its source, what it runs, and the published numbers.

    NAME is a name (see: dlb study list) or a .toml file.
    """
    import msgspec

    from dlb_studies.catalogue import load_study
    from dlb_studies.runner import published_tables

    study, path = load_study(name)
    tables = published_tables(study, path)
    if as_json:
        print_json({"study": msgspec.to_builtins(study), "tables": _tables_document(tables)})
        return
    if form != "table":
        _print_typeset(form, study, tables)
        return
    _print_head(study)
    for part in study.parts:
        words = [f"{key}={value}" for key, value in {**part.settings, **part.labels}.items()]
        words += [f"{key}={'|'.join(map(str, values))}" for key, values in part.vary.items()]
        words += [f"workers={'|'.join(map(str, part.workers))}"] if part.workers else []
        words += [f"on {', '.join(part.adapters)}"] if part.adapters else []
        echo(f"Runs {part.workload}: {', '.join(words)}{'' if part.quick else '; not quick'}")
    _print_tables(tables)


@study_command.command("run")
@click.argument("name")
@click.option(
    "--on",
    "adapters",
    multiple=True,
    metavar="ADAPTER",
    help="Adapter to use; repeat for several. Default: every one found.",
)
@click.option("--quick", is_flag=True, help="The quick form: fewer cells, steps and rounds.")
@click.option(
    "--rounds", type=click.IntRange(1, 10_000), metavar="N", help="In place of the study's."
)
@click.option(
    "--fetch", is_flag=True, help="First fetch the data sets that are not on this machine."
)
@click.option(
    "--dry-run", is_flag=True, help="Print the cells and what they will cost, and start nothing."
)
@OUT
@_FORM
@with_options(ANSWERED)
def run_command(
    name: str,
    adapters: tuple[str, ...],
    quick: bool,
    rounds: int | None,
    fetch: bool,
    dry_run: bool,
    out: Path,
    form: str,
    as_json: bool,
) -> int:
    """Run a study, and print the paper's table with ours beside it.

    NAME is a name (see: dlb study list) or a .toml file. A study that was interrupted or killed goes on
    when the same command is given again.
    """
    from dlb.adapters import find_adapters
    from dlb_measure.cli.sweep import run_groups
    from dlb_measure.cli.sweep_progress import duration
    from dlb_measure.cli.sweep_tables import matrix_document, print_matrix
    from dlb_measure.estimate import estimate, total_seconds
    from dlb_studies.catalogue import load_study
    from dlb_studies.plan import plan_study
    from dlb_studies.runner import run_study

    study, path = load_study(name)
    environments = find_adapters(adapters, report=note)
    if study.facts:
        return _facts(study, path, environments, form, as_json)
    planned = plan_study(study, path, environments, out, quick=quick, rounds=rounds)
    if fetch and planned.made_up and not dry_run:
        _fetch(list(planned.made_up))
        planned = plan_study(study, path, environments, out, quick=quick, rounds=rounds)
    estimates = [
        estimate([cell.request for cell in part.matrix.cells], planned.plan)
        for part in planned.parts
    ]
    seconds = sum(total_seconds(each, planned.plan) for each in estimates)
    count = sum(len(part.matrix.cells) for part in planned.parts)
    lines = [
        f"{study.name}: {count} cell{'' if count == 1 else 's'}, about {duration(seconds)}"
        + ("" if quick else "; --quick runs less of it"),
        *_made_up_lines(study, planned, fetch),
    ]
    if dry_run:
        documents = []
        for part, each in zip(planned.parts, estimates):
            documents.append(matrix_document(part.matrix, each, planned.plan))
            if not as_json:
                echo(part.part.workload)
                print_matrix(part.matrix, each, planned.plan)
        if as_json:
            more = {"seconds": seconds, "made_up": planned.made_up}
            print_json({"parts": documents, "reasons": planned.reasons, **more})
        else:
            _print_reasons(planned.reasons)
            for line in lines:
                echo(line)
        return 0
    for line in lines:
        note(f"dlb: {line}")

    def sweep(matrices: Sequence[Matrix], plan: Plan) -> list[Swept]:
        return run_groups(matrices, [one for each in estimates for one in each], plan)

    result = run_study(study, path, planned, sweep)
    records = [record for each in result.sweeps for record in each.records]
    proven = sum(record is not None and record.proof == "proven" for record in records)
    known = [each.ours for each in result.ours if each.ours and each.ours.value is not None]
    answer = f"{proven} of {len(records)} cells proven; {len(known)} of {len(result.ours)} numbers found."
    if as_json:
        ours = [
            {
                "labels": dict(each.labels),
                "quantity": each.quantity,
                "value": None if each.ours is None else each.ours.value,
                "low": None if each.ours is None else each.ours.low,
                "high": None if each.ours is None else each.ours.high,
                "estimated": each.ours is not None and each.ours.estimated,
                "proof": "" if each.ours is None else each.ours.proof,
                "reason": "" if each.ours is None else each.ours.reason,
            }
            for each in result.ours
        ]
        print_json(
            {
                "answer": answer,
                "study": study.name,
                "tables": _tables_document(result.tables),
                "ours": ours,
                "reasons": result.reasons,
                "sweep": result.sweeps[0].sweep.name,
                "measurements": [
                    each.measurement.name for each in result.sweeps if each.measurement is not None
                ],
                "interrupted": result.interrupted,
            }
        )
    else:
        footnotes = [_RECKONED] if any(each.estimated for each in known) else []
        if any(each.low is not None for each in known):
            footnotes.append(_INTERVALS)
        _show(form, study, result.tables, result.reasons, footnotes)
        note(f"Sweep: sweeps/{result.sweeps[0].sweep.name}.json")
        if form == "table" or detail() == Detail.ANSWER:  # other forms are a document
            print_answer(answer)
    if result.interrupted:
        return interrupted("the same command goes on with what has ended")
    return 0 if result.passed else 1


def _made_up_lines(study: Study, planned: StudyPlan, fetched: bool) -> list[str]:
    """Which samples are made up, what stays empty therefore, and the commands that change it."""
    from dlb.data.registry import has_named_data_sets

    empty = [
        each.name for each in study.quantities if each.kind in ("accuracy_pct", "testing_seconds")
    ]
    without = f"; {' and '.join(empty)} stay empty" if empty else ""
    lines = []
    for name, workloads in planned.made_up.items():
        get = f"dlb data fetch {name}" + ("" if fetched else ", or --fetch")
        get = get if has_named_data_sets() else "pip install dlb-data, then --fetch"
        used = ", ".join(workloads)
        lines.append(f"samples of '{name}' are made up, for {used}{without}; to train on it: {get}")
    return lines


def _fetch(names: Sequence[str]) -> None:
    """Fetch data sets.

    Raises:
        RequestError: the package that fetches is not installed.
        DataError: one cannot be fetched; the message says why.
    """
    from dlb.data.registry import PACKAGE, data_set
    from dlb.errors import RequestError

    try:
        from dlb_data.fetch import fetch
    except ImportError:
        raise RequestError(f"--fetch needs {PACKAGE}: pip install {PACKAGE}") from None
    for name in names:
        fetch(
            data_set(name), report=note, offline=os.environ.get("DLB_OFFLINE", "0") not in ("", "0")
        )


def _facts(study: Study, path: Path, environments: Sequence[Any], form: str, as_json: bool) -> int:
    from dlb_studies.runner import fact_tables

    tables, reasons = fact_tables(study, path, environments)
    if as_json:
        print_json({"study": study.name, "tables": _tables_document(tables), "reasons": reasons})
        return 0
    _show(form, study, tables, reasons)
    return 0


def _show(
    form: str,
    study: Study,
    tables: Sequence[StudyTable],
    reasons: Sequence[str],
    footnotes: Sequence[str] = (),
) -> None:
    """Print what was found."""
    if form != "table":
        _print_typeset(form, study, tables, reasons, footnotes)
        return
    _print_head(study)
    _print_tables(tables)
    _print_reasons(reasons)
    for line in footnotes:
        echo(line)


def _print_typeset(
    form: str,
    study: Study,
    tables: Sequence[StudyTable],
    reasons: Sequence[str] = (),
    footnotes: Sequence[str] = (),
) -> None:
    """Print a study as Markdown or LaTeX, whole."""
    from dlb_measure.tables.typeset import FORMS, joined

    write = FORMS[form]
    lines = [*write.preamble(), *write.heading(study.title), *write.paragraph(study.source)]
    lines += write.items(study.notes)
    for table in tables:
        lines += write.table(_one_line_headings(table))
    doubts = [f"?: {doubt}" for table in tables for doubt in table.doubts]
    lines += write.items(list(dict.fromkeys([*footnotes, *doubts])))
    lines += [*write.paragraph("Empty cells:"), *write.items(reasons)] if reasons else []
    echo(joined(lines), nl=False)


def _print_head(study: Study) -> None:
    echo(f"{study.name}: {study.title}")
    echo(study.source)
    for line in study.notes:
        echo(f"Note: {line}")


def _print_tables(tables: Sequence[StudyTable]) -> None:
    for table in tables:
        columns = _merged(table.columns, table.labels)
        print_table(columns, table.rows, table.title, right=columns[table.labels :])
    doubts = list(dict.fromkeys(doubt for table in tables for doubt in table.doubts))
    for doubt in doubts[:_MOST_LINES]:
        echo(f"?: {doubt}")
    if len(doubts) > _MOST_LINES:
        echo(f"?: and {len(doubts) - _MOST_LINES} more; --json has all")


def _merged(columns: Sequence[str], labels: int) -> list[str]:
    """Headings without what stands above the column to the left already."""
    shown, before = list(columns[:labels]), [""]
    for column in columns[labels:]:
        words = column.split("\n")
        same = 0
        while same < min(len(words) - 1, len(before)) and words[same] == before[same]:
            same += 1
        shown.append("\n".join(["" if place < same else word for place, word in enumerate(words)]))
        before = words
    return shown


def _print_reasons(reasons: Sequence[str]) -> None:
    for line in reasons[:_MOST_LINES]:
        echo(f"Empty: {line}")
    if len(reasons) > _MOST_LINES:
        echo(f"Empty: and {len(reasons) - _MOST_LINES} more; --json has all")


def _one_line_headings(table: StudyTable) -> Table:
    from dlb.report.table import Table

    columns = [column.replace("\n", ", ") for column in table.columns]
    return Table(columns, table.rows, table.title, columns[table.labels :])


def _tables_document(tables: Sequence[StudyTable]) -> list[dict[str, Any]]:
    return [
        {
            "title": table.title,
            "columns": _one_line_headings(table).columns,
            "rows": [list(row) for row in table.rows],
            "doubts": list(table.doubts),
        }
        for table in tables
    ]
