"""The registry: for each layer kind the sentence, the CNTK function, and where its parameters are.

The functions take a node, the layer's :class:`Parameters`, and what the layer reads. CNTK leaves the
batch axis out, so shapes and axes are those of one sample: axis 0 is a map's channels. CNTK is imported
when the first layer is built.
"""

from typing import Any, Dict, Sequence, Tuple

from dlb_worker.errors import UnsupportedError
from dlb_worker.layers import Layer, LazyModule
from dlb_worker.model import Node
from dlb_worker.parameters import location
from dlb_worker.poolings import average_factors, reaching_pads, rounds_up

C, np = LazyModule("cntk"), LazyModule("numpy")


class Parameters:
    """The parameters of one layer, as attributes, all of one NumPy type."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype

    def trained(self, name: str, *shape: int) -> Any:
        native = C.parameter(shape=shape, init=0, dtype=self.dtype, name=name)
        setattr(self, name, native)
        return native

    def state(self, name: str, *shape: int) -> Any:
        """What is not trained, which CNTK calls a constant."""
        native = self.constant(np.zeros(shape))
        setattr(self, name, native)
        return native

    def constant(self, value: Any) -> Any:
        """Numbers in the model's type: of some that CNTK is handed as such it makes float32."""
        return C.constant(np.asarray(value, self.dtype), dtype=self.dtype)


