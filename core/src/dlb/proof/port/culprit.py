"""The layers of two models, compared where they are known to be each other's; the first that is
wrong, by name.

A pair of matched parameters says that the layers that own them are counterparts. Their outputs are
compared in the order in which the reference calls them. Where the first one past the tolerance was
given what the other was given, it is the culprit; otherwise what lies between it and the one
before is, and is narrowed down by the values that agree.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.contract import AdoptedLayer, LayerCall, Trace
from dlb.proof.distance import figure, relative_l2, worst_first
from dlb.proof.findings import Figure, Finding, LayerFacts, shape_of
from dlb.proof.findings.port import (
    CodeSpan,
    FlattenOrder,
    LayoutUnknown,
    OtherCalls,
    PortLayerDiffers,
    SpanDiffers,
)
from dlb.proof.port.weight_map import Pair

__all__ = ["ComparedLayers", "Side", "compare_layers", "owner_pairs"]

Array = npt.NDArray[Any]
#: Kinds of layers that are called with a sequence, or once for each of its steps.
RECURRENT = ("lstm", "gru")
#: Layers of a stretch of code that a finding lists.
LISTED = 4


@dataclass(frozen=True)
class Side:
    """One model and one pass of it: outputs of the pass are in canonical layout."""

    name: str
    layers: Mapping[str, AdoptedLayer]
    trace: Trace

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
class ComparedLayers:
    """What came of comparing layers.

    Attributes:
        figures: of every output that could be compared, worst first.
        culprit: the first layer past the tolerance, or what lies before it; empty if there is none.
        apart: layers whose values could not be compared, and why.
    """

    figures: tuple[Figure, ...]
    culprit: tuple[Finding, ...]
    apart: tuple[Finding, ...]


@dataclass(frozen=True)
class _Event:
    """A call of a layer and its counterpart: their places in the two passes, and the distances."""

    layer: str
    other: str
    places: tuple[int, int]
    inputs: float | None
    output: Figure | None


def owner_pairs(pairs: Sequence[Pair]) -> dict[str, str]:
    """Layers of the reference that own matched parameters, and their counterparts.

    One whose parameters belong to several layers of the other model has none.
    """
    found = defaultdict(set)
    for pair in pairs:
        found[pair.source.layer].add(pair.target.layer)
    return {layer: others.pop() for layer, others in found.items() if len(others) == 1}


def compare_layers(
    ours: Side, theirs: Side, pairs: Sequence[Pair], tolerance: float
) -> ComparedLayers:
    """Compare the layers of a model with the reference's.

    Args:
        ours: the reference. Both traces have the values of all layers, or of the owners alone;
            with all, a culprit without parameters is found.
        pairs: matched parameters, whose layers are compared.
    """
    events, apart = _events(ours, theirs, owner_pairs(pairs))
    past = next((one for one in events if one.output and not _within(one.output, tolerance)), None)
    figures = worst_first(one.output for one in events if one.output)
    if past is not None:
        culprit = Finding(
            cause=_culprit(ours, theirs, events, past, tolerance),
            figure=past.output,
            tolerance=tolerance,
        )
        order = _flattened(ours, theirs, past, pairs, tolerance)
        return ComparedLayers(figures, (culprit, *order), tuple(apart))
    ends = list(zip(ours.trace.outputs, theirs.trace.outputs))
    if len(ours.trace.outputs) == len(theirs.trace.outputs) and all(
        relative_l2(other, own) <= tolerance for own, other in ends
    ):
        return ComparedLayers(figures, (), tuple(apart))
    before = events[-1] if events else None
    after = len(ours.trace.calls), len(theirs.trace.calls)
    span = _between(ours, theirs, before, after, "", tolerance)
    return ComparedLayers(figures, (Finding(cause=span, tolerance=tolerance),), tuple(apart))


def _within(one: Figure, tolerance: float) -> bool:
    return one.relative_l2 is not None and one.relative_l2 <= tolerance


def _events(
    ours: Side, theirs: Side, owners: Mapping[str, str]
) -> tuple[list[_Event], list[Finding]]:
    """Every call of the owners with its counterpart, in the reference's order."""
    found: list[_Event] = []
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
            given = _figure(name, call.inputs, counterpart.inputs, kind if same else "")
            distance = None if given is None else _number(given.relative_l2)
            found.append(_Event(layer, other, (place, there), distance, value))
    return sorted(found, key=lambda one: one.places), apart


def type_of(side: Side, layer: str) -> str:
    """What the model itself, which has no name, is called."""
    return side.layers[layer].type if layer in side.layers else layer


def _calls(trace: Trace, layer: str) -> list[tuple[int, LayerCall]]:
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


def _number(value: float | None) -> float:
    return math.inf if value is None else value


# --- naming it -----------------------------------------------------------------------------


