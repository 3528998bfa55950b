"""Certificates as tables: a line for each check that did not pass, one for all that lack a feature."""

from __future__ import annotations

import msgspec
import pytest

from dlb.cli.output import print_table
from dlb.cli.tables import print_certificate
from dlb.proof.certificate import Baseline, Certificate, CheckResult
from dlb.proof.engine import Check
from dlb.proof.findings import Figure, Finding, LayerFacts
from dlb.proof.findings.common import FeatureMissing
from dlb.proof.findings.workload import LayerDiffers
from dlb.report.records import folded_lines

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
    skipped = [Check.of(check, "torch").not_run(reason) for check in ("update", "trajectory")]
    (line,) = [line for line in shown(capsys, *skipped) if line.startswith("torch")]
    assert line == (
        "torch: 2 checks not run, since the adapter does not have the feature 'masks', which layer "
        "'drop' needs: update; trajectory"
    )


def test_adapters_of_which_the_same_is_said_share_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reason = Finding(cause=FeatureMissing(feature="masks", because=("drop",)))
    skipped = [Check.of("update", name).not_run(reason) for name in ("torch", "tf")]
    (line,) = [line for line in shown(capsys, *skipped) if "not run, since" in line]
    assert line.startswith("torch, tf: 1 check not run, since ")


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
    assert (
        "torch, forward float64: failed; worst: fc; first layer past the tolerance: fc, "
        "linear(bias=True); in torch: Linear(3, 2)"
    ) in lines
    assert lines[-2] == "  as torch has it: Linear(3, 2)" and lines[-1].startswith("  likely: ")


def passed(check: str, size: float) -> CheckResult:
    figure = Figure(tensor="fc", relative_l2=size, largest=size)
    return CheckResult(
        check=check,
        group="forward",
        adapter="torch",
        baseline=BASELINE,
        verdict="passed",
        tolerance=1e-10,
        figures=(figure,),
    )


def test_a_proof_is_folded_to_a_line_unless_a_check_did_not_pass() -> None:
    checks = (passed("forward float64", 2e-11), passed("isolated layers", 5e-12))
    certificate = Certificate(
        workload="w", workload_hash="0", seed=0, adapters={"torch": "T 1"}, checks=checks
    )
    assert [*folded_lines(certificate)] == [
        "torch: proven, 2 checks passed; closest to its tolerance: forward float64, at 20% of it"
    ]
    skipped = Check.of("update", "torch").not_run(Finding(cause=LayerDiffers()))
    assert not [*folded_lines(msgspec.structs.replace(certificate, checks=(*checks, skipped)))]


def test_rows_become_columns_where_a_table_is_too_wide(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["adapter", *(f"a figure with a very long name, number {place}" for place in range(6))]
    print_table(names, [["torch", *"123456"], ["tf", *"234567"]])
    header, _, *rows = [
        line.split() for line in capsys.readouterr().out.splitlines() if line.strip()
    ]
    assert header == ["adapter", "torch", "tf"]
    assert [row[-2:] for row in rows] == [[str(place), str(place + 1)] for place in range(1, 7)]
    print_table(names, [[str(place), *"123456"] for place in range(9)])
    assert len(capsys.readouterr().out.splitlines()) > 9  # of many rows, columns are narrow
