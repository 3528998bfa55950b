"""Large networks take the steps of the proof on smaller maps."""

from __future__ import annotations

import dlb
from dlb.proof.findings.workload import SmallerMaps


def test_a_large_network() -> None:
    """Its updates are compared on smaller maps, and say so; that of the timed batch on those of the run."""
    proof = dlb.verify("mobilenet-v1", on=["torch"], groups=("update",), steps=2, threads=1)
    noted = {}
    for check in proof.checks:
        assert check.verdict == "passed", check
        causes = [each.cause for each in check.findings if isinstance(each.cause, SmallerMaps)]
        noted[check.check] = [cause.shape for cause in causes]
    assert noted == {"update": [(3, 84, 84)], "update, timed batch": []}
