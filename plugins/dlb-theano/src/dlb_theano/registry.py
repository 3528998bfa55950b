"""The registry: for each layer kind the sentence, the expression, and where its parameters are.

``build(node, held, run, *inputs)`` makes the layer's symbolic value: ``held`` has its shared variables
as attributes, ``run`` is a :class:`Pass`. Theano is imported when the first layer is built.
"""

import math
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from dlb_worker.layers import Layer, LazyModule
from dlb_worker.model import ATTENTION_MAPS, Node
from dlb_worker.parameters import location
from dlb_worker.poolings import average_factors, reaching_pads

np, theano, T = LazyModule("numpy"), LazyModule("theano"), LazyModule("theano.tensor")
bn, pool = LazyModule("theano.tensor.nnet.bn"), LazyModule("theano.tensor.signal.pool")
modules = LazyModule("dlb_theano.modules")


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


def conv(node: Node, held: Any, run: Pass, x: Any) -> Any:
    top, left, bottom, right = node.pads
    product = T.nnet.conv2d(
        x,
        held.weight,
        input_shape=(None,) + node.input_shape,
        filter_shape=node.parameters["weight"].shape,
        border_mode=((top, bottom), (left, right)),
        subsample=node.stride,
        filter_flip=False,
        filter_dilation=node.dilation,
        num_groups=node.groups,
    )
    return product + held.bias.dimshuffle("x", 0, "x", "x") if node.bias else product


def linear(node: Node, held: Any, run: Pass, x: Any) -> Any:
    product = T.dot(x, held.weight.T if node.tied_to else held.weight)
    return product + held.bias if node.bias else product


def batch_norm(node: Node, held: Any, run: Pass, x: Any) -> Any:
    """The function around AbstractBatchNormTrain refuses an epsilon of float32(1e-5)."""
    axes, pattern = (0,) + tuple(range(2, x.ndim)), ["x", 0] + ["x"] * (x.ndim - 2)
    scale, bias = held.scale.dimshuffle(pattern), held.bias.dimshuffle(pattern)
    epsilon = np.asarray(node.epsilon, x.dtype)
    if not run.training:
        mean, variance = held.mean.dimshuffle(pattern), held.variance.dimshuffle(pattern)
        return T.nnet.batch_normalization(x, scale, bias, mean, T.sqrt(variance + epsilon))
    for state, statistic in ((held.mean, x.mean), (held.variance, x.var)):
        batch = statistic(axis=axes, keepdims=True).dimshuffle(1)
        run.updates.append((state, node.momentum * state + (1 - node.momentum) * batch))
    return bn.AbstractBatchNormTrain(axes)(x, scale, bias, epsilon=epsilon)[0]


def layer_norm(node: Node, held: Any, run: Pass, x: Any) -> Any:
    moved = x - x.mean(axis=-1, keepdims=True)
    variance = T.sqr(moved).mean(axis=-1, keepdims=True)
    return held.scale * moved / T.sqrt(variance + node.epsilon) + held.bias


def lrn(node: Node, held: Any, run: Pass, x: Any) -> Any:
    half, channels = node.size // 2, node.input_shape[0]
    squares = padded(T.sqr(x), node.input_shape, (half, 0, 0), (half, 0, 0), 0)
    total = sum(squares[:, start : start + channels] for start in range(node.size))
    return x / (node.attributes["bias"] + node.alpha / node.size * total) ** node.beta


def max_pool(node: Node, held: Any, run: Pass, x: Any) -> Any:
    ignores = _ignores_border(node)
    if ignores is not None:
        return modules.FirstMaxPool(ignores)(x, node.kernel, node.stride, node.pads[:2])
    x = _reached(node, x, -math.inf)
    return modules.FirstMaxPool(True)(x, node.kernel, node.stride, (0, 0))


def average_pool(node: Node, held: Any, run: Pass, x: Any) -> Any:
    """Theano's average without its pads has no gradient where there are pads."""
    ignores, pads = _ignores_border(node), node.pads[:2]
    if ignores is not None and not any(pads):
        return pool.Pool(ignores, "average_exc_pad")(x, node.kernel, node.stride)
    if ignores is None:
        x, pads = _reached(node, x, 0), (0, 0)
    mean, factors = pool.Pool(True, "average_inc_pad"), average_factors(node)
    mean = mean(x, node.kernel, node.stride, pads)
    return mean if (factors == 1).all() else mean * factors.astype(x.dtype)


