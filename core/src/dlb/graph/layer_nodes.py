"""The ONNX nodes that each layer means. One rule for each of :mod:`dlb.workload.layers`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from dlb.errors import WorkloadError
from dlb.graph.decimals import decimal
from dlb.workload import layers as L
from dlb.workload.lower import lower_layer
from dlb.workload.model import Node
from dlb.workload.shapes import Shape, places_along
from dlb_worker.poolings import reaching_pads, rounds_up

__all__ = ["GraphBuilder", "add_layer"]


class GraphBuilder:
    """Nodes and initialisers of a graph that is being put together.

    Attributes:
        dtype: of every real number in it.
        training: whether batch normalisation takes the batch's statistics.
        masks: what dropout multiplies by in training, by layer name.
        nodes: in order.
        initializers: by name.
        running: shapes of the running statistics that training puts out, by name.
    """

    def __init__(
        self, dtype: np.dtype[Any], training: bool, masks: Mapping[str, npt.NDArray[Any]]
    ) -> None:
        self.dtype = dtype
        self.training = training
        self.masks = masks
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, npt.NDArray[Any]] = {}
        self.running: dict[str, Shape] = {}

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        output: str | Sequence[str],
        *,
        name: str = "",
        **attributes: Any,
    ) -> str:
        """Add a node, called as its first output unless ``name`` is given; returns that output."""
        outputs = [output] if isinstance(output, str) else list(output)
        self.nodes.append(
            helper.make_node(operator, inputs, outputs, name=name or outputs[0], **attributes)
        )
        return outputs[0]

    def initializer(self, name: str, values: npt.NDArray[Any]) -> str:
        """Add an initialiser; real numbers take the graph's type, integers stay int64."""
        kind = np.int64 if values.dtype.kind in "iu" else self.dtype
        self.initializers[name] = np.asarray(values, kind, order="C")
        return name


def add_layer(pieces: GraphBuilder, node: Node, given: list[Shape]) -> None:
    """Add the nodes of one layer, whose inputs have the shapes ``given`` (of one sample).

    Raises:
        WorkloadError: a real attribute with more digits than ONNX's float32 attributes keep.
    """
    for name in node.layer.__struct_fields__:
        value = getattr(node.layer, name)
        if isinstance(value, float) and name != "rate" and decimal(value) != value:
            raise WorkloadError(
                f"layer '{node.name}': {name} = {value!r} has more digits than an ONNX attribute "
                f"(float32) keeps; write {decimal(value)!r}"
            )
    _RULES[type(node.layer)](pieces, node.name, node.layer, list(node.inputs), given)


def _conv(
    pieces: GraphBuilder, name: str, layer: L.Conv, inputs: list[str], given: list[Shape]
) -> None:
    parameters = [f"{name}.weight"] + ([f"{name}.bias"] if layer.bias else [])
    pieces.node(
        "Conv",
        inputs + parameters,
        name,
        kernel_shape=list(layer.kernel),
        strides=list(layer.stride),
        pads=list(layer.pads),
        dilations=list(layer.dilation),
        group=layer.groups,
    )


def _linear(
    pieces: GraphBuilder, name: str, layer: L.Linear, inputs: list[str], given: list[Shape]
) -> None:
    weight, bias = f"{layer.tied_to or name}.weight", f"{name}.bias"
    if len(given[0]) == 1:
        pieces.node("Gemm", [*inputs, weight] + ([bias] if layer.bias else []), name, transB=1)
        return
    transposed = pieces.node("Transpose", [weight], f"{name}/weight", perm=[1, 0])
    product = f"{name}/product" if layer.bias else name
    pieces.node("MatMul", [*inputs, transposed], product, name=name)
    if layer.bias:
        pieces.node("Add", [product, bias], name, name=f"{name}/add")


def _batch_norm(
    pieces: GraphBuilder, name: str, layer: L.BatchNorm, inputs: list[str], given: list[Shape]
) -> None:
    outputs = [name]
    if pieces.training:
        outputs += [f"{name}.mean/running", f"{name}.variance/running"]
        pieces.running.update(dict.fromkeys(outputs[1:], (given[0][0],)))
    pieces.node(
        "BatchNormalization",
        inputs + [f"{name}.{each}" for each in ("scale", "bias", "mean", "variance")],
        outputs,
        epsilon=layer.epsilon,
        momentum=layer.momentum,
        training_mode=int(pieces.training),
    )


