"""A network that makes rounding grow is not reported different."""

from __future__ import annotations

import json

import msgspec

from conftest import ADAPTERS, ROOT, Prove
from dlb.catalogue import load_workload

DEEP = ROOT / "tests" / "seeded_faults" / "workloads" / "deep.toml"


def test_trajectories_are_compared_as_far_as_rounding_allows(prove: Prove) -> None:
    certificate = prove(load_workload(str(DEEP)), groups=("trajectory", "float32"))
    assert not certificate.failures
    assert {result.verdict for result in certificate.checks} == {"passed"}
    checks = json.loads(msgspec.json.encode(certificate))["checks"]
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
