"""Exported models and imported files: whether a graph is the canonical one, and computes the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.graph.structure import Difference
from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.checks.tolerances import EXPORT_TOLERANCES, FLOAT64_TOLERANCE, Tensors, verdict
from dlb.proof.distance import figures, infinite_cause, passes, worst_first
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.common import StructureDifference, StructuresDiffer
from dlb.proof.findings.workload import TrainedNotFinite

__all__ = ["STRUCTURE", "check_export", "check_file", "check_structure", "difference_facts"]

Array = npt.NDArray[Any]
STRUCTURE = Baseline(kind="canonical_structure")


def check_file(
    baseline: Baseline,
    compared: Sequence[Figure],
    differences: Sequence[Difference],
    listed: int,
    undecided: Sequence[str],
) -> CheckResult:
    """The canonical graph against the file that it was read from; of no adapter yet.

    Args:
        compared: its logits on noise, against the file's.
        differences: of their structures.
        listed: how many of them the finding lists.
        undecided: operators that only one of them has and that noise cannot decide about.
    """
    ordered = worst_first(compared)
    findings: tuple[Finding, ...] = ()
    if differences:
        cause = StructuresDiffer(
            differences=tuple(map(difference_facts, differences[:listed])),
            more=max(0, len(differences) - listed),
            decided_by="nothing" if undecided else "values",
            undecided=tuple(undecided),
        )
        findings = (Finding(cause=cause),)
    return CheckResult(
        check="file",
        group="file",
        adapter="",
        baseline=baseline,
        verdict=verdict(passes(ordered, FLOAT64_TOLERANCE) and not undecided),
        tolerance=FLOAT64_TOLERANCE,
        figures=ordered,
        findings=findings,
    )


def difference_facts(difference: Difference) -> StructureDifference:
    """A difference of two graphs, as a finding holds it."""
    return StructureDifference(
        layer=difference.layer,
        node=difference.node,
        what=difference.what,
        expected=difference.expected,
        found=difference.found,
    )


def check_structure(
    adapter: str, canonical: Any, exported: Path, weights: Callable[[], Tensors]
) -> CheckResult:
    """The exported graph's operators, attributes, shapes and parameters against the canonical's.

    Args:
        weights: gives those that were exported; asked only where some may have been left out.
    """
    import onnx

    from dlb.graph.structure import compare_structure

    graph = onnx.load(str(exported), load_external_data=False)
    compared = compare_structure(canonical, graph, {})
    if any(difference.what in ("bias", "parameters") for difference in compared.differences):
        compared = compare_structure(canonical, graph, weights())
    findings: tuple[Finding, ...] = ()
    if compared.differences:
        cause = StructuresDiffer(differences=tuple(map(difference_facts, compared.differences)))
        findings = (Finding(cause=cause),)
    return CheckResult(
        check="structure",
        group="structure",
        adapter=adapter,
        baseline=STRUCTURE,
        verdict=verdict(compared.equal),
        findings=findings,
    )


def check_export(adapter: str, dtype: str, exported: Array, own: Array) -> CheckResult:
    """The exported model's logits against the timed model's own, after timing."""
    compared = figures({"logits": exported}, {"logits": own})
    tolerance = EXPORT_TOLERANCES[dtype]
    findings: tuple[Finding, ...] = ()
    if not np.isfinite(own).all():
        findings = (Finding(cause=TrainedNotFinite(), figure=compared[0]),)
    elif cause := infinite_cause("logits", exported, own):
        findings = (Finding(cause=cause, figure=compared[0], tolerance=tolerance),)
    return CheckResult(
        check="export",
        group="export",
        adapter=adapter,
        baseline=Baseline(kind="timed_model"),
        verdict=verdict(passes(compared, tolerance)),
        tolerance=tolerance,
        figures=compared,
        findings=findings,
    )
