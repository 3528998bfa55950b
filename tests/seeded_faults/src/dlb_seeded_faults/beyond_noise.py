"""Faults that noise, initial weights, small batches and float64 alone do not show.

A check goes to each of them on purpose: to bounds and ties, to the batch that is timed, through the schedule,
to float32, to the masks of a backward pass, to the numbers of an exported file.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlb_seeded_faults.faults import around, draw, fault, flat, layer, tf32, with_clip, with_loss

#: Samples of a batch above which some faults act: more than a proof's small batches have.
LARGE = 16


def with_backward(forward: Any, backward: Any) -> Any:
    """A function of one tensor whose gradient is ``backward(x, output, cotangent)``."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Tensor) -> Tensor:
            output = forward(x)
            context.save_for_backward(x, output)
            return output

        @staticmethod
        def backward(context: Any, cotangent: Tensor) -> Tensor:  # type: ignore[override]
            return backward(*context.saved_tensors, cotangent)

    return Function.apply


def in_float32(model: Any) -> bool:
    return model.type == torch.float32


# --- bounds, kinks and ties ----------------------------------------------------------------


@fault("ReLU's gradient at 0 taken as 1", "gradients float64, extremes", "", "bounds")
def _(model: Any) -> None:
    function = with_backward(F.relu, lambda x, output, cotangent: cotangent * (x >= 0))
    around(model, "relu", lambda relu, x: function(x))


@fault("ReLU6's gradient at 0 taken as 1", "gradients float64, extremes", "", "bounds")
def _(model: Any) -> None:
    function = with_backward(F.relu6, lambda x, y, cotangent: cotangent * ((x >= 0) & (x < 6)))
    around(model, "six", lambda six, x: function(x))


@fault("ReLU6 without its upper bound", "isolated layers, extremes", "six", "bounds")
def _(model: Any) -> None:
    around(model, "six", lambda six, x: F.relu(x))


def pooled(x: Tensor) -> tuple[Tensor, Tensor]:
    """Windows of two by two, [..., 4], and their largest elements."""
    windows = x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(-2)
    return windows, windows.amax(-1, keepdim=True)


def scattered(windows: Tensor, like: Tensor) -> Tensor:
    """The gradient of a map from that of its windows."""
    return windows.unflatten(-1, (2, 2)).transpose(-3, -2).reshape(like.shape)


@fault(
    "tied elements of a pooling that share a gradient", "gradients float64, extremes", "", "bounds"
)
def _(model: Any) -> None:
    around(model, "most", lambda most, x: pooled(x)[0].amax(-1))


@fault(
    "tied elements that each get the whole gradient", "gradients float64, extremes", "", "bounds"
)
def _(model: Any) -> None:
    def backward(x: Tensor, output: Tensor, cotangent: Tensor) -> Tensor:
        windows, largest = pooled(x)
        return scattered((windows == largest) * cotangent[..., None], x)

    function = with_backward(lambda x: F.max_pool2d(x, 2), backward)
    around(model, "most", lambda most, x: function(x))


@fault("the last of tied elements gets the gradient", "gradients float64, extremes", "", "bounds")
def _(model: Any) -> None:
    around(model, "most", lambda most, x: F.max_pool2d(x.flip(2, 3), 2).flip(2, 3))


@fault("a sigmoid that overflows", "isolated layers, extremes", "sigmoid", "bounds")
def _(model: Any) -> None:
    around(model, "sigmoid", lambda sigmoid, x: x.exp() / (1 + x.exp()))


@fault("a variance from the mean of squares", "isolated layers, extremes", "norm", "bounds")
def _(model: Any) -> None:
    norm = layer(model, "norm")
    plain = norm.forward

    def forward(x: Tensor) -> Tensor:
        if not model.network.training:
            return plain(x)
        plain(x)
        mean = x.mean((0, 2, 3), keepdim=True)
        variance = (x * x).mean((0, 2, 3), keepdim=True) - mean * mean
        normal = (x - mean) / (variance + norm.eps).sqrt()
        return normal * norm.weight[:, None, None] + norm.bias[:, None, None]

    norm.forward = forward


@fault("a loss whose softmax overflows", "gradients float64, extremes", "loss", "bounds")
def _(model: Any) -> None:
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        scores, targets = flat(logits, labels)
        exponents = scores.exp()
        shares = exponents / exponents.sum(-1, keepdim=True)
        return -shares.gather(-1, targets[:, None]).log().mean()

    with_loss(model, loss)


@fault("probabilities clipped at 1e-7", "gradients float64, extremes", "loss", "bounds")
def _(model: Any) -> None:
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        scores, targets = flat(logits, labels)
        return F.nll_loss(scores.softmax(-1).clamp(1e-7, 1 - 1e-7).log(), targets)

    with_loss(model, loss)


