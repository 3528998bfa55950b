"""The index of a results folder: what the documents say, whoever writes, deletes or damages them."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_run_records import make

from dlb import record
from dlb.errors import RequestError
from dlb.record import Record
from dlb_measure.results.exports import export
from dlb_measure.results.index import COLUMNS, index_path, open_index

CPU = {"cpu": "Zen (R)"}


def with_options(one: Record, **changes: Any) -> Record:
    return msgspec.structs.replace(one, options=msgspec.structs.replace(one.options, **changes))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLB_HOME", str(tmp_path / "home"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three runs."""
    record.write(make(name="a", workload_name="lenet5", machine=CPU), tmp_path)
    fast = make(name="b", adapter="torch", proof="proven", started="2025-01-01T00:00:00+00:00")
    record.write(with_options(fast, threads=2, variant={"compile": "inductor"}), tmp_path)
    none = make(name="c", timing=None, quality=None, certificate=None, proof="unproven")
    record.write(none, tmp_path)
    return tmp_path


def names(folder: Path, condition: str = "", limit: int | None = None) -> list[str]:
    with open_index(folder) as index:
        return [row["name"] for row in index.rows(condition, limit)]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("", "bca"),
        ("workload=lenet5", "a"),
        ("threads=2", "b"),
        ("threads<2 and kind=run", "ca"),
        ("threads>=2 or workload=lenet5", "ba"),
        ("not (threads=2 or workload=lenet5)", "c"),
        ("variant=compile=inductor", "b"),
        ("variant ~ INDUCT", "b"),
        ("workload='le net/5' and proof!=proven", "c"),
        ('cpu="Zen (R)"', "a"),
        ("step_seconds<0.3", "ba"),
        ("workload='\\'; DROP TABLE documents; --'", None),
        ("name=a'b", None),
        ("accuracy=0.1", "ba"),
    ],
)
def test_conditions(folder: Path, condition: str, found: str | None) -> None:
    if found is None:
        with pytest.raises(RequestError, match="wrong form"):
            names(folder, condition)
    else:
        assert "".join(names(folder, condition)) == found
    assert names(folder) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("thread=2", "did you mean 'threads'"),
        ("threads=two", "is a number, and 'two' is none"),
        ("threads", "is none of its parts"),
        ("threads=2 and", "missing at its end"),
        ("threads=2 steps=2", "wrong place"),
        ("(threads=2", "missing at its end"),
        ("threads=2)", "wrong place"),
        ("and", "wrong place"),
        ("()", "wrong place"),
    ],
)
def test_wrong_conditions(folder: Path, condition: str, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        names(folder, condition)


def test_the_index_follows_the_documents(folder: Path) -> None:
    assert names(folder, limit=2) == ["b", "c"] and index_path(folder).is_file()
    (folder / "b.json").unlink()
    record.write(make(name="d", workload_name="new", started="2026-01-01T00:00:00+00:00"), folder)
    record.write(make(name="a", workload_name="other"), folder)
    assert names(folder) == ["d", "c", "a"]
    assert names(folder, "workload=other") == ["a"]


def test_files_of_others_are_named(folder: Path) -> None:
    (folder / "notes.json").write_text("{}")
    (folder / "measurements").mkdir()
    (folder / "measurements" / "odd.json").write_text("[")
    for _ in range(2):  # read, and from the index
        with open_index(folder) as index:
            assert set(index.broken) == {"notes.json", "measurements/odd.json"}
            assert index.count() == 3 and all(index.broken.values())


def test_an_index_that_is_damaged_old_or_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    assert names(folder) == ["b", "c", "a"]
    index_path(folder).write_bytes(b"no database at all, but long enough to be taken for one" * 100)
    assert names(folder) == ["b", "c", "a"]
    with sqlite3.connect(index_path(folder)) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert names(folder) == ["b", "c", "a"]
    index_path(folder).unlink()
    index_path(folder).mkdir()
    assert names(folder) == ["b", "c", "a"]
    with pytest.raises(RequestError, match="no results folder"), open_index(tmp_path / "nowhere"):
        pass


def test_two_read_at_once(folder: Path) -> None:
    with open_index(folder) as one, open_index(folder) as other:
        assert one.rows() == other.rows()


def test_exports(folder: Path) -> None:
    with open_index(folder) as index:
        rows = index.rows()
    table = list(csv.DictReader(io.StringIO(export(folder, rows, "csv", None).decode())))
    assert [row["name"] for row in table] == ["b", "c", "a"] and list(table[0]) == list(COLUMNS)
    assert table[0]["step_seconds"] == "0.25" and table[1]["step_seconds"] == ""
    assert json.loads(export(folder, rows, "json", None))[0]["variant"] == "compile=inductor"
    events = [
        json.loads(line.removeprefix(":::MLLOG "))
        for line in export(folder, rows, "mllog", None).decode().splitlines()
    ]
    assert [event["key"] for event in events].count("run_start") == 3
    (accuracy,) = {event["value"] for event in events if event["key"] == "eval_accuracy"}
    assert accuracy == 0.1
    history = list(csv.DictReader(io.StringIO(export(folder, rows, "otava", None).decode())))
    assert [row["name"] for row in history][-1] == "b"
    assert int(history[0]["time"]) <= int(history[-1]["time"]) == 1735689600


def test_parquet(folder: Path) -> None:
    from pyarrow import parquet

    with open_index(folder) as index:
        content = export(folder, index.rows(), "parquet", None)
    table = parquet.read_table(io.BytesIO(content))
    assert table.column("name").to_pylist() == ["b", "c", "a"]
    assert table.column("threads").to_pylist() == [2, 1, 1]


def test_a_link_that_leads_nowhere_is_broken(tmp_path: Path) -> None:
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "gone.json").symlink_to("nowhere")
    with open_index(tmp_path) as index:
        assert set(index.broken) == {"loop.json", "gone.json"} and index.rows() == []
