"""``dlb sweep --executor``: every cell is a job of its own, wherever it runs."""

from __future__ import annotations

import io
import zipfile

import msgspec
import pytest
from dlb_process import TESTS, Dlb

from dlb import record
from dlb.errors import RecordError
from dlb_measure.remote_cell import Returned, unpack
from dlb_measure.results import sweep as sweeps

MLP = TESTS / "workloads" / "mlp.toml"
QUICK = ("--threads", 1, "--steps", 20, "--rounds", 2, "--repeats", 0)


def words(dlb: Dlb, executor: str, *more: object) -> tuple[object, ...]:
    return (
        "sweep",
        MLP,
        "--on",
        "example",
        *QUICK,
        "--executor",
        executor,
        "--out",
        dlb.out,
        *more,
    )


def test_cells_run_in_another_process(dlb: Dlb) -> None:
    command = words(dlb, "process", "--vary", "batch_size=32,64")
    ended = dlb(*command)
    assert ended.status == 0, ended.err
    assert "2 of 2: example, batch_size=" in ended.err and "on other machines" in ended.out
    (path,) = (dlb.out / "sweeps").glob("*.json")
    state = sweeps.read(path)
    assert state.ended and len({each.measurement for each in state.cells}) == 2
    for cell in state.cells:
        kept = record.read(dlb.out / f"{cell.record}.json")
        assert kept.proof == "proven" and kept.options.batch_size == cell.varied["batch_size"]
    # What was not finished goes on: a cell that has its record is not run again.
    document = msgspec.structs.replace(state, ended=False)
    cells = (document.cells[0], sweeps.CellState(
        adapter="example", workload_name="mlp", varied=document.cells[1].varied
    ))  # fmt: skip
    sweeps.write(msgspec.structs.replace(document, cells=cells), dlb.out)
    again = dlb(*command)
    assert again.status == 0 and "1 of 1: example, batch_size=64: done" in again.err
    assert sweeps.read(path).cells[0] == state.cells[0]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("", "OSError: node 3 is down"),
        ("returns-files", "something else than results"),
        ("returns-nothing", "it returned a NoneType, not a future"),
        ("refuses", "SystemExit: 7"),
    ],
)
def test_what_an_executor_loses_is_run_again_by_the_same_command(
    dlb: Dlb, fault: str, says: str
) -> None:
    ended = dlb(*words(dlb, "lost", "--vary", "batch_size=32,64"), fault=fault)
    assert ended.status == 1 and says in ended.out + ended.err
    if fault:
        return
    again = dlb(*words(dlb, "process", "--vary", "batch_size=32,64"))
    assert again.status == 0, again.err
    (path,) = (dlb.out / "sweeps").glob("*.json")
    state = sweeps.read(path)
    assert state.ended and all(each.record and each.failure is None for each in state.cells)


@pytest.mark.parametrize(
    ("executor", "says"),
    [
        ("proces", "did you mean 'process'"),
        ("process://host:1", "ConnectionError: nobody answers at host:1"),
        ("none", "its plugin made a NoneType"),
    ],
)
def test_bad_executors(dlb: Dlb, executor: str, says: str) -> None:
    ended = dlb(*words(dlb, executor, "--vary", "batch_size=32"))
    assert ended.status == 2 and says in ended.complaint


@pytest.mark.parametrize("name", ["../evil.json", "a/b.json", "models/../../x.onnx", "/etc/passwd"])
def test_files_that_no_cell_has_are_refused(dlb: Dlb, name: str) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(name, "{}")
    dlb.out.mkdir()
    with pytest.raises(RecordError, match="which no cell has"):
        unpack(Returned(files=content.getvalue()), dlb.out)
    assert list(dlb.out.iterdir()) == []
