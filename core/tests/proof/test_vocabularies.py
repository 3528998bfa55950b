"""Findings of packages: a plugin adds causes and sentences, and one that breaks costs only its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlb.proof.certificate import Baseline, Certificate, CheckResult, write

PLUGIN = """
from dlb_worker import hookimpl

@hookimpl
def dlb_findings():
    return {"dlb-other": "other_findings"}
"""
FINDINGS = """
import sys

from dlb.proof.findings import Cause
from dlb.report.common import says

CAUSES = (sys.modules[__name__],)
CHECKS = ()

class Parted(Cause, frozen=True, kw_only=True, tag="dlb-other.parted"):
    places: int

says(Parted, "parted in {places} places")
"""
SHOWN = """
import sys
from pathlib import Path
from dlb.proof.certificate import read
from dlb.report.sentences import describe

print(describe(read(Path(sys.argv[1])).checks[0]))
"""


@pytest.mark.parametrize(
    ("code", "says", "warns"),
    [
        (FINDINGS, "parted in 3 places", ""),
        (
            "raise OSError('no disk')",
            "dlb-other.parted, a finding of the package dlb-other",
            "no disk",
        ),
        ("CAUSES = ()", "dlb-other.parted, a finding of the package dlb-other", "CHECKS"),
        (
            FINDINGS.replace("dlb-other.parted", "steps_compared"),
            "dlb-other.parted, a finding of the package dlb-other",
            "",
        ),
    ],
    ids=["right", "raises", "lacks its checks", "takes a code of dlb's"],
)
def test_a_package_adds_findings(code: str, says: str, warns: str, tmp_path: Path) -> None:
    metadata = tmp_path / "dlb_other-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: dlb-other\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[dlb]\nother = other_plugin\n")
    (tmp_path / "other_plugin.py").write_text(PLUGIN)
    (tmp_path / "other_findings.py").write_text(code)
    path = tmp_path / "certificate.json"
    result = CheckResult(
        check="layers",
        group="layers",
        adapter="a",
        baseline=Baseline(kind="model"),
        verdict="failed",
    )
    write(
        Certificate(workload="w", workload_hash="0", seed=0, adapters={"a": ""}, checks=(result,)),
        path,
    )
    document = json.loads(path.read_bytes())
    document["checks"][0]["findings"] = [
        {"cause": {"code": "dlb-other.parted", "places": 3}},
        {"cause": {"code": "steps_compared", "steps": 2}},
    ]
    path.write_text(json.dumps(document))
    ended = subprocess.run(
        [sys.executable, "-c", SHOWN, str(path)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(says) and ended.stdout.endswith("; 2 steps\n")
    assert warns in ended.stderr and ("left out" in ended.stderr) == bool(warns)
