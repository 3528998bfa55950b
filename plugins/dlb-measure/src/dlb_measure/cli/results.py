"""``dlb results``: list, show and export what is in a results folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlb.cli.options import with_options
from dlb.cli.output import Group, echo, json_option, note, print_json, print_table
from dlb_measure.results.exports import export, forms

if TYPE_CHECKING:
    from dlb_measure.results.index import Index

__all__ = ["results_command"]

FOLDER = click.option(
    "--in",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("dlb-results"),
    show_default=True,
    metavar="DIR",
    help="The results folder.",
)
FILTER = click.option(
    "--filter",
    "condition",
    default="",
    metavar="CONDITION",
    help="Such as 'workload=lenet5 and threads=2'; fields are those of dlb results export.",
)
_LIST_COLUMNS = (
    "started", "kind", "workload", "adapter", "variant", "batch_size", "threads", "proof",
)  # fmt: skip


def chosen(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say which results."""
    decorated: Callable[..., Any] = with_options([FOLDER, FILTER])(function)
    return decorated


@click.group("results", cls=Group)
def results_command() -> None:
    """List, show and export what is in a results folder."""


@results_command.command("list")
@chosen
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    metavar="N",
    help="The last N results.",
)
@json_option
def list_command(folder: Path, condition: str, limit: int, as_json: bool) -> None:
    """List runs and measurements, the last first."""
    from dlb_measure.results.index import open_index

    with open_index(folder) as index:
        rows, count = index.rows(condition, limit), index.count(condition)
        _tell_broken(index, folder)
    if as_json:
        print_json({"results": rows, "count": count})
        return
    columns = [name.replace("_", " ") for name in _LIST_COLUMNS]
    shown = [
        [*(_text(row[name]) for name in _LIST_COLUMNS), _milliseconds(row), row["name"]]
        for row in rows
    ]
    print_table([*columns, "step ms", "name"], shown, right=("batch size", "threads", "step ms"))
    if count > len(rows):
        echo(f"The last {len(rows)} of {count:,}; --limit shows more, --filter chooses")


@results_command.command("show")
@click.argument("name")
@chosen
@json_option
def show_command(name: str, folder: Path, condition: str, as_json: bool) -> None:
    """Show a run or a measurement.

    NAME is its name, the beginning of it, or 'last'.
    """
    from dlb.cli.show import show_record
    from dlb.errors import RequestError
    from dlb_measure.cli.measurements import show_measurement
    from dlb_measure.results.index import open_index
    from dlb_measure.results.measurement import read as read_measurement

    with open_index(folder) as index:
        rows = index.rows(condition)
    found = rows[:1] if name == "last" else [row for row in rows if row["name"] == name]
    found = found or [row for row in rows if row["name"].startswith(name)]
    if len(found) != 1:
        several = ", ".join(row["name"] for row in found[:5])
        reason = f"{len(found)} results begin so: {several}" if found else "there is none"
        raise RequestError(f"no single result '{name}': {reason}; see: dlb results list")
    path = folder / found[0]["file"]
    if found[0]["kind"] == "run":
        show_record(path, as_json)
        return
    show_measurement(read_measurement(path), as_json)


@results_command.command("target")
@click.option(
    "--accuracy", metavar="SHARE", help="The target: an accuracy of the test split, such as 80%."
)
@click.option(
    "--loss",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    help="The target: a mean loss of the test split.",
)
@click.option(
    "--baseline",
    default="",
    metavar="ADAPTER",
    help="What ratios are to. Default: the first adapter.",
)
@click.option(
    "--margin",
    default="1%",
    show_default=True,
    metavar="SHARE",
    help="Adapters that differ by less count as the same.",
)
@chosen
@json_option
def target_command(
    accuracy: str | None,
    loss: float | None,
    baseline: str,
    margin: str,
    folder: Path,
    condition: str,
    as_json: bool,
) -> None:
    """Show how long training took until a test reached a target, over seeds.

    Runs count that were tested while they trained (--test-every of dlb run and dlb sweep), and that differ in
    their seed alone.
    """
    from dlb.errors import RequestError
    from dlb.record import read_header
    from dlb_measure.cli.rounds import share_of
    from dlb_measure.cli.targets import print_targets, targets_document
    from dlb_measure.results.index import open_index
    from dlb_measure.results.targets import Target, target_cells

    if (accuracy is None) == (loss is None):
        raise click.UsageError("give one of --accuracy and --loss")
    target = Target(None if accuracy is None else share_of("--accuracy", accuracy), loss)
    share = share_of("--margin", margin)
    with open_index(folder) as index:
        rows = index.rows(condition)
        _tell_broken(index, folder)
    headers = [read_header(folder / row["file"]) for row in reversed(rows) if row["kind"] == "run"]
    cells = target_cells(headers, target)
    if not cells:
        raise RequestError(
            "no run was tested while it trained; make some with: dlb run ... --test-every 20",
            path=folder,
        )
    if as_json:
        print_json(targets_document(cells, target, baseline, share))
    else:
        print_targets(cells, target, baseline, share)


@results_command.command("export")
@chosen
@click.option("--format", "form", type=click.Choice(forms()), default="csv", show_default=True)
@click.option(
    "-o",
    "--output",
    metavar="FILE|DIR|ADDRESS",
    help="Where to write. Default: standard output, or what the form's tool has by itself.",
)
def export_command(folder: Path, condition: str, form: str, output: str | None) -> None:
    """Write runs and measurements as a table, a line each, or as runs of another tool.

    mllog and otava have runs alone. tensorboard, mlflow, wandb and model-card are of the package dlb-track.
    """
    from dlb.documents import write_atomically
    from dlb.errors import RequestError
    from dlb_measure.results.index import open_index

    with open_index(folder) as index:
        rows = index.rows(condition)
        _tell_broken(index, folder)
    content = export(folder, rows, form, output)
    if isinstance(content, str):
        echo(content)
    elif output is None:
        sys.stdout.buffer.write(content)
    else:
        try:
            write_atomically(Path(output), content)
        except OSError as error:
            raise RequestError(f"cannot write: {error.strerror or error}", path=output) from None


def _tell_broken(index: Index, folder: Path) -> None:
    for file, reason in index.broken.items():
        note(f"dlb: {folder / file} is skipped: {reason}")


def _text(value: Any) -> str:
    return "-" if value in (None, "") else str(value)


def _milliseconds(row: dict[str, Any]) -> str:
    return "-" if row["step_seconds"] is None else f"{row['step_seconds'] * 1e3:.2f}"
