"""Results in the forms of other tools."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from dlb.errors import RequestError
from dlb.printable import cell, printable
from dlb.results.index import COLUMNS

__all__ = ["FORMATS", "export"]

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


def export(rows: Rows, form: str) -> bytes:
    """Rows of an index in a form of :data:`FORMATS`.

    Raises:
        RequestError: what writes the form is not installed.
    """
    return FORMATS[form](rows)


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
            "Parquet needs pyarrow; install it with: pip install 'dlb-core[parquet]'"
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