def _layer_norm(
    pieces: GraphBuilder, name: str, layer: L.LayerNorm, inputs: list[str], given: list[Shape]
) -> None:
    parameters = [f"{name}.scale", f"{name}.bias"]
    pieces.node("LayerNormalization", inputs + parameters, name, axis=-1, epsilon=layer.epsilon)


def _lrn(
    pieces: GraphBuilder, name: str, layer: L.LRN, inputs: list[str], given: list[Shape]
) -> None:
    pieces.node(
        "LRN",
        inputs,
        name,
        alpha=layer.alpha,
        beta=layer.beta,
        bias=layer.bias,
        size=layer.size,
    )


def _pool(
    pieces: GraphBuilder,
    name: str,
    layer: L.MaxPool | L.AveragePool,
    inputs: list[str],
    given: list[Shape],
) -> None:
    counted: dict[str, Any] = {}
    if isinstance(layer, L.AveragePool):
        counted["count_include_pad"] = int(layer.count_include_pad)
    resolved = lower_layer(layer, given[0])
    up, pads = rounds_up(resolved), layer.pads
    if up is None:
        reaching = reaching_pads(resolved)
        # Padding that only rounding up reaches never counts.
        up = bool(counted.get("count_include_pad")) and any(map(int.__gt__, reaching, pads))
        pads = pads if up else reaching
    pieces.node(
        "AveragePool" if counted else "MaxPool",
        inputs,
        name,
        kernel_shape=list(layer.kernel),
        strides=list(layer.stride),
        pads=list(pads),
        ceil_mode=int(up),
        **counted,
    )


def _gelu(
    pieces: GraphBuilder, name: str, layer: L.GELU, inputs: list[str], given: list[Shape]
) -> None:
    """Half of x times one and a bent x; opset 17 has no Gelu."""

    def number(what: str, value: float) -> str:
        return pieces.initializer(f"{name}/{what}", np.array(value))

    (x,) = inputs
    if layer.approximate == "none":
        scaled = pieces.node("Div", [x, number("root_of_two", math.sqrt(2))], f"{name}/scaled")
        bent = pieces.node("Erf", [scaled], f"{name}/erf")
    else:
        square = pieces.node("Mul", [x, x], f"{name}/square")
        cube = pieces.node("Mul", [square, x], f"{name}/cube")
        part = pieces.node("Mul", [cube, number("of_cube", 0.044715)], f"{name}/part")
        both = pieces.node("Add", [x, part], f"{name}/both")
        scale = number("scale", math.sqrt(2 / math.pi))
        scaled = pieces.node("Mul", [both, scale], f"{name}/scaled")
        bent = pieces.node("Tanh", [scaled], f"{name}/tanh")
    raised = pieces.node("Add", [bent, number("one", 1.0)], f"{name}/raised")
    half = pieces.node("Mul", [x, number("half", 0.5)], f"{name}/half_of_input")
    pieces.node("Mul", [half, raised], name)


def _relu6(
    pieces: GraphBuilder, name: str, layer: L.ReLU6, inputs: list[str], given: list[Shape]
) -> None:
    bounds = [
        pieces.initializer(f"{name}/{what}", np.array(number))
        for what, number in (("low", 0.0), ("high", 6.0))
    ]
    pieces.node("Clip", [*inputs, *bounds], name)


def _dropout(
    pieces: GraphBuilder, name: str, layer: L.Dropout, inputs: list[str], given: list[Shape]
) -> None:
    if pieces.training and name in pieces.masks:
        mask = pieces.initializer(f"{name}/mask", pieces.masks[name])
        kept = pieces.initializer(f"{name}/kept", np.array(1 - layer.rate))
        masked = pieces.node("Mul", [*inputs, mask], f"{name}/masked")
        pieces.node("Div", [masked, kept], name)
        return
    rate = 0.0 if pieces.training else layer.rate
    pieces.node("Dropout", [*inputs, pieces.initializer(f"{name}/rate", np.array(rate))], name)


