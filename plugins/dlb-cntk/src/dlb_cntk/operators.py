"""Layers as CNTK functions. Each takes its node, its parameters, and the values that it reads.

CNTK leaves the batch axis out, so shapes and axes are those of one sample: axis 0 is a map's channels.
"""

from typing import Any, Sequence, Tuple

import cntk as C
import numpy as np

from dlb_worker.errors import UnsupportedError
from dlb_worker.model import Node
from dlb_worker.poolings import average_factors, reaching_pads, rounds_up

__all__ = ["Parameters"]


class Parameters:
    """The parameters of one layer, as attributes.

    Attributes:
        dtype: NumPy's type of all of them.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype

    def trained(self, name: str, shape: Sequence[int]) -> Any:
        """A new parameter."""
        return self._keep(
            name, C.parameter(shape=tuple(shape), init=0, dtype=self.dtype, name=name)
        )

    def state(self, name: str, shape: Sequence[int]) -> Any:
        """A new state, which CNTK calls a constant."""
        return self._keep(name, self.constant(np.zeros(tuple(shape)), name))

    def constant(self, value: Any, name: str = "") -> Any:
        """Numbers in the model's own type: CNTK makes float32 of some that it is handed as such."""
        return C.constant(np.asarray(value, self.dtype), dtype=self.dtype, name=name)

    def _keep(self, name: str, native: Any) -> Any:
        setattr(self, name, native)
        return native


