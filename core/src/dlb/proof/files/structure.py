"""Whether two files are made of the same operators, whatever the layout."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from dlb.errors import DlbError
from dlb.graph.structure import compare_structure
from dlb.proof.files.parting import called
from dlb.proof.files.read import nodes_within
from dlb.proof.files.runs import Pair, Runs, settled

__all__ = ["LISTED", "Structure", "compare"]

#: Differences listed in a rung's detail.
LISTED = 6
#: Types of attribute that structures do not compare.
_HELD = {
    onnx.AttributeProto.GRAPH,
    onnx.AttributeProto.GRAPHS,
    onnx.AttributeProto.TENSOR,
    onnx.AttributeProto.TENSORS,
    onnx.AttributeProto.SPARSE_TENSOR,
    onnx.AttributeProto.SPARSE_TENSORS,
}


@dataclass(frozen=True)
class Structure:
    """How two graphs compare; ``hidden`` batch normalisations are folded or written out in one."""

    equal: bool
    detail: str
    hidden: bool = False
    compared: bool = True


def compare(pair: Pair, runs: Runs) -> Structure:
    if pair.first.opset == pair.second.opset and pair.first.wide.graph == pair.second.wide.graph:
        return Structure(True, "")
    for file, traced in zip((pair.first, pair.second), runs.traces):
        for node in nodes_within(file.wide.graph.node):
            # A branch that is taken whatever goes in is compared as if it stood alone.
            reads = node.input if node.op_type == "If" else node.output
            if _holds(node) and not traced.live.isdisjoint(reads):
                return Structure(
                    False,
                    f"{file.label}: {node.op_type} '{called(node)}' depends on the input and holds "
                    "a graph or a tensor of its own, which is not compared",
                    compared=False,
                )
    sides = [
        settled(file.wide, batches[0])
        for file, batches in ((pair.first, pair.fed.first), (pair.second, pair.fed.second))
    ]
    try:
        found = compare_structure(sides[0], sides[1])
        hides = pair.second.label
        if not found.equal:
            # Which of the two has batch normalisation folded away is not known.
            other = compare_structure(sides[1], sides[0])
            if other.equal:
                found, hides = other, pair.first.label
    except DlbError as error:
        return Structure(False, str(error), compared=False)
    if found.equal and found.unseen:
        names = ", ".join(f"'{name}'" for name in found.unseen)
        return Structure(
            True, f"batch normalisation that {hides} has folded or written out: {names}", True
        )
    listed = [str(each) for each in found.differences]
    more = f"; and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
    return Structure(found.equal, "; ".join(listed[:LISTED]) + more)


def _holds(node: onnx.NodeProto) -> bool:
    return node.op_type != "Constant" and any(each.type in _HELD for each in node.attribute)
