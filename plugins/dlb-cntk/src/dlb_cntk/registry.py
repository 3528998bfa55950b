"""The registry: for each layer kind the sentence, the CNTK function, and where its parameters are.

The functions take a node, the layer's ``Parameters``, and what it reads. CNTK leaves the batch axis
out, so axes count from 0.
"""

from typing import TYPE_CHECKING

from dlb_worker.layers import Layer, LazyModule
from dlb_worker.parameters import location

if TYPE_CHECKING:
    import numpy as np

C = LazyModule("cntk")
modules = LazyModule("dlb_cntk.modules")


def _transposed(array: "np.ndarray") -> "np.ndarray":
    return array.T


_WEIGHT, _BIAS = {"weight": location("weight")}, {"bias": location("bias")}
_SCALE_AND_BIAS = dict(_BIAS, scale=location("scale"))
_STATES = {"mean": location("mean"), "variance": location("variance")}
_BIAS_OF_CONV = location("bias", lambda bias: bias.reshape(-1, 1, 1), lambda bias: bias.reshape(-1))

LAYERS = {
    "conv": Layer(
        "native; pads other than those that keep the size by a pad before it; no dilation",
        lambda *arguments: modules.conv(*arguments),
        dict(_WEIGHT, bias=_BIAS_OF_CONV),
    ),
    "linear": Layer(
        "native; tied, with the embedding's parameter",
        lambda *arguments: modules.linear(*arguments),
        dict(_BIAS, weight=location("weight", _transposed, _transposed)),
    ),
    "batch_norm": Layer(
        "native; after each step the running values are computed by NumPy, for CNTK's share follows "
        "the number of samples and its variance is unbiased",
        lambda *arguments: modules.batch_norm(*arguments),
        dict(_SCALE_AND_BIAS, **_STATES),
    ),
    "layer_norm": Layer(
        "composed of reduce_mean, square and sqrt",
        lambda *arguments: modules.layer_norm(*arguments),
        _SCALE_AND_BIAS,
    ),
    "lrn": Layer(
        "native",
        lambda node, own, x: C.local_response_normalization(
            x, node.size // 2, node.attributes["bias"], node.alpha, node.beta
        ),
    ),
    "max_pool": Layer(
        "native; pads and windows left out by a pad before it",
        lambda *arguments: modules.max_pool(*arguments),
    ),
    "average_pool": Layer(
        "native; pads and windows left out by a pad before it, and a factor",
        lambda *arguments: modules.average_pool(*arguments),
    ),
    "global_average_pool": Layer("native", lambda node, own, x: C.layers.GlobalAveragePooling()(x)),
    "relu": Layer("native", lambda node, own, x: C.relu(x)),
    "relu6": Layer(
        "composed of relu and clip, whose gradient at 0 is 1",
        lambda *arguments: modules.relu6(*arguments),
    ),
    "tanh": Layer("native", lambda node, own, x: C.tanh(x)),
    "sigmoid": Layer("native", lambda node, own, x: C.sigmoid(x)),
    "hard_sigmoid": Layer(
        "composed of relu and clip, because the slope of the native one is float32",
        lambda node, own, x: modules.relu6(node, own, x + own.constant(3)) / own.constant(6),
    ),
    "dropout": Layer("native", lambda node, own, x: C.dropout(x, node.rate)),
    "add": Layer("native", lambda node, own, first, second: first + second),
    "mul": Layer("native", lambda node, own, first, second: first * second),
    "concat": Layer("native", lambda node, own, *xs: C.splice(*xs, axis=node.axis - 1)),
    "flatten": Layer("native", lambda node, own, x: C.reshape(x, node.shape)),
    "reshape": Layer("native", lambda node, own, x: C.reshape(x, node.shape)),
    "transpose": Layer(
        "native", lambda node, own, x: C.transpose(x, tuple(axis - 1 for axis in node.axes))
    ),
    "reduce_mean": Layer(
        "native", lambda node, own, x: C.reduce_mean(x, axis=node.axis - 1, keepdims=False)
    ),
    "select": Layer("native: a slice", lambda *arguments: modules.select(*arguments)),
    "pad": Layer("native", lambda *arguments: modules.pad(*arguments)),
    "slice": Layer("native; steps are not exported", lambda *arguments: modules.sliced(*arguments)),
    "embedding": Layer(
        "native",
        lambda node, own, x: C.gather(own.trained("weight", node.entries, node.features), x),
        _WEIGHT,
    ),
    "position_embedding": Layer(
        "native: a parameter that is added",
        lambda node, own, x: x + own.trained("weight", *node.input_shape),
        _WEIGHT,
    ),
}
