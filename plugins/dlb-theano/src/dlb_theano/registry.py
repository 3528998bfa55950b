"""The registry: for each layer kind the sentence, the expression, and where its parameters are.

``build(node, inputs, held, run)`` makes the layer's symbolic value. ``inputs`` are symbolic, ``held``
has the layer's shared variables as attributes, ``run`` is a :class:`dlb_theano.layers.Pass`.
"""

from dlb_worker.layers import Layer, LazyModule
from dlb_worker.model import ATTENTION_MAPS
from dlb_worker.parameters import location

layers = LazyModule("dlb_theano.layers")
T = LazyModule("theano.tensor")


def _turned(attribute):
    """Theano's users write ``T.dot(x, W)``: W is [in, out], where ONNX has [out, in]."""
    return location(attribute, lambda array: array.T, lambda array: array.T)


def _of_one(function):
    """A layer that is a function of its input alone."""
    return lambda node, inputs, held, run: function(inputs[0])


_WEIGHT, _BIAS = {"weight": location("weight")}, {"bias": location("bias")}
_SCALE_AND_BIAS = {"scale": location("scale"), **_BIAS}

LAYERS = {
    "conv": Layer(
        "native: conv2d with filter_flip=False",
        lambda *given: layers.conv(*given),
        {**_WEIGHT, **_BIAS},
    ),
    "linear": Layer(
        "native: dot; tied, with the embedding's shared variable",
        lambda *given: layers.linear(*given),
        {"weight": _turned("weight"), **_BIAS},
    ),
    "batch_norm": Layer(
        "native; running statistics composed, because Theano's variance is the unbiased one",
        lambda *given: layers.batch_norm(*given),
        {**_SCALE_AND_BIAS, "mean": location("mean"), "variance": location("variance")},
    ),
    "layer_norm": Layer("composed", lambda *given: layers.layer_norm(*given), _SCALE_AND_BIAS),
    "lrn": Layer("composed: slices of the squares", lambda *given: layers.lrn(*given)),
    "max_pool": Layer(
        "native; the gradient goes to the first of equal values, where Theano's goes to each; "
        "uneven pads and windows left out by padding before it",
        lambda *given: layers.max_pool(*given),
    ),
    "average_pool": Layer(
        "native; uneven pads and windows left out by padding before it, and a factor",
        lambda *given: layers.average_pool(*given),
    ),
    "global_average_pool": Layer(
        "native: mean", _of_one(lambda x: x.mean(axis=(2, 3), keepdims=True))
    ),
    "relu": Layer(
        "composed: switch, because the gradient of nnet.relu at 0 is 1/2",
        _of_one(lambda x: T.switch(x <= 0, 0, x)),
    ),
    "relu6": Layer("composed: switch", _of_one(lambda x: layers.relu6(x))),
    "tanh": Layer("native", _of_one(lambda x: T.tanh(x))),
    "sigmoid": Layer(
        "composed of tanh, because nnet.sigmoid is exactly 1 above 19",
        _of_one(lambda x: layers.sigmoid(x)),
    ),
    "hard_sigmoid": Layer("composed: clip", _of_one(lambda x: T.clip(x + 3, 0, 6) / 6)),
    "gelu": Layer("composed of erf or tanh", lambda *given: layers.gelu(*given)),
    "dropout": Layer("composed: MRG_RandomStreams.binomial", lambda *given: layers.dropout(*given)),
    "add": Layer("native", lambda node, inputs, held, run: inputs[0] + inputs[1]),
    "mul": Layer("native", lambda *given: layers.mul(*given)),
    "concat": Layer(
        "native", lambda node, inputs, held, run: T.concatenate(inputs, axis=node.axis)
    ),
    "flatten": Layer("native", _of_one(lambda x: x.flatten(2))),
    "reshape": Layer("native", lambda *given: layers.reshape(*given)),
    "transpose": Layer(
        "native: dimshuffle", lambda node, inputs, held, run: inputs[0].dimshuffle(0, *node.axes)
    ),
    "reduce_mean": Layer("native", lambda node, inputs, held, run: inputs[0].mean(axis=node.axis)),
    "select": Layer("native", lambda *given: layers.select(*given)),
    "pad": Layer("composed: set_subtensor", lambda *given: layers.pad(*given)),
    "slice": Layer("native", lambda *given: layers.slices(*given)),
    "gather": Layer(
        "native: take",
        lambda node, inputs, held, run: T.take(inputs[0], list(node.indices), axis=node.axis),
    ),
    "embedding": Layer("native", lambda *given: layers.embedding(*given), _WEIGHT),
    "position_embedding": Layer(
        "native: a shared variable that is added",
        lambda node, inputs, held, run: inputs[0] + held.weight.dimshuffle("x", 0, 1),
        _WEIGHT,
    ),
    "lstm": Layer(
        "composed: scan",
        lambda *given: layers.lstm(*given),
        {
            "input_weight": _turned("input_weight"),
            "recurrent_weight": _turned("recurrent_weight"),
            **_BIAS,
        },
    ),
    "attention": Layer(
        "composed of dot, batched_dot and softmax",
        lambda *given: layers.attention(*given),
        {
            **{each + "_weight": _turned(each + "_weight") for each in ATTENTION_MAPS},
            **{each + "_bias": location(each + "_bias") for each in ATTENTION_MAPS},
        },
    ),
}
