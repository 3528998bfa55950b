"""Comparison of the operators of two files, in any layout."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from dlb.errors import DlbError
from dlb.failure import failure_of
from dlb.graph.nominal import fix_input_shapes
from dlb.graph.structure import compare_structure
from dlb.proof.files.parting import node_name
from dlb.proof.files.read import nodes_within
from dlb.proof.files.runs import FilePair, Runs
from dlb.proof.findings import AnyCause, LayerFacts
from dlb.proof.findings.base import LISTED
from dlb.proof.findings.common import CannotRun, StructureDifference, StructuresDiffer
from dlb.proof.findings.files import Folded, NodeHoldsGraph

__all__ = ["Structure", "compare_structures"]

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
    """

    equal: bool
    cause: AnyCause | None = None
    compared: bool = True

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
    for file, traced in zip((pair.first, pair.second), runs.traces):
        for node in nodes_within(file.float64.graph.node):
            # A branch whose condition is constant is compared without the condition.
            reads = node.input if node.op_type == "If" else node.output
            if _holds_graph_or_tensor(node) and not traced.live.isdisjoint(reads):
                facts = LayerFacts(name=node_name(node), kind=node.op_type, owner=file.label)
                return Structure(False, NodeHoldsGraph(node=facts), compared=False)
    sides = [
        fix_input_shapes(file.float64, batches[0])
        for file, batches in ((pair.first, pair.inputs.first), (pair.second, pair.inputs.second))
    ]
    try:
        structure = compare_structure(sides[0], sides[1])
        hides = pair.second.label
        if not structure.equal:
            # Either file may have its batch normalisations folded.
            other = compare_structure(sides[1], sides[0])
            if other.equal:
                structure, hides = other, pair.first.label
    except DlbError as error:
        return Structure(False, CannotRun(failure=failure_of(error)), compared=False)
    if structure.equal and structure.unseen:
        return Structure(True, Folded(file=hides, nodes=tuple(structure.unseen)))
    if not structure.differences:
        return Structure(structure.equal)
    listed = tuple(map(StructureDifference.of, structure.differences[:LISTED]))
    more = max(0, len(structure.differences) - LISTED)
    return Structure(structure.equal, StructuresDiffer(differences=listed, more=more))


def _holds_graph_or_tensor(node: onnx.NodeProto) -> bool:
    return node.op_type != "Constant" and any(
        attribute.type in _NOT_COMPARED for attribute in node.attribute
    )
