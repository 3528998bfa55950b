"""The first difference of two models: a pair of nodes that compute different values from equal inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import onnx
from onnx import defs, helper

from dlb.proof.findings import Figure, LayerFacts
from dlb_graph.comparing.counterparts import same_values
from dlb_graph.comparing.distance import figure, relative_l2
from dlb_graph.layers.decimals import six_digits
from dlb_graph.truth.trace import Trace, attributes_of, node_name
from dlb_port.findings.files import ConstantsDiffer

__all__ = ["Parting", "first_parting"]

#: A value within this relative distance is a counterpart, whatever node computed it.
_NEAR = 1e-2


class NodeDifference(TypedDict, total=False):
    """The difference of two nodes, as fields of :class:`NodesPart`; empty if none was found."""

    operators_differ: bool
    attributes: tuple[str, ...]
    constants: tuple[ConstantsDiffer, ...]
    reads: tuple[str, ...]
    other_reads: tuple[str, ...]


@dataclass(frozen=True)
class Parting:
    """A pair of nodes whose values differ although their inputs are equal.

    Attributes:
        first, second: name, operator and attributes of each node.
        figure: distance of the second value from the first.
        differs: which attributes, constants or inputs differ.
    """

    first: LayerFacts
    second: LayerFacts
    figure: Figure
    differs: NodeDifference


def first_parting(
    first: Trace, second: Trace, outputs: Iterable[tuple[str, str]], tolerance: float
) -> Parting | None:
    """Find the first pair of nodes whose values differ.

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
    second_equal = {
        second_name
        for second_differing in equal_values.values()
        for second_name in second_differing
    }
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
        first_name = next(
            (
                value_name
                for value_name in first_differing
                if first.producers[value_name].op_type != "Pad"
            ),
            first_name,
        )
        without_pads = [
            value_name
            for value_name in second_differing
            if second.producers[value_name].op_type != "Pad"
        ]
        second_name = _find_counterpart(
            first, second, first_name, without_pads or second_differing, equal_values
        )
    first_value, second_value = first.values[first_name], second.values[second_name]
    first_node, second_node = first.producers[first_name], second.producers[second_name]
    if first_value.size == second_value.size and first_value.shape != second_value.shape:
        first_value, second_value = (
            np.sort(first_value, axis=None),
            np.sort(second_value, axis=None),
        )
    return Parting(
        first=_node_facts(first_node),
        second=_node_facts(second_node),
        figure=figure(
            f"{node_name(first_node)} / {node_name(second_node)}", second_value, first_value
        ),
        differs=_describe_difference(first, second, first_node, second_node, equal_values),
    )


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


def _describe_difference(
    first: Trace,
    second: Trace,
    first_node: onnx.NodeProto,
    second_node: onnx.NodeProto,
    equal_values: Mapping[str, list[str]],
) -> NodeDifference:
    """The difference of two nodes."""
    if first_node.op_type != second_node.op_type:
        return NodeDifference(operators_differ=True)
    differences = NodeDifference()
    first_attributes, second_attributes = (
        _shown_attributes(first_node),
        _shown_attributes(second_node),
    )
    names = [
        name
        for name in {**first_attributes, **second_attributes}
        if repr(first_attributes.get(name)) != repr(second_attributes.get(name))
    ]
    if names:
        differences["attributes"] = tuple(names)
    constants = []
    for index, (first_input, second_input) in enumerate(zip(first_node.input, second_node.input)):
        first_constant, second_constant = (
            first.constant(first_node, index),
            second.constant(second_node, index),
        )
        if (
            first_constant is not None
            and second_constant is not None
            and not np.array_equal(first_constant, second_constant)
        ):
            largest = figure("", second_constant, first_constant).largest
            constants.append(ConstantsDiffer(name=first_input, other=second_input, largest=largest))
    if constants:
        differences["constants"] = tuple(constants)
    live_inputs = [
        [input_name for input_name in node.input if input_name in traced.live]
        for traced, node in ((first, first_node), (second, second_node))
    ]
    if len(live_inputs[0]) == len(live_inputs[1]) and not differences:
        pairs = zip(*live_inputs)
        if any(
            second_input not in equal_values.get(first_input, [])
            for first_input, second_input in pairs
        ):
            differences["reads"], differences["other_reads"] = (
                tuple(live_inputs[0]),
                tuple(live_inputs[1]),
            )
    return differences


def _shown_attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes as they are shown, without those at their default."""
    schema_attributes = defs.get_schema(node.op_type, node.domain).attributes
    defaults = {name: schema_attributes[name].default_value for name in schema_attributes}
    at_default = {
        attribute.name
        for attribute in node.attribute
        if attribute.name in defaults
        and defaults[attribute.name].type == attribute.type
        and helper.get_attribute_value(defaults[attribute.name])
        == helper.get_attribute_value(attribute)
    }
    return {
        name: six_digits(value) if isinstance(value, float) else value
        for name, value in attributes_of(node).items()
        if name not in at_default
    }


def _node_facts(node: onnx.NodeProto) -> LayerFacts:
    attributes = {name: _as_json(value) for name, value in _shown_attributes(node).items()}
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
