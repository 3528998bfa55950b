"""Sentences of explanations: where an adapter differs first, and the probable reason."""

from __future__ import annotations

from dlb.proof import explain
from dlb.proof.certificate import Certificate, CheckGroup
from dlb.proof.explain import Explanation, Reason
from dlb.proof.findings.port import PortLayerDiffers, SpanDiffers
from dlb.proof.findings.workload import GradientsDiffer
from dlb.report.common import described_text, native_layer_text
from dlb.report.port import span_text
from dlb.report.sentences import join, sentence
from dlb.report.workload import dropout_text

__all__ = ["built_text", "explanation_line", "not_run_texts", "place_text", "reason_text"]

#: Usual mistakes in layers, by kind.
_LAYERS = {
    "conv": "pads (or their side), stride, dilation, groups, the weight's layout, or a missing bias",
    "conv_transpose": "pads (or their side), output padding, stride, groups, the weight's layout "
    "(a convolution's turned), or a missing bias",
    "linear": "a transposed weight, another order of the flattened inputs, or a missing bias",
    "batch_norm": "epsilon, swapped or unloaded running statistics, or scale and bias left out",
    "layer_norm": "epsilon and its place, the variance (biased or not), or which axes are normalised",
    "group_norm": "epsilon and its place, the number of groups, a scale for each group (not channel), or "
    "the variance (biased or not)",
    "rms_norm": "epsilon and its place, a mean that is taken off, or the norm for the root of the mean",
    "lrn": "alpha (divided by the size or not), the constant k, or the window's alignment",
    "max_pool": "ceil mode, pads, or stride",
    "average_pool": "whether padding is counted, ceil mode, pads, or stride",
    "lstm": "the order of the gates, a forget bias, one bias for two, or an activation",
    "gru": "the order of the gates, the side of the recurrent product on which the reset gate acts, the update "
    "gate and one minus it swapped, or a bias left out",
    "rnn": "another activation, one bias for two, or the state of another step",
    "attention": "the scale (1 / sqrt(features of a head)), the causal mask and where it begins, how "
    "features are divided into heads, or a bias",
    "position_embedding": "positions that are shifted, or a table that is scaled",
    "embedding": "the table's order, or an index that is shifted or masked",
    "dropout": "dropout that acts in evaluation, or scales where it should not",
    "relu": "a slope below zero, or an upper bound",
    "prelu": "one slope for all where each channel has its own, or slopes along another axis",
    "relu6": "the upper bound left out, or applied before what it bounds",
    "hard_sigmoid": "another slope (1/5 for 1/6), or a bound that is left out",
    "mul": "a sum in its place, or a number for each channel along another axis",
    "gelu": "the exact function for the approximation by tanh, or the other way",
    "reshape": "row-major order, or a transpose that is left out before it",
    "transpose": "the order of the axes, or a reshape in its place",
    "reduce_mean": "a sum for the mean, or the axis",
    "select": "the place (counted from the other end), or the axis",
    "concat": "the order of the inputs, or the axis",
    "flatten": "channels last where channels first is meant",
    "softmax": "the axis",
}
_TRAINING = {
    "batch_norm": "the batch's variance (biased or not), epsilon, or running statistics used in "
    "training",
    "dropout": "the rate taken for the part that is kept, no scaling by 1 / (1 - rate), or a mask "
    "that is drawn again where one was given",
}
_GROUPS: dict[CheckGroup, str] = {
    "weights": "the way of a weight into the framework and back: its layout, its type, or one that "
    "is not loaded at all",
    "forward": "what a layer before it was given, since each layer by itself agrees: the wiring, or "
    "the input",
    "gradients": "the loss (mean or sum, smoothing, a weight), something detached from the graph, or "
    "a backward pass that is not its forward pass's",
    "update": "the optimizer: learning rate, weight decay and what it applies to, clipping and the "
    "norm it goes by, dampening, Nesterov, epsilon, bias correction",
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
        if isinstance(finding.cause, SpanDiffers):
            return span_text(finding.cause)
        if isinstance(finding.cause, PortLayerDiffers):
            return f"layer {native_layer_text(finding.cause.reference)}"
        if isinstance(finding.cause, GradientsDiffer):
            return finding.cause.tensor
        return sentence(finding, explanation.adapter)
    return explanation.figure.tensor if explanation.figure else "all of it"


def built_text(explanation: Explanation) -> str:
    """The layer that the framework built; empty if unknown."""
    finding = explanation.finding
    if finding is None:
        return ""
    if isinstance(finding.cause, PortLayerDiffers):
        return native_layer_text(finding.cause.other)
    return finding.layer.built if finding.layer is not None else ""


def reason_text(explanation: Explanation) -> str:
    """The probable reasons; empty if unknown."""
    texts = [_reason(reason) for reason in explanation.reasons]
    return "; ".join(text for text in texts if text)


def _reason(reason: Reason) -> str:
    if isinstance(reason, explain.InfiniteDistance):
        return "a value is missing, has another shape, or is not a number"
    if isinstance(reason, explain.Float32Rounding):
        return "as large as one rounding to float32: something is kept or computed in float32"
    if isinstance(reason, explain.NativeDropout):
        return f"{dropout_text(reason.fault)}, where the framework itself draws"
    if isinstance(reason, explain.TrainingOnly):
        guess = _TRAINING.get(reason.kind, "what only training mode does")
        return f"evaluation agrees, so: {guess}"
    if isinstance(reason, explain.LayerKind):
        guess = _LAYERS.get(reason.kind, "")
        return f"with {reason.kind} it is mostly {guess}" if guess else ""
    if isinstance(reason, explain.InFloat32Only):
        return f"in float32 alone: {_GROUPS['update']}"
    if isinstance(reason, explain.SameFactor):
        return f"every change is off by the same factor, 1 ± {reason.size:.2g}"
    if isinstance(reason, explain.OnlyParameters):
        return f"only tensors called {reason.parameter} are off"
    if isinstance(reason, explain.OnlyState):
        return "the weights agree; only the optimizer's state differs, by a convention of its scale"
    return _GROUPS[reason.group]


def not_run_texts(explanation: Explanation) -> list[str]:
    """One line for each check that could not be run, with the reason."""
    return [
        f"{skipped.check}: "
        + join(sentence(finding, explanation.adapter) for finding in skipped.findings)
        for skipped in explanation.not_run
    ]
