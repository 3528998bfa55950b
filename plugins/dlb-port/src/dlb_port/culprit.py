"""Comparison of the layers of two models, and the name of the first layer that differs.

Layers locate a difference, and are none by themselves. Layers that own a pair of matched parameters are
counterparts. Their outputs are compared in the order in which the reference calls them. A layer whose value
the other model has elsewhere is cut differently, and not compared. If the first layer past the tolerance
read equal inputs, it is the culprit. Otherwise the culprit lies between it and the layer before: the first
calls there that read the same values and return others, on whichever branch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.findings import Figure, Finding, shape_of
from dlb_graph.comparing.distance import figures, relative_l2, worst_first
from dlb_port.findings import port as causes
from dlb_port.layer_events import Event, Side, layer_events, type_of
from dlb_port.matching import is_state
from dlb_port.values import KnownValues, find_parting, parting_calls
from dlb_port.weight_map import Pair
from dlb_worker.contract import ForwardPass, LayerCall

__all__ = ["ComparedLayers", "compare_layers", "name_outputs", "output_figures", "owner_pairs"]

Array = npt.NDArray[Any]
#: Most layers of a span that a finding lists.
LISTED_LAYERS = 4


@dataclass(frozen=True)
class ComparedLayers:
    """The result of comparing layers.

    Attributes:
        figures: distance of every output that could be compared, worst first.
        culprit: the first layer past the tolerance, or the span before it; empty if the outputs agree.
        apart: layers that are cut differently, or whose values could not be compared, with the reason.
    """

    figures: tuple[Figure, ...]
    culprit: tuple[Finding, ...]
    apart: tuple[Finding, ...]


def owner_pairs(pairs: Sequence[Pair]) -> dict[str, str]:
    """Layers of the reference that own matched parameters, with their counterparts.

    The counterpart of a layer that has the parameters of several is the layer that holds these and no others.
    Where a state lies says nothing of what its layer returns.
    """
    # Layers that own matched parameters, by model, and the layers that these say they belong to.
    groups: list[tuple[set[str], set[str], set[str], set[str]]] = []
    for pair in pairs:
        if is_state(pair.source):
            continue
        found = (
            {part.layer for part in pair.source_parts or (pair.source,)},
            {part.layer for part in pair.target_parts or (pair.target,)},
            {pair.source.layer},
            {pair.target.layer},
        )
        for group in [each for each in groups if each[0] & found[0] or each[1] & found[1]]:
            groups.remove(group)
            for own, more in zip(found, group):
                own.update(more)
        groups.append(found)
    every: list[set[str]] = [set().union(*(group[side] for group in groups)) for side in (0, 1)]
    owners = {}
    for group in groups:
        layer, counterpart = map(_holder, group[:2], every, group[2:])
        if layer is not None and counterpart is not None:
            owners[layer] = counterpart
    return owners


def _holder(layers: set[str], every: set[str], named: set[str]) -> str | None:
    """The layer that is or holds some layers and none of the others that own parameters.

    Args:
        every: all layers that own parameters.
        named: the layers that their parameters say, which one of the layers may stand for.
    """
    if len(layers) == 1:
        return min(layers)
    shared = zip(*(layer.split(".") for layer in layers))
    holder = ".".join(names[0] for names in takewhile(lambda names: len({*names}) == 1, shared))
    inside = {layer for layer in every if not holder or f"{layer}.".startswith(f"{holder}.")}
    if inside == layers:
        return holder
    return min(named) if len(named) == 1 else None


def compare_layers(
    ours: Side, theirs: Side, pairs: Sequence[Pair], tolerance: float
) -> ComparedLayers:
    """Compare the layers of a model with the reference's.

    Args:
        ours: the reference. Both traces have the values of all layers, or only of layers that own
            parameters. With all, a culprit without parameters can be found.
        theirs: the other model.
        pairs: matched parameters, whose layers are compared.
    """
    events, apart = layer_events(ours, theirs, owner_pairs(pairs))
    outputs = output_figures(ours.trace, theirs.trace)
    if _passes(outputs[0], tolerance):
        agreed = [event for event in events if event.output and _passes(event.output, tolerance)]
        cut = [event for event in events if event not in agreed]
        notes = (Finding(cause=_cut(ours, cut)),) if cut else ()
        return ComparedLayers(worst_first(event.output for event in agreed), (), notes)
    known = (
        KnownValues(ours.trace.calls, ours.trace.outputs, tolerance),
        KnownValues(theirs.trace.calls, theirs.trace.outputs, tolerance),
    )
    cut = [event for event in events if _is_cut(ours, theirs, event, known, tolerance)]
    events = [event for event in events if event not in cut]
    apart += [Finding(cause=_cut(ours, cut))] if cut else []
    first_failing = next(
        (event for event in events if event.output and not _passes(event.output, tolerance)), None
    )
    figures = worst_first(event.output for event in events if event.output)
    if first_failing is not None:
        culprit = Finding(
            cause=_culprit(ours, theirs, events, first_failing, known, tolerance),
            figure=first_failing.output,
            tolerance=tolerance,
        )
        order = _flatten_order(ours, theirs, first_failing, pairs, tolerance)
        return ComparedLayers(figures, (culprit, *order), tuple(apart))
    before = events[-1] if events else None
    after = len(ours.trace.calls), len(theirs.trace.calls)
    span = _span_between(ours, theirs, before, after, None, known)
    return ComparedLayers(
        figures, (Finding(cause=span, figure=outputs[0], tolerance=tolerance),), tuple(apart)
    )


def name_outputs(trace: ForwardPass, inputs: str = "") -> dict[str, Array]:
    """Outputs by tensor name: ``output``, or ``output NAME`` if there are several.

    Args:
        inputs: what the inputs are called, if they are not the first ones.
    """
    end = f", {inputs}" if inputs else ""
    if len(trace.outputs) == 1:
        return {f"output{end}": trace.outputs[0]}
    return {f"output {number}{end}": output for number, output in enumerate(trace.outputs)}


def output_figures(ours: ForwardPass, theirs: ForwardPass) -> tuple[Figure, ...]:
    """The distance of each output of two passes, worst first; infinite if one of them has more."""
    own, other = name_outputs(ours), name_outputs(theirs)
    expected = own if len(own) >= len(other) else dict.fromkeys(other, np.full(1, np.nan))
    return figures(other, expected)


def _cut(ours: Side, events: Sequence[Event]) -> causes.CutDifferently:
    names = (event.layer or type_of(ours, event.layer) for event in events)
    return causes.CutDifferently(layers=tuple(dict.fromkeys(names)))


def _is_cut(
    ours: Side, theirs: Side, event: Event, known: tuple[KnownValues, KnownValues], tolerance: float
) -> bool:
    """Whether the values of two counterparts differ, but one model has the other's value elsewhere."""
    if event.output and _passes(event.output, tolerance):
        return False
    own, other = (side.trace.calls[place] for side, place in zip((ours, theirs), event.places))
    return own.output in known[1] or other.output in known[0]


