"""Pairs of layer calls in two models, for layers that are counterparts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.findings import Figure, Finding, LayerFacts, shape_of
from dlb_graph.comparing.distance import figure
from dlb_port.findings.port import LayoutUnknown, OtherCalls
from dlb_worker.contract import ForwardPass, LayerCall, UserLayer

__all__ = ["Event", "Side", "layer_events"]

Array = npt.NDArray[Any]
#: Kinds of layers that are called with a sequence, or once for each step of it.
RECURRENT = ("lstm", "gru", "rnn")


@dataclass(frozen=True)
class Side:
    """One model and one of its passes. Outputs of the pass are in canonical layout."""

    name: str
    layers: Mapping[str, UserLayer]
    trace: ForwardPass

    def facts(self, layer: str) -> LayerFacts:
        """The facts of a layer: name, kind, the framework's type, attributes."""
        user_layer = self.layers.get(layer)
        if user_layer is None:
            return LayerFacts(name=layer, owner=self.name)
        return LayerFacts(
            name=layer,
            kind=user_layer.kind,
            type=user_layer.type,
            attributes=dict(user_layer.attributes),
            owner=self.name,
            momentum=user_layer.momentum,
        )


@dataclass(frozen=True)
class Event:
    """A call of a layer and the call of its counterpart.

    Attributes:
        layer, other: names of both layers.
        places: positions of both calls in their passes.
        inputs: relative L2 distance of the inputs; None if unknown.
        output: distance of the outputs; None if they cannot be compared.
    """

    layer: str
    other: str
    places: tuple[int, int]
    inputs: float | None
    output: Figure | None


def layer_events(
    ours: Side, theirs: Side, owners: Mapping[str, str]
) -> tuple[list[Event], list[Finding]]:
    """Every call of layers that own parameters, with its counterpart, in the reference's order.

    Args:
        owners: layers of the other model, by the reference's layer.

    Returns:
        events, and findings about calls that cannot be compared.
    """
    events: list[Event] = []
    apart: list[Finding] = []
    for layer, other in owners.items():
        kind = ours.layers[layer].kind if layer in ours.layers else ""
        same_kind = kind == (theirs.layers[other].kind if other in theirs.layers else "")
        shared_kind = kind if same_kind else ""
        own_calls, other_calls = _calls(ours.trace, layer), _calls(theirs.trace, other)
        if kind in RECURRENT and same_kind and len(own_calls) != len(other_calls):
            own_calls, other_calls = _as_sequence(own_calls), _as_sequence(other_calls)
        if (not own_calls or not other_calls) and not (kind and same_kind):
            continue  # a list of layers is not called
        if len(own_calls) != len(other_calls):
            cause = OtherCalls(
                layer=layer,
                calls=len(own_calls),
                other=other,
                other_model=theirs.name,
                other_calls=len(other_calls),
            )
            apart.append(Finding(cause=cause))
        for number, ((place, call), (other_place, counterpart)) in enumerate(
            zip(own_calls, other_calls), 1
        ):
            name = layer or type_of(ours, layer)
            name += f", call {number}" if len(own_calls) > 1 else ""
            value = _compare_values(name, call.output, counterpart.output, shared_kind)
            if value is None:
                unknown = LayoutUnknown(
                    layer=name,
                    shape=shape_of(call.output),
                    other=other,
                    other_model=theirs.name,
                    other_shape=shape_of(counterpart.output),
                )
                apart.append(Finding(cause=unknown))
            inputs = _compare_values(name, call.inputs, counterpart.inputs, shared_kind)
            distance = None if inputs is None else inputs.distance
            events.append(Event(layer, other, (place, other_place), distance, value))
    return sorted(events, key=lambda event: event.places), apart


def type_of(side: Side, layer: str) -> str:
    """The type of a layer. The model itself has no name, so it is shown by its type."""
    return side.layers[layer].type if layer in side.layers else layer


def _calls(trace: ForwardPass, layer: str) -> list[tuple[int, LayerCall]]:
    return [(place, call) for place, call in enumerate(trace.calls) if call.layer == layer]


def _as_sequence(calls: list[tuple[int, LayerCall]]) -> list[tuple[int, LayerCall]]:
    """Join the calls of a recurrent layer, one for each step, into one call over [N, T, ...]."""
    values = [(call.inputs, call.output) for _, call in calls]
    if len(calls) < 2 or any(array is None or array.ndim != 2 for pair in values for array in pair):
        return calls
    inputs, output = (np.stack(steps, axis=1) for steps in zip(*values))
    return [(calls[-1][0], LayerCall(calls[-1][1].layer, inputs, output))]


def _compare_values(
    name: str, own_value: Array | None, other_value: Array | None, kind: str
) -> Figure | None:
    """The distance of two values; None if they may have different layouts."""
    if own_value is None or other_value is None:
        return None
    if kind in RECURRENT and abs(own_value.ndim - other_value.ndim) == 1:
        # One layer returns every step [N, T, H], the other the last step [N, H].
        own_value, other_value = (
            array[:, -1] if array.ndim == 3 else array for array in (own_value, other_value)
        )
    if own_value.shape != other_value.shape and own_value.size == other_value.size:
        return None
    return figure(name, other_value, own_value)
