"""Comparison of the operators of two files, in any layout."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx

from dlb.errors import DlbError
from dlb.failure import failure_of
from dlb.graph.alignment import are_other_numbers
from dlb.graph.decimals import decimal
from dlb.graph.layout import LAYOUT
from dlb.graph.nominal import fix_input_shapes
from dlb.graph.structure import Difference, compare_structure
from dlb.graph.trace import Trace
from dlb.proof.files.analytic import complete_attributes
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
    numbers = [difference for difference in structure.differences if difference.is_number]
    return Structure(
        structure.equal,
        _listed(structure.differences),
        numbers=_listed(numbers) if numbers else None,
    )


def _holds_graph_or_tensor(node: onnx.NodeProto) -> bool:
    return node.op_type != "Constant" and any(
        attribute.type in _NOT_COMPARED for attribute in node.attribute
    )


#: Numbers that say nothing about a file for inference.
_OF_TRAINING = {("BatchNormalization", "momentum")}
#: Operators that are the identity in inference, or arrange numbers.
_TRANSPARENT = {*LAYOUT, "Cast", "Dropout"}
#: What masks hide is any number as far from 0 as this.
_FAR = 1e4


def other_numbers(first: Trace, second: Trace) -> list[Difference]:
    """Single numbers of operators in the same place of both graphs that are further apart than rounding.

    Operators are in the same place if they read the same operators, up to the inputs. A number is a real
    attribute, or a constant that the operator reads. Several operators in one place, such as branches, may be
    in any order.
    """
    places = [_numbers_by_place(traced) for traced in (first, second)]
    found = []
    for place, nodes in places[0].items():
        others = places[1].get(place, [])
        if len(nodes) != len(others):
            continue
        for (node, numbers), (other, own) in zip(*map(_by_their_numbers, (nodes, others))):
            for name in numbers.keys() & own.keys():
                one, another = numbers[name], own[name]
                far = min(abs(one), abs(another)) >= _FAR and one * another > 0
                if are_other_numbers(one, another) and not far:
                    found.append(Difference(node, other, name, f"{one:g}", f"{another:g}", True))
    return found


def _by_their_numbers(
    nodes: Sequence[tuple[str, dict[str, float]]],
) -> list[tuple[str, dict[str, float]]]:
    return sorted(nodes, key=lambda node: sorted(node[1].items()))


def _numbers_by_place(traced: Trace) -> dict[str, list[tuple[str, dict[str, float]]]]:
    """The names and numbers of nodes that depend on the input, by a hash of what they read."""
    places = {name: f"input {number}" for number, name in enumerate(traced.inputs)}
    found = defaultdict[str, list[tuple[str, dict[str, float]]]](list)
    for node in traced.nodes:
        if traced.live.isdisjoint(node.output):
            continue
        reads = [places.get(name, "") for name in node.input]
        commutes = node.op_type in ("Add", "Max", "Mean", "Min", "Mul", "Sum")
        reads = sorted(filter(None, reads)) if commutes else reads
        transparent = node.op_type in _TRANSPARENT and any(reads)
        hashed = hashlib.sha256(repr((node.op_type, reads)).encode()).hexdigest()
        for number, name in enumerate(node.output):
            places[name] = reads[0] if transparent else f"{hashed}.{number}"
        if not transparent:
            found[hashed].append((node_name(node), _numbers(traced, node, commutes=commutes)))
    return found


def _numbers(traced: Trace, node: onnx.NodeProto, *, commutes: bool) -> dict[str, float]:
    """The real attributes of a node, and the constants of one real number that it reads, by name."""
    numbers = {
        name: decimal(value)
        for name, value in complete_attributes(traced, node).items()
        if isinstance(value, float) and (node.op_type, name) not in _OF_TRAINING
    }
    for place in range(len(node.input)):
        array = traced.constant(node, place)
        if array is not None and array.size == 1 and array.dtype.kind == "f":
            numbers["constant" if commutes else f"input {place + 1}"] = float(array.item())
    return numbers
