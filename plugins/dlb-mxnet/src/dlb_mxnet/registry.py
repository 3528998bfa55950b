"""The registry: for each layer kind the sentence, the gluon block, and where its parameters are."""

from dlb_worker.layers import Layer, LazyModule
from dlb_worker.model import Node
from dlb_worker.parameters import (
    Mappings,
    ParameterMapping,
    attention_locations,
    gru_mappings,
    location,
    lstm_gates,
)

nn = LazyModule("mxnet.gluon.nn")
modules = LazyModule("dlb_mxnet.modules")
pools = LazyModule("dlb_mxnet.pools")
ranking = LazyModule("dlb_mxnet.ranking")
recurrent = LazyModule("dlb_mxnet.recurrent")
functions = LazyModule("dlb_mxnet.functions")

_WEIGHT_AND_BIAS = {"weight": location("weight"), "bias": location("bias")}
_SCALE_AND_BIAS = {"scale": location("gamma"), "bias": location("beta")}


def _first_of(attribute: str) -> ParameterMapping:
    """Numbers that are kept with an axis for the batch, of size 1."""
    return location(attribute, lambda array: array[None], lambda array: array[0])


def _gru(node: Node) -> Mappings:
    """MXNet's gates are reset, update, new; the composed layer's are ONNX's."""
    if not node.linear_before_reset:
        return {role: location(role) for role in node.parameters}
    return gru_mappings(
        ("l0_i2h_weight", "l0_h2h_weight"), ("l0_i2h_bias", "l0_h2h_bias"), (1, 0, 2)
    )


