"""A network that makes rounding grow is not reported different."""

from __future__ import annotations

import json
import re

from conftest import ADAPTERS, ROOT, Dlb

DEEP = ROOT / "tests" / "seeded_faults" / "workloads" / "deep.toml"


def test_trajectories_are_compared_as_far_as_rounding_allows(dlb: Dlb) -> None:
    done = dlb("verify", str(DEEP), "--level", "trajectory", "--level", "float32", "--json")
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    rungs = json.loads(done.stdout)["certificate"]["rungs"]
    across = [rung for rung in rungs if rung["name"] == "trajectories"]
    assert {rung["adapter"] for rung in across} == set(ADAPTERS)
    for rung in across:
        # Over all 20 steps it would fail, though every adapter is right.
        told = re.fullmatch(
            r"after (\d+) of 20 steps: in 20, steps 1e-12 longer end (\S+) apart", rung["detail"]
        )
        assert told and int(told[1]) < 20 and float(told[2]) > rung["gate"] == 1e-10
    alone = [rung for rung in rungs if rung["name"] == "trajectory"]
    assert [rung["detail"] for rung in alone] == ["20 steps"] * len(ADAPTERS)