def _ignores_border(node: Node) -> Optional[bool]:
    """How Theano's pooling rounds to the layer's size; None where it does not: then pad before it.

    Its pads are even, and it does not round up where there are any.
    """
    for ignores in (True,) if any(node.pads) else (True, False):
        size = pool.Pool.out_shape(
            node.input_shape, node.kernel, ignores, node.stride, node.pads[:2]
        )
        if tuple(size) == node.shape and node.pads[:2] == node.pads[2:]:
            return ignores
    return None


def _reached(node: Node, x: Any, value: float) -> Any:
    pads = reaching_pads(node)
    return padded(x, node.input_shape, (0,) + pads[:2], (0,) + pads[2:], value)


def padded(
    x: Any, shape: Sequence[int], before: Sequence[int], after: Sequence[int], value: float
) -> Any:
    """Samples of a shape with a constant around."""
    sizes = [sum(each) for each in zip(before, shape, after)]
    around = T.alloc(np.asarray(value, x.dtype), x.shape[0], *sizes)
    inside = tuple(slice(start, start + size) for start, size in zip(before, shape))
    return T.set_subtensor(around[(slice(None),) + inside], x)


def sigmoid(x: Any) -> Any:
    return 0.5 + 0.5 * T.tanh(0.5 * x)


def gelu(node: Node, held: Any, run: Pass, x: Any) -> Any:
    if node.approximate == "none":
        return 0.5 * x * (1 + T.erf(x / math.sqrt(2)))
    return 0.5 * x * (1 + T.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def dropout(node: Node, held: Any, run: Pass, x: Any) -> Any:
    if not run.training or not node.rate:
        return x
    if hasattr(held, "mask"):
        return x * held.mask[: x.shape[0]] / (1 - node.rate)
    return x * run.random.binomial(x.shape, p=1 - node.rate, dtype=x.dtype) / (1 - node.rate)


def mul(node: Node, held: Any, run: Pass, x: Any, y: Any) -> Any:
    """Theano broadcasts only what is known to have a size of 1."""
    sizes = enumerate(zip(*node.input_shapes), 1)
    ones = [axis for axis, (first, second) in sizes if first != second]
    return x * (T.addbroadcast(y, *ones) if ones else y)


def lstm(node: Node, held: Any, run: Pass, x: Any) -> Any:
    """Gates are input, output, forget and cell, as ONNX has them."""
    mapped = T.dot(x.dimshuffle(1, 0, 2), held.input_weight) + held.bias

    def step(from_input: Any, h: Any, c: Any, recurrent: Any) -> Any:
        gates = from_input + T.dot(h, recurrent)
        i, o, f, g = (gates[:, k * node.hidden : (k + 1) * node.hidden] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * T.tanh(g)
        return sigmoid(o) * T.tanh(c), c

    zeros = T.unbroadcast(T.zeros((x.shape[0], node.hidden), x.dtype), 0, 1)
    (values, _), _ = theano.scan(step, mapped, [zeros, zeros], [held.recurrent_weight], strict=True)
    return values.dimshuffle(1, 0, 2)


def attention(node: Node, held: Any, run: Pass, x: Any) -> Any:
    steps, features = node.input_shape
    size = features // node.heads

    def mapped(name: str, value: Any) -> Any:
        product = T.dot(value, getattr(held, name + "_weight"))
        return product + getattr(held, name + "_bias") if node.bias else product

    def divided(name: str) -> Any:
        """[N, T, features] to [N * heads, T, size]."""
        parts = mapped(name, x).reshape((-1, steps, node.heads, size)).dimshuffle(0, 2, 1, 3)
        return parts.reshape((-1, steps, size))

    scores = T.batched_dot(divided("query"), divided("key").dimshuffle(0, 2, 1)) / math.sqrt(size)
    if node.causal:
        scores = scores + np.triu(np.full((steps, steps), -math.inf, x.dtype), 1)
    shares = T.nnet.softmax(scores.reshape((-1, steps))).reshape(scores.shape, ndim=3)
    mixed = T.batched_dot(shares, divided("value"))
    parts = mixed.reshape((-1, node.heads, steps, size)).dimshuffle(0, 2, 1, 3)
    return mapped("output", parts.reshape((-1, steps, features)))


def _turned(attribute: str) -> Any:
    """Theano's users write ``T.dot(x, W)``: W is [in, out], where ONNX has [out, in]."""
    return location(attribute, lambda array: array.T, lambda array: array.T)


def _of_one(function: Any) -> Any:
    return lambda node, held, run, x: function(x)


_WEIGHT, _BIAS = {"weight": location("weight")}, {"bias": location("bias")}
_SCALE_AND_BIAS = {"scale": location("scale"), **_BIAS}

LAYERS = {
    "conv": Layer("native: conv2d(filter_flip=False)", conv, {**_WEIGHT, **_BIAS}),
    "linear": Layer(
        "native: dot; tied, with the embedding's shared variable",
        linear,
        {"weight": _turned("weight"), **_BIAS},
    ),
    "batch_norm": Layer(
        "native; running statistics composed, because Theano's variance is the unbiased one",
        batch_norm,
        {**_SCALE_AND_BIAS, "mean": location("mean"), "variance": location("variance")},
    ),
    "layer_norm": Layer("composed", layer_norm, _SCALE_AND_BIAS),
    "lrn": Layer("composed: slices of the squares", lrn),
    "max_pool": Layer(
        "native, but the gradient goes to the first of equal values, where Theano's goes to each; "
        "uneven pads and windows left out by padding before it",
        max_pool,
    ),
    "average_pool": Layer(
        "native; pads that are not counted by a factor, uneven ones by padding before it",
        average_pool,
    ),
    "global_average_pool": Layer(
        "native: mean", _of_one(lambda x: x.mean(axis=(2, 3), keepdims=True))
    ),
    "relu": Layer(
        "composed: switch, because the gradient of nnet.relu at 0 is 1/2",
        _of_one(lambda x: T.switch(x <= 0, 0, x)),
    ),
    "relu6": Layer(
        "composed: switch, because the gradient of clip at 0 is 1",
        _of_one(lambda x: T.switch(x <= 0, 0, T.switch(x >= 6, 6, x))),
    ),
    "tanh": Layer("native", _of_one(lambda x: T.tanh(x))),
    "sigmoid": Layer("composed of tanh, because nnet.sigmoid is 1 above 19", _of_one(sigmoid)),
    "hard_sigmoid": Layer("composed: clip", _of_one(lambda x: T.clip(x + 3, 0, 6) / 6)),
    "gelu": Layer("composed of erf or tanh", gelu),
    "dropout": Layer("composed: MRG_RandomStreams.binomial", dropout),
    "add": Layer("native", lambda node, held, run, x, y: x + y),
    "mul": Layer("native", mul),
    "concat": Layer("native", lambda node, held, run, *x: T.concatenate(x, axis=node.axis)),
    "flatten": Layer("native", _of_one(lambda x: x.flatten(2))),
    "reshape": Layer("native", lambda node, held, run, x: x.reshape((x.shape[0],) + node.shape)),
    "transpose": Layer(
        "native: dimshuffle", lambda node, held, run, x: x.dimshuffle(0, *node.axes)
    ),
    "reduce_mean": Layer("native", lambda node, held, run, x: x.mean(axis=node.axis)),
    "select": Layer(
        "native", lambda node, held, run, x: x[(slice(None),) * node.axis + (node.index,)]
    ),
    "pad": Layer(
        "composed: set_subtensor",
        lambda node, held, run, x: padded(
            x, node.input_shape, node.pads[: x.ndim - 1], node.pads[x.ndim - 1 :], node.value
        ),
    ),
    "slice": Layer(
        "native",
        lambda node, held, run, x: x[
            (slice(None),) + tuple(slice(*bounds) for bounds in node.ranges)
        ],
    ),
    "gather": Layer(
        "native: take", lambda node, held, run, x: T.take(x, list(node.indices), axis=node.axis)
    ),
    "embedding": Layer(
        "native",
        lambda node, held, run, x: held.weight[x.flatten()].reshape((x.shape[0],) + node.shape),
        _WEIGHT,
    ),
    "position_embedding": Layer(
        "native: a shared variable that is added",
        lambda node, held, run, x: x + held.weight.dimshuffle("x", 0, 1),
        _WEIGHT,
    ),
    "lstm": Layer(
        "composed: scan",
        lstm,
        {**{each: _turned(each) for each in ("input_weight", "recurrent_weight")}, **_BIAS},
    ),
    "attention": Layer(
        "composed of dot, batched_dot and softmax",
        attention,
        {
            **{each + "_weight": _turned(each + "_weight") for each in ATTENTION_MAPS},
            **{each + "_bias": location(each + "_bias") for each in ATTENTION_MAPS},
        },
    ),
}