def _passes(item: Figure, tolerance: float) -> bool:
    return item.distance <= tolerance


def _culprit(
    ours: Side,
    theirs: Side,
    events: Sequence[Event],
    failing: Event,
    known: tuple[KnownValues, KnownValues],
    tolerance: float,
) -> causes.PortLayerDiffers | causes.SpanDiffers:
    """The cause, given the first event past the tolerance."""
    assert failing.output is not None
    if failing.inputs is None or failing.inputs <= tolerance:
        shapes = _shapes(ours, theirs, failing)
        return causes.PortLayerDiffers(
            reference=ours.facts(failing.layer),
            other=theirs.facts(failing.other),
            inputs_known=failing.inputs is not None,
            shape=shapes[0] if shapes else None,
            other_shape=shapes[1] if shapes else None,
        )
    agreed = [event for event in events if event.output and _passes(event.output, tolerance)]
    earlier = (event for event in agreed if event.places < failing.places)
    before = max(earlier, key=lambda event: event.places, default=None)
    return _span_between(ours, theirs, before, failing.places, failing, known)


def _shapes(
    ours: Side, theirs: Side, failing: Event
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None] | None:
    """The shapes of two outputs that cannot be compared; None if they can be, or are unknown."""
    own_output = ours.trace.calls[failing.places[0]].output
    other_output = theirs.trace.calls[failing.places[1]].output
    comparable = failing.output is not None and failing.output.largest is not None
    if own_output is None or other_output is None or comparable:
        return None
    return shape_of(own_output), shape_of(other_output)


