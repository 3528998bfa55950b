"""The registry: for each layer kind the sentence, the link or function, and where its parameters are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dlb_worker.interpolation import products
from dlb_worker.layers import Layer, LazyModule
from dlb_worker.masks import kept_places
from dlb_worker.parameters import ParameterMapping, attention_locations, location

if TYPE_CHECKING:
    import numpy as np

F = LazyModule("chainer.functions")
L = LazyModule("chainer.links")
modules = LazyModule("dlb_chainer.modules")
recurrent = LazyModule("dlb_chainer.recurrent")
functions = LazyModule("dlb_chainer.functions")

_WEIGHT = {"weight": location("W")}
_WEIGHT_AND_BIAS = {"weight": location("W"), "bias": location("b")}
_SCALE_AND_BIAS = {"scale": location("gamma"), "bias": location("beta")}


def _interleaved(array: np.ndarray) -> np.ndarray:
    """ONNX's gates, one after another, as Chainer has them: the four of a unit side by side.

    ONNX's order is input, output, forget, cell; Chainer's is cell, input, forget, output.
    """
    gates = array.reshape(4, -1, *array.shape[1:])[[3, 0, 2, 1]]
    return gates.swapaxes(0, 1).reshape(array.shape)


def one_after_another(array: np.ndarray) -> np.ndarray:
    """Chainer's gates as ONNX has them; the inverse."""
    gates = array.reshape(-1, 4, *array.shape[1:]).swapaxes(0, 1)
    return gates[[1, 3, 2, 0]].reshape(array.shape)


def _gates(attribute: str) -> ParameterMapping:
    return location(attribute, _interleaved, one_after_another)


def _whole(axes: int) -> tuple[slice, ...]:
    """All of so many axes."""
    return (slice(None),) * axes


