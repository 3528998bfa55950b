"""``dlb sweep``: every combination is proven and measured once, whatever kills it in between."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from typing import Any

import pytest
from dlb_process import PATIENCE, TESTS, Dlb

from dlb import record
from dlb.errors import RequestError
from dlb_measure.matrix import axes_of
from dlb_measure.results import measurement as measurements
from dlb_measure.results import sweep as sweeps

MLP = TESTS / "workloads" / "mlp.toml"
#: One round, and no repetition: these tests are about what is measured, not about how well.
QUICK = ("--steps", 20, "--rounds", 1, "--repeats", 0)


def words(dlb: Dlb, *more: object, on: tuple[str, ...] = ("example",)) -> tuple[object, ...]:
    adapters = [word for name in on for word in ("--on", name)]
    return ("sweep", MLP, *adapters, *QUICK, "--out", dlb.out, *more)


def sweep_of(dlb: Dlb) -> sweeps.Sweep:
    (path,) = (dlb.out / "sweeps").glob("*.json")
    return sweeps.read(path)


def test_every_cell_has_a_record_and_a_place_in_one_measurement(dlb: Dlb) -> None:
    varied = ("--vary", "batch_size=32,64", "--vary", "optimizer.learning_rate=0.1")
    ended = dlb(*words(dlb, *varied, "--threads", 1, "--json"))
    assert ended.status == 0, ended.err
    cells = ended.document["cells"]
    assert [each["varied"] for each in cells] == [
        {"batch_size": batch, "optimizer.learning_rate": 0.1} for batch in (32, 64)
    ]
    for cell in cells:
        kept = record.read(dlb.out / f"{cell['record']}.json")
        assert kept.options.batch_size == cell["varied"]["batch_size"]
        rate = kept.workload["optimizer"]["learning_rate"]
        assert rate == cell["varied"]["optimizer.learning_rate"]
        assert kept.proof == cell["proof"] == "proven"
    (path,) = (dlb.out / "measurements").glob("*.json")
    measurement = measurements.read(path)
    assert [each.varied for each in measurement.cells] == [each["varied"] for each in cells]
    counted = Counter(each.cell for each in measurement.trials)
    assert sorted(counted.values()) == [1, 2]  # one cell next to itself
    shown = dlb("results", "show", measurement.name, "--in", dlb.out).out
    assert "a sample" in shown and "batch_size=64" in shown
    assert sweep_of(dlb).ended
    # The same again is a sweep of its own, whose proofs are kept.
    told = dlb(*words(dlb, *varied, "--threads", 1, "--dry-run")).out
    assert "0 to prove, 2 with a kept proof" in told
    assert len(list(dlb.out.glob("*.json"))) == 2


def test_what_the_proof_does_not_depend_on_is_not_proven_again(dlb: Dlb) -> None:
    varied = ("--vary", "epochs=1,2", "--vary", "data=synthetic,fashion-mnist-subset")
    command = words(dlb, *varied, "--threads", 1, "--rounds", 0, "--json")
    ended = dlb(*[word for word in command if word not in ("--steps", 20)])
    assert ended.status == 0, ended.err
    kept = [record.read(dlb.out / f"{each['record']}.json") for each in ended.document["cells"]]
    made = [each.certificate.kept for each in kept if each.certificate is not None]
    assert len(made) == 4 and all(made[1:]), (made, [each.proof for each in kept], ended.err)


def test_a_cell_that_fails_costs_that_cell(dlb: Dlb) -> None:
    command = words(dlb, "--vary", "threads=1,2", on=("faulty", "example"))
    ended = dlb(*command, fault="die-sigkill@train")
    assert ended.status == 1
    assert ended.out.count("faulty, threads=") == 2 and "failed: " in ended.out
    state = sweep_of(dlb)
    assert [each.failure is not None for each in state.cells] == [True, False, True, False]
    measurement = measurements.read(dlb.out / "measurements" / f"{state.measurements[0]}.json")
    assert [each.adapter for each in measurement.cells] == ["example", "example"]


def test_it_can_be_killed_at_any_moment(dlb: Dlb) -> None:
    """What had ended is neither lost nor done twice."""
    command = words(dlb, "--threads", 1, "--vary", "optimizer.momentum=0.5,0.7,0.8,0.9")
    generator = random.Random(7)
    deadline = time.monotonic() + PATIENCE
    for _ in range(3):
        process = dlb.start(*command)
        time.sleep(generator.uniform(2.0, 7.0))
        assert time.monotonic() < deadline
        process.kill()
        for worker in dlb.alive():
            worker.kill()
        process.communicate()
    ended = dlb(*command)
    assert ended.status == 0, ended.err
    state = sweep_of(dlb)
    assert state.ended and all(each.record for each in state.cells)
    assert len({each.record for each in state.cells}) == 4
    kept = [record.read_header(path) for path in dlb.out.glob("*.json")]
    told = [(each.name, each.proof) for each in kept]
    assert len([each for each in kept if each.proof == "proven"]) == 4, told
    (path,) = (dlb.out / "measurements").glob("*.json")
    trials = measurements.read(path).trials
    assert len(trials) == 5 == len({(each.cell, each.again) for each in trials})


def test_two_at_once_are_refused(dlb: Dlb) -> None:
    with sweeps.alone(dlb.out):
        ended = dlb(*words(dlb, "--vary", "threads=1,2"))
    assert ended.status == 2 and "another sweep runs in" in ended.complaint


def test_a_dry_run_starts_nothing(dlb: Dlb) -> None:
    command = words(dlb, "--vary", "threads=1,2", "--dry-run", on=("example", "faulty"))
    ended = dlb(*command)
    assert ended.status == 0 and "4 cells, " in ended.out and "about" in ended.out
    assert not dlb.out.exists()
    document = dlb(*command, "--json").document
    assert [each["adapter"] for each in document["cells"]] == ["example", "faulty"] * 2
    assert all(each["estimate"]["run_seconds"] > 0 for each in document["cells"])


def test_cells_that_cannot_be_run_are_left_out_if_asked(dlb: Dlb) -> None:
    varied = ("--vary", "strategy=none,example_sync", "--vary", "workers=1,2", "--threads", 1)
    assert "workers 2 needs a strategy" in dlb(*words(dlb, *varied)).complaint
    told = dlb(*words(dlb, *varied, "--skip-refused", "--dry-run", "--json")).document
    assert len(told["cells"]) == 3 and len(told["refused"]) == 1
    same = dlb(*words(dlb, "--vary", "variant=none,layout=rows", "--dry-run", "--json")).document
    assert len(same["cells"]) == 1 and same["repeated"] == ["example, variant=layout=rows"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--vary", "thread=1,2"), "did you mean 'threads'"),
        (("--vary", "optimizer.rate=1"), "--vary optimizer.rate=1: "),
        (("--vary", "optimizer.learning_rate=-1"), "must be above 0"),
        (("--vary", "batch_size=1,100000"), "cell example, batch_size=100000: "),
        (("--vary", "threads=1,2", "--threads", 2), "--threads and --vary threads exclude"),
        (("--vary", f"seed={','.join(map(str, range(1001)))}"), "1,001 cells"),
        (("--vary", "threads=1,2", "--baseline", 3), "there are 2 cells"),
        (("--vary", "steps=1,2"), "--steps and --vary steps exclude"),
        (("--vary", "name=a,b"), "unknown setting"),
    ],
)
def test_bad_requests(dlb: Dlb, more: tuple[object, ...], says: str) -> None:
    ended = dlb(*words(dlb, *more))
    assert ended.status == 2 and says in ended.complaint
    assert not dlb.out.exists()


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("threads=1,2", (1, 2)),
        ("dtype=float32,float64", ("float32", "float64")),
        ("optimizer.learning_rate=1e-3, 0.1", (1e-3, 0.1)),
        ("optimizer.nesterov=true,false", (True, False)),
        ("data=folder:a,synthetic", ("folder:a", "synthetic")),
        ("data.mean=[0.1,0.2],[0.3]", ([0.1, 0.2], [0.3])),
        ('optimizer.type="a,b",adam', ("a,b", "adam")),
        ("x=1,true", (1, True)),
    ],
)
def test_axes(word: str, values: tuple[Any, ...]) -> None:
    (axis,) = axes_of([word])
    assert (axis.name, axis.values) == (word.partition("=")[0], values)
    assert axes_of({axis.name: list(values)}) == [axis]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["threads"], "give NAME=VALUE,VALUE"),
        (["=1"], "give NAME=VALUE,VALUE"),
        (["threads="], "a value is missing"),
        (["threads=1,,2"], "a value is missing"),
        (["threads=1,01"], "must be a whole number"),
        (["threads=1,1"], "twice"),
        (["a.b=0.1,0.10"], "twice"),
        (["threads=1.5"], "must be a whole number, 1 or more"),
        (["workers=0"], "workers is 0; it must be 1 or more"),
        (["seed=true"], "must be a whole number, 0 or more"),
        (["dtype=float16"], "must be one of float32, float64"),
        (["a.b=inf"], "must be finite"),
        (["threads=1", "threads=2"], "give it once"),
        ({"threads": []}, "has no value"),
    ],
)
def test_bad_axes(given: Any, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        axes_of(given)


def test_a_damaged_sweep_is_left_alone(dlb: Dlb) -> None:
    (dlb.out / "sweeps").mkdir(parents=True)
    (dlb.out / "sweeps" / "foreign.json").write_text(json.dumps({"format": 1}))
    assert dlb(*words(dlb, "--vary", "threads=1")).status == 0