def conv(node: Node, own: Parameters, inputs: Any) -> Any:
    if tuple(node.dilation) != (1, 1):
        raise UnsupportedError(
            "CNTK cannot build layer '{}': it has no dilated convolution on a CPU".format(node.name)
        )
    channels = node.input_shape[0] // node.groups
    weight = own.trained("weight", (node.out_channels, channels) + tuple(node.kernel))
    # CNTK's own padding is that of an output as large as the input, which is even for odd kernels.
    own_pads = tuple(size // 2 for size in node.kernel) * 2
    same = tuple(node.pads) == own_pads and all(size % 2 for size in node.kernel)
    value = C.convolution(
        weight,
        inputs if same else _padded(inputs, node.pads, 0.0),
        strides=(1,) + tuple(node.stride),
        auto_padding=[False, same, same],
        groups=node.groups,
    )
    return value + own.trained("bias", (node.out_channels, 1, 1)) if node.bias else value


def linear(node: Node, own: Parameters, inputs: Any, table: Any = None) -> Any:
    """``table`` is the embedding's parameter that a tied layer computes with."""
    if table is None:
        weight = own.trained("weight", (node.input_shape[-1], node.out_features))
    else:
        weight = C.transpose(table, (1, 0))
    value = C.times(inputs, weight)
    return value + own.trained("bias", (node.out_features,)) if node.bias else value


def batch_norm(node: Node, own: Parameters, inputs: Any) -> Any:
    """Its states are a batch's own after each pass in training mode, the variance unbiased."""
    channels = (node.input_shape[0],)
    return C.batch_normalization(
        inputs,
        own.trained("scale", channels),
        own.trained("bias", channels),
        own.state("mean", channels),
        own.state("variance", channels),
        spatial=len(node.input_shape) == 3,
        # CNTK's shares follow the number of samples; with 0 nothing of the old value is kept.
        normalization_time_constant=0,
        epsilon=node.epsilon,
        use_cudnn_engine=False,
        running_count=own.state("count", ()),
    )


def layer_norm(node: Node, own: Parameters, inputs: Any) -> Any:
    axis, features = len(node.input_shape) - 1, (node.input_shape[-1],)
    centred = inputs - C.reduce_mean(inputs, axis=axis)
    variance = C.reduce_mean(C.square(centred), axis=axis)
    normal = centred / C.sqrt(variance + own.constant(node.epsilon))
    return normal * own.trained("scale", features) + own.trained("bias", features)


def lrn(node: Node, own: Parameters, inputs: Any) -> Any:
    bias = node.attributes["bias"]
    return C.local_response_normalization(inputs, node.size // 2, bias, node.alpha, node.beta)


def max_pool(node: Node, own: Parameters, inputs: Any) -> Any:
    return _pool(C.MAX_POOLING, node, inputs, float("-inf"))


def average_pool(node: Node, own: Parameters, inputs: Any) -> Any:
    if _has_own_rounding(node):
        return _pool(C.AVG_POOLING, node, inputs, 0.0)
    return _pool(C.AVG_POOLING, node, inputs, 0.0) * own.constant(average_factors(node))


def _pool(kind: Any, node: Node, inputs: Any, padding: float) -> Any:
    whole = _has_own_rounding(node)
    return C.pooling(
        inputs if whole else _padded(inputs, reaching_pads(node), padding),
        kind,
        tuple(node.kernel),
        tuple(node.stride),
        auto_padding=[False],
        ceil_out_dim=bool(whole and rounds_up(node)),
    )


def _has_own_rounding(node: Node) -> bool:
    """Whether CNTK's pooling, which takes no pads of ours, has the windows of the layer."""
    return not any(node.pads) and rounds_up(node) is not None


def _padded(inputs: Any, pads: Tuple[int, ...], value: float) -> Any:
    top, left, bottom, right = pads
    if not any(pads):
        return inputs
    return C.pad(inputs, [(0, 0), (top, bottom), (left, right)], constant_value=value)


def global_average_pool(node: Node, own: Parameters, inputs: Any) -> Any:
    return C.layers.GlobalAveragePooling()(inputs)


def relu6(node: Node, own: Parameters, inputs: Any) -> Any:
    return C.element_min(C.relu(inputs), own.constant(6.0))


def hard_sigmoid(node: Node, own: Parameters, inputs: Any) -> Any:
    return C.element_min(C.relu(inputs + own.constant(3.0)), own.constant(6.0)) / own.constant(6.0)


def concat(node: Node, own: Parameters, *inputs: Any) -> Any:
    return C.splice(*inputs, axis=node.axis - 1)


def transpose(node: Node, own: Parameters, inputs: Any) -> Any:
    return C.transpose(inputs, tuple(axis - 1 for axis in node.axes))


def reduce_mean(node: Node, own: Parameters, inputs: Any) -> Any:
    return C.reduce_mean(inputs, axis=node.axis - 1, keepdims=False)


def pad(node: Node, own: Parameters, inputs: Any) -> Any:
    rank = len(node.input_shape)
    return C.pad(inputs, list(zip(node.pads[:rank], node.pads[rank:])), constant_value=node.value)


def select(node: Node, own: Parameters, inputs: Any) -> Any:
    axis = node.axis - 1
    return C.reshape(_places(inputs, axis, node.index % node.input_shape[axis]), node.shape)


def slice_(node: Node, own: Parameters, inputs: Any) -> Any:
    axes = list(range(len(node.input_shape)))
    starts, ends, steps = (list(each) for each in zip(*node.ranges))
    return C.slice(inputs, axes, starts, ends, steps)


def gather(node: Node, own: Parameters, inputs: Any) -> Any:
    axis = node.axis - 1
    places = [index % node.input_shape[axis] for index in node.indices]
    return C.splice(*[_places(inputs, axis, place) for place in places], axis=axis)


def _places(inputs: Any, axis: int, place: int) -> Any:
    return C.slice(inputs, axis, place, place + 1)


def embedding(node: Node, own: Parameters, inputs: Any) -> Any:
    return C.gather(own.trained("weight", (node.entries, node.features)), inputs)


def position_embedding(node: Node, own: Parameters, inputs: Any) -> Any:
    return inputs + own.trained("weight", node.input_shape)


def describe(output: Any, inputs: Sequence[Any]) -> str:
    """CNTK's primitive functions between a layer's inputs and its output, with their attributes."""
    stop = {each.uid for each in inputs}
    found = {}  # type: Dict[str, str]

    def visit(variable: Any) -> None:
        if not variable.is_output or variable.uid in stop:
            return
        function = variable.owner
        if function.is_block:
            function = function.block_root
        if function.uid in found:
            return
        found[function.uid] = ""
        for each in function.inputs:
            visit(each)
        attributes = ", ".join(
            "{}={}".format(*each) for each in sorted(function.attributes.items())
        )
        found[function.uid] = "{}({})".format(function.op_name, attributes)

    visit(output)
    return " ".join(found.values())
