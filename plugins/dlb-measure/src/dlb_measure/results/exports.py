"""Results in the forms of other tools."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from dlb.errors import PackageMissing, PluginError, RequestError
from dlb.printable import cell, printable
from dlb_measure.results.index import COLUMNS
from dlb_worker.plugins import guarded, load_plugins

__all__ = ["FORMATS", "export", "forms"]

Rows = Sequence[Mapping[str, Any]]
#: Figures of a run, by what MLPerf's logging rules or dlb call them.
_FIGURES = {
    "eval_accuracy": "accuracy",
    "samples_per_second": "samples_per_second",
    "step_seconds": "step_seconds",
}
_SETTINGS = {
    "global_batch_size": "batch_size",
    "seed": "seed",
    "number_of_workers": "workers",
    "threads": "threads",
    "dtype": "dtype",
}


#: Further forms, which the package dlb-track has.
TRACKED = ("tensorboard", "mlflow", "wandb", "model-card")


def forms() -> list[str]:
    """The names of all forms: dlb's, whether they are installed or not, and those of plugins."""
    own = (*FORMATS, *TRACKED)
    return [*own, *sorted(load_plugins().named("dlb_exports").keys() - {*own})]


def export(folder: Path, rows: Rows, form: str, output: str | None) -> bytes | str:
    """Rows of the index of a results folder in a form of :func:`forms`.

    Returns:
        The bytes of a file; of a form that is written elsewhere, such as to a database, a line that says where.

    Raises:
        RequestError: what writes the form is not installed, or failed.
        PluginError: the plugin that has the form is broken.
    """
    if form in FORMATS:
        return FORMATS[form](rows)
    plugin, target = load_plugins().brought["dlb_exports"].get(form, (None, ""))
    if plugin is None:
        raise PackageMissing(f"--format {form}", "dlb-track")
    module, _, name = str(target).partition(":")
    try:
        with guarded(f"waiting for --format {form} of {plugin}", f"--format {form} of {plugin}"):
            written = getattr(import_module(module), name)(folder, rows, output)
    except PluginError as error:
        if isinstance(error.__cause__, RequestError):
            raise error.__cause__ from None
        raise
    if not isinstance(written, (bytes, str)):
        kind = type(written).__name__
        raise PluginError(f"--format {form} of {plugin} returned a {kind}, not bytes or a text")
    return written


def _csv(rows: Rows) -> bytes:
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, list(COLUMNS), extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows({name: cell(row[name]) for name in COLUMNS} for row in rows)
    return text.getvalue().encode()


def _json(rows: Rows) -> bytes:
    kept = [{name: row[name] for name in COLUMNS} for row in rows]
    return (printable(json.dumps(kept, indent=1, ensure_ascii=False)) + "\n").encode()


def _parquet(rows: Rows) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise RequestError(
            "Parquet needs pyarrow; install it with: pip install 'dlb-measure[parquet]'"
        ) from None
    types = {
        "TEXT": pyarrow.string(),
        "INTEGER": pyarrow.int64(),
        "REAL": pyarrow.float64(),
    }
    columns = {
        name: pyarrow.array([row[name] for row in rows], types[kind])
        for name, kind in COLUMNS.items()
    }
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def _mllog(rows: Rows) -> bytes:
    """Lines of MLPerf's logger (https://github.com/mlcommons/logging), a run after the other."""
    lines = []
    for row in (each for each in rows if each["kind"] == "run"):

        def line(key: str, value: Any, kind: str = "POINT_IN_TIME", of: Any = row) -> str:
            event = {
                "namespace": of["adapter"],
                "time_ms": int(_seconds(of) * 1000),
                "event_type": kind,
                "key": key,
                "value": value,
                "metadata": {"name": of["name"], "framework": of["framework"]},
            }
            return f":::MLLOG {json.dumps(event)}"

        lines.append(line("submission_benchmark", row["workload"]))
        lines.append(line("run_start", None, "INTERVAL_START"))
        for fields in (_SETTINGS, _FIGURES):
            lines += [line(key, row[name]) for key, name in fields.items() if row[name] is not None]
        lines.append(line("run_stop", None, "INTERVAL_END"))
    return "".join(f"{each}\n" for each in lines).encode()


def _otava(rows: Rows) -> bytes:
    """A CSV of runs by time, for Apache Otava's importer: columns of attributes, and of metrics."""
    attributes = ("workload", "adapter", "framework", "dlb", "name")
    metrics = ("step_seconds", "samples_per_second", "accuracy", "memory_bytes")
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["time", *attributes, *metrics])
    for row in sorted((each for each in rows if each["kind"] == "run"), key=_seconds):
        table.writerow([int(_seconds(row)), *(cell(row[name]) for name in (*attributes, *metrics))])
    return text.getvalue().encode()


def _seconds(row: Mapping[str, Any]) -> float:
    """The start as seconds since 1970; 0 if the document tells none."""
    try:
        return datetime.fromisoformat(str(row["started"])).timestamp()
    except ValueError:
        return 0.0


FORMATS: Mapping[str, Callable[[Rows], bytes]] = {
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
    "mllog": _mllog,
    "otava": _otava,
}
