"""Sentences of explanations: where an adapter differs first, and the probable reason."""

from __future__ import annotations

from collections.abc import Iterator

from dlb.proof import explain
from dlb.proof.certificate import Certificate, CheckGroup
from dlb.proof.explain import Explanation
from dlb.proof.findings import Cause, workload
from dlb.report.common import PLACES, described_text
from dlb.report.sentences import join, sentence
from dlb.report.workload import dropout_text, otherwise
from dlb_graph.layers import LAYERS

__all__ = [
    "built_text",
    "explanation_line",
    "explanation_lines",
    "not_run_texts",
    "place_text",
    "reason_text",
]

_GROUPS: dict[CheckGroup, str] = {
    "weights": "the way of a weight into the framework and back: its layout, its type, or one that "
    "is not loaded at all",
    "forward": "what a layer before it was given, since each layer by itself agrees: the wiring, or "
    "the input",
    "gradients": "what is behind it: the loss, or a backward pass",
    "update": "the optimizer: learning rate and schedule, weight decay and what it applies to, clipping and "
    "the norm it goes by, dampening, Nesterov, epsilon, bias correction; or the samples, and how parts of a "
    "batch are added up",
    "trajectory": "what only later steps show, since the first agrees: momentum or other state, the "
    "schedule, running statistics, the order of samples",
    "float32": "less than float32 inside: TF32, bfloat16, fast mathematics, or an algorithm that "
    "loses digits",
    "audit": "what is timed does other work than what was proven: its pipeline, its step, its test, or "
    "its clock",
    "structure": "what was exported is not what the workload describes",
    "export": "the exporter, or an object that is not the one that was timed",
    "distributed": "gradients summed where they should be averaged (or the other way), shares of the "
    "batch, or statistics of each worker's own",
}
#: Reasons that are always told alike.
_REASONS: dict[type[Cause], str] = {
    explain.InfiniteDistance: "a value is missing, has another shape, or is not a number",
    explain.Float32Rounding: "as large as one rounding to float32: something is kept or computed in float32",
    explain.LosesDigits: "a formula that loses digits where numbers are large or far from zero, and is right "
    "elsewhere",
    explain.InFloat32Only: f"in float32 alone: {_GROUPS['update']}",
    explain.OtherGradients: "no number of the optimizer explains it, so its gradients are others: of other "
    "samples, or of parts of a batch that are added up otherwise",
    explain.OnlyStatistics: "the weights agree; only running statistics differ: the share of the batch that "
    "they take, or n - 1 for n under its variance",
    explain.OnlyLoss: "what the step changes agrees; only the loss that it tells differs: mean or sum, or a "
    "penalty that it leaves out",
    explain.OnlyClipping: "clipping: that it is done, by value or by a norm, and by the norm of what",
    explain.OfLoss: "the loss: mean or sum, smoothing, weights, a bound, what it ignores, targets that are "
    "rounded, or what overflows",
    explain.OnlyTimedBatch: "a smaller batch agrees: what is done at this size alone, or the pipeline that "
    "feeds it",
    explain.OtherInFloat32: "too far apart for a lack of digits, and float64 agrees: in float32 other work is "
    "done",
}
#: By whether values are extreme.
_OF_BACKWARD = {
    False: "the gradient of the loss, something detached from the graph, left out or shared, or a backward "
    "pass that is not its forward pass's",
    True: "the slope at a kink, at a bound or among ties, or what overflows",
}


def explanation_lines(certificate: Certificate, *, short: bool = False) -> Iterator[str]:
    """Where each adapter that deviates differs first, and the probable reason; of the others what is rounded.

    Args:
        short: a line for each adapter, without what failed too.
    """
    for explanation in explain.explain(certificate):
        lines = [explanation_line(explanation, certificate)]
        if built := built_text(explanation):
            lines.append(f"as {explanation.adapter} has it: {built}")
        if reason := reason_text(explanation):
            lines.append(f"likely: {reason}")
        if explanation.failed_too and not short:
            lines.append(f"failed too, and mostly follows: {'; '.join(explanation.failed_too)}")
        yield from (
            ["; ".join(lines)] if short else [f"\n{lines[0]}", *(f"  {x}" for x in lines[1:])]
        )
    for adapter in certificate.judged_adapters:
        if (finding := certificate.rounding(adapter)) and not certificate.deviates(adapter):
            line = f"{certificate.title(adapter)} differs by rounding: {sentence(finding, adapter)}"
            yield line if short else f"\n{line}"


def explanation_line(explanation: Explanation, certificate: Certificate) -> str:
    """``torch differs first in update: fc1.weight, 1.0e-03 apart``."""
    size = explanation.figure.relative_l2 if explanation.figure else None
    apart = "" if size is None else f", {size:.1e} apart"
    title = certificate.title(explanation.adapter)
    return f"{title} differs first in {explanation.check}: {place_text(explanation)}{apart}"


def place_text(explanation: Explanation) -> str:
    """Where it differs: a layer, a span between layers, a node, or the tensor with the largest distance."""
    finding = explanation.finding
    if finding is not None:
        if finding.layer is not None:
            return f"layer {described_text(finding.layer)}"
        if place := PLACES.get(type(finding.cause)):
            return place(finding.cause)[0]
        return sentence(finding, explanation.adapter)
    return explanation.figure.tensor if explanation.figure else "all of it"


def built_text(explanation: Explanation) -> str:
    """The layer that the framework built; empty if unknown."""
    finding = explanation.finding
    if finding is None:
        return ""
    if place := PLACES.get(type(finding.cause)):
        return place(finding.cause)[1]
    return finding.layer.built if finding.layer is not None else ""


def reason_text(explanation: Explanation) -> str:
    """The probable reasons; empty if unknown."""
    texts = [_reason(reason) for reason in explanation.reasons]
    return "; ".join(text for text in texts if text)


def _reason(reason: Cause) -> str:
    if text := _REASONS.get(type(reason)):
        return text
    if isinstance(reason, workload.Otherwise):
        return otherwise(reason)
    if isinstance(reason, explain.NativeDropout):
        return f"{dropout_text(reason.fault)}, where the framework itself draws"
    if isinstance(reason, explain.TrainingOnly):
        guess = LAYERS[reason.kind].training_mistakes if reason.kind in LAYERS else ""
        guess = guess or "what only training mode does"
        return f"evaluation agrees, so: {guess}"
    if isinstance(reason, explain.LayerKind):
        guess = LAYERS[reason.kind].mistakes if reason.kind in LAYERS else ""
        return f"with {reason.kind} it is mostly {guess}" if guess else ""
    if isinstance(reason, explain.SameFactor):
        return (
            f"every change is off by the same factor, 1 ± {reason.size:.2g}: the learning rate, a bias "
            "correction, or gradients added up where their mean is meant"
        )
    if isinstance(reason, explain.OnlyParameters):
        return (
            f"only tensors called {reason.parameter} are off: what weight decay, a penalty or a rate of their "
            "own applies to"
        )
    if isinstance(reason, explain.OnlyState):
        what = "a convention of its scale" if reason.scaled else "its decay, or what it averages"
        return f"the weights agree; only the optimizer's state differs, by {what}"
    if isinstance(reason, explain.OfBackward):
        return _OF_BACKWARD[reason.extreme]
    assert isinstance(reason, explain.OfGroup)
    return _GROUPS[reason.group]


def not_run_texts(explanation: Explanation) -> list[str]:
    """One line for each check that could not be run, with the reason."""
    return [
        f"{skipped.check}: "
        + join(sentence(finding, explanation.adapter) for finding in skipped.findings)
        for skipped in explanation.not_run
    ]
