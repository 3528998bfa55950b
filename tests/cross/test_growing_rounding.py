"""A network that makes rounding grow is not reported different."""

from __future__ import annotations

import json

from conftest import ADAPTERS, ROOT, Dlb

DEEP = ROOT / "tests" / "seeded_faults" / "workloads" / "deep.toml"


def test_trajectories_are_compared_as_far_as_rounding_allows(dlb: Dlb) -> None:
    done = dlb(
        "verify",
        str(DEEP),
        "--group",
        "trajectory",
        "--group",
        "float32",
        "--threads",
        "1",
        "--json",
    )
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    checks = json.loads(done.stdout)["certificate"]["checks"]
    across = [result for result in checks if result["check"] == "trajectories"]
    assert {result["adapter"] for result in across} == set(ADAPTERS)
    for result in across:
        # Over all 20 steps it would fail, though every adapter is right.
        (finding,) = result["findings"]
        cause = finding["cause"]
        assert (cause["code"], cause["asked"]) == ("rounding_grows", 20)
        assert cause["steps"] < 20 and cause["error_growth"] > result["tolerance"] == 1e-10
    single = [result for result in checks if result["check"] == "trajectory"]
    compared = [{"cause": {"code": "steps_compared", "steps": 20}}]
    assert [result["findings"] for result in single] == [compared] * len(ADAPTERS)
