"""Where two models part: the first pair of nodes that make other values from the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import onnx
from onnx import defs, helper

from dlb.graph.decimals import six_digits
from dlb.graph.layout import LAYOUT
from dlb.graph.trace import Trace, attributes_of
from dlb.proof.distance import figure, relative_l2
from dlb.proof.findings import Figure, LayerFacts
from dlb.proof.findings.files import ConstantsDiffer

__all__ = ["Parting", "called", "first_parting", "same_values", "transposed"]

Array = npt.NDArray[Any]

#: Nearer than this, a value is another's counterpart, whatever node made it.
_NEAR = 1e-2


class Differs(TypedDict, total=False):
    """What of two nodes is not the same, as :class:`NodesPart` has it; empty if nothing was found."""

    operators_differ: bool
    attributes: tuple[str, ...]
    constants: tuple[ConstantsDiffer, ...]
    reads: tuple[str, ...]
    other_reads: tuple[str, ...]


@dataclass(frozen=True)
class Parting:
    """A pair of nodes whose values differ, though what they read does not.

    Attributes:
        first, second: name and operator of each, with its attributes.
        figure: how far the second's value is from the first's.
        differs: which attributes, constants or inputs differ.
    """

    first: LayerFacts
    second: LayerFacts
    figure: Figure
    differs: Differs


def transposed(array: Array, other: Array) -> Iterator[Array]:
    """An array without axes of size 1, in every order of axes that gives the other's shape."""
    bare, wanted = array.squeeze(), other.squeeze().shape
    for order in permutations(range(bare.ndim)) if bare.ndim <= 4 else [tuple(range(bare.ndim))]:
        if tuple(bare.shape[axis] for axis in order) == wanted:
            yield bare.transpose(order)


def first_parting(
    first: Trace, second: Trace, outputs: Iterable[tuple[str, str]], tolerance: float
) -> Parting | None:
    """Name the first nodes that part.

    Values are the same within the tolerance, in whatever layout; nodes are those from which an output
    that differs can be reached through values that all differ. The counterpart of a node is the
    one whose value is nearest, or else the one that reads the same.

    Args:
        first, second: run on the same inputs.
        outputs: pairs that differ.

    Returns:
        None if the outputs are inputs or constants.
    """
    pairs = list(outputs)
    same = same_values(first, second, tolerance)
    for ours, _ in pairs:
        same.pop(ours, None)
    back = {other for others in same.values() for other in others}
    back -= {theirs for _, theirs in pairs}
    apart = _apart(first, [ours for ours, _ in pairs], same)
    others = _apart(second, [theirs for _, theirs in pairs], back)
    if not apart or not others:
        return None
    name = apart[0]
    other = _counterpart(first, second, name, others, same)
    pads = [traced.producers[n].op_type == "Pad" for traced, n in ((first, name), (second, other))]
    if pads[0] != pads[1]:
        # One pads within the operator that follows.
        name = next((n for n in apart if first.producers[n].op_type != "Pad"), name)
        rest = [n for n in others if second.producers[n].op_type != "Pad"]
        other = _counterpart(first, second, name, rest or others, same)
    value, found = first.values[name], second.values[other]
    a, b = first.producers[name], second.producers[other]
    if value.size == found.size and value.shape != found.shape:
        value, found = np.sort(value, axis=None), np.sort(found, axis=None)
    return Parting(
        first=_facts(a),
        second=_facts(b),
        figure=figure(f"{called(a)} / {called(b)}", found, value),
        differs=_differs(first, second, a, b, same),
    )


def same_values(first: Trace, second: Trace, tolerance: float) -> dict[str, list[str]]:
    """For each value of the first model that depends on its inputs, the second's that equal it."""
    by_size: dict[int, list[tuple[str, float]]] = {}
    for name in _live(second):
        value = second.values[name]
        by_size.setdefault(value.size, []).append((name, _norm(value)))
    same: dict[str, list[str]] = {}
    for name in _live(first):
        value = first.values[name]
        size = _norm(value)
        alike = [
            other
            for other, norm in by_size.get(value.size, [])
            if abs(norm - size) <= max(tolerance, 1e-9) * max(norm, size)
            and _equal(first, name, second, other, tolerance, same)
        ]
        if alike:
            same[name] = alike
    return same


def _live(traced: Trace) -> list[str]:
    made = [name for node in traced.nodes for name in node.output if name in traced.live]
    return [*traced.inputs, *made]