#: By layer kind; each builds a gluon ``HybridBlock`` from a node and the dtype of the model.
LAYERS = {
    "conv": Layer(
        "native; uneven pads by a pad operator before it",
        lambda node, dtype: modules.conv(node),
        _WEIGHT_AND_BIAS,
    ),
    "conv_transpose": Layer(
        "native; uneven pads that no output padding expresses by a slice after it; dilation with a "
        "stride, which MXNet places wrongly, by zeros in the input; of films in float64, or dilated, "
        "composed by zeros in the input and a convolution with the turned kernel",
        lambda node, dtype: modules.conv_transpose(node, dtype),
        _WEIGHT_AND_BIAS,
    ),
    "linear": Layer(
        "native; tied, with the embedding's parameter",
        lambda node, dtype: modules.linear(node),
        _WEIGHT_AND_BIAS,
    ),
    "batch_norm": Layer(
        "native; of films in MXNet's own layout; in float64 the running statistics are moved by array "
        "operators, for the operator keeps its momentum in float32",
        lambda node, dtype: modules.batch_norm(node, dtype),
        {**_SCALE_AND_BIAS, "mean": location("running_mean"), "variance": location("running_var")},
    ),
    "layer_norm": Layer(
        "native in float32; composed in float64, for the operator keeps its epsilon in float32",
        lambda node, dtype: modules.layer_norm(node, dtype),
        _SCALE_AND_BIAS,
    ),
    "group_norm": Layer(
        "native in float32 for maps with a group for each channel: InstanceNorm; else composed, for the "
        "operator has a scale for each group, and those of both keep their epsilon in float32",
        lambda node, dtype: modules.group_norm(node, dtype),
        _SCALE_AND_BIAS,
    ),
    "rms_norm": Layer(
        "composed of square, mean and sqrt, since MXNet has none",
        lambda node, dtype: modules.RMSNorm(node),
        {"scale": location("gamma")},
    ),
    "lrn": Layer(
        "composed of square, average pooling and power, for the operator refuses float64, and its "
        "float32 gradient is wrong before a convolution of 8 channels",
        lambda node, dtype: modules.LRN(
            nsize=node.size, alpha=node.alpha, beta=node.beta, knorm=node.attributes["bias"]
        ),
    ),
    "max_pool": Layer(
        "native; uneven pads, and windows that begin in the padding left out, by a pad operator "
        "before it; with dilation, which MXNet lacks, composed of slices and maximum",
        lambda node, dtype: pools.max_pool(node),
    ),
    "average_pool": Layer(
        "native; uneven pads, windows left out, and padding that counts with ceil_mode by a pad "
        "operator before it, and a multiplication after it where padding is not counted",
        lambda node, dtype: pools.average_pool(node, dtype),
    ),
    "global_average_pool": Layer("native", lambda node, dtype: pools.global_average_pool(node)),
    "relu": Layer("native", lambda node, dtype: nn.Activation("relu")),
    "relu6": Layer(
        "composed of relu and minimum, for the gradient of clip at a bound is 1",
        lambda node, dtype: modules.ReLU6(),
    ),
    "tanh": Layer("native", lambda node, dtype: nn.Activation("tanh")),
    "sigmoid": Layer("native", lambda node, dtype: nn.Activation("sigmoid")),
    "hard_sigmoid": Layer(
        "native in float32; composed in float64, for the operator keeps its slope in float32",
        lambda node, dtype: modules.HardSigmoid(dtype=dtype),
    ),
    "gelu": Layer(
        "native in float32; composed in float64, for the operator keeps its constants in float32; "
        "by tanh composed, which MXNet has not",
        lambda node, dtype: modules.gelu(node, dtype),
    ),
    "elementwise": Layer(
        "native; celu composed of LeakyReLU, clip of maximum and minimum, hard_sigmoid of clip, hard_swish of "
        "relu and minimum, mish of softrelu and tanh, selu of elu, silu of sigmoid; "
        "elu, erf and leaky_relu in float64 composed, for the operators keep their numbers in float32",
        lambda node, dtype: functions.Elementwise(dtype, **node.attributes),
    ),
    "prelu": Layer(
        "composed of relu and broadcast_mul, for the operator keeps its slopes in float32, and may compute "
        "wrong gradients of them",
        lambda node, dtype: modules.PReLU(node),
        {"slope": location("alpha")},
    ),
    "dropout": Layer(
        "native; in float64 the operator's mask, scaled by array operators, for the operator "
        "scales in float32",
        lambda node, dtype: modules.dropout(node, dtype),
    ),
    "add": Layer("native", lambda node, dtype: modules.Operator("elemwise_add")),
    "mul": Layer("native", lambda node, dtype: modules.Operator("broadcast_mul")),
    "binary": Layer(
        "native; of max and min, equal numbers share a gradient that the operator gives to the first",
        lambda node, dtype: functions.Binary(node.function),
    ),
    "where": Layer(
        "native: where; values are broadcast first",
        lambda node, dtype: functions.Where(node, dtype),
    ),
    "matmul": Layer("native", lambda node, dtype: modules.Operator("linalg_gemm2")),
    "scale": Layer(
        "native: a parameter that multiplies",
        lambda node, dtype: modules.Scale(node.sizes),
        {"scale": _first_of("scale")},
    ),
    "shift": Layer(
        "native: a parameter that is added",
        lambda node, dtype: modules.Shift(node.sizes),
        {"bias": _first_of("bias")},
    ),
    "mask": Layer("native: where", lambda node, dtype: functions.Mask(node, dtype)),
    "resize": Layer(
        "composed of a product with a constant matrix along each axis, for BilinearResize2D has neither all "
        "coordinates nor all axes",
        lambda node, dtype: functions.Resize(node, dtype),
    ),
    "softmax": Layer(
        "native",
        lambda node, dtype: modules.Operator(
            "log_softmax" if node.log else "softmax", axis=node.axis
        ),
    ),
    "reduce": Layer(
        "native; of max and min, equal numbers share a gradient that the operator gives to each",
        lambda node, dtype: functions.Reduce(**node.attributes),
    ),
    "top_k": Layer(
        "composed of argmax or argmin, one number after the other",
        lambda node, dtype: ranking.TopK(node),
    ),
    "gather_elements": Layer(
        "composed of take of all rows; indices are limited and cast to integers first, and values "
        "broadcast",
        lambda node, dtype: ranking.GatherElements(node),
    ),
    "concat": Layer(
        "native; of maps and films, in MXNet's own layout where channels are not in sixteens",
        lambda node, dtype: modules.Concat(node.axis, node.input_shapes),
    ),
    "flatten": Layer("native", lambda node, dtype: nn.Flatten()),
    "reshape": Layer(
        "native; to maps and films, and of films, in MXNet's own layout",
        lambda node, dtype: modules.Reshape(node),
    ),
    "transpose": Layer(
        "native; of films in MXNet's own layout",
        lambda node, dtype: modules.Transpose(axes=(0, *node.axes)),
    ),
    "reduce_mean": Layer("native", lambda node, dtype: modules.Operator("mean", axis=node.axis)),
    "select": Layer(
        "native: slice_axis and squeeze",
        lambda node, dtype: modules.Select(axis=node.axis, index=node.index),
    ),
    "pad": Layer(
        "native; with axes of size 1 before those to pad where they are none of the operator's, "
        "which pads from the third axis on",
        lambda node, dtype: modules.Pad(node.pads, node.value),
    ),
    "slice": Layer(
        "native; of maps and films, in MXNet's own layout; of five axes, which the operator refuses, by take",
        lambda node, dtype: modules.slices(node, dtype),
    ),
    "gather": Layer(
        "native: take", lambda node, dtype: modules.Gather(node.axis, node.indices, dtype)
    ),
    "embedding": Layer(
        "native",
        lambda node, dtype: nn.Embedding(node.entries, node.features, dtype=dtype),
        {"weight": location("weight")},
    ),
    "position_embedding": Layer(
        "native: a parameter that is added",
        lambda node, dtype: modules.PositionEmbedding(node.input_shape),
        {"weight": _first_of("weight")},
    ),
    "lstm": Layer(
        "native; the second of its two biases stays zero",
        lambda node, dtype: recurrent.lstm(node),
        {
            "input_weight": lstm_gates("l0_i2h_weight"),
            "recurrent_weight": lstm_gates("l0_h2h_weight"),
            "bias": lstm_gates("l0_i2h_bias"),
        },
    ),
    "gru": Layer(
        "native with linear_before_reset; else composed step by step, which MXNet does not have",
        lambda node, dtype: recurrent.gru(node),
        mappings=_gru,
    ),
    "rnn": Layer(
        "native; the second of its two biases stays zero; relu in float64 composed, for the operator has "
        "it in float32",
        lambda node, dtype: recurrent.elman(node, dtype),
        {
            "input_weight": location("l0_i2h_weight"),
            "recurrent_weight": location("l0_h2h_weight"),
            "bias": location("l0_i2h_bias"),
        },
    ),
    "attention": Layer(
        "composed of dense blocks, gemm2 and softmax",
        lambda node, dtype: modules.SelfAttention(node, dtype),
        attention_locations("weight", "bias"),
    ),
}
