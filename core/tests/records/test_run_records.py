"""Records: written whole or not at all, read back equal, and named when they are none."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import msgspec
import pytest

from dlb import cli, documents, record
from dlb.errors import RecordError, RequestError
from dlb.failure import Failure
from dlb.printable import UNSEEN, cell
from dlb.proof import certificate
from dlb.proof.certificate import Baseline, Certificate, CheckResult, Figure
from dlb.proof.findings import Finding, LayerFacts
from dlb.proof.findings.workload import LayerDiffers
from dlb.record import FORMAT, Options, Quality, Record, Timing
from dlb_graph import regular_files

RESULT = CheckResult(
    check="forward float64",
    group="forward",
    adapter="example",
    baseline=Baseline(kind="canonical_graph"),
    verdict="failed",
    tolerance=1e-10,
    figures=(Figure(tensor="fc1", relative_l2=None, largest=None),),
    findings=(
        Finding(
            cause=LayerDiffers(),
            layer=LayerFacts(name="fc1", kind="linear", attributes={"out_features": 3}),
            tolerance=1e-10,
        ),
    ),
)
TIMING = Timing(
    step_seconds=(0.5, 0.25),
    data_seconds=(0.0, 0.0),
    total_seconds=0.8,
    start_seconds=0.1,
    build_seconds=0.1,
    median=0.25,
    lower_quartile=0.25,
    upper_quartile=0.5,
    samples_per_second=256.0,
    cpu_seconds=0.75,
    busy_threads=1,
    memory_bytes=10**8,
)


def make(**changes: Any) -> Record:
    """A record of a run; some fields changed. Its certificate says what it says."""
    result = msgspec.structs.replace(
        RESULT,
        adapter=changes.get("adapter", RESULT.adapter),
        verdict="passed" if changes.get("proof") == "proven" else "failed",
    )
    fields: dict[str, Any] = {
        "format": FORMAT,
        "name": record.new_name("le net/5", "example", datetime(2024, 2, 29, tzinfo=timezone.utc)),
        "started": "2024-02-29T00:00:00+00:00",
        "command": "run",
        "adapter": "example",
        "framework": "NumPy",
        "framework_version": "2.0",
        "workload_name": "le net/5",
        "workload": {"name": "le net/5"},
        "workload_hash": "00" * 32,
        "data": {"name": "d", "from": "/somewhere"},
        "options": Options(
            batch_size=64, steps=2, warmup=0, threads=1, device="cpu", dtype="float32",
            seed=0, input="pipeline",
        ),
        "proof": "deviates",
        "certificate": Certificate(
            workload="le net/5", workload_hash="00" * 32, seed=0, adapters={}, checks=(result,)
        ),
        "timing": TIMING,
        "quality": Quality(losses=(2.3, None), test_accuracy=0.1, test_samples=500),
    }  # fmt: skip
    return Record(**{**fields, **changes})


#: Records of runs that went well, failed early, or observed more.
RECORDS = {
    "whole": make(),
    "failed": make(
        timing=None,
        quality=None,
        certificate=None,
        failure=Failure(kind="WorkerDied", message="it died", log="x.log"),
        proof="unproven",
    ),
    "observed": make(observed={"energy": {"joules": 3.5, "samples": [1, None]}}),
    "series of an observer": make(observed={"power": {"series": {"watts": [3.5, 2.0]}, "most": 4}}),
    "no series of numbers": make(observed={"odd": {"series": {"words": ["a", "b"]}}}),
    "unicode": make(
        framework="NumPy ☂", failure=Failure(kind="DlbError", message='quote " and \\ and \n')
    ),
}


@pytest.mark.parametrize("one", RECORDS.values(), ids=list(RECORDS))
def test_round_trip_and_schema(one: Record, tmp_path: Path) -> None:
    path = record.write(one, tmp_path)
    assert path.name == f"{one.name}.json" and record.read(path) == one
    jsonschema.validate(json.loads(path.read_bytes()), json.loads(record.schema()))
    parts = {"certificates": bool(one.certificate), "series": bool(one.timing)}
    folders = [name for name, there in parts.items() if there]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([path.name, *folders])
    for name in folders:
        (content,) = (tmp_path / name).iterdir()
        assert content.stem == hashlib.sha256(content.read_bytes()).hexdigest()
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("form", [record, certificate])
def test_shipped_schema_is_that_of_the_form(form: ModuleType) -> None:
    assert form.schema() == form.make_schema()
    jsonschema.Draft202012Validator.check_schema(json.loads(form.schema()))


def test_names_sort_by_time_and_are_file_names() -> None:
    early, late = (datetime(2024, 1, day, tzinfo=timezone.utc) for day in (1, 2))
    names = [record.new_name("../a b", "torch", moment) for moment in (early, early, late)]
    assert sorted(names[:2]) + names[2:] == sorted(names) and len(set(names)) == 3
    assert all("/" not in name and " " not in name and ".." not in name for name in names)


def test_replacing_a_record(tmp_path: Path) -> None:
    first = make()
    path = record.write(first, tmp_path)
    second = msgspec.structs.replace(first, proof="unproven")
    assert record.write(second, tmp_path) == path and record.read(path) == second


WRITE_AND_DIE = """
import sys
from pathlib import Path
from dlb import record
import os
folder, name = Path(sys.argv[1]), sys.argv[2]
one = record.read(folder / f"{name}.json")
def die(descriptor): os.kill(os.getpid(), 9)
os.fsync = die
record.write(one, folder)
"""


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """As root, a device would be a file from then on."""
    pipe, folder, link, file = (tmp_path / name for name in ("pipe", "folder", "link", "file"))
    os.mkfifo(pipe)
    folder.mkdir()
    for kind in (pipe, folder, Path("/dev/null")):
        link.unlink(missing_ok=True)
        link.symlink_to(kind)
        for path in (kind, link):
            with (
                pytest.raises(OSError, match="not a file, so it is not replaced"),
                regular_files.temporary_file(path),
            ):
                pass
    documents.write_atomically(Path("/dev/null"), b"content")
    assert pipe.is_fifo() and folder.is_dir() and Path("/dev/null").is_char_device()
    link.unlink()
    link.symlink_to(file)
    for content in (b"new", b"newer"):
        documents.write_atomically(link, content)
        assert link.is_symlink() and file.read_bytes() == content


def test_a_killed_writer_leaves_the_old_record(tmp_path: Path) -> None:
    one = make()
    path = record.write(one, tmp_path)
    before = path.read_bytes()
    done = subprocess.run([sys.executable, "-c", WRITE_AND_DIE, str(tmp_path), one.name])
    assert done.returncode == -9
    assert path.read_bytes() == before
    assert record.read_folder(tmp_path) == ([one], [])


def test_a_record_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"cannot write .*; .*--out"):
        record.write(make(), tmp_path / "nowhere")
    with pytest.raises(RequestError, match="choose another folder with --out"):
        record.check_folder(Path("/dev/null/results"))


@pytest.mark.parametrize("kind", ["certificates", "series"])
def test_what_belongs_to_a_record_and_is_gone_or_altered(tmp_path: Path, kind: str) -> None:
    path = record.write(make(), tmp_path)
    assert record.read_header(path).proof == "deviates"
    (part,) = (tmp_path / kind).iterdir()
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(RecordError, match="not that of its name"):
        record.read(path)
    part.unlink()
    with pytest.raises(RecordError, match="moved as a whole"):
        record.read(path)
    for put in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        put(part)  # to open the one waits for ever, to read the other never ends
        with pytest.raises(RecordError, match="not a file"):
            record.read(path)
        part.unlink()
    assert record.read_folder(tmp_path)[0] == []


def test_equal_parts_are_one_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        record.write(make(name=name), tmp_path)
    assert len(list((tmp_path / "certificates").iterdir())) == 1
    assert len(list((tmp_path / "series").iterdir())) == 1


def test_a_million_steps_are_small(tmp_path: Path) -> None:
    times = tuple(0.001 + step * 1e-9 for step in range(1_000_000))
    timing = msgspec.structs.replace(TIMING, step_seconds=times, data_seconds=times)
    quality = Quality(losses=times, test_accuracy=0.1, test_samples=500)
    path = record.write(make(timing=timing, quality=quality), tmp_path)
    assert path.stat().st_size < 10_000
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.*")) < 25_000_000


def document(**changes: Any) -> bytes:
    """A record's text, some fields changed; None takes a field away."""
    header = msgspec.to_builtins(make(certificate=None, timing=None, quality=None))
    whole = {**header, "certificate": "", **changes}
    return json.dumps({name: value for name, value in whole.items() if value is not ...}).encode()


