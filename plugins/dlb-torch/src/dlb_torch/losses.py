"""The losses, by kind: functions of outputs and labels, or targets of the outputs' shape."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from dlb_worker.model import Loss


def mean_loss(outputs: Tensor, targets: Tensor, loss: Loss) -> Tensor:
    """The mean loss of a batch."""
    if not loss.of_classes:
        outputs = outputs.to(targets.dtype)  # under autocast it may have another
    return LOSSES[loss.kind](outputs, targets, loss)


def _softmax_cross_entropy(logits: Tensor, labels: Tensor, loss: Loss) -> Tensor:
    """Of logits [N, C], [N, T, C] with labels [N, T], or [N, C, H, W] with labels [N, H, W]."""
    if logits.ndim == 3:
        logits, labels = logits.flatten(0, -2), labels.flatten()
    smoothing, ignored = loss.label_smoothing, loss.ignore_index
    if ignored is None and not loss.class_weights:
        return F.cross_entropy(logits, labels, label_smoothing=smoothing)
    if not loss.class_weights:
        # torch's own mean is that over the other labels.
        total = F.cross_entropy(
            logits, labels, ignore_index=ignored, reduction="sum", label_smoothing=smoothing
        )
        return total / labels.numel()
    # torch's own weights divide by their sum, and are those of each class in what is smoothed.
    absent = -1 if ignored is None else ignored
    losses = F.cross_entropy(
        logits, labels, ignore_index=absent, reduction="none", label_smoothing=smoothing
    )
    counted = labels.where(labels != absent, 0)
    return (losses * losses.new_tensor(loss.class_weights)[counted]).mean()


def _ctc(logits: Tensor, labels: Tensor, loss: Loss) -> Tensor:
    """Of logits [N, T, C] and labels [N, L], -1 after the last; torch's own mean is by label first."""
    samples, steps, _ = logits.shape
    lengths = (labels >= 0).sum(1)
    every = torch.full_like(lengths, steps)
    logarithms = logits.log_softmax(-1).transpose(0, 1)
    losses = F.ctc_loss(logarithms, labels, every, lengths, loss.blank, reduction="sum")
    return losses / samples


LOSSES: dict[str, Callable[[Tensor, Tensor, Loss], Tensor]] = {
    "softmax_cross_entropy": _softmax_cross_entropy,
    "binary_cross_entropy": lambda x, y, loss: F.binary_cross_entropy_with_logits(x, y),
    "squared_error": lambda x, y, loss: F.mse_loss(x, y),
    "absolute_error": lambda x, y, loss: F.l1_loss(x, y),
    "ctc": _ctc,
    "huber": lambda x, y, loss: F.huber_loss(x, y, delta=loss.delta),
}
