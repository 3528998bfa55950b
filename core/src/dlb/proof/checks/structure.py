"""``structure``: whether a graph has the expected operators."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlb.errors import DlbError
from dlb.proof.certificate import CheckResult
from dlb.proof.engine import Check
from dlb.proof.findings import Finding
from dlb.proof.findings.common import StructureDifference, StructuresDiffer
from dlb_graph.comparing.tolerances import Tensors

__all__ = ["check_structure"]


def check_structure(
    check: Check, canonical: Any, exported: Path, weights: Callable[[], Tensors]
) -> CheckResult:
    """Compare the exported graph's operators, attributes, shapes and parameters with the canonical graph's.

    What is written in another way, and of which equal values on noise prove that it is the same, passes, as it
    does where two files are compared.

    Args:
        weights: returns the exported weights; called only if a difference may come from them.
    """
    import onnx

    from dlb_graph.rewriting.control_flow import straight
    from dlb_graph.structure.structure import compare_structure
    from dlb_graph.truth.canonical import with_weights

    graph = straight(onnx.load(str(exported), load_external_data=False))
    compared = compare_structure(canonical, graph, {})
    if compared.differences:
        # A parameter may have been left out, and one of a single number is read as an attribute.
        held = weights()
        compared = compare_structure(with_weights(canonical, held), graph, held)
    findings: tuple[Finding, ...] = ()
    same = compared.equal or _values_decide(with_weights(canonical, weights()), exported)
    if compared.differences:
        cause = StructuresDiffer(
            differences=tuple(map(StructureDifference.of, compared.differences)),
            decided_by="values" if same else "structure",
        )
        findings = (Finding(cause=cause),)
    return check.result(findings=findings, passed=same)


def _values_decide(canonical: Any, exported: Path) -> bool:
    """Whether equal values show that both graphs are the same, written in another way."""
    import onnx

    from dlb_graph import compare

    with tempfile.TemporaryDirectory(dir=exported.parent) as folder:
        path = Path(folder) / "canonical.onnx"
        onnx.save(canonical, path, save_as_external_data=True, location="weights")
        try:
            return compare(path, exported).equal
        except DlbError:
            return False
