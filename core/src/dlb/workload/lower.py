"""Resolves a workload for a worker: with all attributes and all shapes."""

from __future__ import annotations

from typing import Any

import msgspec

from dlb.workload import layers as L
from dlb.workload.layers import type_name
from dlb.workload.model import Model, Node, Workload
from dlb.workload.resizing import Taps, taps_of
from dlb.workload.shapes import (
    Shape,
    infer_shapes,
    layer_shape,
    parameter_shapes,
    places_along,
    state_names,
)
from dlb_worker import model as resolved

__all__ = ["lower", "lower_layer", "resize_taps"]

#: Fields of layers that a worker does not need, since it receives the initial weights.
_INITIALISERS = {"init", "bias_init"}


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


def lower_layer(layer: L.Layer, shape: Shape) -> resolved.Node:
    """One layer, resolved for an input of ``shape``, without its parameters."""
    return resolved.Node(
        name="layer",
        kind=type_name(layer),
        attributes=_attributes(layer, shape),
        inputs=("input",),
        input_shapes=(shape,),
        shape=layer_shape(layer, shape),
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
        attributes=_attributes(node.layer, input_shapes[0]),
        inputs=node.inputs,
        input_shapes=input_shapes,
        shape=shapes[node.name],
        parameters=parameters,
        weights_of=node.weights_of,
    )


def _attributes(layer: L.Layer, shape: Shape) -> dict[str, Any]:
    """A layer's attributes, with indices from the end converted to indices from the start."""
    if isinstance(layer, L.Slice):
        ranges = ((span.start, span.stop, span.step) for span in places_along(layer, shape))
        return {"ranges": tuple(ranges)}
    if isinstance(layer, L.Resize):
        taps = resize_taps(layer, shape)
        listed = ((axis, of.indices.tolist(), of.weights.tolist()) for axis, of in taps)
        return {"mode": layer.mode, "sizes": layer.sizes, "taps": tuple(map(_tuples, listed))}
    if isinstance(layer, L.Elementwise):
        return {"function": layer.function, **layer.numbers}
    attributes = msgspec.structs.asdict(layer)
    if isinstance(layer, L.Gather):
        attributes["indices"] = tuple(index % shape[layer.axis - 1] for index in layer.indices)
    if isinstance(layer, L.Select):
        attributes["index"] = layer.index % shape[layer.axis - 1]
    return {name: value for name, value in attributes.items() if name not in _INITIALISERS}


def resize_taps(layer: L.Resize, shape: Shape) -> list[tuple[int, Taps]]:
    """The axes that a resize changes, with their taps; first those that shrink most, which takes least work.

    Args:
        shape: of a sample before it.
    """
    scales = layer.scales or (None,) * len(shape)
    changed = [
        (axis, size, output, scale)
        for axis, (size, output, scale) in enumerate(zip(shape, layer.sizes, scales), start=1)
        if size != output or scale not in (None, 1)
    ]
    return [
        (
            axis,
            taps_of(
                size,
                output,
                scale,
                mode=layer.mode,
                coordinates=layer.coordinates,
                cubic_a=layer.cubic_a,
                exclude_outside=layer.exclude_outside,
            ),
        )
        for axis, size, output, scale in sorted(
            changed, key=lambda each: (each[2] / each[1], each[1])
        )
    ]


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value
