"""The registry: for each layer kind the sentence, the Keras layers, and where its parameters are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING

from dlb_worker.layers import Layer, LazyModule
from dlb_worker.model import ATTENTION_MAPS, Node
from dlb_worker.parameters import Mappings, ParameterMapping, location, lstm_gates

if TYPE_CHECKING:
    import numpy as np

    from dlb_tf.layout import Layout

    Layouts = Mapping[str, Layout]

K = LazyModule("keras.layers")
modules = LazyModule("dlb_tf.modules")
pools = LazyModule("dlb_tf.pools")
recurrent = LazyModule("dlb_tf.recurrent")
functions = LazyModule("dlb_tf.functions")

_SCALE_AND_BIAS = {"scale": location("gamma"), "bias": location("beta")}


def mappings_of(node: Node, layouts: Layouts) -> Mappings:
    """Where a layer holds its parameters, by role."""
    if node.kind in MAPPINGS:
        return MAPPINGS[node.kind](node, layouts)
    return LAYERS[node.kind].parameters


def kernel(groups: int = 0, attribute: str = "kernel") -> ParameterMapping:
    """A convolution's kernel: canonical [out, in, ...], in Keras [..., in, out].

    Args:
        groups: of a depthwise convolution, whose kernel is [..., groups, out / groups].
        attribute: what holds it.
    """

    def to_native(weight: np.ndarray) -> np.ndarray:
        native = weight.transpose(*range(2, weight.ndim), 1, 0)
        return native.reshape(*native.shape[:-2], groups, -1) if groups else native

    def to_canonical(native: np.ndarray) -> np.ndarray:
        whole = native.reshape(*native.shape[:-2], 1, -1) if groups else native
        return whole.transpose(-1, -2, *range(whole.ndim - 2))

    return location(attribute, to_native, to_canonical)


def projection(
    dense: str, inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> tuple[ParameterMapping, ParameterMapping]:
    """Weight and bias of a linear map of an attention, whose kernel is [*inputs, *outputs]."""
    weight = location(
        f"{dense}.kernel".lstrip("."),
        lambda array: array.T.reshape(*inputs, *outputs),
        lambda native: native.reshape(-1, prod(outputs)).T,
    )
    bias = location(
        f"{dense}.bias".lstrip("."),
        lambda array: array.reshape(outputs),
        lambda native: native.ravel(),
    )
    return weight, bias


def _conv(node: Node, layouts: Layouts) -> Mappings:
    groups = node.groups if modules.is_depthwise(node) else 0
    return {"weight": kernel(groups), "bias": location("bias")}


def _linear(node: Node, layouts: Layouts) -> Mappings:
    """A row of the canonical weight is ordered as a sample is."""
    layout = layouts[node.inputs[0]]
    weight = location(
        "kernel",
        lambda array: layout.to_native(array).T,
        lambda native: layout.to_canonical(native.T),
    )
    return {"weight": weight, "bias": location("bias")}


def _of_a_sample(role: str, attribute: str) -> Callable[[Node, Layouts], Mappings]:
    """Numbers that every sample shares lie as a sample does."""

    def mappings(node: Node, layouts: Layouts) -> Mappings:
        layout = layouts[node.inputs[0]]
        return {
            role: location(
                attribute,
                lambda array: layout.to_native(array[None])[0],
                lambda native: layout.to_canonical(native[None])[0],
            )
        }

    return mappings


def _prelu(node: Node, layouts: Layouts) -> Mappings:
    """Keras's slopes have an axis for each axis of a sample, of which channels are the last."""
    before = (1,) * (len(node.input_shape) - 1)
    slope = location(
        "alpha", lambda array: array.reshape(*before, -1), lambda native: native.ravel()
    )
    return {"slope": slope}


def _gates(attribute: str) -> ParameterMapping:
    """Keras keeps the gates of all units on the last axis."""
    gates = lstm_gates(attribute)
    return location(
        attribute,
        lambda array: gates.to_native(array)[0].T,
        lambda native: gates.to_canonical([native.T]),
    )


def _turned(attribute: str) -> ParameterMapping:
    return location(attribute, lambda array: array.T, lambda native: native.T)