def conv(node: Node, own: Parameters, inputs: Any) -> Any:
    if tuple(node.dilation) != (1, 1):
        raise UnsupportedError(
            f"CNTK cannot build layer '{node.name}': it has no dilated convolution on a CPU"
        )
    weight = own.trained(
        "weight", node.out_channels, node.input_shape[0] // node.groups, *node.kernel
    )
    # CNTK's own padding keeps the size, and is even where the kernel is odd.
    odd = all(size % 2 for size in node.kernel)
    same = odd and tuple(node.pads) == tuple(size // 2 for size in node.kernel) * 2
    value = C.convolution(
        weight,
        inputs if same else _padded(inputs, node.pads, 0.0),
        strides=(1,) + tuple(node.stride),
        auto_padding=[False, same, same],
        groups=node.groups,
    )
    return value + own.trained("bias", node.out_channels, 1, 1) if node.bias else value


def linear(node: Node, own: Parameters, inputs: Any, table: Any = None) -> Any:
    """``table`` is the parameter of the embedding that the layer is tied to."""
    if table is None:
        weight = own.trained("weight", node.input_shape[-1], node.out_features)
    else:
        weight = C.transpose(table, (1, 0))
    value = C.times(inputs, weight)
    return value + own.trained("bias", node.out_features) if node.bias else value


def batch_norm(node: Node, own: Parameters, inputs: Any) -> Any:
    """Its states are a batch's own after each pass in training mode, the variance unbiased."""
    channels = node.input_shape[0]
    return C.batch_normalization(
        inputs,
        own.trained("scale", channels),
        own.trained("bias", channels),
        own.state("mean", channels),
        own.state("variance", channels),
        spatial=len(node.input_shape) == 3,
        # CNTK's share follows the number of samples; with 0 nothing of the old value is kept.
        normalization_time_constant=0,
        epsilon=node.epsilon,
        use_cudnn_engine=False,
        running_count=own.state("count"),
    )


def layer_norm(node: Node, own: Parameters, inputs: Any) -> Any:
    axis, features = len(node.input_shape) - 1, node.input_shape[-1]
    centred = inputs - C.reduce_mean(inputs, axis=axis)
    variance = C.reduce_mean(C.square(centred), axis=axis)
    normal = centred / C.sqrt(variance + own.constant(node.epsilon))
    return normal * own.trained("scale", features) + own.trained("bias", features)


def max_pool(node: Node, own: Parameters, inputs: Any) -> Any:
    return _pool(C.MAX_POOLING, node, inputs, float("-inf"))


def average_pool(node: Node, own: Parameters, inputs: Any) -> Any:
    value = _pool(C.AVG_POOLING, node, inputs, 0.0)
    return value if _windows_are_ours(node) else value * own.constant(average_factors(node))


def _pool(kind: Any, node: Node, inputs: Any, padding: float) -> Any:
    own = _windows_are_ours(node)
    return C.pooling(
        inputs if own else _padded(inputs, reaching_pads(node), padding),
        kind,
        tuple(node.kernel),
        tuple(node.stride),
        auto_padding=[False],
        ceil_out_dim=bool(own and rounds_up(node)),
    )


def _windows_are_ours(node: Node) -> bool:
    """Whether CNTK's pooling, which takes no pads, has the windows of the layer."""
    return not any(node.pads) and rounds_up(node) is not None


def _padded(inputs: Any, pads: Tuple[int, ...], value: float) -> Any:
    top, left, bottom, right = pads
    around = [(0, 0), (top, bottom), (left, right)]
    return C.pad(inputs, around, constant_value=value) if any(pads) else inputs


def relu6(node: Node, own: Parameters, inputs: Any) -> Any:
    return C.clip(C.relu(inputs), own.constant(0.0), own.constant(6.0))


def pad(node: Node, own: Parameters, inputs: Any) -> Any:
    rank = len(node.input_shape)
    return C.pad(inputs, list(zip(node.pads[:rank], node.pads[rank:])), constant_value=node.value)


def select(node: Node, own: Parameters, inputs: Any) -> Any:
    start = node.index % node.input_shape[node.axis - 1]
    return C.reshape(C.slice(inputs, node.axis - 1, start, start + 1), node.shape)


def sliced(node: Node, own: Parameters, inputs: Any) -> Any:
    starts, ends, steps = (list(each) for each in zip(*node.ranges))
    return C.slice(inputs, list(range(len(starts))), starts, ends, steps)


def describe(output: Any, inputs: Sequence[Any]) -> str:
    """CNTK's functions between a layer's inputs and its output, with their attributes."""
    stop = {each.uid for each in inputs}
    descriptions: Dict[str, str] = {}

    def visit(variable: Any) -> None:
        if not variable.is_output or variable.uid in stop or variable.owner.uid in descriptions:
            return
        function = variable.owner
        for each in function.inputs:
            visit(each)
        attributes = ", ".join(
            "{}={}".format(*each) for each in sorted(function.attributes.items())
        )
        descriptions[function.uid] = f"{function.op_name}({attributes})"

    visit(output)
    return " ".join(descriptions.values())


_WEIGHT, _BIAS = {"weight": location("weight")}, {"bias": location("bias")}
_SCALE_AND_BIAS = dict(_BIAS, scale=location("scale"))
_STATES = {"mean": location("mean"), "variance": location("variance")}
_BIAS_OF_CONV = location("bias", lambda bias: bias.reshape(-1, 1, 1), lambda bias: bias.reshape(-1))

LAYERS = {
    "conv": Layer(
        "native; pads other than those that keep the size by a pad before it; no dilation",
        conv,
        dict(_WEIGHT, bias=_BIAS_OF_CONV),
    ),
    "linear": Layer(
        "native; tied, with the embedding's parameter",
        linear,
        dict(_BIAS, weight=location("weight", lambda array: array.T, lambda array: array.T)),
    ),
    "batch_norm": Layer(
        "native; after each step the running values are computed by NumPy, for CNTK's share follows "
        "the number of samples and its variance is unbiased",
        batch_norm,
        dict(_SCALE_AND_BIAS, **_STATES),
    ),
    "layer_norm": Layer("composed of reduce_mean, square and sqrt", layer_norm, _SCALE_AND_BIAS),
    "lrn": Layer(
        "native",
        lambda node, own, x: C.local_response_normalization(
            x, node.size // 2, node.attributes["bias"], node.alpha, node.beta
        ),
    ),
    "max_pool": Layer("native; pads and windows left out by a pad before it", max_pool),
    "average_pool": Layer(
        "native; pads and windows left out by a pad before it, and a factor", average_pool
    ),
    "global_average_pool": Layer("native", lambda node, own, x: C.layers.GlobalAveragePooling()(x)),
    "relu": Layer("native", lambda node, own, x: C.relu(x)),
    "relu6": Layer("composed of relu and clip, whose gradient at 0 is 1", relu6),
    "tanh": Layer("native", lambda node, own, x: C.tanh(x)),
    "sigmoid": Layer("native", lambda node, own, x: C.sigmoid(x)),
    "hard_sigmoid": Layer(
        "composed of relu and clip, because the slope of the native one is float32",
        lambda node, own, x: relu6(node, own, x + own.constant(3)) / own.constant(6),
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
    "select": Layer("native: a slice", select),
    "pad": Layer("native", pad),
    "slice": Layer("native; steps are not exported", sliced),
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