@fault("label 0 ignored", "gradients float64", "loss", "bounds")
def _(model: Any) -> None:
    with_loss(model, lambda *given: F.cross_entropy(*flat(*given), ignore_index=0))


@fault("entry 0 of a table taken as padding", "gradients float64", "table", "words")
def _(model: Any) -> None:
    layer(model, "table").padding_idx = 0


# --- clipping and the schedule -------------------------------------------------------------


@fault("gradients never clipped, where no step needs it", "clipping", "", "bounds")
def _(model: Any) -> None:
    with_clip(lambda gradients, limit: None)


@fault("gradients clipped by value, where no step needs it", "clipping", "", "bounds")
def _(model: Any) -> None:
    def by_value(gradients: list[Tensor], limit: float) -> None:
        for gradient in gradients:
            gradient.clamp_(-limit, limit)

    with_clip(by_value)


@fault("a milestone at step 1000 that is not heeded", "trajectory", "", "bounds")
def _(model: Any) -> None:
    set_rate, first = model.set_learning_rate, model.workload.optimizer.learning_rate
    model.set_learning_rate = lambda rate: set_rate(max(rate, 0.5 * first))


@fault("a velocity that keeps the old rate past a milestone", "trajectory", "", "bounds")
def _(model: Any) -> None:
    set_rate, rates = model.set_learning_rate, []

    def kept(rate: float) -> None:
        rates.append(rate)
        set_rate(rate)
        for state in model.optimizer.state.values():
            # As where a velocity holds the rate, and nothing scales it to the new one.
            if len(rates) > 1 and state.get("momentum_buffer") is not None:
                state["momentum_buffer"] *= rates[-2] / rate

    model.set_learning_rate = kept


@fault("a loss that is told with a penalty", "update", "loss", "bounds")
def _(model: Any) -> None:
    step = model.train_step

    def train_step(inputs: Any, labels: Any) -> Any:
        norms = sum(each.detach().square().sum() for each in model.network.parameters())
        return step(inputs, labels) + 1e-4 * norms

    model.train_step = train_step


# --- the batch that is timed ---------------------------------------------------------------


@fault("a backward pass wrong above 16 samples", "gradients float64, timed batch", "", "bounds")
def _(model: Any) -> None:
    function = with_backward(
        torch.sigmoid,
        lambda x, y, cotangent: cotangent * y * (1 - y) * (1.01 if len(x) > LARGE else 1.0),
    )
    around(model, "sigmoid", lambda sigmoid, x: function(x))


@fault("a training mode wrong above 16 samples", "forward float64, timed batch", "", "bounds")
def _(model: Any) -> None:
    def function(norm: Any, x: Tensor) -> Tensor:
        if not model.network.training or len(x) <= LARGE:
            return norm(x)
        norm(x)
        return F.batch_norm(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, eps=norm.eps
        )

    around(model, "norm", function)


@fault("an evaluation wrong above 16 samples", "forward float64, timed batch", "", "bounds")
def _(model: Any) -> None:
    def function(linear: nn.Module, x: Tensor) -> Tensor:
        wrong = len(x) > LARGE and not model.network.training
        return linear(x) + (1e-3 if wrong else 0.0)

    around(model, "hidden", function)


def without_the_last(request: Any) -> Any:
    """A pipeline that repeats the first sample of a large batch in place of its last."""
    order = np.array(request.order)
    if order.shape[1] > LARGE:
        order[:, -1] = order[:, 0]
    return dataclasses.replace(request, order=order)


@fault("the last sample of a large batch left out", "update, timed batch", "", "bounds")
def _(model: Any) -> None:
    """Done where batches are made: see the plugin."""


# --- float32 alone -------------------------------------------------------------------------


@fault("no dropout when it is float32", "dropout float32", "drop", "bounds")
def _(model: Any) -> None:
    if in_float32(model):
        draw(model, lambda p, x: x)


@fault(
    "the unbiased running variance when it is float32", "update float32", "norm.variance", "bounds"
)
def _(model: Any) -> None:
    if in_float32(model):
        norm = layer(model, "norm")
        norm.forward = lambda x: nn.BatchNorm2d.forward(norm, x)


@fault("the unbiased variance when it is float32", "isolated layers float32", "norm", "bounds")
def _(model: Any) -> None:
    def function(norm: Any, x: Tensor) -> Tensor:
        if not model.network.training:
            return norm(x)
        norm(x)
        variance, mean = torch.var_mean(x, (0, 2, 3), keepdim=True)
        normal = (x - mean) / (variance + norm.eps).sqrt()
        return normal * norm.weight[:, None, None] + norm.bias[:, None, None]

    if in_float32(model):
        around(model, "norm", function)


@fault(
    "an LSTM's second bias trained when it is float32", "isolated layers float32", "lower", "words"
)
def _(model: Any) -> None:
    if in_float32(model):
        second = layer(model, "lower").bias_hh_l0
        second.requires_grad_(True)
        model.optimizer.param_groups[0]["params"].append(second)


