"""The layers of a built model: all together, and each by itself with the inputs that the model computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy.typing as npt

from dlb.proof.engine import infinite_cause
from dlb.proof.findings import AnyCause, Figure, Finding, LayerFacts
from dlb.proof.findings.common import Missing
from dlb.proof.findings.workload import LayerDiffers, Otherwise
from dlb.proof.subject import Sides
from dlb_graph.comparing.distance import figure, figures, passes
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE, Tensors
from dlb_graph.workload import Model, type_name

__all__ = ["isolated_layers", "layer_facts", "layer_values", "missing_layers"]

Array = npt.NDArray[Any]


def isolated_layers(
    model: Model,
    values: Tensors,
    truth: Iterable[tuple[str, Array]],
    native: Mapping[str, str],
    otherwise: Callable[[str], tuple[dict[str, Any], ...]] = lambda layer: (),
) -> Sides:
    """Each layer's value, and the canonical layer's, computed from the adapter's own inputs.

    So the errors of earlier layers do not count.

    Args:
        values: every layer's value, as the adapter computed it.
        truth: name and value of every canonical layer.
        native: the framework's description of each layer, by name.
        otherwise: what of a layer that differs was computed otherwise, if one thing explains it.
    """
    compared: list[Figure] = []
    causes: dict[str, AnyCause] = {}
    for layer, array in truth:
        compared.append(figure(layer, values[layer], array))
        if compared[-1].relative_l2 is None and (
            cause := infinite_cause(layer, values[layer], array)
        ):
            causes[layer] = cause
    sides = _layers(model, compared, causes, native, FLOAT64_TOLERANCE)

    def locate(compared: tuple[Figure, ...]) -> tuple[Finding, ...]:
        faults = sides.locate(compared)
        fields = [otherwise(each.layer.name) for each in faults if each.layer is not None]
        return (*faults, *(Finding(cause=Otherwise(fields=each)) for each in fields if each))

    return replace(sides, locate=locate)


def layer_values(
    model: Model,
    values: Tensors,
    truth: Tensors,
    native: Mapping[str, str],
    tolerance: float = FLOAT64_TOLERANCE,
    facts: tuple[Finding, ...] = (),
) -> Sides:
    """The values of a forward pass, and the canonical graph's in float64.

    The finding names the first layer past the tolerance, with its description and what the framework built.

    Args:
        values: layers' values, as the adapter computed them.
        truth: those of the canonical graph that are compared.
        native: the framework's description of each layer, by name.
        facts: about the comparison.
    """
    compared = figures(values, truth)
    names = [item.tensor for item in compared if item.relative_l2 is None]
    causes = {name: infinite_cause(name, values.get(name), truth.get(name)) for name in names}
    return _layers(model, compared, causes, native, tolerance, facts)


def _layers(
    model: Model,
    compared: Iterable[Figure],
    causes: Mapping[str, AnyCause | None],
    native: Mapping[str, str],
    tolerance: float,
    facts: tuple[Finding, ...] = (),
) -> Sides:
    """Figures of layers; the first past the tolerance in the model's order is where they differ.

    Args:
        causes: of infinite distances, by layer.
    """

    def locate(compared: tuple[Figure, ...]) -> tuple[Finding, ...]:
        failing = {item.tensor: item for item in compared if not passes((item,), tolerance)}
        first = next((node.name for node in model.nodes if node.name in failing), None)
        if first is None:
            return ()
        fault = Finding(
            cause=causes.get(first) or LayerDiffers(),
            layer=layer_facts(model, first, native),
            figure=failing[first],
            tolerance=tolerance,
        )
        return (fault,)

    return Sides(figures=tuple(compared), tolerance=tolerance, facts=facts, locate=locate)


def layer_facts(model: Model, name: str, native: Mapping[str, str]) -> LayerFacts:
    """A layer's description, and what the framework built."""
    (layer,) = (node.layer for node in model.nodes if node.name == name)
    attributes = msgspec.json.decode(msgspec.json.encode(msgspec.structs.asdict(layer)))
    return LayerFacts(
        name=name,
        kind=type_name(layer),
        # Converted to JSON containers, so that a written and read document is equal.
        attributes={field: value for field, value in attributes.items() if value is not None},
        built=" ".join(native.get(name, "").split()),
    )


def missing_layers(values: Tensors, truth: Tensors) -> Finding | None:
    """Values that are missing or have another shape, so that layers cannot be isolated; None if none."""
    names = [
        name
        for name, array in truth.items()
        if name not in values or values[name].shape != array.shape
    ]
    return Finding(cause=Missing(names=tuple(names))) if names else None