def _culprit(
    ours: Side, theirs: Side, events: Sequence[_Event], past: _Event, tolerance: float
) -> PortLayerDiffers | SpanDiffers:
    """The culprit, once the first event past the tolerance is known."""
    assert past.output is not None
    if past.inputs is None or past.inputs <= tolerance:
        shapes = _shapes(ours, theirs, past)
        return PortLayerDiffers(
            reference=ours.facts(past.layer),
            other=theirs.facts(past.other),
            inputs_known=past.inputs is not None,
            shape=shapes[0] if shapes else None,
            other_shape=shapes[1] if shapes else None,
        )
    agreed = [event for event in events if event.output and _within(event.output, tolerance)]
    before = max(
        (event for event in agreed if event.places < past.places),
        key=lambda event: event.places,
        default=None,
    )
    return _between(ours, theirs, before, past.places, past.output.tensor, tolerance)


def _shapes(
    ours: Side, theirs: Side, past: _Event
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None] | None:
    """The shapes of two outputs, where these are what cannot be compared."""
    own = ours.trace.calls[past.places[0]].output
    other = theirs.trace.calls[past.places[1]].output
    comparable = past.output is not None and past.output.largest is not None
    if own is None or other is None or comparable:
        return None
    return shape_of(own), shape_of(other)


def _between(
    ours: Side,
    theirs: Side,
    before: _Event | None,
    ends: tuple[int, int],
    name: str,
    tolerance: float,
) -> SpanDiffers:
    """What lies between the last owner that agrees and where values differ first.

    Args:
        name: of the first value that differs; empty for the output.
    """
    starts = before.places if before else (-1, -1)
    mine = _calls_between(ours, starts[0], ends[0])
    others = _calls_between(theirs, starts[1], ends[1])
    mine, others, last = _narrowed(mine, others, tolerance)
    after = last or (before.output.tensor if before and before.output else "")
    if len(mine) == len(others):
        mine, others = mine[:1], others[:1]
    return SpanDiffers(
        after=after,
        before=name,
        reference=_span(ours, mine, ends[0]),
        other=_span(theirs, others, ends[1]),
    )


def _calls_between(side: Side, start: int, end: int) -> list[LayerCall]:
    """Calls of layers without layers of their own, between two places."""
    return [
        call
        for call in side.trace.calls[start + 1 : end]
        if not any(name.startswith(f"{call.layer}.") for name in side.layers) and call.layer
    ]


def _narrowed(
    mine: list[LayerCall], others: list[LayerCall], tolerance: float
) -> tuple[list[LayerCall], list[LayerCall], str]:
    """What is left of both after the last value that agrees, and the name of its layer."""
    name = ""
    start = 0
    for call in list(mine):
        for place in range(start, len(others)):
            if _alike(call.output, others[place].output, tolerance):
                start, name = place + 1, call.layer
                mine = mine[mine.index(call) + 1 :]
                break
    return mine, others[start:], name


def _alike(own: Array | None, other: Array | None, tolerance: float) -> bool:
    if own is None or other is None:
        return False
    own, other = np.squeeze(own), np.squeeze(other)
    return own.shape == other.shape and relative_l2(other, own) <= tolerance


def _span(side: Side, calls: Iterable[LayerCall], end: int) -> CodeSpan:
    """The layers there; where there are none, the one whose own code it is."""
    names = list(dict.fromkeys(call.layer for call in calls))
    if names:
        listed = tuple(map(side.facts, names[:LISTED]))
        return CodeSpan(model=side.name, layers=listed, more=max(0, len(names) - LISTED))
    at = side.trace.calls[end].layer if end < len(side.trace.calls) else ""
    return CodeSpan(model=side.name, code_of=side.facts(at.rpartition(".")[0]))


def _flattened(
    ours: Side, theirs: Side, past: _Event, pairs: Sequence[Pair], tolerance: float
) -> tuple[Finding, ...]:
    """Whether a linear layer only reads the same numbers in another order, and what helps."""
    weight = next(
        (one for one in pairs if one.source.layer == past.layer and one.source.role == "weight"),
        None,
    )
    own = ours.trace.calls[past.places[0]].inputs
    other = theirs.trace.calls[past.places[1]].inputs
    if weight is None or weight.reshape or ours.layers[past.layer].kind != "linear":
        return ()
    if own is None or other is None or own.ndim != 2 or own.shape != other.shape:
        return ()
    shapes = {
        one.shape[1:]
        for side in (ours, theirs)
        for call in side.trace.calls
        for one in (call.inputs, call.output)
        if one is not None and one.ndim > 2 and math.prod(one.shape[1:]) == own.shape[1]
    }
    for shape in sorted(shapes):
        last = len(shape)
        channels_first = shape, [0, *range(2, last + 1), 1]
        channels_last = (*shape[1:], shape[0]), [0, last, *range(1, last)]
        for given, order in (channels_first, channels_last):
            turned = own.reshape(-1, *given).transpose(order).reshape(own.shape)
            if relative_l2(other, turned) <= tolerance:
                cause = FlattenOrder(
                    source=weight.source.name,
                    target=weight.target.name,
                    reshape=(weight.source.shape[0], *given),
                    transpose=tuple(order),
                )
                return (Finding(cause=cause),)
    return ()