def _reshape(
    pieces: GraphBuilder, name: str, layer: L.Reshape, inputs: list[str], given: list[Shape]
) -> None:
    """The batch, 0, stays what it is."""
    shape = pieces.initializer(f"{name}/shape", np.array([0, *layer.shape]))
    pieces.node("Reshape", [*inputs, shape], name)


def _transpose(
    pieces: GraphBuilder, name: str, layer: L.Transpose, inputs: list[str], given: list[Shape]
) -> None:
    pieces.node("Transpose", inputs, name, perm=[0, *layer.axes])


def _reduce_mean(
    pieces: GraphBuilder, name: str, layer: L.ReduceMean, inputs: list[str], given: list[Shape]
) -> None:
    pieces.node("ReduceMean", inputs, name, axes=[layer.axis], keepdims=0)


def _select(
    pieces: GraphBuilder, name: str, layer: L.Select, inputs: list[str], given: list[Shape]
) -> None:
    index = pieces.initializer(f"{name}/index", np.array(layer.index))
    pieces.node("Gather", [*inputs, index], name, axis=layer.axis)


def _pad(
    pieces: GraphBuilder, name: str, layer: L.Pad, inputs: list[str], given: list[Shape]
) -> None:
    rank = len(given[0])
    numbers = np.array([0, *layer.pads[:rank], 0, *layer.pads[rank:]])
    pads = pieces.initializer(f"{name}/pads", numbers)
    value = pieces.initializer(f"{name}/value", np.array(float(layer.value)))
    pieces.node("Pad", [*inputs, pads, value], name, mode="constant")


def _slice(
    pieces: GraphBuilder, name: str, layer: L.Slice, inputs: list[str], given: list[Shape]
) -> None:
    places = places_along(layer, given[0])
    numbers = {
        "starts": [each.start for each in places],
        "ends": [each.stop for each in places],
        "axes": range(1, len(places) + 1),
        "steps": [each.step for each in places],
    }
    held = [pieces.initializer(f"{name}/{key}", np.array(each)) for key, each in numbers.items()]
    pieces.node("Slice", [*inputs, *held], name)


def _gather(
    pieces: GraphBuilder, name: str, layer: L.Gather, inputs: list[str], given: list[Shape]
) -> None:
    indices = pieces.initializer(f"{name}/indices", np.array(layer.indices))
    pieces.node("Gather", [*inputs, indices], name, axis=layer.axis)


def _position_embedding(
    pieces: GraphBuilder,
    name: str,
    layer: L.PositionEmbedding,
    inputs: list[str],
    given: list[Shape],
) -> None:
    pieces.node("Add", [*inputs, f"{name}.weight"], name)


def _embedding(
    pieces: GraphBuilder, name: str, layer: L.Embedding, inputs: list[str], given: list[Shape]
) -> None:
    pieces.node("Gather", [f"{name}.weight", *inputs], name, axis=0)


def _lstm(
    pieces: GraphBuilder, name: str, layer: L.LSTM, inputs: list[str], given: list[Shape]
) -> None:
    """[N, T, F] to [T, N, F], ONNX LSTM of one direction, and back; B is [bias, 0]."""
    direction = pieces.initializer(f"{name}/direction_axis", np.array([0]))
    zeros = pieces.initializer(f"{name}/recurrent_bias", np.zeros(4 * layer.hidden))
    first = pieces.node("Unsqueeze", [f"{name}.input_weight", direction], f"{name}/W")
    second = pieces.node("Unsqueeze", [f"{name}.recurrent_weight", direction], f"{name}/R")
    both = pieces.node("Concat", [f"{name}.bias", zeros], f"{name}/biases", axis=0)
    bias = pieces.node("Unsqueeze", [both, direction], f"{name}/B")
    steps = pieces.node("Transpose", inputs, f"{name}/steps_first", perm=[1, 0, 2])
    pieces.node(
        "LSTM",
        [steps, first, second, bias],
        f"{name}/directions",
        name=name,
        hidden_size=layer.hidden,
        direction="forward",
    )
    axis = pieces.initializer(f"{name}/directions_axis", np.array([1]))
    hidden = pieces.node("Squeeze", [f"{name}/directions", axis], f"{name}/hidden")
    pieces.node("Transpose", [hidden], name, name=f"{name}/batch_first", perm=[1, 0, 2])


