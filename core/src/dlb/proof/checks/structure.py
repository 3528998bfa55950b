"""``file`` and ``structure``: whether a graph has the expected operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.distance import passes, worst_first
from dlb.proof.engine import Check
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.base import LISTED
from dlb.proof.findings.common import StructureDifference, StructuresDiffer
from dlb.proof.tolerances import FLOAT64_TOLERANCE, Tensors

if TYPE_CHECKING:
    from dlb.graph.structure import Difference
    from dlb.proof.files.runs import Runs
    from dlb.proof.files.structure import Structure

__all__ = ["STRUCTURE", "check_file", "check_file_structure", "check_structure"]

STRUCTURE = Baseline(kind="canonical_structure")


def check_file(
    baseline: Baseline,
    compared: Sequence[Figure],
    differences: Sequence[Difference],
    listed: int,
    undecided: Sequence[str],
    numbers: Sequence[Difference],
) -> CheckResult:
    """Compare the canonical graph with the file that it was read from. The result has no adapter yet.

    Another number of the same operator in the same place is a difference, even if values agree.

    Args:
        compared: distances of its logits from the file's, on noise.
        differences: differences of their structures.
        listed: how many differences the finding lists.
        undecided: operators that only one of them has, and for which equal values on noise prove nothing.
        numbers: differences of single numbers of the same operator in the same place.
    """
    ordered = worst_first(compared)
    findings: tuple[Finding, ...] = ()
    if differences:
        cause = StructuresDiffer(
            differences=tuple(map(StructureDifference.of, (numbers or differences)[:listed])),
            more=max(0, len(numbers or differences) - listed),
            decided_by="structure" if numbers else "nothing" if undecided else "values",
            undecided=tuple(undecided),
        )
        findings = (Finding(cause=cause),)
    passed = passes(ordered, FLOAT64_TOLERANCE) and not undecided and not numbers
    return Check("file", "file", "", baseline).result(
        ordered, FLOAT64_TOLERANCE, findings, passed=passed
    )


def check_structure(
    check: Check, canonical: Any, exported: Path, weights: Callable[[], Tensors]
) -> CheckResult:
    """Compare the exported graph's operators, attributes, shapes and parameters with the canonical graph's.

    Args:
        weights: returns the exported weights; called only if a difference may come from them.
    """
    import onnx

    from dlb.graph.canonical import with_weights
    from dlb.graph.structure import compare_structure

    graph = onnx.load(str(exported), load_external_data=False)
    compared = compare_structure(canonical, graph, {})
    if compared.differences:
        # A parameter may have been left out, and one of a single number is read as an attribute.
        held = weights()
        compared = compare_structure(with_weights(canonical, held), graph, held)
    findings: tuple[Finding, ...] = ()
    if compared.differences:
        cause = StructuresDiffer(
            differences=tuple(map(StructureDifference.of, compared.differences))
        )
        findings = (Finding(cause=cause),)
    return check.result(findings=findings, passed=compared.equal)


def check_file_structure(
    check: Check, runs: Runs, structure: Structure, agree: bool
) -> CheckResult:
    """Compare the operators of two files. Other operators fail only if the outputs differ too.

    Another number of the same operator in the same place fails, however small its effect on the outputs.

    Args:
        agree: whether the outputs of both files agree.
    """
    from dlb.proof.files.analytic import undecided_nodes

    cause = structure.cause
    findings = (Finding(cause=cause),) if cause is not None else ()
    if structure.numbers:
        return check.result(findings=(Finding(cause=structure.numbers),), passed=False)
    if structure.equal:
        return check.result(findings=findings, passed=True)
    if not structure.compared:
        return check.not_run(*findings)
    if not agree or not isinstance(cause, StructuresDiffer):
        return check.result(findings=findings, passed=False)
    undecided = undecided_nodes(*runs.traces, FLOAT64_TOLERANCE)
    decided = msgspec.structs.replace(
        cause,
        decided_by="nothing" if undecided else "values",
        undecided=tuple(undecided[:LISTED]),
    )
    if undecided:
        return check.not_run(Finding(cause=decided))
    return check.result(findings=(Finding(cause=decided),), passed=True)
