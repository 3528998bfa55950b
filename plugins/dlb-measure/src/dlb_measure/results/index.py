"""An index of a results folder: a row for each record and measurement, kept in an SQLite file of this user's.

The documents are the database; the index only saves reading them again. It knows each file by its size and the
time of its last change, reads those that are new, and forgets those that are gone. Who deletes it loses nothing
but seconds. It is not in the folder, since whoever wrote the folder could write there what no record says.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlb.documents import plain
from dlb.errors import RecordError, RequestError
from dlb.places import home
from dlb.record import StoredRecord, read_header
from dlb.record import read as read_record
from dlb_measure.results.filters import where
from dlb_measure.results.measurement import Measurement
from dlb_measure.results.measurement import read as read_measurement

__all__ = ["COLUMNS", "Index", "index_path", "open_index"]

#: Of another version, the index is made anew.
VERSION = 2
#: What is known of each document; names of :class:`dlb.record.Options` mean the same.
COLUMNS: Mapping[str, str] = {
    "name": "TEXT", "kind": "TEXT", "started": "TEXT", "workload": "TEXT", "adapter": "TEXT",
    "framework": "TEXT", "proof": "TEXT", "failed": "INTEGER", "batch_size": "INTEGER",
    "steps": "INTEGER", "threads": "INTEGER", "device": "TEXT", "dtype": "TEXT", "seed": "INTEGER",
    "input": "TEXT", "strategy": "TEXT", "workers": "INTEGER", "variant": "TEXT", "rounds": "INTEGER",
    "step_seconds": "REAL", "samples_per_second": "REAL", "accuracy": "REAL", "memory_bytes": "INTEGER",
    "cpu": "TEXT", "dlb": "TEXT",
}  # fmt: skip
Row = dict[str, Any]
_NAMES = ", ".join(f'"{name}"' for name in COLUMNS)
_DECLARED = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
#: Indexes of so many folders are kept.
MOST_INDEXES = 100
#: Documents that are read between two writes of the index.
BATCH = 1000


class Index:
    """The rows of a results folder.

    Attributes:
        broken: files that are no documents, by name, with the reason.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self._folder, self._connection = folder, connection
        self._unnamed: dict[str, str] = {}
        connection.row_factory = sqlite3.Row
        connection.execute(
            "CREATE TABLE IF NOT EXISTS documents (file TEXT PRIMARY KEY, size INTEGER, changed INTEGER, "
            f"reason TEXT, {_DECLARED})"
        )
        self._update()

    @property
    def broken(self) -> dict[str, str]:
        found = self._connection.execute(
            "SELECT file, reason FROM documents WHERE reason != '' ORDER BY file"
        )
        return {str(row["file"]): str(row["reason"]) for row in found} | self._unnamed

    def count(self, condition: str = "") -> int:
        """How many documents a condition chooses.

        Raises:
            RequestError: the condition has a wrong form or an unknown field.
        """
        text, values = where(condition, COLUMNS)
        query = f"SELECT COUNT(*) FROM documents WHERE reason = '' AND {text}"
        return int(self._connection.execute(query, values).fetchone()[0])

    def rows(self, condition: str = "", limit: int | None = None) -> list[Row]:
        """The documents that a condition chooses, the last first.

        Args:
            condition: such as ``workload=lenet5 and threads=2``; all if empty.
            limit: so many at most.

        Raises:
            RequestError: the condition has a wrong form or an unknown field.
        """
        text, values = where(condition, COLUMNS)
        query = (
            f"SELECT file, {_NAMES} FROM documents "
            f"WHERE reason = '' AND {text} ORDER BY started DESC, name DESC LIMIT ?"
        )
        return [dict(row) for row in self._connection.execute(query, (*values, limit or -1))]

    def _update(self) -> None:
        """Read what is new, and forget what is gone."""
        found = dict(_files(self._folder))
        for name in [name for name in found if name != plain(name)]:
            del found[name]
            shown = os.fsencode(name).decode("utf-8", "backslashreplace")
            self._unnamed[shown] = "its name is not UTF-8; rename it"
        known = {
            str(file): (size, changed)
            for file, size, changed in self._connection.execute(
                "SELECT file, size, changed FROM documents"
            )
        }
        gone = [(file,) for file in known.keys() - found.keys()]
        new = [file for file, state in found.items() if known.get(file) != state]
        self._connection.executemany("DELETE FROM documents WHERE file = ?", gone)
        for begin in range(0, len(new), BATCH):
            rows = [(file, *found[file], *self._read(file)) for file in new[begin : begin + BATCH]]
            places = ", ".join("?" * (4 + len(COLUMNS)))
            self._connection.executemany(
                f"INSERT OR REPLACE INTO documents VALUES ({places})", rows
            )
            self._connection.commit()
        self._connection.commit()

    def _read(self, file: str) -> tuple[Any, ...]:
        """The reason why it is no document, empty if it is one, and the columns."""
        path = self._folder / file
        try:
            if path.parent != self._folder:
                row = _measurement_row(read_measurement(path))
            else:
                row = _record_row(_header(path))
        except RecordError as error:
            return (error.message, *(None for _ in COLUMNS))
        return ("", *(row.get(name) for name in COLUMNS))


