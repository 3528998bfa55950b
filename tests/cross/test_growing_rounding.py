"""A network that makes rounding grow is not reported different, nor passed where nothing can be told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conftest import ADAPTERS, Dlb
from dlb.proof.rungs import CHAOTIC, FLOAT64_GATE

DEEP = Path(__file__).parent / "workloads" / "deep.toml"


def trajectories(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [rung for rung in document["certificate"]["rungs"] if rung["name"] == "trajectories"]


def test_what_rounding_grows_to_is_no_difference(dlb: Dlb) -> None:
    done = dlb("verify", str(DEEP), "--level", "trajectory", "--level", "float32", "--json")
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    found = trajectories(json.loads(done.stdout))
    assert {rung["adapter"] for rung in found} == set(ADAPTERS)
    for rung in found:
        assert rung["verdict"] == "passed"
        # The measure is needed, and still is one.
        assert FLOAT64_GATE < rung["figures"][0]["relative_l2"] <= rung["gate"] <= CHAOTIC
        assert "steps 1e-12 longer" in rung["detail"]


def test_where_rounding_grows_too_much_the_rung_is_not_run(dlb: Dlb) -> None:
    words = ("--on", "chainer", "--on", "torch", "--level", "trajectory", "--steps", "60")
    done = dlb("verify", str(DEEP), *words, "--json")
    assert done.returncode == 1
    for rung in trajectories(json.loads(done.stdout)):
        assert rung["verdict"] == "not run"
        assert "fewer --steps" in rung["detail"]
