"""Certificates as tables: a line for each check that did not pass, one for all that lack a feature."""

from __future__ import annotations

import pytest

from dlb.cli.tables import print_certificate
from dlb.proof.certificate import Baseline, Certificate, CheckResult
from dlb.proof.engine import Check
from dlb.proof.findings import Figure, Finding, LayerFacts
from dlb.proof.findings.common import FeatureMissing
from dlb.proof.findings.workload import LayerDiffers

BASELINE = Baseline(kind="canonical_graph")
FIGURE = Figure(tensor="fc", relative_l2=1e-3, largest=1e-3)


def shown(capsys: pytest.CaptureFixture[str], *results: CheckResult) -> list[str]:
    print_certificate(
        Certificate(
            workload="w", workload_hash="0", seed=0, adapters={"torch": "T 1"}, checks=results
        )
    )
    return capsys.readouterr().out.splitlines()


def test_checks_that_lack_the_same_feature_share_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reason = Finding(cause=FeatureMissing(feature="masks", because=("drop",)))
    skipped = [
        Check(check, "update", "torch", BASELINE).not_run(reason)
        for check in ("update", "trajectory")
    ]
    (line,) = [line for line in shown(capsys, *skipped) if line.startswith("torch")]
    assert line == (
        "torch: 2 checks not run, since the adapter does not have the feature 'masks', which layer "
        "'drop' needs: update; trajectory"
    )


def test_what_failed_is_a_line_with_the_layer(capsys: pytest.CaptureFixture[str]) -> None:
    layer = LayerFacts(name="fc", kind="linear", attributes={"bias": True}, built="Linear(3, 2)")
    failed = CheckResult(
        check="forward float64",
        group="forward",
        adapter="torch",
        baseline=BASELINE,
        verdict="failed",
        tolerance=1e-10,
        figures=(FIGURE,),
        findings=(Finding(cause=LayerDiffers(), layer=layer, figure=FIGURE, tolerance=1e-10),),
    )
    lines = shown(capsys, failed)
    assert any("1.0e-03 failed" in line and "1e-10" in line for line in lines)
    assert lines[-1] == (
        "torch, forward float64: failed; worst: fc; first layer past the tolerance: fc, "
        "linear(bias=True); in torch: Linear(3, 2)"
    )
