"""``file``: whether the canonical graph is the ONNX file that it was read from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.engine import Check
from dlb.proof.findings import Finding
from dlb.proof.findings.common import StructureDifference, StructuresDiffer
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE

if TYPE_CHECKING:
    from dlb_graph.files.check import FileComparison
    from dlb_graph.files.read import ImportedModel

__all__ = ["check_file", "differences_of"]

#: How many differences and operators a finding lists.
_LISTED = 4


def check_file(imported: ImportedModel) -> CheckResult:
    """The result of comparing the imported layers with their file. It has no adapter yet.

    It counts as not run if the file computes something that no layer does, and that may decide its output.
    """
    compared = imported.comparison
    baseline = Baseline(
        kind="onnx_file", names=(imported.name,), sha256=imported.workload.onnx, float64=True
    )
    result = Check("file", "file", "", baseline).result(
        compared.figures,
        FLOAT64_TOLERANCE,
        [
            *(Finding(cause=fact) for fact in imported.facts),
            differences_of(compared),
            *(Finding(cause=fact) for fact in imported.unread),
        ],
        passed=compared.equal,
    )
    verdict = result.verdict if imported.judged else "not run"
    return msgspec.structs.replace(result, verdict=verdict, seconds=compared.seconds)


def differences_of(compared: FileComparison) -> Finding | None:
    """What differs in the structures of a file and its layers; None if nothing does."""
    if not compared.differences:
        return None
    differences = compared.numbers or compared.differences
    cause = StructuresDiffer(
        differences=tuple(map(StructureDifference.of, differences[:_LISTED])),
        more=max(0, len(differences) - _LISTED),
        decided_by=(
            "structure" if compared.numbers else "nothing" if compared.undecided else "values"
        ),
        undecided=compared.undecided[:_LISTED],
    )
    return Finding(cause=cause)