def _attention(node: Node, layouts: Layouts) -> Mappings:
    """Keras keeps heads on an axis of their own: [features, heads, d], and back [heads, d, features]."""
    whole = node.input_shape[-1:]
    heads = (node.heads, whole[0] // node.heads)
    mappings = {}
    for name in ATTENTION_MAPS:
        inputs, outputs = (heads, whole) if name == "output" else (whole, heads)
        weight, bias = projection(f"attention.{name}_dense", inputs, outputs)
        mappings.update({f"{name}_weight": weight, f"{name}_bias": bias})
    return mappings


#: By layer kind. Each builds Keras layers, one after another, from a node and the layouts of values by
#: name. The last layer holds the parameters.
LAYERS = {
    "conv": Layer(
        "native, in NHWC or NDHWC; pads that are not TensorFlow's SAME by a pad layer before it; as "
        "many groups as channels of maps by DepthwiseConv2D; other groups composed by split, a "
        "convolution each and concat; stride with dilation, which Keras refuses, composed by a "
        "convolution of stride 1 and a slice; stride of a kernel of 1, whose gradient corrupts memory, "
        "by a slice and a convolution of stride 1",
        lambda node, layouts: modules.conv(node),
    ),
    "conv_transpose": Layer(
        "native, in NHWC or NDHWC: tf.nn.conv2d_transpose or conv3d_transpose, with pads by a slice after "
        "it, and output padding beyond them by a row of zeros before it; dilation, which the processor's "
        "operator lacks, by zeros in the kernel; groups composed by split, one each and concat",
        lambda node, layouts: [modules.ConvTranspose(node)],
        {"weight": kernel(), "bias": location("bias")},
    ),
    "linear": Layer(
        "native; after a flatten its weights lie in NHWC order; tied, a layer that multiplies by "
        "the embedding's weight",
        lambda node, layouts: [
            K.Dense(node.out_features, use_bias=node.bias, kernel_initializer=modules.unset)
        ],
    ),
    "batch_norm": Layer(
        "native",
        lambda node, layouts: [K.BatchNormalization(-1, node.momentum, node.epsilon)],
        {
            **_SCALE_AND_BIAS,
            "mean": location("moving_mean"),
            "variance": location("moving_variance"),
        },
    ),
    "layer_norm": Layer(
        "native", lambda node, layouts: [K.LayerNormalization(-1, node.epsilon)], _SCALE_AND_BIAS
    ),
    "group_norm": Layer(
        "native",
        lambda node, layouts: [modules.GroupNormalization(node.groups, epsilon=node.epsilon)],
        _SCALE_AND_BIAS,
    ),
    "rms_norm": Layer(
        "native",
        lambda node, layouts: [K.RMSNormalization(-1, node.epsilon)],
        {"scale": location("scale")},
    ),
    "lrn": Layer(
        "native in float32; composed in float64, which tf.nn.local_response_normalization lacks",
        lambda node, layouts: [modules.LocalResponseNormalization(**node.attributes)],
    ),
    "max_pool": Layer(
        "native, in NHWC; pads that are not TensorFlow's SAME by a pad before it; with dilation, which "
        "Keras lacks, and of films, where each of equal numbers gets the gradient, composed of tf.gather "
        "and tf.maximum",
        lambda node, layouts: pools.max_pool(node),
    ),
    "average_pool": Layer(
        "native, in NHWC or NDHWC; pads that are not TensorFlow's SAME by a pad layer before it, and a "
        "factor after it where a window's count is not the whole kernel; of films in float64, which "
        "tf.nn.avg_pool3d lacks, composed of tf.gather and sums",
        lambda node, layouts: pools.average_pool(node),
    ),
    "global_average_pool": Layer(
        "native",
        lambda node, layouts: pools.global_average_pool(node),
    ),
    "relu": Layer("native", lambda node, layouts: [K.Activation("relu")]),
    "relu6": Layer("native", lambda node, layouts: [K.Activation("relu6")]),
    "tanh": Layer("native", lambda node, layouts: [K.Activation("tanh")]),
    "sigmoid": Layer("native", lambda node, layouts: [K.Activation("sigmoid")]),
    "hard_sigmoid": Layer("native", lambda node, layouts: [modules.HardSigmoid()]),
    "gelu": Layer(
        "native in float32; composed in float64, for tf.nn.gelu keeps its constants in float32",
        lambda node, layouts: [modules.GELU(**node.attributes)],
    ),
    "elementwise": Layer(
        "native; celu, and elu where alpha is not 1, composed of tf.nn.elu, hard_sigmoid of clip, "
        "hard_swish of hard_sigmoid, mish of softplus and tanh, selu of elu, for its gradient at 0; "
        "leaky_relu in float64 composed, for the operator keeps its slope in float32",
        lambda node, layouts: [functions.Elementwise(**node.attributes)],
    ),
    "prelu": Layer(
        "composed of tf.where, for the gradient of Keras's own at 0 is 0",
        lambda node, layouts: [modules.prelu(node)],
    ),
    "dropout": Layer("native", lambda node, layouts: [K.Dropout(node.rate)]),
    "add": Layer("native", lambda node, layouts: [K.Add()]),
    "mul": Layer("native", lambda node, layouts: [modules.Multiply()]),
    "binary": Layer(
        "native; max and min composed of where, for their gradient of equal numbers",
        lambda node, layouts: [functions.Binary(node.function)],
    ),
    "where": Layer(
        "native: tf.where",
        lambda node, layouts: [functions.Where(first=node.first, second=node.second)],
    ),
    "matmul": Layer(
        "native; feature maps are permuted to NCHW before it, and back",
        lambda node, layouts: [functions.matmul(node, layouts)],
    ),
    "scale": Layer(
        "native: a weight that multiplies",
        lambda node, layouts: [functions.Scale(sizes=functions.native_sizes(node, layouts))],
    ),
    "shift": Layer(
        "native: a weight that is added",
        lambda node, layouts: [functions.Shift(sizes=functions.native_sizes(node, layouts))],
    ),
    "mask": Layer("native: tf.where", lambda node, layouts: [functions.Mask(node, layouts)]),
    "resize": Layer(
        "composed of a product with a constant matrix along each axis, for tf.image.resize has neither all "
        "coordinates nor all axes",
        lambda node, layouts: [functions.Resize(node, layouts)],
    ),
    "softmax": Layer("native", lambda node, layouts: [functions.softmax(node, layouts)]),
    "reduce": Layer(
        "native; of feature maps, a transpose after it where that leaves axes in another order",
        lambda node, layouts: [functions.reduce(node, layouts)],
    ),
    "top_k": Layer(
        "native: tf.math.top_k, after a transpose of any axis but the last",
        lambda node, layouts: [functions.top_k(node, layouts)],
    ),
    "gather_elements": Layer(
        "native: tf.gather, after a transpose of any axis but the last; indices are limited and cast to "
        "integers first, and values broadcast",
        lambda node, layouts: [functions.gather_elements(node, layouts)],
    ),
    "concat": Layer(
        "native",
        lambda node, layouts: [
            K.Concatenate(layouts[node.inputs[0]].native_axis(node.axis, len(node.shape)))
        ],
    ),
    "flatten": Layer(
        "native, in NHWC order where linear layers follow; else after a permute to NCHW",
        lambda node, layouts: modules.flatten(node, layouts),
    ),
    "reshape": Layer(
        "native; of feature maps after a permute to NCHW, but where channels stay and a transpose "
        "follows",
        lambda node, layouts: modules.reshape(node, layouts),
    ),
    "transpose": Layer("native", lambda node, layouts: modules.transpose(node, layouts)),
    "reduce_mean": Layer(
        "native",
        lambda node, layouts: [
            K.GlobalAveragePooling1D({1: "channels_last", 2: "channels_first"}[node.axis])
        ],
    ),
    "select": Layer("native: a slice", lambda node, layouts: [modules.Select(**node.attributes)]),
    "pad": Layer("native: tf.pad", lambda node, layouts: modules.pad(node, layouts)),
    "slice": Layer("native", lambda node, layouts: modules.slices(node, layouts)),
    "gather": Layer(
        "native: tf.gather",
        lambda node, layouts: [
            modules.Operator(
                "gather",
                axis=layouts[node.inputs[0]].native_axis(node.axis, len(node.shape)),
                indices=node.indices,
            )
        ],
    ),
    "embedding": Layer(
        "native",
        lambda node, layouts: [K.Embedding(node.entries, node.features, modules.unset)],
        {"weight": location("embeddings")},
    ),
    "position_embedding": Layer(
        "native: a weight that is added",
        lambda node, layouts: [modules.PositionEmbedding(shape=node.input_shape)],
        {"weight": location("table")},
    ),
    "lstm": Layer(
        "native",
        lambda node, layouts: [K.LSTM(node.hidden, return_sequences=True)],
        {
            "input_weight": _gates("cell.kernel"),
            "recurrent_weight": _gates("cell.recurrent_kernel"),
            "bias": _gates("cell.bias"),
        },
    ),
    "gru": Layer(
        "native; exported as one operator, which tf2onnx writes as a loop",
        lambda node, layouts: [
            recurrent.GRU(node.hidden, return_sequences=True, reset_after=node.linear_before_reset)
        ],
        {
            "input_weight": _turned("cell.kernel"),
            "recurrent_weight": _turned("cell.recurrent_kernel"),
            "bias": location("cell.bias"),
        },
    ),
    "rnn": Layer(
        "native; exported as one operator, which tf2onnx writes as a loop",
        lambda node, layouts: [
            recurrent.SimpleRNN(node.hidden, activation=node.activation, return_sequences=True)
        ],
        {
            "input_weight": _turned("cell.kernel"),
            "recurrent_weight": _turned("cell.recurrent_kernel"),
            "bias": location("cell.bias"),
        },
    ),
    "attention": Layer(
        "native, with its scale in the dtype of the model, which Keras keeps in float32",
        lambda node, layouts: [modules.SelfAttention(node)],
    ),
}

#: Where a layer holds its parameters, for the kinds where that depends on the node and the layouts.
MAPPINGS = {
    "conv": _conv,
    "linear": _linear,
    "prelu": _prelu,
    "attention": _attention,
    "scale": _of_a_sample("scale", "factors"),
    "shift": _of_a_sample("bias", "terms"),
}