def _norm(value: Array) -> float:
    return float(np.linalg.norm(value.astype(np.float64).ravel()))


def _equal(
    first: Trace,
    name: str,
    second: Trace,
    other: str,
    tolerance: float,
    same: Mapping[str, list[str]],
) -> bool:
    """Whether two values hold the same numbers in the same order, or in another by layout alone."""
    ours, theirs = first.values[name], second.values[other]
    if any(relative_l2(theirs.squeeze(), each) <= tolerance for each in transposed(ours, theirs)):
        return True
    roots = _root(first, name), _root(second, other)
    return roots != (name, other) and roots[1] in same.get(roots[0], [])


def _root(traced: Trace, name: str) -> str:
    """The value of which another is an arrangement."""
    while name in traced.producers and traced.producers[name].op_type in LAYOUT:
        before = traced.producers[name].input[0]
        if before not in traced.live:
            break
        name = before
    return name


def _apart(traced: Trace, outputs: list[str], same: Iterable[str]) -> list[str]:
    """Values that differ and reach an output that does, in the order in which they are made."""
    alike, found = set(same), set()
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        if name in found or name in alike or name not in traced.live:
            continue
        if name in traced.producers:
            found.add(name)
            waiting += traced.producers[name].input
    return [name for node in traced.nodes for name in node.output if name in found]


def _counterpart(
    first: Trace, second: Trace, name: str, others: list[str], same: Mapping[str, list[str]]
) -> str:
    value = first.values[name]
    node = first.producers[name]
    near = {
        other: relative_l2(second.values[other], value)
        for other in others
        if second.values[other].shape == value.shape
    }
    if near and min(near.values()) < _NEAR:
        return min(near, key=lambda other: near[other])
    read = {other for each in node.input for other in same.get(each, [])}

    def fit(other: str) -> tuple[bool, bool, bool]:
        its = second.producers[other]
        early = not set(its.input) & set(others)
        return not early, not read & set(its.input), its.op_type != node.op_type

    return min(others, key=fit)


def _differs(
    first: Trace, second: Trace, a: onnx.NodeProto, b: onnx.NodeProto, same: Mapping[str, list[str]]
) -> Differs:
    """What of two nodes is not the same."""
    if a.op_type != b.op_type:
        return Differs(operators_differ=True)
    differences = Differs()
    ours, theirs = _attributes(a), _attributes(b)
    names = [name for name in {**ours, **theirs} if repr(ours.get(name)) != repr(theirs.get(name))]
    if names:
        differences["attributes"] = tuple(names)
    constants = []
    for index, (left, right) in enumerate(zip(a.input, b.input)):
        x, y = first.constant(a, index), second.constant(b, index)
        if x is not None and y is not None and not np.array_equal(x, y):
            largest = figure("", y, x).largest
            constants.append(ConstantsDiffer(name=left, other=right, largest=largest))
    if constants:
        differences["constants"] = tuple(constants)
    live = [[n for n in node.input if n in t.live] for t, node in ((first, a), (second, b))]
    if len(live[0]) == len(live[1]) and not differences:
        pairs = zip(*live)
        if any(right not in same.get(left, []) for left, right in pairs):
            differences["reads"], differences["other_reads"] = tuple(live[0]), tuple(live[1])
    return differences


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes as they are shown, those at their default left out."""
    known = defs.get_schema(node.op_type, node.domain).attributes
    defaults = {name: known[name].default_value for name in known}
    plain = {
        each.name
        for each in node.attribute
        if each.name in defaults
        and defaults[each.name].type == each.type
        and helper.get_attribute_value(defaults[each.name]) == helper.get_attribute_value(each)
    }
    return {
        name: six_digits(value) if isinstance(value, float) else value
        for name, value in attributes_of(node).items()
        if name not in plain
    }


def called(node: onnx.NodeProto) -> str:
    return node.name or next(name for name in node.output if name)


def _facts(node: onnx.NodeProto) -> LayerFacts:
    attributes = {name: _plain(value) for name, value in _attributes(node).items()}
    return LayerFacts(name=called(node), kind=node.op_type, attributes=attributes)


def _plain(value: Any) -> Any:
    """An attribute as JSON holds it."""
    if isinstance(value, onnx.TensorProto):
        return f"tensor {list(value.dims)}"
    if isinstance(value, onnx.GraphProto):
        return f"graph of {len(value.node)} nodes"
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value if isinstance(value, (bool, int, float, str)) else repr(value)
