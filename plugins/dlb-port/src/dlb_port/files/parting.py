"""The first difference of two models: a pair of nodes that compute different values from equal inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import permutations
from typing import Any

import numpy as np
import onnx

from dlb.proof.findings import Figure, LayerFacts
from dlb_graph.comparing.analytic import default_attributes
from dlb_graph.comparing.counterparts import same_values
from dlb_graph.comparing.distance import figure, relative_l2
from dlb_graph.layers.decimals import six_digits
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.trace import Trace, attributes_of, node_name
from dlb_port.findings.files import ConstantsDiffer, NodesPart

__all__ = ["first_parting"]

#: A value within this relative distance is a counterpart, whatever node computed it.
_NEAR = 1e-2
#: Every order of so many axes is tried.
_FEW_AXES = 4


def first_parting(
    first: Trace, second: Trace, outputs: Iterable[tuple[str, str]], tolerance: float
) -> tuple[NodesPart, Figure] | None:
    """Find the first pair of nodes whose values differ, though what they read does not, and by how much.

    Values are equal within the tolerance, in any layout. A node is a candidate if differing values lead from
    it to a differing output. Its counterpart is the node with the nearest value, or else the node that reads
    the same values.

    Args:
        first, second: traces on the same inputs.
        outputs: names of the outputs that differ.
        tolerance: the largest relative L2 distance of equal values.

    Returns:
        None if the outputs are inputs or constants.
    """
    pairs = list(outputs)
    equal_values = same_values(first, second, tolerance)
    for output, _ in pairs:
        equal_values.pop(output, None)
    second_equal = {name for names in equal_values.values() for name in names}
    second_equal -= {output for _, output in pairs}
    first_differing = _differing_values(first, [output for output, _ in pairs], equal_values)
    second_differing = _differing_values(second, [output for _, output in pairs], second_equal)
    if not first_differing or not second_differing:
        return None
    first_name = first_differing[0]
    second_name = _find_counterpart(first, second, first_name, second_differing, equal_values)
    pads = [
        traced.producers[value_name].op_type == "Pad"
        for traced, value_name in ((first, first_name), (second, second_name))
    ]
    if pads[0] != pads[1]:
        # One model pads inside the operator that follows.
        others = (name for name in first_differing if first.producers[name].op_type != "Pad")
        first_name = next(others, first_name)
        unpadded = [name for name in second_differing if second.producers[name].op_type != "Pad"]
        second_name = _find_counterpart(
            first, second, first_name, unpadded or second_differing, equal_values
        )
    first_value, second_value = first.values[first_name], second.values[second_name]
    first_node, second_node = first.producers[first_name], second.producers[second_name]
    if first_value.size == second_value.size and first_value.shape != second_value.shape:
        first_value, second_value = (np.sort(x, axis=None) for x in (first_value, second_value))
    names = f"{node_name(first_node)} / {node_name(second_node)}"
    cause = _difference((first, second), (first_node, second_node), equal_values)
    return cause, figure(names, second_value, first_value)


def _differing_values(traced: Trace, outputs: list[str], equal_values: Iterable[str]) -> list[str]:
    """Differing values that lead to a differing output, in the order in which they are computed."""
    equal_names, differing = set(equal_values), set()
    pending = list(outputs)
    while pending:
        name = pending.pop()
        if name in differing or name in equal_names or name not in traced.live:
            continue
        if name in traced.producers:
            differing.add(name)
            pending += traced.producers[name].input
    return [name for node in traced.nodes for name in node.output if name in differing]


def _find_counterpart(
    first: Trace,
    second: Trace,
    name: str,
    candidates: list[str],
    equal_values: Mapping[str, list[str]],
) -> str:
    value = first.values[name]
    node = first.producers[name]
    distances = {
        candidate: relative_l2(second.values[candidate], value)
        for candidate in candidates
        if second.values[candidate].shape == value.shape
    }
    if distances and min(distances.values()) < _NEAR:
        return min(distances, key=lambda candidate: distances[candidate])
    equal_inputs = {
        candidate for input_name in node.input for candidate in equal_values.get(input_name, [])
    }

    def fit(candidate: str) -> tuple[bool, bool, bool]:
        candidate_node = second.producers[candidate]
        starts_the_difference = not set(candidate_node.input) & set(candidates)
        return (
            not starts_the_difference,
            not equal_inputs & set(candidate_node.input),
            candidate_node.op_type != node.op_type,
        )

    return min(candidates, key=fit)


def _difference(
    traces: tuple[Trace, Trace],
    nodes: tuple[onnx.NodeProto, onnx.NodeProto],
    equal_values: Mapping[str, list[str]],
) -> NodesPart:
    """Which operators, attributes, constants or inputs of two nodes differ."""
    if nodes[0].op_type != nodes[1].op_type:
        one, other = (_facts(traced, node) for traced, node in zip(traces, nodes))
        return NodesPart(node=one, other=other, operators_differ=True)
    own, others = (_attributes(traced, node) for traced, node in zip(traces, nodes))
    names = [name for name in {**own, **others} if repr(own.get(name)) != repr(others.get(name))]
    one, other = (_facts(traced, node, names) for traced, node in zip(traces, nodes))
    constants = []
    for place, inputs in enumerate(zip(nodes[0].input, nodes[1].input)):
        arrays = [traced.constant(node, place) for traced, node in zip(traces, nodes)]
        if arrays[0] is None or arrays[1] is None or np.array_equal(arrays[0], arrays[1]):
            continue
        constants.append(_constants(*inputs, arrays[0], arrays[1]))
    live = [[each for each in node.input if each in run.live] for run, node in zip(traces, nodes)]
    known = all(name in equal_values.get(own_name, []) for own_name, name in zip(*live))
    if known or names or constants or len(live[0]) != len(live[1]):
        live = [[], []]
    return NodesPart(
        node=one,
        other=other,
        attributes=tuple(names),
        constants=tuple(constants),
        reads=tuple(live[0]),
        other_reads=tuple(live[1]),
    )


def _constants(name: str, other: str, own: Array, array: Array) -> ConstantsDiffer:
    order = None
    if own.size == array.size and np.array_equal(np.sort(own, None), np.sort(array, None)):
        orders = permutations(range(own.ndim)) if own.ndim <= _FEW_AXES else ()
        order = next((each for each in orders if np.array_equal(own.transpose(each), array)), ())
    largest = figure("", array, own).largest
    return ConstantsDiffer(name=name, other=other, largest=largest, order=order)


def _attributes(traced: Trace, node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes as they are shown, and ONNX's own values of the others."""
    found = {**default_attributes(traced, node), **attributes_of(node)}
    items = found.items()
    return {name: six_digits(each) if isinstance(each, float) else each for name, each in items}


def _facts(traced: Trace, node: onnx.NodeProto, names: Collection[str] = ()) -> LayerFacts:
    """A node, with the attributes that are not ONNX's own values, or that are asked for."""
    defaults = default_attributes(traced, node)
    attributes = {
        name: _as_json(value)
        for name, value in _attributes(traced, node).items()
        if name in names or repr(value) != repr(defaults.get(name))
    }
    return LayerFacts(name=node_name(node), kind=node.op_type, attributes=attributes)


def _as_json(value: Any) -> Any:
    """An attribute as a JSON value."""
    if isinstance(value, onnx.TensorProto):
        return f"tensor {list(value.dims)}"
    if isinstance(value, onnx.GraphProto):
        return f"graph of {len(value.node)} nodes"
    if isinstance(value, (list, tuple)):
        return [_as_json(part) for part in value]
    return value if isinstance(value, (bool, int, float, str)) else repr(value)
