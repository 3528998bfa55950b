"""Sentences of findings about a port."""

from __future__ import annotations

import msgspec

from dlb.proof.findings import Finding, LayerFacts
from dlb.report.common import PLACES, attributes_text, quoted, renders, says, shape_text
from dlb_port.attributes import catalogue_entries, shown_attributes
from dlb_port.findings import port

__all__ = ["native_layer_text", "span_text"]


says(port.WeightsLeft, "left as they are: {parameters}")


def native_layer_text(layer: LayerFacts, other: LayerFacts | None = None) -> str:
    """A layer of a user's model: ``'fc1' Linear(in_features=6)``.

    Args:
        other: the layer that it is compared with, for :func:`shown_attributes`.
    """
    if not layer.type:
        return f"'{layer.name}'"
    shown = dict(shown_attributes(layer, other or LayerFacts(name="")))
    attributes = attributes_text(msgspec.structs.replace(layer, attributes=shown))
    name = f"'{layer.name}' " if layer.name else ""
    return f"{name}{layer.type}" + (f"({attributes})" if attributes else "")


@renders(port.StateDiffers)
def _state(cause: port.StateDiffers, finding: Finding, adapter: str) -> str:
    return (
        f"'{cause.other}' of {cause.other_model} is not '{cause.parameter}' of {cause.model}{_by(finding)}. No "
        "training moves it, and each factory makes the same at every call, so it is part of the code and was "
        "not carried; if it is loaded from a file, load it in both factories"
    )


@renders(port.FrozenDiffers)
def _frozen(cause: port.FrozenDiffers, finding: Finding, adapter: str) -> str:
    return (
        f"frozen '{cause.other}' of {cause.other_model} is not '{cause.parameter}' of {cause.model}"
        f"{_by(finding)}, though each factory makes the same at every call: a table of the code, or a weight "
        "that is loaded? The reference's was carried. Load it in both factories, or do not seed them"
    )


def _by(finding: Finding) -> str:
    """How far off a state is."""
    size = finding.figure
    if size is None or size.relative_l2 is None:
        return ""
    return (
        f": relative L2 distance {size.relative_l2:.1e}, at most {size.largest:.1e} in an element"
    )


@renders(port.StatesRounded)
def _rounded(cause: port.StatesRounded, finding: Finding, adapter: str) -> str:
    return (
        "computed by both factories, equal within rounding to float32, and carried: "
        f"{quoted(cause.parameters)}{_by(finding)}"
    )


says(port.OutputCount, "{found} outputs against {expected}")
says(
    port.OutputLayout,
    "the numbers are the same if {model} returns {layout}: say so by --output-layout {model}={layout}",
)
says(
    port.OtherCalls,
    "'{layer}' is called {calls} times and '{other}' of {other_model} {other_calls}",
)


@renders(port.LayoutUnknown)
def _layout(cause: port.LayoutUnknown, finding: Finding, adapter: str) -> str:
    return (
        f"outputs of '{cause.layer}' and '{cause.other}' of {cause.other_model} are not known to have "
        f"the same layout: {shape_text(cause.shape)} and {shape_text(cause.other_shape)}"
    )


@renders(port.CutDifferently)
def _cut(cause: port.CutDifferently, finding: Finding, adapter: str) -> str:
    return f"cut into other layers, so not compared by themselves: {quoted(cause.layers)}"


says(port.NoCounterparts, "no layer of one model is the counterpart of a layer of the other")
says(port.NotLoaded, "the model could not be made in {dtype}")


@renders(port.PortLayerDiffers)
def _layer(cause: port.PortLayerDiffers, finding: Finding, adapter: str) -> str:
    kind = cause.reference.kind or cause.reference.type or "layer"
    text = (
        f"first layer past the tolerance: {cause.reference.name or kind}, {kind}"
        f"({cause.reference.owner}: {native_layer_text(cause.reference, cause.other)}; "
        f"{cause.other.owner}: {native_layer_text(cause.other, cause.reference)})"
    )
    if not cause.inputs_known:
        return f"{text}; or what it reads"
    if cause.shape is not None and cause.other_shape is not None:
        text += f"; their outputs are {shape_text(cause.shape)} and {shape_text(cause.other_shape)}"
    return text


def _codes(reference: port.CodeSpan, other: port.CodeSpan) -> list[str]:
    """Both spans. Of one layer each, only attributes that differ are shown."""
    spans = (reference, other)
    pair = len(reference.layers) == len(other.layers) == 1
    others = (other.layers[0], reference.layers[0]) if pair else (None, None)
    return [f"{_code(span, its)} of {span.model}" for span, its in zip(spans, others)]


def _code(span: port.CodeSpan, other: LayerFacts | None = None) -> str:
    """The layers of a span; if there are none, the layer whose own code it is.

    Args:
        other: the layer that its only one is compared with.
    """
    if span.layers:
        more = f" and {span.more} more" if span.more else ""
        return ", ".join(native_layer_text(layer, other) for layer in span.layers) + more
    assert span.code_of is not None
    return f"the code of {native_layer_text(span.code_of)}"


def span_text(cause: port.SpanDiffers) -> str:
    """``what is between 'fc1' and 'fc2': ...``."""
    after = quoted([cause.after]) if cause.after else "the input"
    before = quoted([cause.before]) if cause.before else "the output"
    spans = ", ".join(_codes(cause.reference, cause.other))
    return f"what is between {after} and {before}: {spans}"