#: By layer kind; each builds a ``chainer.Link`` or a function from a node.
LAYERS = {
    "conv": Layer(
        "native; uneven pads by F.pad before it", lambda node: modules.conv(node), _WEIGHT_AND_BIAS
    ),
    "conv_transpose": Layer(
        "native, of an input with a gradient, which its backward pass needs; uneven pads that no "
        "output padding expresses by F.get_item after it",
        lambda node: modules.conv_transpose(node),
        _WEIGHT_AND_BIAS,
    ),
    "linear": Layer(
        "native, of rows where there is a time axis; tied, F.linear on the embedding's parameter",
        lambda node: L.Linear(node.input_shape[-1], node.out_features, nobias=not node.bias),
        _WEIGHT_AND_BIAS,
    ),
    "batch_norm": Layer(
        "native; the running variance is changed to ONNX's biased one after each step",
        lambda node: modules.BatchNormalization(
            node.input_shape[0], decay=node.momentum, eps=node.epsilon
        ),
        {**_SCALE_AND_BIAS, "mean": location("avg_mean"), "variance": location("avg_var")},
    ),
    "layer_norm": Layer(
        "native, of rows where there is a time axis",
        lambda node: L.LayerNormalization(node.input_shape[-1], node.epsilon),
        _SCALE_AND_BIAS,
    ),
    "group_norm": Layer(
        "native",
        lambda node: L.GroupNormalization(node.groups, node.input_shape[0], node.epsilon),
        _SCALE_AND_BIAS,
    ),
    "rms_norm": Layer(
        "composed of F.average and F.sqrt, since Chainer has none; of rows where there is a time axis",
        lambda node: modules.RMSNormalization(node.input_shape[-1], node.epsilon),
        {"scale": location("gamma")},
    ),
    "lrn": Layer(
        "native; alpha is divided by the size first",
        lambda node: partial(
            F.local_response_normalization,
            n=node.size,
            k=node.attributes["bias"],
            alpha=node.alpha / node.size,
            beta=node.beta,
        ),
    ),
    "max_pool": Layer(
        "native; uneven pads, and windows past the end, by F.pad before it; with dilation, which Chainer "
        "lacks, composed of F.get_item and F.maximum",
        lambda node: modules.max_pool(node),
    ),
    "average_pool": Layer(
        "native; with uneven pads or sizes rounded up F.pad, the pooling and a constant that corrects the "
        "count",
        lambda node: modules.average_pool(node),
    ),
    "global_average_pool": Layer(
        "native: an average pooling over the whole map",
        lambda node: modules.global_average_pool(node),
    ),
    "relu": Layer("native", lambda node: F.relu),
    "relu6": Layer("native", lambda node: partial(F.clipped_relu, z=6.0)),
    "tanh": Layer("native", lambda node: F.tanh),
    "sigmoid": Layer("native", lambda node: F.sigmoid),
    "hard_sigmoid": Layer(
        "composed of F.clipped_relu, since F.hard_sigmoid has a slope of 0.2",
        lambda node: modules.hard_sigmoid,
    ),
    "gelu": Layer(
        "composed of F.erf or F.tanh, since Chainer has none",
        lambda node: modules.gelu_by_tanh if node.approximate == "tanh" else modules.gelu,
    ),
    "elementwise": Layer(
        "native; celu composed of F.elu, hard_sigmoid of F.clip, mish of F.softplus and F.tanh, silu of "
        "F.sigmoid, softsign of F.absolute; leaky_relu, selu and elu where alpha is not 1 of F.relu and "
        "F.elu, whose gradient at 0 is 1",
        lambda node: functions.elementwise(node),
    ),
    "prelu": Layer(
        "composed of F.relu, for the gradient of F.prelu at 0 is 1",
        lambda node: modules.PReLU((1,) if node.shared else node.input_shape[:1]),
        {"slope": location("W")},
    ),
    "dropout": Layer("native", lambda node: partial(F.dropout, ratio=node.rate)),
    "add": Layer("native", lambda node: F.add),
    "mul": Layer(
        "native; a number for each channel is broadcast first", lambda node: modules.multiply
    ),
    "binary": Layer(
        "native; both values are broadcast first; max and min composed of where, for their gradient of "
        "equal numbers",
        lambda node: partial(functions.binary, function=node.function, shape=node.shape),
    ),
    "where": Layer(
        "native: F.where; values are broadcast first",
        lambda node: partial(functions.where, shape=node.shape, **node.attributes),
    ),
    "matmul": Layer("native", lambda node: F.matmul),
    "scale": Layer(
        "native: a parameter that is broadcast and multiplies",
        lambda node: functions.Scale(node.sizes),
        {"scale": location("W")},
    ),
    "shift": Layer(
        "native: a parameter that is broadcast and added",
        lambda node: functions.Shift(node.sizes),
        {"bias": location("b")},
    ),
    "mask": Layer(
        "native: F.where",
        lambda node: partial(functions.mask, kept=kept_places(node), value=node.value),
    ),
    "resize": Layer(
        "composed of a product with a constant matrix along each axis, for F.resize_images has neither all "
        "coordinates nor all axes",
        lambda node: partial(functions.resize, products=tuple(products(node)), sizes=node.sizes),
    ),
    "softmax": Layer(
        "native",
        lambda node: partial(F.log_softmax if node.log else F.softmax, axis=node.axis),
    ),
    "reduce": Layer(
        "native; of max and min, equal numbers share a gradient that the function gives to each",
        lambda node: partial(functions.reduce, **node.attributes),
    ),
    "top_k": Layer(
        "composed of an argsort of arrays; Chainer has no function for it",
        lambda node: partial(functions.top_k, **node.attributes),
    ),
    "gather_elements": Layer(
        "native: F.get_item; indices are limited and cast to integers first, and values broadcast",
        lambda node: partial(functions.gather_elements, **node.attributes),
    ),
    "concat": Layer("native", lambda node: partial(modules.concat, axis=node.axis)),
    "flatten": Layer("native: F.reshape", lambda node: partial(F.reshape, shape=(-1, *node.shape))),
    "reshape": Layer("native", lambda node: partial(F.reshape, shape=(-1, *node.shape))),
    "transpose": Layer("native", lambda node: partial(F.transpose, axes=(0, *node.axes))),
    "reduce_mean": Layer("native", lambda node: partial(F.mean, axis=node.axis)),
    "select": Layer(
        "native: F.get_item",
        lambda node: partial(F.get_item, slices=(*_whole(node.axis), node.index)),
    ),
    "pad": Layer("native", lambda node: modules.pad(node)),
    "slice": Layer(
        "native: F.get_item",
        lambda node: partial(F.get_item, slices=(*_whole(1), *[slice(*r) for r in node.ranges])),
    ),
    "gather": Layer(
        "native: F.get_item",
        lambda node: partial(F.get_item, slices=(*_whole(node.axis), list(node.indices))),
    ),
    "embedding": Layer("native", lambda node: L.EmbedID(node.entries, node.features), _WEIGHT),
    "position_embedding": Layer(
        "native: a parameter that is added, by L.Bias",
        lambda node: L.Bias(shape=node.input_shape),
        {"weight": location("b")},
    ),
    "lstm": Layer(
        "native: StatelessLSTM's links and F.lstm step by step, the upward product taken once",
        lambda node: recurrent.SequenceLSTM(node.input_shape[-1], node.hidden),
        {
            "input_weight": _gates("upward.W"),
            "recurrent_weight": _gates("lateral.W"),
            "bias": _gates("upward.b"),
        },
    ),
    "gru": Layer(
        "composed step by step, the input's product taken once: GRU's links have the reset gate on one "
        "side only, and NStepGRU, with it on the other, takes each sequence apart",
        lambda node: recurrent.SequenceGRU(node, "linear_before_reset"),
        {role: location(role) for role in ("input_weight", "recurrent_weight", "bias")},
    ),
    "rnn": Layer(
        "composed step by step, the input's product taken once: NStepRNNTanh and NStepRNNReLU take each "
        "sequence apart",
        lambda node: recurrent.SequenceRNN(node, "activation"),
        {role: location(role) for role in ("input_weight", "recurrent_weight", "bias")},
    ),
    "attention": Layer(
        "composed of two linear links, one of them for queries, keys and values, matmul and "
        "softmax",
        lambda node: modules.SelfAttention(node),
        attention_locations("W", "b"),
    ),
}

#: Kinds that compute on rows [rows, features], of which a sample may have many; others on samples.
ROWWISE = {"linear", "layer_norm", "rms_norm", "attention"}
#: Kinds that compute on numbers one by one, in samples or in rows.
ELEMENTWISE = {
    "relu",
    "relu6",
    "tanh",
    "sigmoid",
    "hard_sigmoid",
    "gelu",
    "elementwise",
    "dropout",
    "add",
    "mul",
}