def _span_between(
    ours: Side,
    theirs: Side,
    before: Event | None,
    ends: tuple[int, int],
    failing: Event | None,
    known: tuple[KnownValues, KnownValues],
) -> causes.SpanDiffers:
    """The span between the last layer that agrees and the first value that differs.

    Args:
        failing: the call whose value differs first; None for the output.
    """
    name = failing.output.tensor if failing and failing.output else ""
    every = _calls_between(ours, -1, ends[0]), _calls_between(theirs, -1, ends[1])
    parting = find_parting(*every, *known)
    if parting is not None:
        own_call, other_call = parting
        assert own_call.output is not None and other_call.output is not None
        distance = relative_l2(other_call.output, own_call.output)
        return causes.SpanDiffers(
            after=_source(every[0], own_call, known[0]),
            before=name,
            reference=_span(ours, [own_call], ends[0]),
            other=_span(theirs, [other_call], ends[1]),
            distance=distance if math.isfinite(distance) else None,
        )
    starts = before.places if before else (-1, -1)
    # A layer that holds others, such as a bidirectional one, may return what the other model has.
    own_calls, other_calls = (
        [call for call in side.trace.calls[start + 1 : end] if call.layer]
        for side, start, end in zip((ours, theirs), starts, ends)
    )
    own_calls, other_calls, last = _drop_agreeing(own_calls, other_calls, known[0])
    own_calls, other_calls = _inner(ours, own_calls), _inner(theirs, other_calls)
    after = last or (before.output.tensor if before and before.output else "")
    at_call = None
    if failing is not None:
        reads = [
            side.trace.calls[place].inputs for side, place in zip((ours, theirs), failing.places)
        ]
        if _is_one_call(own_calls, other_calls, known, reads):
            at_call = failing.inputs
    if len(own_calls) == len(other_calls):
        own_calls, other_calls = own_calls[:1], other_calls[:1]
    return causes.SpanDiffers(
        after=after,
        before=name,
        reference=_span(ours, own_calls, ends[0]),
        other=_span(theirs, other_calls, ends[1]),
        distance=at_call if at_call is not None and math.isfinite(at_call) else None,
    )


def _is_one_call(
    own_calls: Sequence[LayerCall],
    other_calls: Sequence[LayerCall],
    known: tuple[KnownValues, KnownValues],
    reads: Sequence[Array | None],
) -> bool:
    """Whether one model computes what the next layer reads by one call, and the other in code that is not seen.

    Args:
        reads: what the next layer of each model reads.
    """
    own_parting, other_parting = (
        parting_calls(calls, model)
        for calls, model in zip((own_calls, other_calls), (known[1], known[0]))
    )
    if len(own_parting) + len(other_parting) != 1:
        return False
    call = (*own_parting, *other_parting)[0]
    side = 0 if own_parting else 1
    hidden, read = (other_calls, own_calls)[side], reads[side]
    if len(hidden) > 1 or read is None or call.output is None:
        return False
    return known[side].same(call.output, read)


def _source(calls: Sequence[LayerCall], call: LayerCall, known: KnownValues) -> str:
    """The last layer that returned what a call reads first; empty for the input."""
    before = calls[: [each is call for each in calls].index(True)]
    assert call.inputs is not None
    return next(
        (
            each.layer
            for each in reversed(before)
            if each.output is not None and known.same(each.output, call.inputs)
        ),
        "",
    )


