"""The registry: for each layer kind the sentence, the torch module, and where its parameters are."""

from dlb_worker.layers import Layer, LazyModule
from dlb_worker.model import Node
from dlb_worker.parameters import (
    Mappings,
    attention_locations,
    gru_mappings,
    location,
    lstm_gates,
)

nn = LazyModule("torch.nn")
modules = LazyModule("dlb_torch.modules")
recurrent = LazyModule("dlb_torch.recurrent")
functions = LazyModule("dlb_torch.functions")

_WEIGHT_AND_BIAS = {"weight": location("weight"), "bias": location("bias")}
_SCALE_AND_BIAS = {"scale": location("weight"), "bias": location("bias")}


def _gru(node: Node) -> Mappings:
    """torch's gates are reset, update, new; the composed layer's are ONNX's."""
    if not node.linear_before_reset:
        return {role: location(role) for role in node.parameters}
    return gru_mappings(("weight_ih_l0", "weight_hh_l0"), ("bias_ih_l0", "bias_hh_l0"), (1, 0, 2))


#: By layer kind; each builds a ``torch.nn.Module`` from a node.
LAYERS = {
    "conv": Layer("native", lambda node: modules.conv(node), _WEIGHT_AND_BIAS),
    "conv_transpose": Layer(
        "native; uneven pads that no output padding expresses by a slice after it",
        lambda node: modules.conv_transpose(node),
        _WEIGHT_AND_BIAS,
    ),
    "linear": Layer(
        "native; tied, with the embedding's parameter",
        lambda node: nn.Linear(node.input_shape[-1], node.out_features, node.bias),
        _WEIGHT_AND_BIAS,
    ),
    "batch_norm": Layer(
        "native; the running variance is changed to ONNX's biased one after each step",
        lambda node: modules.batch_norm(node),
        {**_SCALE_AND_BIAS, "mean": location("running_mean"), "variance": location("running_var")},
    ),
    "layer_norm": Layer(
        "native", lambda node: nn.LayerNorm(node.input_shape[-1], node.epsilon), _SCALE_AND_BIAS
    ),
    "group_norm": Layer(
        "native",
        lambda node: nn.GroupNorm(node.groups, node.input_shape[0], node.epsilon),
        _SCALE_AND_BIAS,
    ),
    "rms_norm": Layer(
        "native",
        lambda node: nn.RMSNorm(node.input_shape[-1], node.epsilon),
        {"scale": location("weight")},
    ),
    "lrn": Layer(
        "native",
        lambda node: nn.LocalResponseNorm(
            node.size, node.alpha, node.beta, node.attributes["bias"]
        ),
    ),
    "max_pool": Layer(
        "native; uneven pads and windows left out by a pad layer before it",
        lambda node: modules.max_pool(node),
    ),
    "average_pool": Layer(
        "native; uneven pads and windows left out by a pad layer before it, and a factor",
        lambda node: modules.average_pool(node),
    ),
    "global_average_pool": Layer("native", lambda node: modules.global_average_pool(node)),
    "relu": Layer("native", lambda node: nn.ReLU()),
    "relu6": Layer("native", lambda node: nn.ReLU6()),
    "tanh": Layer("native", lambda node: nn.Tanh()),
    "sigmoid": Layer("native", lambda node: nn.Sigmoid()),
    "hard_sigmoid": Layer(
        "native in float32; composed in float64, because the slope of its gradient is float32",
        lambda node: modules.HardSigmoid(),
    ),
    "gelu": Layer("native", lambda node: nn.GELU(node.approximate)),
    "elementwise": Layer(
        "native; hard_sigmoid composed of clamp; in float64, where their gradients have a factor "
        "in float32, celu of elu, and hard_swish of relu6",
        lambda node: functions.Elementwise(node),
    ),
    "prelu": Layer(
        "native",
        lambda node: nn.PReLU(1 if node.shared else node.input_shape[0]),
        {"slope": location("weight")},
    ),
    "dropout": Layer("native", lambda node: nn.Dropout(node.rate)),
    "add": Layer("native", lambda node: modules.Operator("add")),
    "mul": Layer("native", lambda node: modules.Operator("mul")),
    "binary": Layer("native", lambda node: functions.binary(node)),
    "where": Layer(
        "native: where", lambda node: functions.Where(first=node.first, second=node.second)
    ),
    "matmul": Layer("native", lambda node: modules.Operator("matmul")),
    "scale": Layer(
        "native: a parameter that multiplies",
        lambda node: modules.Scale(node.sizes),
        {"scale": location("scale")},
    ),
    "shift": Layer(
        "native: a parameter that is added",
        lambda node: modules.Shift(node.sizes),
        {"bias": location("bias")},
    ),
    "mask": Layer("native: where", lambda node: functions.Mask(node)),
    "resize": Layer(
        "composed of a product with a constant matrix along each axis, for interpolate has neither all "
        "coordinates nor all axes",
        lambda node: functions.Resize(node),
    ),
    "softmax": Layer("native", lambda node: (nn.LogSoftmax if node.log else nn.Softmax)(node.axis)),
    "reduce": Layer("native", lambda node: functions.reduce(node)),
    "top_k": Layer(
        "native: argmax or argmin of one, a stable sort of several",
        lambda node: functions.TopK(axis=node.axis, k=node.k, largest=node.largest),
    ),
    "gather_elements": Layer(
        "native: gather; indices are limited and cast to integers first, and values broadcast",
        lambda node: functions.GatherElements(axis=node.axis),
    ),
    "concat": Layer("native", lambda node: modules.Concat(dim=node.axis)),
    "flatten": Layer("native", lambda node: nn.Flatten()),
    "reshape": Layer("native", lambda node: modules.Operator("reshape", shape=(-1, *node.shape))),
    "transpose": Layer("native", lambda node: modules.Operator("permute", dims=(0, *node.axes))),
    "reduce_mean": Layer("native", lambda node: modules.Operator("mean", dim=node.axis)),
    "select": Layer(
        "native", lambda node: modules.Operator("select", dim=node.axis, index=node.index)
    ),
    "pad": Layer("native", lambda node: modules.pad(node)),
    "slice": Layer("native", lambda node: modules.Slice(ranges=node.ranges)),
    "gather": Layer("native", lambda node: modules.Gather(node.axis, node.indices)),
    "embedding": Layer(
        "native",
        lambda node: nn.Embedding(node.entries, node.features),
        {"weight": location("weight")},
    ),
    "position_embedding": Layer(
        "native: a parameter that is added",
        lambda node: modules.PositionEmbedding(node.input_shape),
        {"weight": location("weight")},
    ),
    "lstm": Layer(
        "native; the second of its two biases stays zero",
        lambda node: recurrent.lstm(node),
        {
            "input_weight": lstm_gates("weight_ih_l0"),
            "recurrent_weight": lstm_gates("weight_hh_l0"),
            "bias": lstm_gates("bias_ih_l0"),
        },
    ),
    "gru": Layer(
        "native with linear_before_reset; else composed step by step, which torch does not have",
        lambda node: recurrent.gru(node),
        mappings=_gru,
    ),
    "rnn": Layer(
        "native; the second of its two biases stays zero",
        lambda node: recurrent.rnn(node),
        {
            "input_weight": location("weight_ih_l0"),
            "recurrent_weight": location("weight_hh_l0"),
            "bias": location("bias_ih_l0"),
        },
    ),
    "attention": Layer(
        "native: Linear, and scaled_dot_product_attention between",
        lambda node: modules.SelfAttention(node),
        attention_locations("weight", "bias"),
    ),
}