#: What is in a file that is no record, and what is said of it.
FOREIGN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "not a record"),
    "cut": (document()[:-20], "not a record"),
    "another's": (b'{"schema": "https://example.org", "format": "text"}', "format"),
    "a list": (b"[1, 2]", "not a record"),
    "binary": (bytes(range(256)), "not a record"),
    "deep": (b'{"format": 2, "name": ' + b"[" * 100_000, "not a record"),
    "future": (
        document(format=FORMAT + 1, colour="red"),
        "reads format 2; use the dlb-core that",
    ),
    "past": (document(format=0), "format 0"),
    "no name": (document(name=...), "`name`"),
    "more": (document(colour="red"), "`colour`"),
    "wrong type": (document(options={"batch_size": "many"}), "options"),
    "proof": (document(proof="maybe"), "proof"),
    "observed": (document(observed={"resources": 3}), "observed"),
}


@pytest.mark.parametrize(("content", "says"), FOREIGN.values(), ids=list(FOREIGN))
def test_what_is_no_record_is_named(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    with pytest.raises(RecordError) as raised:
        record.read(path)
    assert str(path) in str(raised.value) and says in str(raised.value)


def test_a_folder_tells_records_from_what_is_none(tmp_path: Path) -> None:
    one = make()
    record.write(one, tmp_path)
    for name, (content, _) in FOREIGN.items():
        (tmp_path / f"{name}.json").write_bytes(content)
    (tmp_path / "notes.txt").write_text("not looked at")
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    found, errors = record.read_folder(tmp_path)
    assert found == [one] and len(errors) == len(FOREIGN) + 2


def test_models_are_kept_by_content(tmp_path: Path) -> None:
    record.check_folder(tmp_path)
    file = tmp_path / "exported.onnx"
    file.write_bytes(b"a model")
    kept = record.keep_model(file, tmp_path)
    assert kept == record.keep_model(file, tmp_path) and kept.bytes == 7
    assert [path.name for path in (tmp_path / "models").iterdir()] == [f"{kept.sha256}.onnx"]


#: Sets a terminal's title, clears it, turns around what is read, and begins as a formula does.
EVIL = "=cmd|' /C calc'!A0 \x1b]0;owned\x07\x1b[2J \x9b31m \u202e \r \x7f end"


@pytest.mark.parametrize(
    "words",
    [
        ["show", "RECORD"],
        ["show", "RECORD", "--json"],
        ["results", "show", "last", "--in", "FOLDER"],
        ["results", "list", "--in", "FOLDER"],
        ["results", "export", "--in", "FOLDER"],
        ["results", "export", "--in", "FOLDER", "--format", "json"],
        ["results", "export", "--in", "FOLDER", "--format", "otava"],
        ["explain", "RECORD"],
    ],
)
def test_a_terminal_obeys_nothing_that_a_record_says(words: list[str], tmp_path: Path) -> None:
    evil = make(
        framework=EVIL,
        framework_version=EVIL,
        adapter=EVIL,
        workload_name=EVIL,
        machine={EVIL: EVIL},
        worker={"framework": EVIL, EVIL: {EVIL: [EVIL]}},
        failure=Failure(kind="DlbError", message=EVIL),
        observed={EVIL: {EVIL: EVIL}},
    )
    path = record.write(evil, tmp_path)
    places = {"RECORD": str(path), "FOLDER": str(tmp_path)}
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", newline=""), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        cli.call([places.get(word, word) for word in words])
        out.flush()
    said = out.buffer.getvalue().decode() + err.getvalue()
    assert "a fault of dlb" not in said and ("owned" in said or "explain" in words), said
    assert not UNSEEN.search(said.replace("\n", ""))
    if "export" in words and "json" not in words:
        assert not [
            cell for row in csv.reader(said.splitlines()) for cell in row if cell[:1] == "="
        ]


def test_cells_of_strangers_are_no_formulas() -> None:
    for text in ("=1", "+1+1", "-1", "@SUM(1)", "\t=1", "\r=1"):
        assert cell(text).startswith("'")
    assert [cell(each) for each in (-1.5, None, "a=1", 2)] == [-1.5, None, "a=1", 2]