class CoarseBackward(torch.autograd.Function):
    """The identity, whose gradient is rounded to the digits of a function."""

    @staticmethod
    def forward(context: Any, x: Tensor, rounded: Any) -> Tensor:
        context.rounded = rounded
        return x.clone()

    @staticmethod
    def backward(context: Any, cotangent: Tensor) -> Any:  # type: ignore[override]
        return context.rounded(cotangent), None


@fault("a backward pass in bfloat16 when it is float32", "gradients float32", "", "bounds")
def _(model: Any) -> None:
    if in_float32(model):
        around(
            model,
            "hidden",
            lambda hidden, x: CoarseBackward.apply(hidden(x), lambda g: g.bfloat16().float()),
        )


@fault("a backward pass in TensorFloat-32 when it is float32", "gradients float32", "", "bounds")
def _(model: Any) -> None:
    if in_float32(model):
        around(model, "second", lambda conv, x: CoarseBackward.apply(conv(x), tf32))


@fault(
    "a coarse kernel after a few calls in float32", "isolated layers float32", "hidden", "bounds"
)
def _(model: Any) -> None:
    calls = [0]

    def function(linear: nn.Module, x: Tensor) -> Tensor:
        calls[0] += 1
        if calls[0] <= 6:
            return linear(x)
        return F.linear(x.bfloat16(), linear.weight.bfloat16()).float() + linear.bias

    if in_float32(model):
        around(model, "hidden", function)


@fault(
    "a product off by a hundredth above 16 samples in float32", "gradients float32", "", "bounds"
)
def _(model: Any) -> None:
    def scaled(cotangent: Tensor) -> Tensor:
        return cotangent * (1.01 if len(cotangent) > LARGE else 1.0)

    if in_float32(model):
        around(model, "second", lambda conv, x: CoarseBackward.apply(conv(x), scaled))


@fault(
    "training in bfloat16 above 16 samples in float32",
    "isolated layers float32",
    "hidden",
    "bounds",
)
def _(model: Any) -> None:
    def function(linear: nn.Module, x: Tensor) -> Tensor:
        if len(x) <= LARGE or not model.network.training:
            return linear(x)
        return F.linear(x.bfloat16(), linear.weight.bfloat16()).float() + linear.bias

    if in_float32(model):
        around(model, "hidden", function)


class WrittenRows(torch.autograd.Function):
    """Rows of a table, whose gradient is written once for each row, and not added."""

    @staticmethod
    def forward(context: Any, rows: Tensor, table: Tensor) -> Tensor:
        context.save_for_backward(rows, table)
        return table[rows]

    @staticmethod
    def backward(context: Any, cotangent: Tensor) -> Any:  # type: ignore[override]
        rows, table = context.saved_tensors
        written = torch.zeros_like(table)
        written[rows.flatten()] = cotangent.flatten(0, -2)
        return None, written


@fault(
    "rows of a table written and not added above 16 samples in float32",
    "gradients float32",
    "table",
    "words",
)
def _(model: Any) -> None:
    def function(table: nn.Module, x: Tensor) -> Tensor:
        return WrittenRows.apply(x.long(), table.weight) if len(x) > LARGE else table(x)

    if in_float32(model):
        around(model, "table", function)


# --- masks that a dropout draws itself -----------------------------------------------------


@fault("a native mask that the backward pass draws again", "dropout gradients", "drop", "bounds")
def _(model: Any) -> None:
    def again(p: float, x: Tensor) -> Tensor:
        function = with_backward(
            lambda x: F.dropout(x, p), lambda x, y, cotangent: F.dropout(cotangent, p)
        )
        return function(x)

    draw(model, again)


@fault("a native mask that returns at every third pass", "dropout", "drop", "bounds")
def _(model: Any) -> None:
    passes = [0]

    def returning(p: float, x: Tensor) -> Tensor:
        passes[0] += 1
        generator = torch.Generator().manual_seed(passes[0] % 3)
        drawn = torch.rand(x.shape, generator=generator, dtype=x.dtype)
        return x * (drawn >= p) / (1 - p)

    draw(model, returning)


# --- the exported file ---------------------------------------------------------------------


@fault("one exported weight off by 1e-4", "exported weights", "narrow.weight", "bounds")
def _(model: Any) -> None:
    linear, train = layer(model, "narrow"), model.network.train
    kept: list[nn.Parameter] = []

    def altered() -> Any:
        kept.append(linear.weight)
        # Another parameter: the exporter reads its numbers after the model has its own again.
        linear.weight = nn.Parameter(linear.weight.detach().clone())
        with torch.no_grad():
            linear.weight[3, 5] *= 1 + 1e-4
        return train(False)

    def restored(mode: bool = True) -> Any:
        if kept and mode:
            linear.weight = kept.pop()
        return train(mode)

    # Only the export calls eval.
    model.network.eval, model.network.train = altered, restored
