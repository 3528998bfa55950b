"""Documents of strangers: what they claim is derived again, and an odd one costs one line."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hostile_strategies import ODD
from in_process import Ended, damaged
from safetensors.numpy import save_file

from conftest import ROOT
from dlb.errors import DlbError
from dlb_port.captures import Capture, Recording, read_capture, write_capture

sys.path.append(str(ROOT / "plugins" / "dlb-report" / "tests"))
import example_results as results

Command = Callable[..., Ended]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs and a measurement of two of them, one of which deviates."""
    monkeypatch.setenv("DLB_HOME", str(tmp_path / "home"))
    return results.ordinary(tmp_path / "results", deviates="tf")


@pytest.fixture
def call(folder: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Commands, after which no file is there that was not before but the index and the page."""

    def run(*words: object) -> Ended:
        ended = Ended((*map(str, words),), capfd)
        assert ended.seconds < 10 and ended.status in (0, 1, 2)
        if ended.status == 2:
            assert len(ended.lines) == 1 and len(ended.lines[0]) < 4200, ended.lines
        return ended

    yield run
    here = {path.name for path in folder.parent.iterdir()}
    assert here <= {"results", "home", "page.html"}
    assert not list(folder.rglob("*.part")) and not (folder / ".index.sqlite-journal").exists()


def record_of(folder: Path, adapter: str) -> Path:
    return next(folder.glob(f"*-lenet5-{adapter}-00000[01].json"))


def change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **changes}))


def everywhere(folder: Path, record: Path) -> dict[str, tuple[object, ...]]:
    """Every command that shows a record."""
    page = folder.parent / "page.html"
    return {
        "show": ("show", record),
        "explain": ("explain", record),
        "list": ("results", "list", "--in", folder),
        "proven": ("results", "list", "--in", folder, "--filter", "proof=proven", "--json"),
        "export": ("results", "export", "--in", folder),
        "report": ("report", folder, "--output", page),
        "compare": ("compare", folder),
    }


# --- what is claimed -------------------------------------------------------------------------------


@pytest.mark.parametrize("certificate", [True, False])
def test_a_proof_that_is_claimed_is_derived_again(
    certificate: bool, folder: Path, call: Command
) -> None:
    record = record_of(folder, "tf")
    change(record, proof="proven", **({} if certificate else {"certificate": ""}))
    derived = "deviates" if certificate else "unproven"
    says = f"{record}: it claims 'proven', and its certificate says {derived}"
    for name, words in everywhere(folder, record).items():
        ended = call(*words)
        if name in ("show", "explain"):
            assert (ended.status, ended.lines) == (2, [f"dlb: {says}"])
        else:
            assert any("it claims 'proven'" in line or "'deviates'" in line for line in ended.lines)
    rows = json.loads(call(*everywhere(folder, record)["proven"]).out)["results"]
    assert "tf" not in {row["adapter"] for row in rows}


def test_a_measurement_says_what_its_records_say(folder: Path, call: Command) -> None:
    (path,) = (folder / "measurements").iterdir()
    document = json.loads(path.read_bytes())
    document["cells"][1]["proof"] = "proven"
    path.write_text(json.dumps(document))
    name = record_of(folder, "tf").stem
    says = f"it claims 'proven' of tf, and record {name} says deviates"
    assert call("compare", path).lines == [f"dlb: {path}: {says}"]
    assert says in call("results", "list", "--in", folder).lines[0]
    record_of(folder, "tf").unlink()
    assert "unproven" in call("compare", path).out


def test_an_index_that_a_folder_brings_is_not_read(folder: Path, call: Command) -> None:
    words = ("results", "list", "--in", folder, "--json")
    before = call(*words).out
    (index,) = (folder.parent / "home" / "indexes").iterdir()
    with sqlite3.connect(index) as connection:
        connection.execute("UPDATE documents SET proof = 'proven', step_seconds = 1e-9")
    connection.close()
    index.rename(folder / ".index.sqlite")
    assert call(*words).out == before


@pytest.mark.parametrize("kind", ["missing", "altered", "pipe", "device"])
def test_a_certificate_that_is_none_is_named(kind: str, folder: Path, call: Command) -> None:
    record = record_of(folder, "tf")
    path = folder / "certificates" / f"{json.loads(record.read_bytes())['certificate']}.json"
    content = path.read_bytes()
    path.unlink()
    if kind == "altered":
        path.write_bytes(content.replace(b"failed", b"passed"))
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    for name, words in everywhere(folder, record).items():
        ended = call(*words)
        if name in ("show", "explain"):
            assert ended.status == 2 and ended.lines[0].startswith(f"dlb: {path}: ")


# --- what is large or odd --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    [
        "(" * 5000 + "proof=proven" + ")" * 5000,
        "not " * 5000 + "proof=proven",
        " or ".join(["proof=proven"] * 3000),
        "x" * 100_000 + "=1",
        "proof" * 100_000,
    ],
    ids=lambda text: text[:10],
)
def test_filters_have_a_limit(condition: str, folder: Path, call: Command) -> None:
    for words in (("results", "list", "--in", folder), ("results", "export", "--in", folder)):
        assert call(*words, "--filter", condition).status == 2


@pytest.mark.parametrize("number", [1e308, -1e308, 5e-324, 0.0, 2**63])
def test_measurements_of_odd_numbers(number: float, folder: Path, call: Command) -> None:
    (path,) = (folder / "measurements").iterdir()
    document = json.loads(path.read_bytes())
    for trial in document["trials"]:
        trial.update({name: number for name, each in trial.items() if isinstance(each, float)})
    path.write_text(json.dumps(document))
    for words in everywhere(folder, record_of(folder, "torch")).values():
        call(*words)


def test_names_that_are_not_utf8(folder: Path, call: Command) -> None:
    for below in ("", "measurements", "certificates"):
        (folder / below / os.fsdecode(b"\xff\xfe.json")).write_text("{}")
    for name, words in everywhere(folder, record_of(folder, "torch")).items():
        ended = call(*words)
        assert ended.status == (2 if name == "compare" else 0)
        assert all("\\xff" in line or "udcff" in line for line in ended.lines)


CAPTURE = Capture(
    format=1, made="", core="", name="net", adapter="torch", framework="", factory="a:b", features=(), seed=0,
    further=True, input_layout="", output_layouts="", leave=(), inputs={}, trainer="", batches={}, models={},
)  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"input_layout": "N" * 4000},
        {"output_layouts": ["N" * 4000]},
        {"name": "x" * 10**6},
        {"name": "a/b"},
        {"name": ""},
        {"name": "\x1b[2J"},
        {"name": "net\n"},
        {"framework": "x" * 10**6},
        {"factory": "x" * 10**6},
        {"adapter": "x" * 10**6},
        {"seed": -1},
        {"seed": 10**30},
        {"format": 10**30},
        {"models": [[[[]]]]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_captures_with_odd_fields(changes: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "odd.safetensors"
    document = {**msgspec.to_builtins(CAPTURE), **changes}
    save_file({"0": np.zeros(3)}, path, {"dlb": json.dumps(document)})
    with pytest.raises(DlbError) as caught, read_capture(path):
        pass
    line = str(caught.value)
    assert caught.value.exit_status == 2 and len(line) < 500 and len(line.splitlines()) == 1


def test_a_capture_replaces_no_pipe_and_no_link(tmp_path: Path) -> None:
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    for name, target in (
        ("to-pipe", pipe),
        ("to-file", file),
        ("to-nowhere", tmp_path / "no" / "x"),
    ):
        (tmp_path / name).symlink_to(target)
    for path in (pipe, tmp_path / "to-pipe", tmp_path / "to-nowhere", tmp_path):
        with pytest.raises(DlbError, match="cannot be written"):
            write_capture(path, CAPTURE, Recording())
    write_capture(tmp_path / "to-file", CAPTURE, Recording())
    assert pipe.is_fifo() and (tmp_path / "to-file").is_symlink() and file.is_file()
    assert {path.name for path in tmp_path.iterdir()} == {
        "pipe", "file", "to-pipe", "to-file", "to-nowhere",
    }  # fmt: skip


# --- any change ------------------------------------------------------------------------------------


def mutated(content: bytes, draw: random.Random) -> bytes:
    """The document with bytes damaged, or with one to three values replaced, removed or repeated."""
    if draw.random() < 0.3:
        return damaged(content, draw, [b"\0", b"\xff", b"{", b"[" * 5000, b"9" * 400, b"\\ud800"])
    document = json.loads(content)
    for _ in range(draw.randint(1, 3)):
        holder = document
        while True:
            key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            if not isinstance(holder[key], (dict, list)) or not holder[key] or draw.random() < 0.3:
                break
            holder = holder[key]
        how = draw.choice(["odd", "odd", "remove", "again"])
        if how == "odd":
            holder[key] = copy.deepcopy(draw.choice(ODD))
        elif how == "remove" and len(document) > 1:
            del holder[key]
        elif isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        if not document:
            break
    return json.dumps(document).encode()


@pytest.mark.parametrize("kind", ["records", "certificates", "measurements"])
def test_changed_documents(kind: str, folder: Path, call: Command) -> None:
    """200 of each kind; every twentieth is shown by every command."""
    draw = random.Random(f"documents: {kind}")
    record = record_of(folder, "tf")
    (measurement,) = (folder / "measurements").iterdir()
    stored = json.loads(record.read_bytes())
    certificate = folder / "certificates" / f"{stored['certificate']}.json"
    path = {"records": record, "certificates": certificate, "measurements": measurement}[kind]
    content = path.read_bytes()
    for number in range(200):
        odd = mutated(content, draw)
        if kind == "certificates":  # with a name that fits, and a record that claims nothing
            path = certificate.with_name(f"{hashlib.sha256(odd).hexdigest()}.json")
            change(record, certificate=path.stem, proof="unproven")
        path.write_bytes(odd)
        shown = (
            [("explain", path), ("show", record)] if kind != "measurements" else [("compare", path)]
        )
        for words in everywhere(folder, record).values() if number % 20 == 0 else shown:
            call(*words)
        path.unlink() if kind == "certificates" else None
