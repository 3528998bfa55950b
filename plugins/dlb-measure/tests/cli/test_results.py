"""``dlb results``: what a folder holds, listed, shown and exported."""

from __future__ import annotations

import os

import pytest
from dlb_process import TESTS, Dlb


def test_a_run_and_a_measurement(dlb: Dlb) -> None:
    assert dlb.run("--rounds", 1, "--repeats", 0).status == 0
    where = ("--in", dlb.out)
    listed = dlb("results", "list", *where)
    assert listed.status == 0 and listed.err == "" and "example" in listed.out
    rows = dlb("results", "list", *where, "--json").document
    assert {row["kind"] for row in rows["results"]} == {"run", "measurement"} and rows["count"] == 2
    named = {row["kind"]: row["name"] for row in rows["results"]}
    shown = dlb("results", "show", named["run"], *where)
    assert shown.status == 0 and "provenance" in shown.out
    shown = dlb("results", "show", named["measurement"], *where)
    assert shown.status == 0 and "1 round of new processes" in shown.out
    shown = dlb("results", "show", "last", *where, "--filter", "kind=measurement", "--json")
    assert shown.document["name"] == named["measurement"]
    table = dlb("results", "export", *where, "--filter", "kind=run and threads=1")
    assert table.status == 0 and len(table.out.splitlines()) == 2
    assert dlb("results", "export", *where, "--format", "mllog", "-o", "x.log").status == 0
    assert (dlb.folder / "x.log").read_text().startswith(":::MLLOG {")
    (dlb.out / "notes.json").write_text("{}")
    listed = dlb("results", "list", *where)
    assert listed.status == 0 and "notes.json is skipped" in listed.err


def test_a_device_is_written_to_and_stays_one(dlb: Dlb) -> None:
    assert dlb.run().status == 0
    for words in (("results", "export", "--in", dlb.out), ("report", dlb.out)):
        pipe = dlb.folder / "pipe"
        os.mkfifo(pipe)
        process = dlb.start(*words, "-o", pipe)
        content = pipe.read_bytes()
        assert dlb.finish(process).status == 0 and b"example" in content
        assert pipe.is_fifo()
        pipe.unlink()


def test_time_to_a_target_over_seeds(dlb: Dlb) -> None:
    both = ("--on", "example", "--on", "faulty", "--test-every", 5, "--threads", 1, "--steps", 20)
    seeds = ("--vary", "seed=1,2", "--rounds", 0)
    swept = dlb("sweep", TESTS / "workloads" / "mlp.toml", *both, *seeds, "--out", dlb.out)
    assert swept.status == 0, swept.err
    where = ("--in", dlb.out, "--accuracy", "1%")
    told = dlb("results", "target", *where, "--json").document
    assert told["target"] == {"accuracy": 0.01, "loss": None}
    for cell in told["cells"]:
        assert [run["seed"] for run in cell["runs"]] == [1, 2] and cell["reached"] == 2
        assert cell["steps"] % 5 in (0, 2.5) and cell["seconds"] > 0
    first, second = told["cells"]
    assert first["ratio"] is None and second["ratio"]["rounds"] == 2
    shown = dlb("results", "target", *where, "--baseline", "faulty")
    assert shown.status == 0 and "accuracy 1.0%" in shown.out and "times faulty" in shown.out
    far = dlb("results", "target", "--in", dlb.out, "--loss", "1e-9")
    assert far.status == 0 and "all of them" in far.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("target", "--in", "."), "one of --accuracy and --loss"),
        (("target", "--in", ".", "--accuracy", "80"), "below 100%"),
        (("target", "--in", ".", "--accuracy", "80%"), "no run was tested"),
        (("list", "--in", "nowhere"), "nowhere"),
        (("list", "--in", ".", "--filter", "thread=2"), "did you mean 'threads'"),
        (("show", "x", "--in", "."), "there is none; see: dlb results list"),
        (("export", "--in", ".", "-o", "no/where.csv"), "cannot write"),
        (("export", "--in", ".", "--format", "xml"), "'xml'"),
    ],
)
def test_bad_requests(dlb: Dlb, words: tuple[str, ...], says: str) -> None:
    ended = dlb("results", *words)
    assert ended.status == 2 and says in ended.complaint