@contextlib.contextmanager
def open_index(folder: Path) -> Iterator[Index]:
    """The index of a results folder, up to date.

    Raises:
        RequestError: there is no such folder.
    """
    if not folder.is_dir():
        raise RequestError("no results folder", path=folder)
    opened = _open(index_path(folder))
    try:
        try:
            index = Index(folder, opened)
        except sqlite3.Error:
            # Locked by another command for long, or damaged: this time without it.
            opened.close()
            opened = sqlite3.connect(":memory:")
            index = Index(folder, opened)
        yield index
    finally:
        opened.close()


def index_path(folder: Path) -> Path:
    """Where the index of a results folder is kept."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]
    return home() / "indexes" / f"{name}.sqlite"


def _open(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in sorted(path.parent.glob("*.sqlite"), key=os.path.getmtime)[:-MOST_INDEXES]:
            old.unlink(missing_ok=True)
        if path.is_file() and not _is_current(path):
            path.unlink()
        connection = sqlite3.connect(path, timeout=10)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        return connection
    except (sqlite3.Error, OSError):  # a folder that may not be written
        return sqlite3.connect(":memory:")


def _is_current(path: Path) -> bool:
    """Whether a file is an index of this version."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            return bool(version == VERSION)
    except sqlite3.OperationalError:  # locked: somebody uses it
        return True
    except sqlite3.DatabaseError:
        return False


def _files(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Documents of a folder, with size and time of change in nanoseconds."""
    for below in ("", "measurements"):
        try:
            with os.scandir(folder / below) as entries:
                for entry in entries:
                    if entry.name.endswith(".json") and not entry.name.startswith("."):
                        name = f"{below}/{entry.name}" if below else entry.name
                        yield name, _state(entry)
        except FileNotFoundError:
            continue


def _state(entry: os.DirEntry[str]) -> tuple[int, int]:
    """Size and time of change; zeros of a link that leads nowhere, which is then named as broken."""
    try:
        state = entry.stat()
    except OSError:
        return 0, 0
    return state.st_size, state.st_mtime_ns


def _header(path: Path) -> StoredRecord | Any:
    try:
        return read_header(path)
    except RecordError as error:
        try:
            return read_record(path)  # of an older format
        except RecordError:
            raise error from None


def _record_row(record: Any) -> Row:
    """The row of a record, or of its header."""
    options, timing, quality = record.options, record.timing, record.quality
    return {
        **_options_row(options),
        "name": record.name,
        "kind": "run",
        "started": record.started,
        "workload": record.workload_name,
        "adapter": record.adapter,
        "framework": f"{record.framework} {record.framework_version}".strip(),
        "proof": record.proof,
        "failed": int(record.failure is not None),
        "step_seconds": timing.median if timing else None,
        "samples_per_second": timing.samples_per_second if timing else None,
        "memory_bytes": timing.memory_bytes if timing else None,
        "accuracy": quality.test_accuracy if quality else None,
        "cpu": str(record.machine.get("cpu", "")),
        "dlb": str(record.core.get("version", "")),
    }


def _measurement_row(measurement: Measurement) -> Row:
    def all_of(value: Callable[[Any], Any]) -> str:
        return ", ".join(dict.fromkeys(str(value(cell)) for cell in measurement.cells))

    cells: Sequence[Any] = measurement.cells
    return {
        **(_options_row(cells[0].options) if cells else {}),
        "name": measurement.name,
        "kind": "measurement",
        "started": measurement.started,
        "workload": all_of(lambda cell: cell.workload_name),
        "adapter": all_of(lambda cell: cell.adapter),
        "framework": all_of(lambda cell: cell.framework),
        "proof": all_of(lambda cell: cell.proof),
        "failed": int(any(trial.failure is not None for trial in measurement.trials)),
        "rounds": len({trial.round for trial in measurement.trials}),
        "cpu": str(measurement.machine.get("cpu", "")),
        "dlb": str(measurement.core.get("version", "")),
    }


def _options_row(options: Any) -> Row:
    names = (
        "batch_size", "steps", "threads", "device", "dtype", "seed", "input", "strategy", "workers",
    )  # fmt: skip
    row = {name: getattr(options, name) for name in names}
    row["variant"] = ",".join(f"{name}={value}" for name, value in sorted(options.variant.items()))
    return row