PLACES[port.SpanDiffers] = lambda cause: (span_text(cause), "")
PLACES[port.PortLayerDiffers] = lambda cause: (
    f"layer {native_layer_text(cause.reference, cause.other)}",
    native_layer_text(cause.other, cause.reference) + _see(cause.reference, cause.other),
)


def _see(own: LayerFacts, other: LayerFacts) -> str:
    """Where the catalogue of framework differences has what two layers have otherwise."""
    pages = sorted(catalogue_entries(own, other))
    folder = "docs/reference/framework-differences"
    return f"; see {', '.join(f'{folder}/{page}.md' for page in pages)}" if pages else ""


@renders(port.SpanDiffers)
def _span(cause: port.SpanDiffers, finding: Finding, adapter: str) -> str:
    return f"first past the tolerance: {span_text(cause)}"


@renders(port.Float32Constant)
def _constant(cause: port.Float32Constant, finding: Finding, adapter: str) -> str:
    bound = f"within {cause.allowed:.1e}, as much as a constant in float32 can move it"
    if cause.reference is None or cause.other is None:
        return bound
    spans = _codes(cause.reference, cause.other)
    return (
        f"{' and '.join(spans)} differ by {cause.distance:.1e} where they read the same, as if one kept a "
        f"constant in float32; {bound}"
    )


@renders(port.ComputesInFloat32)
def _in_float32(cause: port.ComputesInFloat32, finding: Finding, adapter: str) -> str:
    bound = f"within {cause.allowed:.1e}, as much as rounding to float32 there can move it"
    if cause.reference is None or cause.other is None:
        return bound
    spans = _codes(cause.reference, cause.other)
    return (
        f"{' and '.join(spans)} differ by {cause.distance:.1e} where they read the same; one computes in "
        f"float32, whatever it reads, so that this is rounding; {bound}"
    )


@renders(port.ConstantBefore)
def _constant_before(cause: port.ConstantBefore, finding: Finding, adapter: str) -> str:
    spans = _codes(cause.reference, cause.other)
    return (
        f"that is past {cause.allowed:.1e}, as much as a constant in float32 can move; before it "
        f"{' and '.join(spans)} differ by {cause.distance:.1e}, as such a constant does"
    )


@renders(port.FlattenOrder)
def _flatten(cause: port.FlattenOrder, finding: Finding, adapter: str) -> str:
    return (
        "both layers read the same numbers, flattened in another order; say so in the map: "
        f'{{ from = "{cause.source}", to = "{cause.target}", '
        f"reshape = {list(cause.reshape)}, transpose = {list(cause.transpose)} }}"
    )


@renders(port.DrawsRandom)
def _draws(cause: port.DrawsRandom, finding: Finding, adapter: str) -> str:
    where = "its code" if cause.layer is None else native_layer_text(cause.layer)
    return (
        f"two passes of {cause.model} differ from {where} on: it draws random numbers that dlb cannot "
        "switch off; make the models without them"
    )


def _dropped(part: port.DroppedPart | None) -> str:
    if part is None:
        return "nothing in the other model"
    return f"{part.rate:.6g} of {part.of} at '{part.layer}' of {part.model}"


@renders(port.DropoutDiffers)
def _dropout(cause: port.DropoutDiffers, finding: Finding, adapter: str) -> str:
    parts = sorted((cause.reference, cause.other), key=lambda part: part is None)
    return f"dropout differs: {' and '.join(map(_dropped, parts))}"


@renders(port.DropoutSame)
def _dropout_same(cause: port.DropoutSame, finding: Finding, adapter: str) -> str:
    places = "one place" if cause.places == 1 else f"{cause.places} places"
    return f"the same dropout in {places}, by kind and rate; the other checks are run without it"


@renders(port.PenaltyDiffers)
def _penalty(cause: port.PenaltyDiffers, finding: Finding, adapter: str) -> str:
    sides = ((cause.model, cause.penalty), (cause.other_model, cause.other_penalty))
    told = ", ".join(f"{penalty or 'nothing'} in {model}" for model, penalty in sides)
    return f"'{cause.parameter}' is penalised or constrained by {told}"


@renders(port.RoundingDecides)
def _rounding(cause: port.RoundingDecides, finding: Finding, adapter: str) -> str:
    return f"rounding alone decides how steps move {quoted(cause.tensors)}, so not compared"


says(port.SameAsEvaluation, "as in evaluation mode")


def _part(momentum: float | None) -> str:
    return "no fixed part" if momentum is None else f"{momentum:.6g}"


@renders(port.KeptPart)
def _kept(cause: port.KeptPart, finding: Finding, adapter: str) -> str:
    return (
        f"'{cause.layer}' of {cause.model} keeps {_part(cause.momentum)} of its running statistics at a "
        f"step, '{cause.other}' of {cause.other_model} {_part(cause.other_momentum)}"
    )


@renders(port.OnlyKeptPart)
def _only_kept(cause: port.OnlyKeptPart, finding: Finding, adapter: str) -> str:
    why = {
        "draws_random": "training mode draws random numbers",
        "states_not_reported": f"the adapter of {cause.model} does not report more",
    }[cause.because]
    return f"only what a step keeps of them is compared: {why}"


@renders(port.VarianceDivisor)
def _divisor(cause: port.VarianceDivisor, finding: Finding, adapter: str) -> str:
    return (
        f"running variances are moved by the batch's variance over {cause.divisor} values in "
        f"{cause.model} and over {cause.other_divisor} in {cause.other_model}, and compared as if both "
        f"took the same: {quoted(cause.tensors)}"
    )


says(port.TrainedInOne, "'{parameter}' is trained in {model} only")
says(port.EvaluationMode, "in evaluation mode, since training mode draws random numbers")
