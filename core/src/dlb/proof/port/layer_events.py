"""Calls of layers in two models, paired where the layers are known to be counterparts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.distance import figure
from dlb.proof.findings import Figure, Finding, LayerFacts, shape_of
from dlb.proof.findings.port import LayoutUnknown, OtherCalls
from dlb_worker.contract import ForwardPass, LayerCall, UserLayer

__all__ = ["Event", "Side", "layer_events"]

Array = npt.NDArray[Any]
#: Kinds of layers that are called with a sequence, or once for each of its steps.
RECURRENT = ("lstm", "gru")


@dataclass(frozen=True)
class Side:
    """One model and one pass of it: outputs of the pass are in canonical layout."""

    name: str
    layers: Mapping[str, UserLayer]
    trace: ForwardPass

    def facts(self, layer: str) -> LayerFacts:
        """A layer: name, kind, the framework's type, attributes."""
        known = self.layers.get(layer)
        if known is None:
            return LayerFacts(name=layer, owner=self.name)
        return LayerFacts(
            name=layer,
            kind=known.kind,
            type=known.type,
            attributes=dict(known.attributes),
            owner=self.name,
        )


@dataclass(frozen=True)
class Event:
    """A call of a layer and its counterpart: their places in the two passes, and the distances."""

    layer: str
    other: str
    places: tuple[int, int]
    inputs: float | None
    output: Figure | None


def layer_events(
    ours: Side, theirs: Side, owners: Mapping[str, str]
) -> tuple[list[Event], list[Finding]]:
    """Every call of the owners with its counterpart, in the reference's order."""
    events: list[Event] = []
    apart: list[Finding] = []
    for layer, other in owners.items():
        kind = ours.layers[layer].kind if layer in ours.layers else ""
        same = kind == (theirs.layers[other].kind if other in theirs.layers else "")
        mine, others = _calls(ours.trace, layer), _calls(theirs.trace, other)
        if kind in RECURRENT and same and len(mine) != len(others):
            mine, others = _as_sequence(mine), _as_sequence(others)
        if len(mine) != len(others):
            cause = OtherCalls(
                layer=layer,
                calls=len(mine),
                other=other,
                other_model=theirs.name,
                other_calls=len(others),
            )
            apart.append(Finding(cause=cause))
        for number, ((place, call), (there, counterpart)) in enumerate(zip(mine, others), 1):
            name = layer or type_of(ours, layer)
            name += f", call {number}" if len(mine) > 1 else ""
            value = _figure(name, call.output, counterpart.output, kind if same else "")
            if value is None:
                unknown = LayoutUnknown(
                    layer=name,
                    shape=shape_of(call.output),
                    other=other,
                    other_model=theirs.name,
                    other_shape=shape_of(counterpart.output),
                )
                apart.append(Finding(cause=unknown))
            inputs = _figure(name, call.inputs, counterpart.inputs, kind if same else "")
            distance = None if inputs is None else _size_of(inputs.relative_l2)
            events.append(Event(layer, other, (place, there), distance, value))
    return sorted(events, key=lambda one: one.places), apart


def type_of(side: Side, layer: str) -> str:
    """What the model itself, which has no name, is called."""
    return side.layers[layer].type if layer in side.layers else layer


def _calls(trace: ForwardPass, layer: str) -> list[tuple[int, LayerCall]]:
    return [(place, call) for place, call in enumerate(trace.calls) if call.layer == layer]


def _as_sequence(calls: list[tuple[int, LayerCall]]) -> list[tuple[int, LayerCall]]:
    """The calls of a recurrent layer, one for each step, as one over the sequence [N, T, ...]."""
    values = [(call.inputs, call.output) for _, call in calls]
    if len(calls) < 2 or any(one is None or one.ndim != 2 for pair in values for one in pair):
        return calls
    inputs, output = (np.stack(some, axis=1) for some in zip(*values))
    return [(calls[-1][0], LayerCall(calls[-1][1].layer, inputs, output))]


def _figure(name: str, own: Array | None, other: Array | None, kind: str) -> Figure | None:
    """The distance of two values, or None where they are not known to have the same layout."""
    if own is None or other is None:
        return None
    if kind in RECURRENT and abs(own.ndim - other.ndim) == 1:
        # One gives every step [N, T, H], the other the last [N, H].
        own, other = (one[:, -1] if one.ndim == 3 else one for one in (own, other))
    if own.shape != other.shape and own.size == other.size:
        return None
    return figure(name, other, own)


def _size_of(value: float | None) -> float:
    return math.inf if value is None else value