def _calls_between(side: Side, start: int, end: int) -> list[LayerCall]:
    """Calls of layers without sublayers, between two positions."""
    return _inner(side, side.trace.calls[start + 1 : end])


def _inner(side: Side, calls: Iterable[LayerCall]) -> list[LayerCall]:
    """Calls of layers without sublayers."""
    return [
        call
        for call in calls
        if call.layer and not any(name.startswith(f"{call.layer}.") for name in side.layers)
    ]


def _drop_agreeing(
    own_calls: list[LayerCall], other_calls: list[LayerCall], known: KnownValues
) -> tuple[list[LayerCall], list[LayerCall], str]:
    """The calls after the last value that agrees, for both models, and the name of its layer.

    Channels may be first or last, but what is flattened has one order.
    """
    name = ""
    start = 0
    for call in list(own_calls):
        for place in range(start, len(other_calls)):
            if _agree(call.output, other_calls[place].output, known):
                start, name = place + 1, call.layer
                own_calls = own_calls[own_calls.index(call) + 1 :]
                break
    return own_calls, other_calls[start:], name


def _agree(own: Array | None, other: Array | None, known: KnownValues) -> bool:
    if own is None or other is None:
        return False
    alike = relative_l2(np.squeeze(other), np.squeeze(own)) <= known.tolerance
    return alike or (own.ndim == other.ndim > 2 and known.same(own, other))


def _span(side: Side, calls: Iterable[LayerCall], end: int) -> causes.CodeSpan:
    """The layers of a span; if there are none, the layer whose own code the span is."""
    names = list(dict.fromkeys(call.layer for call in calls))
    if names:
        listed = tuple(map(side.facts, names[:LISTED_LAYERS]))
        return causes.CodeSpan(
            model=side.name, layers=listed, more=max(0, len(names) - LISTED_LAYERS)
        )
    layer = side.trace.calls[end].layer if end < len(side.trace.calls) else ""
    return causes.CodeSpan(model=side.name, code_of=side.facts(layer.rpartition(".")[0]))


def _flatten_order(
    ours: Side, theirs: Side, failing: Event, pairs: Sequence[Pair], tolerance: float
) -> tuple[Finding, ...]:
    """A finding if a linear layer reads equal numbers in another order, with the map entry that fixes it."""
    own = (each for each in pairs if each.source.layer == failing.layer)
    weight = next((each for each in own if each.source.role == "weight"), None)
    own_input = ours.trace.calls[failing.places[0]].inputs
    other_input = theirs.trace.calls[failing.places[1]].inputs
    if weight is None or weight.reshape or ours.layers[failing.layer].kind != "linear":
        return ()
    if (
        own_input is None
        or other_input is None
        or own_input.ndim != 2
        or own_input.shape != other_input.shape
    ):
        return ()
    shapes = {
        array.shape[1:]
        for side in (ours, theirs)
        for call in side.trace.calls
        for array in (call.inputs, call.output)
        if array is not None and array.ndim > 2 and math.prod(array.shape[1:]) == own_input.shape[1]
    }
    for shape in sorted(shapes):
        last = len(shape)
        channels_first = shape, [0, *range(2, last + 1), 1]
        channels_last = (*shape[1:], shape[0]), [0, last, *range(1, last)]
        for sample_shape, order in (channels_first, channels_last):
            reordered = own_input.reshape(-1, *sample_shape).transpose(order)
            reordered = reordered.reshape(own_input.shape)
            if relative_l2(other_input, reordered) <= tolerance:
                cause = causes.FlattenOrder(
                    source=weight.source.name,
                    target=weight.target.name,
                    reshape=(weight.source.shape[0], *sample_shape),
                    transpose=tuple(order),
                )
                return (Finding(cause=cause),)
    return ()
