"""The losses: what each computes of a model's outputs and the targets of the samples.

Frameworks halve a loss, divide it by a number of their own, or take its mean over other numbers. So each
formula is written out. Every loss is a mean over all samples, so that the workers of a distributed run, which
have equal shares of a batch, compute that of the whole batch. :mod:`dlb.graph.losses` has the formulas in NumPy
and in ONNX.
"""

from __future__ import annotations

import math
from typing import Literal, Union

from dlb.workload.optimizers import Part

__all__ = [
    "CTC",
    "AbsoluteError",
    "BinaryCrossEntropy",
    "Huber",
    "Loss",
    "SoftmaxCrossEntropy",
    "SquaredError",
    "TargetKind",
    "class_axis",
    "classes_and_places",
    "loss_fault",
    "of_integers",
    "target_kind",
]

#: Axes of a map, [classes, H, W]. Outputs of fewer axes have their classes last.
MAP_AXES = 3

#: What the targets of samples are. ``class``: int64 [N], [N, T] for outputs [N, T, classes], or [N, H, W] for
#: outputs [N, classes, H, W], each below the number of classes. ``share``: real numbers from 0 to 1, in the
#: outputs' shape. ``number``: any real numbers, in that shape. ``label_sequence``: int64 [N, labels], classes
#: in their order, -1 after the last of a sample that has fewer.
TargetKind = Literal["class", "share", "number", "label_sequence"]


class SoftmaxCrossEntropy(Part, tag="softmax_cross_entropy", kw_only=True, frozen=True):
    """Softmax cross-entropy with integer labels, averaged over samples (and time steps, or places of a map).

    ONNX SoftmaxCrossEntropyLoss with reduction ``mean``. With a ``label_smoothing`` s above 0 and K
    classes, the target probability is ``1 - s + s / K`` for the label and ``s / K`` for every other
    class (Szegedy et al., arXiv:1512.00567, section 7; torch.nn.CrossEntropyLoss)::

        -(1 - s) * log_softmax[label] - s * mean(log_softmax)

    With ``class_weights``, one for each class, the loss of a sample (or time step) is multiplied by the weight
    of its label; 0 ignores a label. The mean is still that over all samples, as Keras's ``class_weight`` and
    Chainer's have it. torch and ONNX divide by the sum of the batch's weights, so that the workers of a
    distributed run, which have other labels each, would not compute the mean of the whole batch.

    With an ``ignore_index``, the loss of a sample (or time step) of that label is 0. It may be a class, or a
    number that is none, such as -100 (torch.nn.CrossEntropyLoss) or 255. The mean is again that over all
    samples, where torch and ONNX divide by the number of the others.
    """

    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()
    ignore_index: Union[int, None] = None


class BinaryCrossEntropy(Part, tag="binary_cross_entropy", frozen=True):
    """Binary cross-entropy of the sigmoid of each output, averaged over all numbers of a batch.

    With an output x, a logit, and its target z from 0 to 1 (torch.nn.BCEWithLogitsLoss;
    tf.nn.sigmoid_cross_entropy_with_logits)::

        max(x, 0) - x * z + log(1 + exp(-abs(x)))

    The gradient is sigmoid(x) - z, at x = 0 too.
    """


class SquaredError(Part, tag="squared_error", frozen=True):
    """The square of output minus target, averaged over all numbers of a batch.

    torch.nn.MSELoss, keras.losses.MeanSquaredError, chainer.functions.mean_squared_error. gluon's L2Loss is
    half of it.
    """


class AbsoluteError(Part, tag="absolute_error", frozen=True):
    """The size of output minus target, averaged over all numbers of a batch.

    torch.nn.L1Loss, keras.losses.MeanAbsoluteError, gluon.loss.L1Loss, chainer.functions.mean_absolute_error.
    The gradient of an output that is its target is 0.
    """


class Huber(Part, tag="huber", kw_only=True, frozen=True):
    """Huber's loss of the error e, output minus target, averaged over all numbers of a batch.

    (Huber 1964, doi:10.1214/aoms/1177703732; torch.nn.HuberLoss; keras.losses.Huber)::

        e * e / 2                          where abs(e) <= delta
        delta * (abs(e) - delta / 2)       elsewhere

    gluon's HuberLoss and torch's SmoothL1Loss divide it by ``delta``.
    """

    delta: float = 1.0


