"""Layers as Theano expressions. Each takes a node, its inputs, its shared variables and the pass."""

import math
from types import SimpleNamespace
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import theano
import theano.tensor as T
from theano.tensor.nnet.bn import AbstractBatchNormTrain
from theano.tensor.signal.pool import MaxPoolGrad, Pool

from dlb_worker.model import Node
from dlb_worker.poolings import average_factors, reaching_pads

Inputs = List[Any]


class Pass(NamedTuple):
    """One pass over the network.

    Attributes:
        training: whether it is one of training.
        random: the streams that dropout draws from.
        updates: what a step of training does to states: (shared variable, new value).
    """

    training: bool
    random: Any
    updates: List[Tuple[Any, Any]]


def conv(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    top, left, bottom, right = node.pads
    channels = node.input_shape[0] // node.groups
    product = T.nnet.conv2d(
        inputs[0],
        held.weight,
        input_shape=(None,) + node.input_shape,
        filter_shape=(node.out_channels, channels) + node.kernel,
        border_mode=((top, bottom), (left, right)),
        subsample=node.stride,
        filter_flip=False,
        filter_dilation=node.dilation,
        num_groups=node.groups,
    )
    return product + held.bias.dimshuffle("x", 0, "x", "x") if node.bias else product


def linear(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    product = T.dot(inputs[0], held.weight.T if node.tied_to else held.weight)
    return product + held.bias if node.bias else product


def batch_norm(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    """AbstractBatchNormTrain itself: the function before it refuses an epsilon of float32(1e-5)."""
    (x,) = inputs
    axes = (0,) + tuple(range(2, x.ndim))
    pattern = ["x", 0] + ["x"] * (x.ndim - 2)
    scale, bias = held.scale.dimshuffle(pattern), held.bias.dimshuffle(pattern)
    epsilon = np.asarray(node.epsilon, x.dtype)
    if not run.training:
        mean, variance = held.mean.dimshuffle(pattern), held.variance.dimshuffle(pattern)
        return T.nnet.batch_normalization(x, scale, bias, mean, T.sqrt(variance + epsilon))
    for state, batch in (
        (held.mean, x.mean(axis=axes, keepdims=True)),
        (held.variance, x.var(axis=axes, keepdims=True)),
    ):
        run.updates.append(
            (state, node.momentum * state + (1 - node.momentum) * batch.dimshuffle(1))
        )
    return AbstractBatchNormTrain(axes)(x, scale, bias, epsilon=epsilon)[0]


def layer_norm(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    (x,) = inputs
    moved = x - x.mean(axis=-1, keepdims=True)
    variance = T.sqr(moved).mean(axis=-1, keepdims=True)
    return held.scale * moved / T.sqrt(variance + node.epsilon) + held.bias


def lrn(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    (x,), half, channels = inputs, node.size // 2, node.input_shape[0]
    squares = padded(T.sqr(x), node.input_shape, (half, 0, 0), (half, 0, 0), 0)
    total = sum(squares[:, start : start + channels] for start in range(node.size))
    return x / (node.attributes["bias"] + node.alpha / node.size * total) ** node.beta


class FirstMaxPool(Pool):
    """Max pooling whose gradient goes to the first of equal values. Theano's goes to each of them."""

    def L_op(self, inputs: Any, outputs: Any, gradients: Any) -> Any:
        gradient = FirstMaxPoolGrad(self.ignore_border, ndim=self.ndim)(
            inputs[0], outputs[0], gradients[0], *inputs[1:]
        )
        return [gradient] + [theano.gradient.DisconnectedType()() for _ in inputs[1:]]


class FirstMaxPoolGrad(MaxPoolGrad):
    """Theano's own code, with a flag for each window."""

    def c_code(self, *given: Any) -> str:
        code = super().c_code(*given)
        for own, changed in (
            ("dtype_%s * gz;" % given[2][2], "bool taken = false;\n"),
            ("if (a == maximum){", "if (a == maximum && !taken){ taken = true;\n"),
        ):
            assert code.count(own) == 1
            code = code.replace(own, changed + own if "taken = false" in changed else changed)
        return code

    def c_code_cache_version(self) -> Any:
        return super().c_code_cache_version() + ("first",)


def max_pool(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    (x,), ignores = inputs, _ignores_border(node)
    if ignores is not None:
        return FirstMaxPool(ignores)(x, node.kernel, node.stride, node.pads[:2])
    pads = reaching_pads(node)
    x = padded(x, node.input_shape, (0,) + pads[:2], (0,) + pads[2:], -np.inf)
    return FirstMaxPool(True)(x, node.kernel, node.stride, (0, 0))


def average_pool(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    (x,), ignores = inputs, _ignores_border(node)
    if ignores is not None:
        counts = node.count_include_pad and any(node.pads)
        mode = "average_inc_pad" if counts else "average_exc_pad"
        return Pool(ignores, mode)(x, node.kernel, node.stride, node.pads[:2])
    pads = reaching_pads(node)
    x = padded(x, node.input_shape, (0,) + pads[:2], (0,) + pads[2:], 0)
    mean = Pool(True, "average_inc_pad")(x, node.kernel, node.stride, (0, 0))
    return mean * average_factors(node).astype(x.dtype)


def _ignores_border(node: Node) -> Optional[bool]:
    """How Theano's pooling rounds to the layer's size; None where it does not: then pad before it.

    Its pads are even, and it does not round up where there are any.
    """
    if node.pads[:2] != node.pads[2:]:
        return None
    for ignores in (True, False):
        size = Pool.out_shape(node.input_shape, node.kernel, ignores, node.stride, node.pads[:2])
        if tuple(size) == node.shape and (ignores or not any(node.pads)):
            return ignores
    return None


def relu6(x: Any) -> Any:
    """The gradient is 0 at both ends; that of T.clip is 1."""
    return T.switch(x <= 0, 0, T.switch(x >= 6, 6, x))


def sigmoid(x: Any) -> Any:
    return 0.5 + 0.5 * T.tanh(0.5 * x)


def gelu(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    (x,) = inputs
    if node.approximate == "none":
        return 0.5 * x * (1 + T.erf(x / math.sqrt(2)))
    return 0.5 * x * (1 + T.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def dropout(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    (x,) = inputs
    if not run.training or not node.rate:
        return x
    if hasattr(held, "mask"):
        return x * held.mask[: x.shape[0]] / (1 - node.rate)
    return x * run.random.binomial(x.shape, p=1 - node.rate, dtype=x.dtype) / (1 - node.rate)


def mul(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    """Theano broadcasts only what is known to have a size of 1."""
    first, second = inputs
    ones = [axis + 1 for axis, sizes in enumerate(zip(*node.input_shapes)) if sizes[0] != sizes[1]]
    return first * (T.addbroadcast(second, *ones) if ones else second)


def reshape(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    return inputs[0].reshape((inputs[0].shape[0],) + node.shape)


def select(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    return inputs[0][(slice(None),) * node.axis + (node.index,)]


def slices(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    return inputs[0][(slice(None),) + tuple(slice(*each) for each in node.ranges)]


def pad(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    rank = len(node.input_shape)
    before, after = node.pads[:rank], node.pads[rank:]
    return padded(inputs[0], node.input_shape, before, after, node.value)


def padded(
    x: Any, shape: Sequence[int], before: Sequence[int], after: Sequence[int], value: float
) -> Any:
    """A value whose samples have a shape, with a constant around."""
    sizes = [sum(each) for each in zip(before, shape, after)]
    around = T.alloc(np.asarray(value, x.dtype), x.shape[0], *sizes)
    inside = tuple(slice(start, start + size) for start, size in zip(before, shape))
    return T.set_subtensor(around[(slice(None),) + inside], x)


def embedding(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    (x,) = inputs
    return held.weight[x.flatten()].reshape((x.shape[0],) + node.shape)


def lstm(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    """Gates are input, output, forget and cell, as ONNX has them."""
    (x,), hidden = inputs, node.hidden
    mapped = T.dot(x.dimshuffle(1, 0, 2), held.input_weight) + held.bias

    def step(given: Any, h: Any, c: Any, recurrent: Any) -> Any:
        gates = given + T.dot(h, recurrent)
        i, o, f, g = (gates[:, part * hidden : (part + 1) * hidden] for part in range(4))
        c = sigmoid(f) * c + sigmoid(i) * T.tanh(g)
        return sigmoid(o) * T.tanh(c), c

    zeros = T.unbroadcast(T.zeros((x.shape[0], hidden), x.dtype), 0, 1)
    (values, _), _ = theano.scan(step, mapped, [zeros, zeros], [held.recurrent_weight], strict=True)
    return values.dimshuffle(1, 0, 2)


def attention(node: Node, inputs: Inputs, held: SimpleNamespace, run: Pass) -> Any:
    (x,), (steps, features) = inputs, node.input_shape
    size = features // node.heads

    def mapped(name: str, value: Any) -> Any:
        product = T.dot(value, getattr(held, name + "_weight"))
        return product + getattr(held, name + "_bias") if node.bias else product

    def divided(name: str) -> Any:
        """[N, T, features] to [N * heads, T, size]."""
        parts = mapped(name, x).reshape((-1, steps, node.heads, size)).dimshuffle(0, 2, 1, 3)
        return parts.reshape((-1, steps, size))

    scores = T.batched_dot(divided("query"), divided("key").dimshuffle(0, 2, 1))
    scores = scores / math.sqrt(size)
    if node.causal:
        scores = scores + np.triu(np.full((steps, steps), -np.inf, x.dtype), 1)
    shares = T.nnet.softmax(scores.reshape((-1, steps))).reshape(scores.shape, ndim=3)
    mixed = T.batched_dot(shares, divided("value"))
    parts = mixed.reshape((-1, node.heads, steps, size)).dimshuffle(0, 2, 1, 3)
    return mapped("output", parts.reshape((-1, steps, features)))
