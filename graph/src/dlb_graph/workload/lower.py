"""Resolves a workload for a worker: with all attributes and all shapes."""

from __future__ import annotations

import msgspec

from dlb_graph.layers import Shape, type_name
from dlb_graph.workload.model import Model, Node, Workload
from dlb_graph.workload.shapes import infer_shapes, parameter_shapes, state_names
from dlb_worker import model as resolved

__all__ = ["lower"]


def lower(workload: Workload) -> resolved.Workload:
    """The resolved workload, as :mod:`dlb_worker.model` defines it.

    The schedule is left out: a worker receives the learning rate of each step.
    """
    return resolved.Workload(
        name=workload.name,
        model=_model(workload.model),
        loss=resolved.Loss(type_name(workload.loss), msgspec.structs.asdict(workload.loss)),
        optimizer=resolved.Optimizer(
            type_name(workload.optimizer), msgspec.structs.asdict(workload.optimizer)
        ),
    )


def _model(model: Model) -> resolved.Model:
    shapes, states = infer_shapes(model), set(state_names(model))
    parameters: dict[str, dict[str, resolved.Parameter]] = {}
    for name, shape in parameter_shapes(model).items():
        layer, role = name.split(".")
        layer_parameters = parameters.setdefault(layer, {})
        layer_parameters[role] = resolved.Parameter(
            name=name, shape=shape, trained=name not in states
        )
    return resolved.Model(
        input=resolved.Input(**msgspec.structs.asdict(model.input)),
        nodes=tuple(_node(node, shapes, parameters.get(node.owner, {})) for node in model.wired()),
    )


def _node(
    node: Node, shapes: dict[str, Shape], parameters: dict[str, resolved.Parameter]
) -> resolved.Node:
    input_shapes = tuple(shapes[name] for name in node.inputs)
    return resolved.Node(
        name=node.name,
        kind=type_name(node.layer),
        attributes=node.layer.attributes(input_shapes[0]),
        inputs=node.inputs,
        input_shapes=input_shapes,
        shape=shapes[node.name],
        parameters=parameters,
        weights_of=node.weights_of,
    )