class CTC(Part, tag="ctc", kw_only=True, frozen=True):
    """Connectionist temporal classification, averaged over samples.

    (Graves et al. 2006, doi:10.1145/1143844.1143891.) Outputs are logits [T, classes] a sample, and labels are
    fewer than steps. A path chooses a class for each step; without repetitions and then without the class
    ``blank``, it is a sequence of labels. The loss of a sample is minus the logarithm of the probability of all
    paths that are its labels.

    It is not divided by the number of labels, as by torch.nn.CTCLoss with reduction ``mean``; tf.nn.ctc_loss,
    gluon.loss.CTCLoss and chainer.functions.connectionist_temporal_classification do not divide either.

    Attributes:
        most_labels: of a sample.
        blank: the class that is no label.
    """

    most_labels: int
    blank: int = 0


Loss = Union[SoftmaxCrossEntropy, BinaryCrossEntropy, SquaredError, AbsoluteError, Huber, CTC]

_TARGETS: dict[type, TargetKind] = {
    SoftmaxCrossEntropy: "class",
    BinaryCrossEntropy: "share",
    SquaredError: "number",
    AbsoluteError: "number",
    Huber: "number",
    CTC: "label_sequence",
}


def target_kind(loss: Loss) -> TargetKind:
    """What the targets of a loss are."""
    return _TARGETS[type(loss)]


def of_integers(loss: Loss) -> bool:
    """Whether targets are classes, int64; else they are real numbers of the outputs' shape."""
    return target_kind(loss) in ("class", "label_sequence")


def class_axis(outputs: tuple[int, ...]) -> int:
    """The axis of a sample's outputs that has the classes: the last, but the first of a map."""
    return 0 if len(outputs) == MAP_AXES else len(outputs) - 1


def classes_and_places(outputs: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Of a sample's outputs, the number of classes, and the shape of its labels."""
    axis = class_axis(outputs)
    return outputs[axis], (*outputs[:axis], *outputs[axis + 1 :])


def loss_fault(loss: Loss, outputs: tuple[int, ...]) -> str:
    """What is wrong with a loss's numbers for outputs of a shape; "" if nothing is."""
    if isinstance(loss, Huber) and not 0 < loss.delta < math.inf:
        return f"loss.delta = {loss.delta} must be above 0 and finite"
    if isinstance(loss, CTC):
        return _ctc_fault(loss, outputs)
    if not isinstance(loss, SoftmaxCrossEntropy):
        return ""
    if len(outputs) > MAP_AXES:
        return (
            f"the last layer gives {list(outputs)} a sample, and softmax cross-entropy reads [classes], "
            "[T, classes] or [classes, H, W]: add a reshape"
        )
    smoothing, weights = loss.label_smoothing, loss.class_weights
    classes, _ = classes_and_places(outputs)
    if not 0 <= smoothing < 1:
        return f"loss.label_smoothing = {smoothing} must be 0 (none) or more, and below 1"
    if weights and len(weights) != classes:
        return (
            f"loss.class_weights has {len(weights)} numbers, and the last layer gives {classes} classes: "
            "give one for each, or leave it out"
        )
    if weights and not (min(weights) >= 0 and 0 < sum(weights) < math.inf):
        return "loss.class_weights must be 0 or more and finite, and one above 0"
    if loss.ignore_index is not None and abs(loss.ignore_index) >= 1 << 31:
        return f"loss.ignore_index = {loss.ignore_index} must be a number of 32 bits"
    return ""


def _ctc_fault(loss: CTC, outputs: tuple[int, ...]) -> str:
    if len(outputs) != 2:
        return f"the last layer gives {list(outputs)} a sample, and ctc reads [T, classes]"
    steps, classes = outputs
    if not 0 <= loss.blank < classes:
        return f"loss.blank = {loss.blank} must be one of the {classes} classes, 0 to {classes - 1}"
    if not 1 <= loss.most_labels <= steps:
        return (
            f"loss.most_labels = {loss.most_labels} must be from 1 to the {steps} steps of the outputs: "
            "each label takes a step"
        )
    return "" if classes > 1 else "the last layer gives one class, and one is the blank"
