"""The faults, one function each: what it does to torch's model, and where it must be found.

They are mistakes that were made in ports, in papers and in frameworks, at the size they had there.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlb_torch import model as torch_model
from dlb_torch.modules import MaskedDropout, Padded

Apply = Callable[[Any], None]


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        name: what is different.
        workload: of ``workloads``, the one that has the layer.
        check: the first that must fail, as ``dlb explain`` orders it.
        where: what its finding must name: a layer or a tensor.
        apply: seeds it in a model that torch's adapter has built.
    """

    name: str
    workload: str
    check: str
    where: str
    apply: Apply


FAULTS: dict[str, Fault] = {}


def fault(
    name: str, check: str, where: str, workload: str = "pictures"
) -> Callable[[Apply], Apply]:
    """Register a function that seeds a fault."""

    def register(apply: Apply) -> Apply:
        FAULTS[name] = Fault(name, workload, check, where, apply)
        return apply

    return register


def layer(model: Any, name: str) -> Any:
    return model.network.layers[torch_model.key(name)]


class Around(nn.Module):
    """A layer with another function in its place, its parameters where they were."""

    def __init__(self, inner: nn.Module, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.inner, self.function = inner, function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(self.inner, *inputs)


def around(model: Any, name: str, function: Callable[..., Tensor]) -> None:
    """Replace what a layer computes by ``function(layer, *inputs)``."""
    model.network.layers[torch_model.key(name)] = Around(layer(model, name), function)


def is_masked(model: Any) -> bool:
    """Whether its dropout was given a mask; the framework's own draws otherwise."""
    return isinstance(layer(model, "drop"), MaskedDropout)


def draw(model: Any, function: Callable[[float, Tensor], Tensor]) -> None:
    """Replace what torch's own dropout does in training, where it was given no mask."""
    if not is_masked(model):
        around(model, "drop", lambda drop, x: function(drop.p, x) if model.network.training else x)


def with_loss(model: Any, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Replace the loss, in this worker."""
    torch_model.mean_loss = lambda logits, labels, _: loss(logits, labels)


def flat(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return logits.flatten(0, -2), labels.flatten()


# --- layers --------------------------------------------------------------------------------


@fault("batch norm's epsilon 1e-3 for 1e-5", "isolated layers", "norm")
def _(model: Any) -> None:
    layer(model, "norm").eps = 1e-3


@fault("batch norm trains on running statistics", "isolated layers, training", "norm")
def _(model: Any) -> None:
    around(
        model,
        "norm",
        lambda norm, x: F.batch_norm(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, eps=norm.eps
        ),
    )


@fault("uneven padding on the other side", "isolated layers", "conv")
def _(model: Any) -> None:
    padded = layer(model, "conv")
    assert isinstance(padded, Padded)
    left, right, top, bottom = padded.pad.padding
    padded.pad.padding = (right, left, bottom, top)


@fault("a true convolution, its kernel turned", "isolated layers", "first")
def _(model: Any) -> None:
    around(
        model,
        "first",
        lambda conv, x: F.conv2d(x, conv.weight.flip(2, 3), conv.bias, padding=1),
    )


@fault("a bias left out", "isolated layers", "hidden")
def _(model: Any) -> None:
    # A part of the graph all the same, so that it has a gradient: zero.
    around(model, "hidden", lambda linear, x: F.linear(x, linear.weight, 0 * linear.bias))


@fault("LRN's alpha not divided by its size", "isolated layers", "lrn")
def _(model: Any) -> None:
    layer(model, "lrn").alpha *= layer(model, "lrn").size


@fault("LRN's constant 1 for 2", "isolated layers", "lrn")
def _(model: Any) -> None:
    layer(model, "lrn").k = 1.0


@fault("max pooling pads with zeros", "isolated layers", "most")
def _(model: Any) -> None:
    around(model, "most", lambda pool, x: F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 2))


@fault("average pooling counts its padding", "isolated layers", "mean")
def _(model: Any) -> None:
    layer(model, "mean").count_include_pad = True


@fault("the odd window of ceil mode at the front", "isolated layers", "less")
def _(model: Any) -> None:
    front = (1, 0, 1, 0)
    around(model, "less", lambda pool, x: F.max_pool2d(F.pad(x, front, value=-np.inf), 2, 2))


@fault("a leaky slope of 1e-6", "isolated layers", "relu")
def _(model: Any) -> None:
    around(model, "relu", lambda relu, x: F.leaky_relu(x, 1e-6))


@fault("an upper bound on ReLU", "isolated layers", "relu")
def _(model: Any) -> None:
    around(model, "relu", lambda relu, x: x.clamp(0, 1))


@fault("tanh computed in float32", "isolated layers", "tanh")
def _(model: Any) -> None:
    around(model, "tanh", lambda tanh, x: torch.tanh(x.float()).to(x.dtype))


@fault("a hard sigmoid", "isolated layers", "sigmoid")
def _(model: Any) -> None:
    around(model, "sigmoid", lambda sigmoid, x: F.hardsigmoid(x))


@fault("concatenated the other way round", "isolated layers", "both")
def _(model: Any) -> None:
    around(model, "both", lambda concat, *x: torch.cat(x[::-1], 1))


@fault("flattened channels last", "isolated layers", "flat")
def _(model: Any) -> None:
    around(model, "flat", lambda flatten, x: x.permute(0, 2, 3, 1).flatten(1))


@fault("a sum that leaves a branch out", "isolated layers", "sum")
def _(model: Any) -> None:
    around(model, "sum", lambda add, one, other: one)


@fault("dropout left on in evaluation", "isolated layers", "drop")
def _(model: Any) -> None:
    around(model, "drop", lambda drop, x: F.dropout(x, 0.1, training=True))


@fault("a mask drawn where one was given", "isolated layers, training", "drop")
def _(model: Any) -> None:
    around(model, "drop", lambda drop, x: F.dropout(x, drop.p, model.network.training))


@fault("dropout's rate taken for the part that is kept", "isolated layers, training", "drop")
def _(model: Any) -> None:
    layer(model, "drop").p = 1 - layer(model, "drop").p


@fault("native dropout's rate taken for the part that is kept", "dropout", "drop")
def _(model: Any) -> None:
    if not is_masked(model):
        layer(model, "drop").p = 1 - layer(model, "drop").p


@fault("native dropout scales nothing", "dropout", "drop")
def _(model: Any) -> None:
    draw(model, lambda p, x: x * (torch.rand_like(x) >= p))


@fault("native dropout draws once for all samples", "dropout", "drop")
def _(model: Any) -> None:
    draw(model, lambda p, x: x * F.dropout(torch.ones_like(x[:1]), p))


@fault("native dropout draws the same at every pass", "dropout", "drop")
def _(model: Any) -> None:
    def same(p: float, x: Tensor) -> Tensor:
        drawn = torch.rand(x.shape, generator=torch.Generator().manual_seed(1), dtype=x.dtype)
        return x * (drawn >= p) / (1 - p)

    draw(model, same)


@fault("one value in a thousand not a number", "isolated layers", "logits")
def _(model: Any) -> None:
    def function(linear: nn.Module, x: Tensor) -> Tensor:
        found = linear(x).clone()
        found[0, 0] = np.nan
        return found

    around(model, "logits", function)


@fault("two layers of one shape swapped", "isolated layers", "first")
def _(model: Any) -> None:
    layers = model.network.layers
    one, other = torch_model.key("first"), torch_model.key("second")
    layers[one], layers[other] = layers[other], layers[one]


@fault("a square matrix transposed, there and back", "isolated layers", "square")
def _(model: Any) -> None:
    around(model, "square", lambda linear, x: F.linear(x, linear.weight.T, linear.bias))


@fault("one weight off by 1e-7", "weights float64", "square.weight")
def _(model: Any) -> None:
    with torch.no_grad():
        layer(model, "square").weight[3, 5] += 1e-7


@fault("running mean and variance exchanged", "weights float64", "norm.")
def _(model: Any) -> None:
    norm = layer(model, "norm")
    with torch.no_grad():
        kept = norm.running_mean.clone()
        norm.running_mean.copy_(norm.running_var)
        norm.running_var.copy_(kept + 0.5)


# --- layers of words -----------------------------------------------------------------------


@fault("LSTM's gates in another order, there and back", "isolated layers", "lower", "words")
def _(model: Any) -> None:
    def function(lstm: Any, x: Tensor) -> Tensor:
        turned = [torch.cat([w.chunk(4)[i] for i in (1, 0, 2, 3)]) for w in lstm._flat_weights]
        zeros = x.new_zeros(1, len(x), lstm.hidden_size)
        return torch.lstm(x, (zeros, zeros), turned, True, 1, 0.0, False, False, True)[0]

    around(model, "lower", function)


@fault("a forget bias of 1", "isolated layers", "upper", "words")
def _(model: Any) -> None:
    lstm = layer(model, "upper")
    with torch.no_grad():
        lstm.bias_hh_l0[lstm.hidden_size : 2 * lstm.hidden_size] = 1.0


@fault("a sequence read backwards", "isolated layers", "upper", "words")
def _(model: Any) -> None:
    around(model, "upper", lambda lstm, x: lstm(x.flip(1)))


@fault("indices shifted by one", "isolated layers", "table", "words")
def _(model: Any) -> None:
    around(model, "table", lambda table, x: F.embedding((x + 1) % len(table.weight), table.weight))


# --- layers of sequences -------------------------------------------------------------------


@fault("axes in another order, of the same sizes", "isolated layers", "last", "sequences")
def _(model: Any) -> None:
    around(model, "last", lambda transpose, x: x.permute(0, 3, 2, 1))


@fault("a reshape for a transpose", "isolated layers", "last", "sequences")
def _(model: Any) -> None:
    around(model, "last", lambda transpose, x: x.reshape(-1, *x.shape[2:], x.shape[1]))


@fault("positions shifted by one", "isolated layers", "places", "sequences")
def _(model: Any) -> None:
    around(model, "places", lambda places, x: x + places.weight.roll(1, 0))


@fault("layer norm's epsilon 1e-12 for 1e-5", "isolated layers", "norm", "sequences")
def _(model: Any) -> None:
    layer(model, "norm").eps = 1e-12


@fault("layer norm by the unbiased variance", "isolated layers", "norm", "sequences")
def _(model: Any) -> None:
    def function(norm: Any, x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(x, -1, keepdim=True)
        return norm.weight * (x - mean) / (variance + norm.eps).sqrt() + norm.bias

    around(model, "norm", function)


@fault("layer norm's epsilon outside of the root", "isolated layers", "norm", "sequences")
def _(model: Any) -> None:
    def function(norm: Any, x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return norm.weight * (x - mean) / (variance.sqrt() + norm.eps) + norm.bias

    around(model, "norm", function)


@fault("GELU by tanh where it is exact", "isolated layers", "exact", "sequences")
def _(model: Any) -> None:
    layer(model, "exact").approximate = "tanh"


@fault("GELU exact where it is by tanh", "isolated layers", "tanh", "sequences")
def _(model: Any) -> None:
    layer(model, "tanh").approximate = "none"


@fault("a sum over time for the mean", "isolated layers", "mean", "sequences")
def _(model: Any) -> None:
    around(model, "mean", lambda mean, x: x.sum(1))


@fault("the first place for the last", "isolated layers", "end", "sequences")
def _(model: Any) -> None:
    layer(model, "end").arguments["index"] = 0


def attend(
    model: Any,
    name: str,
    *,
    scale: Callable[[int], float] = lambda size: size**-0.5,
    allowed: Callable[[int], Tensor] = lambda steps: torch.ones(steps, steps).bool(),
    interleaved: bool = False,
    axis: int = -1,
) -> None:
    """Replace an attention by one that is written out, with something otherwise in it.

    Args:
        scale: of the products, by the features of a head.
        allowed: which steps (columns) each step (row) attends to.
        interleaved: a head's features are every so many, not one after another.
        axis: of the softmax.
    """

    def function(attention: Any, x: Tensor) -> Tensor:
        count = attention.heads

        def parted(values: Tensor) -> Tensor:
            if interleaved:
                return values.unflatten(2, (-1, count)).permute(0, 3, 1, 2)
            return values.unflatten(2, (count, -1)).transpose(1, 2)

        query, key, value = (
            parted(each(x)) for each in (attention.query, attention.key, attention.value)
        )
        products = query @ key.transpose(2, 3) * scale(query.shape[3])
        mixed = products.masked_fill(~allowed(x.shape[1]), -np.inf).softmax(axis) @ value
        joined = mixed.permute(0, 2, 3, 1) if interleaved else mixed.transpose(1, 2)
        return attention.output(joined.flatten(2))

    around(model, name, function)


def before(offset: int) -> Callable[[int], Tensor]:
    """Steps up to the one that is ``offset`` after their own."""
    return lambda steps: torch.ones(steps, steps).tril(offset).bool()


@fault("attention that is not scaled", "isolated layers", "attention", "sequences")
def _(model: Any) -> None:
    attend(model, "attention", scale=lambda size: 1.0)


@fault("attention scaled by 1 / d for 1 / sqrt(d)", "isolated layers", "attention", "sequences")
def _(model: Any) -> None:
    attend(model, "attention", scale=lambda size: 1 / size)


@fault("attention scaled for all heads' features", "isolated layers", "attention", "sequences")
def _(model: Any) -> None:
    attend(model, "attention", scale=lambda size: (3 * size) ** -0.5)


@fault("heads of every third feature", "isolated layers", "attention", "sequences")
def _(model: Any) -> None:
    attend(model, "attention", interleaved=True)


@fault("softmax over the queries", "isolated layers", "attention", "sequences")
def _(model: Any) -> None:
    attend(model, "attention", axis=-2)


@fault("a causal mask left out", "isolated layers", "causal", "sequences")
def _(model: Any) -> None:
    layer(model, "causal").causal = False


@fault("a causal mask one step late", "isolated layers", "causal", "sequences")
def _(model: Any) -> None:
    attend(model, "causal", allowed=before(1))


@fault("a causal mask without the step itself", "isolated layers", "causal", "sequences")
def _(model: Any) -> None:
    # The first step has none before it, and keeps itself.
    attend(model, "causal", allowed=lambda steps: before(-1)(steps) | (torch.arange(steps) == 0))


@fault("the framework's own initial weights", "weights float64", "causal.", "sequences")
def _(model: Any) -> None:
    layer(model, "causal").query.reset_parameters()


# --- layers that take parts, and a matrix of two layers -------------------------------------


@fault("padded after what was to be padded before", "isolated layers", "pad", "parts")
def _(model: Any) -> None:
    left, right, top, bottom = layer(model, "pad").padding
    layer(model, "pad").padding = (right, left, bottom, top)


@fault("padded with zeros for another number", "isolated layers", "pad", "parts")
def _(model: Any) -> None:
    layer(model, "pad").value = 0.0


@fault("every second place, from the second", "isolated layers", "slice", "parts")
def _(model: Any) -> None:
    around(model, "slice", lambda each, x: x[:, 1::2])


@fault("places from the end counted from one too far", "isolated layers", "gather", "parts")
def _(model: Any) -> None:
    around(model, "gather", lambda gather, x: x[:, :, [-2, 3, 0, -4, 4, 2]])


@fault(
    "a tied matrix that starts as one and is two", "isolated layers, extremes", "logits", "parts"
)
def _(model: Any) -> None:
    logits = layer(model, "logits")
    own = logits.weight.detach().clone()
    around(model, "logits", lambda linear, x: F.linear(x, own, linear.bias))


@fault("a tied matrix that decays for each of its layers", "update", "table.weight", "parts")
def _(model: Any) -> None:
    (group,) = model.optimizer.param_groups
    shared = layer(model, "table").weight
    group["params"] = [each for each in group["params"] if each is not shared]
    twice = {"params": [shared], "weight_decay": 2 * group["weight_decay"]}
    model.optimizer.add_param_group(twice)


@fault(
    "a shared layer that starts as one and is two", "isolated layers, extremes", "again", "shared"
)
def _(model: Any) -> None:
    own = copy.deepcopy(layer(model, "hidden"))
    around(model, "again", lambda _, x: own(x))


@fault("a shared layer that learns from its last use alone", "gradients float64", "steps", "shared")
def _(model: Any) -> None:
    def detached(recurrence: nn.Module, x: Tensor) -> Tensor:
        weights = {name: each.detach() for name, each in recurrence.named_parameters()}
        return torch.func.functional_call(recurrence, weights, (x,))

    around(model, "steps", detached)


# --- loss and gradients --------------------------------------------------------------------


@fault("the sum of losses for their mean", "gradients float64", "loss")
def _(model: Any) -> None:
    with_loss(model, lambda *given: F.cross_entropy(*flat(*given), reduction="sum"))


@fault("label smoothing of 1e-3", "gradients float64", "")
def _(model: Any) -> None:
    with_loss(model, lambda *given: F.cross_entropy(*flat(*given), label_smoothing=1e-3))


@fault("loss averaged over the first step alone", "gradients float64", "", "words")
def _(model: Any) -> None:
    with_loss(model, lambda logits, labels: F.cross_entropy(logits[:, 0], labels[:, 0]))


@fault("a branch detached from the gradient", "gradients float64", "")
def _(model: Any) -> None:
    around(model, "sum", lambda add, one, other: add(one, other.detach()))


@fault("a backward pass that is not its forward pass's", "gradients float64", "")
def _(model: Any) -> None:
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Tensor) -> Tensor:
            return torch.sigmoid(x)

        @staticmethod
        def backward(context: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
            return gradient

    around(model, "sigmoid", lambda sigmoid, x: Straight.apply(x))


@fault("dropout lets through the gradient of what it dropped", "gradients float64", "")
def _(model: Any) -> None:
    class Leaky(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Tensor, dropped: Tensor, p: float) -> Tensor:
            context.kept = 1 - p
            return dropped

        @staticmethod
        def backward(context: Any, gradient: Tensor) -> Any:  # type: ignore[override]
            return gradient / context.kept, None, None

    around(model, "drop", lambda drop, x: Leaky.apply(x, drop(x), drop.p))


# --- updates -------------------------------------------------------------------------------


@fault("the learning rate rounded to float32", "update", "")
def _(model: Any) -> None:
    set_rate = model.set_learning_rate
    model.set_learning_rate = lambda rate: set_rate(float(np.float32(rate)))


@fault("weight decay left off biases", "update", "bias")
def _(model: Any) -> None:
    groups: dict[bool, list[Tensor]] = {True: [], False: []}
    for name, parameter in model.network.named_parameters():
        groups[name.endswith("bias")].append(parameter)
        if name.endswith("bias"):
            # At zero a bias decays to nothing, and the difference would show only later.
            continue
    optimizer = model.optimizer
    model.optimizer = torch.optim.SGD(
        [
            {"params": groups[False]},
            {"params": groups[True], "weight_decay": 0.0},
        ],
        **{k: optimizer.defaults[k] for k in ("lr", "momentum", "nesterov", "weight_decay")},
    )


@fault("plain momentum for Nesterov's", "update", "")
def _(model: Any) -> None:
    model.optimizer.param_groups[0]["nesterov"] = False


@fault("momentum dampened", "trajectory", "")
def _(model: Any) -> None:
    model.optimizer.param_groups[0].update(dampening=0.1, nesterov=False)
    # With dampening torch refuses Nesterov: the first step is made Nesterov's by hand.
    step = model.optimizer.step

    def nesterov(closure: Any = None) -> None:
        group = model.optimizer.param_groups[0]
        first = not model.optimizer.state
        if not first:
            return step()
        group["nesterov"], group["dampening"] = True, 0.0
        step()
        group["nesterov"], group["dampening"] = False, 0.1

    model.optimizer.step = nesterov


@fault("the schedule one step late", "trajectory", "")
def _(model: Any) -> None:
    set_rate, told = model.set_learning_rate, []

    def late(rate: float) -> None:
        told.append(rate)
        set_rate(told[-2] if len(told) > 1 else rate)

    model.set_learning_rate = late


@fault("gradients clipped where none are to be", "update", "")
def _(model: Any) -> None:
    step = model.optimizer.step

    def clipped(closure: Any = None) -> None:
        torch.nn.utils.clip_grad_norm_(model.network.parameters(), 0.1)
        step()

    model.optimizer.step = clipped


@fault("batch norm's momentum taken for its complement", "update", "norm.")
def _(model: Any) -> None:
    norm = layer(model, "norm")
    norm.momentum = 1 - norm.momentum


@fault("the unbiased running variance", "update", "norm.variance")
def _(model: Any) -> None:
    norm = layer(model, "norm")
    norm.forward = lambda x: nn.BatchNorm2d.forward(norm, x)


@fault("samples out of order", "update", "")
def _(model: Any) -> None:
    """Done where batches are made: see the plugin."""


@fault("Adam's epsilon 1e-7 for 1e-8", "update", "", "words")
def _(model: Any) -> None:
    model.optimizer.param_groups[0]["eps"] = 1e-7


@fault("Adam without bias correction", "update", "", "words")
def _(model: Any) -> None:
    group = model.optimizer.param_groups[0]

    def step(closure: Any = None) -> None:
        first, second = group["betas"]
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            held = model.optimizer.state[parameter]
            gradient = parameter.grad + group["weight_decay"] * parameter.detach()
            m = held.get("exp_avg", torch.zeros_like(gradient)) * first + (1 - first) * gradient
            v = held.get("exp_avg_sq", torch.zeros_like(gradient)) * second
            v = v + (1 - second) * gradient**2
            held["exp_avg"], held["exp_avg_sq"] = m, v
            with torch.no_grad():
                parameter -= group["lr"] * m / (v.sqrt() + group["eps"])

    model.optimizer.step = step


@fault("decoupled weight decay", "update", "", "words")
def _(model: Any) -> None:
    group = {k: v for k, v in model.optimizer.param_groups[0].items() if k != "params"}
    model.optimizer = torch.optim.AdamW(
        model.optimizer.param_groups[0]["params"],
        lr=group["lr"],
        betas=group["betas"],
        eps=group["eps"],
        weight_decay=group["weight_decay"],
    )


# --- updates of sequences: gradients clipped, a warm-up ------------------------------------


def with_clip(clip: Callable[[list[Tensor], float], None]) -> None:
    """Replace how gradients are clipped, in this worker."""

    def clipped(parameters: Iterable[Tensor], limit: float) -> None:
        clip([each.grad for each in parameters if each.grad is not None], limit)

    torch_model.clip = clipped


def scaled(gradients: list[Tensor], factor: Tensor | float) -> None:
    for gradient in gradients:
        gradient.mul_(factor)


@fault("gradients that are not clipped", "update", "", "sequences")
def _(model: Any) -> None:
    with_clip(lambda gradients, limit: None)


@fault("gradients clipped at another norm", "update", "", "sequences")
def _(model: Any) -> None:
    clip = torch_model.clip
    torch_model.clip = lambda parameters, limit: clip(parameters, 1.1 * limit)


@fault("1e-6 added to the norm that clips", "update", "", "sequences")
def _(model: Any) -> None:
    torch_model.clip = nn.utils.clip_grad_norm_


@fault("the norm that clips in float32", "update", "", "sequences")
def _(model: Any) -> None:
    with_clip(
        lambda gradients, limit: scaled(
            gradients, limit / nn.utils.get_total_norm([each.float() for each in gradients])
        )
    )


@fault("each gradient clipped by itself", "update", "", "sequences")
def _(model: Any) -> None:
    def each(gradients: list[Tensor], limit: float) -> None:
        for gradient in gradients:
            scaled([gradient], limit / gradient.norm().clamp(min=limit))

    with_clip(each)


@fault("gradients clipped by value", "update", "", "sequences")
def _(model: Any) -> None:
    def by_value(gradients: list[Tensor], limit: float) -> None:
        for gradient in gradients:
            gradient.clamp_(-limit, limit)

    with_clip(by_value)


@fault("biases left out of the norm that clips", "update", "", "sequences")
def _(model: Any) -> None:
    def clip(gradients: list[Tensor], limit: float) -> None:
        matrices = [each for each in gradients if each.ndim > 1]
        scaled(gradients, limit / nn.utils.get_total_norm(matrices).clamp(min=limit))

    with_clip(clip)


def with_rate(model: Any, factor: Callable[[int], float]) -> None:
    """Replace the schedule: the part of the learning rate at each step, counted from 0."""
    set_rate, steps = model.set_learning_rate, itertools.count()
    whole = model.workload.optimizer.learning_rate
    model.set_learning_rate = lambda rate: set_rate(whole * factor(next(steps)))


def warmed(step: float, warmup: int = 3, steps: int = 12) -> float:
    """The schedule as it is meant, of a step that need not be whole."""
    if step < warmup:
        return (step + 1) / warmup
    return (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2


@fault("a warm-up that starts at zero", "update", "", "sequences")
def _(model: Any) -> None:
    with_rate(model, lambda step: step / 3 if step < 3 else warmed(step))


@fault("a warm-up that is one step longer", "update", "", "sequences")
def _(model: Any) -> None:
    with_rate(model, lambda step: warmed(step, warmup=4))


@fault("a cosine one step late", "trajectory", "", "sequences")
def _(model: Any) -> None:
    with_rate(model, lambda step: warmed(step if step < 3 else max(2.0, step - 1)))


@fault("a cosine that counts the warm-up", "trajectory", "", "sequences")
def _(model: Any) -> None:
    with_rate(model, lambda step: warmed(step) if step < 3 else warmed(step, warmup=0))


# --- float32 and the exported file ---------------------------------------------------------


@fault("a product in bfloat16 when it is float32", "forward float32", "")
def _(model: Any) -> None:
    if model.type == torch.float32:
        around(
            model,
            "hidden",
            lambda linear, x: (
                F.linear(x.bfloat16(), linear.weight.bfloat16()).float() + linear.bias
            ),
        )


def tf32(array: Tensor) -> Tensor:
    """Its ten first bits, as tensor cores round what they multiply."""
    rounded = (array.detach().view(torch.int32) & ~0x1FFF).view(torch.float32)
    return array + (rounded - array.detach())


@fault("products in TensorFloat-32 where rounding grows", "forward float32", "scores", "deep")
def _(model: Any) -> None:
    if model.type == torch.float32:
        around(model, "conv8", lambda conv, x: F.conv2d(tf32(x), tf32(conv.weight), padding=1))


@fault("a momentum of 0.899 for 0.9 when it is float32", "update float32", "")
def _(model: Any) -> None:
    if model.type == torch.float32:
        model.optimizer.param_groups[0]["momentum"] -= 1e-3


@fault("a learning rate kept in bfloat16 when it is float32", "update float32", "")
def _(model: Any) -> None:
    set_rate = model.set_learning_rate
    if model.type == torch.float32:
        model.set_learning_rate = lambda rate: set_rate(float(torch.tensor(rate).bfloat16()))


@fault("Adam's epsilon 1e-7 for 1e-8 when it is float32", "update float32", "", "words")
def _(model: Any) -> None:
    if model.type == torch.float32:
        model.optimizer.param_groups[0]["eps"] = 1e-7


@fault("one float32 weight off by its last bit", "weights float32", "square.weight")
def _(model: Any) -> None:
    if model.type == torch.float32:
        with torch.no_grad():
            weight = layer(model, "square").weight
            weight[0, 0] = torch.nextafter(weight[0, 0], weight[0, 0] + 1)


@fault("exported with another epsilon", "exported weights", "conv")
def _(model: Any) -> None:
    norm, train = layer(model, "norm"), model.network.train

    def altered() -> Any:
        norm.eps = 1e-3
        return train(False)

    def restored(mode: bool = True) -> Any:
        norm.eps = 1e-5
        return train(mode)

    # Only the export calls eval; the adapter predicts after train(False).
    model.network.eval, model.network.train = altered, restored


@fault("exported before it was trained", "structure", "conv")
def _(model: Any) -> None:
    train = model.network.train
    kept = {name: value.clone() for name, value in model.network.state_dict().items()}
    trained: dict[str, Tensor] = {}

    def earlier() -> Any:
        trained.update({name: v.clone() for name, v in model.network.state_dict().items()})
        model.network.load_state_dict(kept)
        return train(False)

    def later(mode: bool = True) -> Any:
        if trained and mode:
            model.network.load_state_dict(trained)
            trained.clear()
        return train(mode)

    model.network.eval, model.network.train = earlier, later
