"""Comparison of the operators of two files, in any layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import onnx

from dlb.errors import DlbError
from dlb.failure import failure_of
from dlb.proof.certificate import CheckResult
from dlb.proof.engine import Check
from dlb.proof.findings import AnyCause, Finding, LayerFacts
from dlb.proof.findings.common import CannotRun, StructureDifference, StructuresDiffer
from dlb_graph.comparing.analytic import undecided_nodes
from dlb_graph.comparing.causes import LISTED
from dlb_graph.comparing.numbers import other_numbers
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE
from dlb_graph.files.model_file import nodes_within
from dlb_graph.pairs.compared import structure_of
from dlb_graph.pairs.runs import FilePair, Runs
from dlb_graph.structure.structure import Difference
from dlb_graph.truth.trace import node_name
from dlb_port.findings.files import Folded, NodeHoldsGraph

__all__ = ["Structure", "check_file_structure", "compare_structures"]

#: Types of attribute that structures do not compare.
_NOT_COMPARED = {
    onnx.AttributeProto.GRAPH,
    onnx.AttributeProto.GRAPHS,
    onnx.AttributeProto.TENSOR,
    onnx.AttributeProto.TENSORS,
    onnx.AttributeProto.SPARSE_TENSOR,
    onnx.AttributeProto.SPARSE_TENSORS,
}


@dataclass(frozen=True)
class Structure:
    """How two graphs compare.

    Attributes:
        equal: whether both have the same operators.
        cause: what differs, what is folded, or why they could not be compared.
        compared: whether they could be compared.
        numbers: that operators in the same place have, and that are others in both files; None without any.
    """

    equal: bool
    cause: AnyCause | None = None
    compared: bool = True
    numbers: StructuresDiffer | None = None

    @property
    def hidden(self) -> bool:
        """Whether batch normalisations are folded or written out in one file."""
        return self.equal and isinstance(self.cause, Folded)


def compare_structures(pair: FilePair, runs: Runs) -> Structure:
    if (
        pair.first.opset == pair.second.opset
        and pair.first.float64.graph == pair.second.float64.graph
    ):
        return Structure(True)
    structure, numbers = _compare(pair, runs), other_numbers(*runs.traces)
    return replace(structure, numbers=_listed(numbers)) if numbers else structure


def _listed(differences: Sequence[Difference]) -> StructuresDiffer:
    return StructuresDiffer(
        differences=tuple(map(StructureDifference.of, differences[:LISTED])),
        more=max(0, len(differences) - LISTED),
    )


def _compare(pair: FilePair, runs: Runs) -> Structure:
    for file, traced in zip((pair.first, pair.second), runs.traces):
        for node in nodes_within(file.float64.graph.node):
            # A branch whose condition is constant is compared without the condition.
            reads = node.input if node.op_type == "If" else node.output
            if _holds_graph_or_tensor(node) and not traced.live.isdisjoint(reads):
                facts = LayerFacts(name=node_name(node), kind=node.op_type, owner=file.label)
                return Structure(False, NodeHoldsGraph(node=facts), compared=False)
    try:
        structure, first_hides = structure_of(pair)
        hides = pair.first.label if first_hides else pair.second.label
    except DlbError as error:
        return Structure(False, CannotRun(failure=failure_of(error)), compared=False)
    if structure.equal and structure.unseen:
        return Structure(True, Folded(file=hides, nodes=tuple(structure.unseen)))
    if not structure.differences:
        return Structure(structure.equal)
    return Structure(structure.equal, _listed(structure.differences))


def _holds_graph_or_tensor(node: onnx.NodeProto) -> bool:
    return node.op_type != "Constant" and any(
        attribute.type in _NOT_COMPARED for attribute in node.attribute
    )


def check_file_structure(
    check: Check, runs: Runs, structure: Structure, agree: bool
) -> CheckResult:
    """Compare the operators of two files. Other operators fail only if the outputs differ too.

    Another number of the same operator in the same place fails, however small its effect on the outputs.

    Args:
        agree: whether the outputs of both files agree.
    """
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
        cause, decided_by="nothing" if undecided else "values", undecided=tuple(undecided[:LISTED])
    )
    if undecided:
        return check.not_run(Finding(cause=decided))
    return check.result(findings=(Finding(cause=decided),), passed=True)
