"""What a right explanation of each fault says, and how much of an explanation an explanation is."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from dlb.proof import explain
from dlb.proof.explain import Explanation
from dlb.proof.findings.workload import Otherwise
from dlb.report.explanations import reason_text

__all__ = ["Grade", "grade", "possibilities", "right_reasons"]

#: ``exactly``: the one cause was computed. ``yes``: it is one of a few. ``generic``: one of more, or what every
#: difference of a group of checks is told. ``no``: it is not among what is told.
Grade = Literal["exactly", "yes", "generic", "no"]
#: How many possibilities are a few.
FEW = 3
#: What is told of a group of checks, whatever differs in it.
_OF_A_GROUP = (
    explain.InFloat32Only,
    explain.OfBackward,
    explain.OfGroup,
    explain.OfLoss,
    explain.OnlyClipping,
    explain.OtherInFloat32,
)
#: What stands between two possibilities, outside of brackets, and before the first.
_BETWEEN = re.compile(r"(?:, or |, | or )(?![^(]*\))")
_BEFORE = re.compile(r".*(?:: | mostly )")

#: By words in the name of the fault, the first that fits.
_BY_NAME = (
    ("entry 0 of a table", "left out in row 0"),
    ("Adam's epsilon 1e-7", "epsilon = 1e-07"),
    ("softmax overflows", "overflow"),
    ("unbiased running variance", "n - 1 for n"),
    ("unbiased variance when", "over n - 1"),
    ("no dropout when", "no element is 0"),
    ("velocity that keeps", "that holds the learning rate"),
    ("kept in bfloat16", "rounded to bfloat16|learning rate and schedule"),
    ("targets rounded", "rounded to bfloat16"),
    ("momentum of 0.899", "momentum = 0.89|in float32 alone"),
    ("backward pass in bfloat16", "rounded to bfloat16|TF32, bfloat16"),
    ("backward pass in TensorFloat-32", "rounded to TensorFloat-32|TF32"),
    ("backward pass wrong above", "at this size"),
    ("bfloat16", "in bfloat16|TF32, bfloat16"),
    ("TensorFloat-32", "in TensorFloat-32|TF32"),
    ("ReLU's gradient at 0", "gradient of relu at a kink"),
    ("ReLU6's gradient at 0", "gradient of six at a kink"),
    ("that share a gradient", "a share for each"),
    ("each get the whole", "the whole for each"),
    ("last of tied", "that of the last|among ties"),
    ("probabilities clipped", "probabilities clipped"),
    ("odd window", "pads|ceil mode"),
    ("epsilon inside", "epsilon_place inside"),
    ("epsilon outside", "epsilon outside of the root"),
    ("exported with another epsilon", "exporter"),
    ("when it is float32", "in float32|float32 inside|where the framework itself draws"),
    ("after a few calls in float32", "float32 inside"),
    ("above 16 samples in float32", "float32 inside|in float32 other work"),
    ("TensorFloat-32", "TF32"),
    ("above 16 samples", "at this size"),
    ("large batch", "at this size"),
    ("batch norm's momentum", "running statistics"),
    ("trains on running statistics", "mode that of evaluation"),
    ("mean of squares", "loses digits|mean of squares"),
    ("epsilon", "epsilon"),
    ("other side", "pads"),
    ("padding", "pads|padding|count_include_pad|left out"),
    ("pads with zeros", "pads that are zeros"),
    ("padded", "pads|value = 0"),
    ("kernel turned", "weight turned"),
    ("a bias left out", "bias = False"),
    ("alpha not divided", "alpha"),
    ("LRN's constant", "bias = 1|constant k"),
    ("leaky slope", "slope below zero"),
    ("upper bound", "at most 1|type relu"),
    ("tanh computed in float32", "rounded to float32"),
    ("hard sigmoid", "type hard_sigmoid"),
    ("concatenated", "the other way round"),
    ("flattened", "order [0, 2, 3, 1]"),
    ("branch out", "left out"),
    ("left on in evaluation", "dropout in it"),
    ("drawn where one was given", "mask of its own"),
    ("native dropout's rate", "3.333 times"),
    ("rate taken for", "rate = 0.7"),
    ("scales nothing", "are 1 times"),
    ("for all samples", "neighbouring samples"),
    ("same at every pass", "two passes"),
    ("not a number", "not a number"),
    ("two layers of one shape swapped", "of second"),
    ("transposed", "transposed"),
    ("off by 1e-7", "off in 1 of"),
    ("exchanged", "that of norm.variance"),
    ("gates", "gates"),
    ("forget bias", "plus 1 in gate"),
    ("read backwards", "turned along axis 1"),
    ("indices shifted", "shifted"),
    ("axes in another order", "axes"),
    ("reshape", "reshape"),
    ("positions shifted", "shifted"),
    ("unbiased variance", "variance"),
    ("GELU", "approximate"),
    ("sum over time", "times 16"),
    ("first place for the last", "place = |index = |the place"),
    ("attention", "scale"),
    ("heads of every third", "not consecutive"),
    ("softmax over", "Softmax over axis"),
    ("causal mask left out", "causal = False"),
    ("causal mask", "mask shifted"),
    ("initial weights", "not given"),
    ("every second place", "starts"),
    ("counted from one too far", "indices ="),
    ("tied matrix that starts", "built with"),
    ("shared layer that starts", "built with"),
    ("decays for each", "weight_decay of table.weight"),
    ("last use alone", "not added to the weights"),
    ("sum of losses", "number of samples"),
    ("smoothing", "label_smoothing = 0.001"),
    ("first step alone", "first step alone"),
    ("detached", "stopped before"),
    ("backward pass", "passed on as it is"),
    ("lets through the gradient", "not masked"),
    ("learning rate rounded", "learning_rate rounded to float32"),
    ("decay left off", "weight_decay of bias"),
    ("Nesterov", "nesterov = False"),
    ("dampened", "dampening|momentum or other state"),
    ("schedule", "learning_rate"),
    ("samples out of order", "samples"),
    ("bias correction", "bias correction left out"),
    ("decoupled weight decay", "type adamw"),
    ("AdamW's decay coupled", "type adam"),
    ("AdamW's decay", "weight_decay"),
    ("clip", "clip"),
    ("with their decay", "before gradients are clipped|weight decay"),
    ("warm-up that", "learning_rate"),
    ("cosine", "learning_rate"),
    ("milestone", "learning_rate"),
    ("last bit", "off in 1 of"),
    ("before it was trained", "trained"),
    ("velocity", "that holds the learning rate"),
    ("divided by the sum of its weights", "sum of its weights"),
    ("gradient at 0", "the slope at a kink"),
    ("tied elements", "among ties"),
    ("overflows", "overflow"),
    ("ignored", "without label 0"),
    ("told with a penalty", "penalty"),
    ("draws again", "another mask"),
    ("third pass", "two passes"),
    ("exported weight", "exporter"),
    ("delta", "its delta|delta = 1"),
    ("over the outputs", "targets of a sample|halves"),
    ("shares taken", "rounded to whole numbers"),
    ("gradients of parts", "times 2"),
    ("part", "parts of a batch"),
    ("gradient is 0", "stopped before"),
    ("halves away", "halves"),
)


def right_reasons(fault: str) -> tuple[str, ...]:
    """What a right explanation of a fault says, any of these."""
    return tuple(next(words for name, words in _BY_NAME if name in fault).split("|"))


def possibilities(explanation: Explanation) -> int:
    """How many possible causes its reasons list; what is computed or counted is one."""
    total = 0
    for reason in explanation.reasons:
        if isinstance(reason, Otherwise):
            total += len(reason.fields)
        elif text := reason_text(msgspec.structs.replace(explanation, reasons=(reason,))):
            listed = _BEFORE.sub("", text)
            total += 1 if listed == text else len(_BETWEEN.split(listed))
    return total


def grade(fault: str, explanation: Explanation) -> Grade:
    """How well an explanation says what was seeded."""
    said = reason_text(explanation)
    if not any(words in said for words in right_reasons(fault)):
        return "no"
    if any(isinstance(reason, _OF_A_GROUP) for reason in explanation.reasons):
        return "generic"
    listed = possibilities(explanation)
    computed = any(isinstance(reason, Otherwise) for reason in explanation.reasons)
    if computed and listed == 1:
        return "exactly"
    return "yes" if listed <= FEW else "generic"