def _attention(
    pieces: GraphBuilder, name: str, layer: L.Attention, inputs: list[str], given: list[Shape]
) -> None:
    """[N, T, F] to heads [N, heads, T, d] three times, scores [N, heads, T, T], and back."""
    steps, features = given[0]
    size = features // layer.heads
    split = pieces.initializer(f"{name}/heads", np.array([0, steps, layer.heads, size]))

    def mapped(each: str, x: str, to: str) -> str:
        turned = [f"{name}.{each}_weight"]
        weight = pieces.node("Transpose", turned, f"{name}/{each}/weight", perm=[1, 0])
        if not layer.bias:
            return pieces.node("MatMul", [x, weight], to, name=f"{name}/{each}")
        product = pieces.node("MatMul", [x, weight], f"{to}/product", name=f"{name}/{each}")
        return pieces.node("Add", [product, f"{name}.{each}_bias"], to, name=f"{name}/{each}/add")

    def divided(each: str, order: list[int]) -> str:
        made = mapped(each, inputs[0], f"{name}/{each}")
        parts = pieces.node("Reshape", [made, split], f"{name}/{each}/heads")
        return pieces.node("Transpose", [parts], f"{name}/{each}/head", perm=order)

    queries, keys = divided("query", [0, 2, 1, 3]), divided("key", [0, 2, 3, 1])
    values = divided("value", [0, 2, 1, 3])
    products = pieces.node("MatMul", [queries, keys], f"{name}/products")
    scale = pieces.initializer(f"{name}/scale", np.array(1 / math.sqrt(size)))
    scores = pieces.node("Mul", [products, scale], f"{name}/scores")
    if layer.causal:
        above = np.triu(np.full((steps, steps), -np.inf), 1)
        mask = pieces.initializer(f"{name}/mask", above)
        scores = pieces.node("Add", [scores, mask], f"{name}/masked")
    shares = pieces.node("Softmax", [scores], f"{name}/shares", axis=-1)
    mixed = pieces.node("MatMul", [shares, values], f"{name}/mixed", name=name)
    order = pieces.node("Transpose", [mixed], f"{name}/steps", perm=[0, 2, 1, 3])
    shape = pieces.initializer(f"{name}/shape", np.array([0, steps, features]))
    mapped("output", pieces.node("Reshape", [order, shape], f"{name}/joined"), name)


def _plain(operator: str, **attributes: Any) -> Callable[..., None]:
    def rule(
        pieces: GraphBuilder, name: str, layer: L.Layer, inputs: list[str], given: list[Shape]
    ) -> None:
        pieces.node(operator, inputs, name, **attributes)

    return rule


def _concat(
    pieces: GraphBuilder, name: str, layer: L.Concat, inputs: list[str], given: list[Shape]
) -> None:
    pieces.node("Concat", inputs, name, axis=layer.axis)


_RULES: dict[type, Callable[..., None]] = {
    L.Conv: _conv,
    L.Linear: _linear,
    L.BatchNorm: _batch_norm,
    L.LayerNorm: _layer_norm,
    L.LRN: _lrn,
    L.MaxPool: _pool,
    L.AveragePool: _pool,
    L.GlobalAveragePool: _plain("GlobalAveragePool"),
    L.ReLU: _plain("Relu"),
    L.ReLU6: _relu6,
    L.Tanh: _plain("Tanh"),
    L.Sigmoid: _plain("Sigmoid"),
    L.HardSigmoid: _plain("HardSigmoid", alpha=1 / 6, beta=0.5),
    L.GELU: _gelu,
    L.Dropout: _dropout,
    L.Add: _plain("Add"),
    L.Mul: _plain("Mul"),
    L.Concat: _concat,
    L.Flatten: _plain("Flatten", axis=1),
    L.Reshape: _reshape,
    L.Transpose: _transpose,
    L.ReduceMean: _reduce_mean,
    L.Select: _select,
    L.Pad: _pad,
    L.Slice: _slice,
    L.Gather: _gather,
    L.Embedding: _embedding,
    L.PositionEmbedding: _position_embedding,
    L.LSTM: _lstm,
    L.Attention: _attention,
}
