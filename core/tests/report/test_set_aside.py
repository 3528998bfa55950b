"""What was set aside in order to compare is counted beside the word, and told."""

from __future__ import annotations

import pytest

from dlb.proof.certificate import Baseline, Certificate, CheckResult, ProofStatus, Verdict
from dlb.proof.findings import Cause, Finding
from dlb.proof.findings.common import StepsCompared
from dlb.proof.findings.workload import SmallerBatch
from dlb.report.records import certificate_lines, certificate_table
from dlb_graph.comparing.read_facts import NarrowValues

SMALLER = SmallerBatch(samples=4, timed=64)
NARROW = NarrowValues(values=("v",), more=0, distance=1e-3)


@pytest.mark.parametrize(
    ("causes", "verdict", "status", "row"),
    [
        ((StepsCompared(steps=3),), "passed", "proven", "proven"),
        ((SMALLER,), "passed", "proven", "proven, 1 set aside"),
        ((NARROW, SMALLER), "passed", "within rounding", "within rounding, 2 set aside"),
        ((SMALLER,), "failed", "deviates", "deviates, 1 set aside"),
    ],
)
def test_the_word_and_the_number(
    causes: tuple[Cause, ...], verdict: Verdict, status: ProofStatus, row: str
) -> None:
    result = CheckResult(
        check="update",
        group="update",
        adapter="torch",
        baseline=Baseline(kind="optimizer_definition"),
        verdict=verdict,
        findings=tuple(Finding(cause=cause) for cause in causes),
    )
    certificate = Certificate(
        workload="w", workload_hash="", seed=0, adapters={"torch": ""}, checks=(result,)
    )
    assert certificate.status("torch") == status
    assert certificate_table(certificate).rows[-1] == ["proof", "", row]
    told = [line for line in certificate_lines(certificate) if line.startswith("set aside, update")]
    assert bool(told) == (verdict == "passed" and "set aside" in row)
