"""The registry: for each layer kind the sentence, the CNTK function, and where its parameters are."""

from dlb_worker.layers import Layer, LazyModule
from dlb_worker.parameters import location

cntk = LazyModule("cntk")
operators = LazyModule("dlb_cntk.operators")


def _flat(array):
    return array.reshape(-1)


_SCALE_AND_BIAS = {"scale": location("scale"), "bias": location("bias")}

#: By layer kind; each builds a ``cntk.Function`` from a node, its ``Parameters``, and its inputs.
LAYERS = {
    "conv": Layer(
        "native; pads other than those of an equal size by a pad before it; no dilation",
        lambda *arguments: operators.conv(*arguments),
        {
            "weight": location("weight"),
            "bias": location("bias", lambda bias: bias.reshape(-1, 1, 1), _flat),
        },
    ),
    "linear": Layer(
        "native; tied, with the embedding's parameter",
        lambda *arguments: operators.linear(*arguments),
        {
            "weight": location("weight", lambda weight: weight.T, lambda weight: weight.T),
            "bias": location("bias"),
        },
    ),
    "batch_norm": Layer(
        "native; after each step the running values are computed by NumPy, for CNTK's share follows "
        "the number of samples and its variance is unbiased",
        lambda *arguments: operators.batch_norm(*arguments),
        dict(_SCALE_AND_BIAS, mean=location("mean"), variance=location("variance")),
    ),
    "layer_norm": Layer(
        "composed of reduce_mean, square and sqrt",
        lambda *arguments: operators.layer_norm(*arguments),
        _SCALE_AND_BIAS,
    ),
    "lrn": Layer("native", lambda *arguments: operators.lrn(*arguments)),
    "max_pool": Layer(
        "native; pads and windows left out by a pad before it",
        lambda *arguments: operators.max_pool(*arguments),
    ),
    "average_pool": Layer(
        "native; pads and windows left out by a pad before it, and a factor",
        lambda *arguments: operators.average_pool(*arguments),
    ),
    "global_average_pool": Layer(
        "native", lambda *arguments: operators.global_average_pool(*arguments)
    ),
    "relu": Layer("native", lambda node, own, inputs: cntk.relu(inputs)),
    "relu6": Layer(
        "composed of relu and element_min", lambda *arguments: operators.relu6(*arguments)
    ),
    "tanh": Layer("native", lambda node, own, inputs: cntk.tanh(inputs)),
    "sigmoid": Layer("native", lambda node, own, inputs: cntk.sigmoid(inputs)),
    "hard_sigmoid": Layer(
        "composed of relu and element_min, because the slope of the native one is float32",
        lambda *arguments: operators.hard_sigmoid(*arguments),
    ),
    "dropout": Layer("native", lambda node, own, inputs: cntk.dropout(inputs, node.rate)),
    "add": Layer("native", lambda node, own, first, second: first + second),
    "mul": Layer("native", lambda node, own, first, second: first * second),
    "concat": Layer("native", lambda *arguments: operators.concat(*arguments)),
    "flatten": Layer("native", lambda node, own, inputs: cntk.reshape(inputs, node.shape)),
    "reshape": Layer("native", lambda node, own, inputs: cntk.reshape(inputs, node.shape)),
    "transpose": Layer("native", lambda *arguments: operators.transpose(*arguments)),
    "reduce_mean": Layer("native", lambda *arguments: operators.reduce_mean(*arguments)),
    "select": Layer("native: a slice", lambda *arguments: operators.select(*arguments)),
    "pad": Layer("native", lambda *arguments: operators.pad(*arguments)),
    "slice": Layer("native", lambda *arguments: operators.slice_(*arguments)),
    "gather": Layer(
        "composed of slices, because the native one takes no batch",
        lambda *arguments: operators.gather(*arguments),
    ),
    "embedding": Layer(
        "native", lambda *arguments: operators.embedding(*arguments), {"weight": location("weight")}
    ),
    "position_embedding": Layer(
        "native: a parameter that is added",
        lambda *arguments: operators.position_embedding(*arguments),
        {"weight": location("weight")},
    ),
}
