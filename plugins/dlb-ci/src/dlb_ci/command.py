"""``dlb changed``."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from dlb.cli.output import echo, json_option, note, show_rows
from dlb.errors import DlbError, RequestError
from dlb.proof.certificate import Certificate
from dlb_ci.changes import changed_files, earlier_version, to_prove
from dlb_ci.forms import Checked, junit, markdown

__all__ = ["changed_command"]

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("changed")
@click.argument("files", nargs=-1, type=FILE)
@click.option(
    "--base", default="HEAD", show_default=True, metavar="COMMIT", help="Compare with it."
)
@click.option("--on", multiple=True, metavar="ADAPTER", help="Prove workloads and new files on it.")
@click.option("--junit", "junit_file", type=FILE, metavar="FILE", help="Write JUnit XML.")
@click.option("--summary", type=FILE, metavar="FILE", help="Add a summary in Markdown.")
@json_option
def changed_command(
    files: tuple[Path, ...],
    base: str,
    on: tuple[str, ...],
    junit_file: Path | None,
    summary: Path | None,
    as_json: bool,
) -> int:
    """Prove the ONNX files and workloads that changed in a git repository.

    Without FILES, those that differ from the last commit that the branch has in common with --base. An ONNX
    file is compared with its earlier version. Workloads, and new ONNX files, are proven on the adapters of
    --on. Exit status 0: all of that passed.
    """
    checked: list[Checked] = []
    for path in to_prove(files or changed_files(base)):
        note(f"dlb: {path}")
        checked.append(_check(path, base, on))
    try:
        if junit_file is not None:
            junit_file.write_bytes(junit(checked))
        if summary is not None:
            with summary.open("a", encoding="utf-8") as stream:
                stream.write(markdown(checked))
    except OSError as error:
        raise RequestError(f"cannot write {error.filename}: {error.strerror}") from None
    columns = ["file", "command", "result", "what was found", "reasons"]
    rows = [[each.file, each.what, each.word, each.line, each.reasons] for each in checked]
    none = "No ONNX file and no workload changed."
    show_rows("changed", columns, rows, as_json, shown=4, none=none)
    for each in () if as_json else checked:
        for reason in each.reasons:
            echo(f"{each.file}: {reason}")
    return 1 if {each.word for each in checked} & {"failed", "error"} else 0


def _check(path: Path, base: str, on: Sequence[str]) -> Checked:
    from dlb import verify
    from dlb_port import compare_files

    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / f"{path.stem}-before.onnx"
        try:
            if path.suffix == ".onnx" and earlier_version(base, path, before):
                return _checked(path, "diff", lambda: compare_files(before, path))
        except DlbError as error:
            return Checked(str(path), "diff", error=str(error))
    if not on:
        return Checked(str(path), "verify", skipped="no adapter is named; add --on ADAPTER")
    return _checked(path, "verify", lambda: verify(path, on))


def _checked(path: Path, what: str, prove: Callable[[], Certificate]) -> Checked:
    began = time.monotonic()
    try:
        certificate = prove()
    except DlbError as error:
        return Checked(str(path), what, error=str(error), seconds=time.monotonic() - began)
    seconds = time.monotonic() - began
    return Checked(str(path), what, certificate.answer(), certificate.agrees, seconds=seconds)
