"""The ONNX nodes of each layer: a rule for each layer type of :mod:`dlb.workload.layers`."""

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
from dlb.graph.elementwise import FUNCTIONS
from dlb.workload import layers as L
from dlb.workload.lower import lower_layer
from dlb.workload.model import Node
from dlb.workload.shapes import Shape, places_along
from dlb_worker.masks import kept_places
from dlb_worker.poolings import reaching_pads, rounds_up

__all__ = ["Graph", "add_layer"]

#: Real fields of layers that are no attribute of an operator.
_NO_ATTRIBUTES = ("init", "rate")
#: Layers whose real fields are constants of the graph.
_OF_CONSTANTS = (L.Mask, L.Where)


class Graph:
    """Nodes and initialisers of a graph under construction.

    Attributes:
        dtype: of every real number in it.
        training: whether batch normalisation uses the batch's statistics.
        masks: what dropout multiplies by in training, by layer name.
        offsets: what straight-through roundings add instead of rounding, by layer name.
        nodes: in order.
        initializers: by name.
        running: shapes of the running statistics that training outputs, by name.
    """

    def __init__(
        self,
        dtype: np.dtype[Any],
        training: bool,
        masks: Mapping[str, npt.NDArray[Any]],
        offsets: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        self.dtype = dtype
        self.training = training
        self.masks = masks
        self.offsets = offsets or {}
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
        """Add a node, named like its first output unless ``name`` is set; returns that output."""
        outputs = [output] if isinstance(output, str) else list(output)
        self.nodes.append(
            helper.make_node(operator, inputs, outputs, name=name or outputs[0], **attributes)
        )
        return outputs[0]

    def initializer(self, name: str, values: npt.NDArray[Any]) -> str:
        """Add an initialiser. Real numbers get the graph's dtype; integers stay int64, and truths bool."""
        kind = {"i": np.int64, "u": np.int64, "b": np.bool_}.get(values.dtype.kind, self.dtype)
        self.initializers[name] = np.asarray(values, kind, order="C")
        return name


def add_layer(graph: Graph, node: Node, shapes: list[Shape]) -> None:
    """Add the nodes of one layer.

    Args:
        shapes: of the layer's inputs, for one sample.

    Raises:
        WorkloadError: a real attribute has more digits than ONNX's float32 attributes keep.
    """
    fields = () if isinstance(node.layer, _OF_CONSTANTS) else node.layer.__struct_fields__
    for name in fields:
        value = getattr(node.layer, name)
        for number in value if isinstance(value, tuple) else (value,):
            if (
                isinstance(number, float)
                and name not in _NO_ATTRIBUTES
                and decimal(number) != number
            ):
                raise WorkloadError(
                    f"layer '{node.name}': {name} = {number!r} has more digits than an ONNX attribute "
                    f"(float32) keeps; write {decimal(number)!r}"
                )
    first = len(graph.nodes)
    _RULES[type(node.layer)](graph, node.name, node.layer, list(node.inputs), shapes)
    own = f"{node.name}."
    for added in graph.nodes[first:] if node.weights_of else ():
        added.input[:] = [
            f"{node.weights_of}.{name[len(own) :]}" if name.startswith(own) else name
            for name in added.input
        ]


def _conv(graph: Graph, name: str, layer: L.Conv, inputs: list[str], shapes: list[Shape]) -> None:
    parameters = [f"{name}.weight"] + ([f"{name}.bias"] if layer.bias else [])
    graph.node(
        "Conv",
        inputs + parameters,
        name,
        kernel_shape=list(layer.kernel),
        strides=list(layer.stride),
        pads=list(layer.pads),
        dilations=list(layer.dilation),
        group=layer.groups,
    )


def _conv_transpose(
    graph: Graph, name: str, layer: L.ConvTranspose, inputs: list[str], shapes: list[Shape]
) -> None:
    parameters = [f"{name}.weight"] + ([f"{name}.bias"] if layer.bias else [])
    graph.node(
        "ConvTranspose",
        inputs + parameters,
        name,
        kernel_shape=list(layer.kernel),
        strides=list(layer.stride),
        pads=list(layer.pads),
        output_padding=list(layer.output_padding),
        dilations=list(layer.dilation),
        group=layer.groups,
    )


def _linear(
    graph: Graph, name: str, layer: L.Linear, inputs: list[str], shapes: list[Shape]
) -> None:
    weight, bias = f"{layer.tied_to or name}.weight", f"{name}.bias"
    if len(shapes[0]) == 1:
        graph.node("Gemm", [*inputs, weight] + ([bias] if layer.bias else []), name, transB=1)
        return
    transposed = graph.node("Transpose", [weight], f"{name}/weight", perm=[1, 0])
    product = f"{name}/product" if layer.bias else name
    graph.node("MatMul", [*inputs, transposed], product, name=name)
    if layer.bias:
        graph.node("Add", [product, bias], name, name=f"{name}/add")


def _batch_norm(
    graph: Graph, name: str, layer: L.BatchNorm, inputs: list[str], shapes: list[Shape]
) -> None:
    outputs = [name]
    if graph.training:
        outputs += [f"{name}.mean/running", f"{name}.variance/running"]
        graph.running.update(dict.fromkeys(outputs[1:], (shapes[0][0],)))
    graph.node(
        "BatchNormalization",
        inputs + [f"{name}.{parameter}" for parameter in ("scale", "bias", "mean", "variance")],
        outputs,
        epsilon=layer.epsilon,
        momentum=layer.momentum,
        training_mode=int(graph.training),
    )


def _group_norm(
    graph: Graph, name: str, layer: L.GroupNorm, inputs: list[str], shapes: list[Shape]
) -> None:
    """Groups as channels, then a scale and a bias for each channel: opset 17 has no GroupNormalization."""
    channels, *sizes = shapes[0]
    scale, bias = f"{name}.scale", f"{name}.bias"
    if layer.groups == channels:
        inputs = [*inputs, scale, bias]
        graph.node("InstanceNormalization", inputs, name, epsilon=layer.epsilon)
        return
    split = graph.initializer(f"{name}/split", np.array([0, layer.groups, -1]))
    groups = graph.node("Reshape", [*inputs, split], f"{name}/groups")
    plain = [
        graph.initializer(f"{name}/{part}", np.full(layer.groups, number))
        for part, number in (("ones", 1.0), ("zeros", 0.0))
    ]
    normal = graph.node(
        "InstanceNormalization", [groups, *plain], f"{name}/normal", epsilon=layer.epsilon
    )
    shape = graph.initializer(f"{name}/shape", np.array([0, channels, *sizes]))
    joined = graph.node("Reshape", [normal, shape], f"{name}/joined")
    if sizes:
        axes = graph.initializer(f"{name}/axes", np.arange(1, 1 + len(sizes)))
        scale, bias = (
            graph.node("Unsqueeze", [f"{name}.{role}", axes], f"{name}/{role}")
            for role in ("scale", "bias")
        )
    graph.node("Add", [graph.node("Mul", [joined, scale], f"{name}/scaled"), bias], name)


def _rms_norm(
    graph: Graph, name: str, layer: L.RMSNorm, inputs: list[str], shapes: list[Shape]
) -> None:
    """RMSNormalization is of operator set 23."""
    (x,) = inputs
    squares = graph.node("Mul", [x, x], f"{name}/squares")
    mean = graph.node("ReduceMean", [squares], f"{name}/mean", axes=[-1])
    epsilon = graph.initializer(f"{name}/epsilon", np.array(layer.epsilon))
    root = graph.node("Sqrt", [graph.node("Add", [mean, epsilon], f"{name}/sum")], f"{name}/root")
    normal = graph.node("Div", [x, root], f"{name}/normal")
    graph.node("Mul", [normal, f"{name}.scale"], name)


def _pool(
    graph: Graph,
    name: str,
    layer: L.MaxPool | L.AveragePool,
    inputs: list[str],
    shapes: list[Shape],
) -> None:
    options: dict[str, Any] = {}
    if isinstance(layer, L.AveragePool):
        options["count_include_pad"] = int(layer.count_include_pad)
    elif max(layer.dilation) > 1:
        options["dilations"] = list(layer.dilation)
    resolved = lower_layer(layer, shapes[0])
    ceil_mode, pads = rounds_up(resolved), layer.pads
    if ceil_mode is None:
        extended_pads = reaching_pads(resolved)
        # Padding that only rounding up reaches is never counted.
        ceil_mode = bool(options.get("count_include_pad")) and any(
            map(int.__gt__, extended_pads, pads)
        )
        pads = pads if ceil_mode else extended_pads
    graph.node(
        "AveragePool" if isinstance(layer, L.AveragePool) else "MaxPool",
        inputs,
        name,
        kernel_shape=list(layer.kernel),
        strides=list(layer.stride),
        pads=list(pads),
        ceil_mode=int(ceil_mode),
        **options,
    )


def _gelu(graph: Graph, name: str, layer: L.GELU, inputs: list[str], shapes: list[Shape]) -> None:
    """x / 2 times (1 + erf or tanh): opset 17 has no Gelu."""

    def number(name_part: str, value: float) -> str:
        return graph.initializer(f"{name}/{name_part}", np.array(value))

    (x,) = inputs
    if layer.approximate == "none":
        scaled = graph.node("Div", [x, number("root_of_two", math.sqrt(2))], f"{name}/scaled")
        curve = graph.node("Erf", [scaled], f"{name}/erf")
    else:
        square = graph.node("Mul", [x, x], f"{name}/square")
        cube = graph.node("Mul", [square, x], f"{name}/cube")
        scaled_cube = graph.node("Mul", [cube, number("of_cube", 0.044715)], f"{name}/part")
        inner_sum = graph.node("Add", [x, scaled_cube], f"{name}/both")
        scale = number("scale", math.sqrt(2 / math.pi))
        scaled = graph.node("Mul", [inner_sum, scale], f"{name}/scaled")
        curve = graph.node("Tanh", [scaled], f"{name}/tanh")
    curve_plus_one = graph.node("Add", [curve, number("one", 1.0)], f"{name}/raised")
    half = graph.node("Mul", [x, number("half", 0.5)], f"{name}/half_of_input")
    graph.node("Mul", [half, curve_plus_one], name)


def _relu6(graph: Graph, name: str, layer: L.ReLU6, inputs: list[str], shapes: list[Shape]) -> None:
    bounds = [
        graph.initializer(f"{name}/{bound_name}", np.array(number))
        for bound_name, number in (("low", 0.0), ("high", 6.0))
    ]
    graph.node("Clip", [*inputs, *bounds], name)


def _elementwise(
    graph: Graph, name: str, layer: L.Elementwise, inputs: list[str], shapes: list[Shape]
) -> None:
    if layer.function == "clip":
        bounds = [
            graph.initializer(f"{name}/{side}", np.array(layer.numbers[side]))
            if side in layer.numbers
            else ""
            for side in ("min", "max")
        ]
        graph.node("Clip", [*inputs, *bounds], name)
        return
    if name in graph.offsets:
        offset = graph.initializer(f"{name}/offset", graph.offsets[name])
        graph.node("Add", [*inputs, offset], name)
        return
    if layer.function == "affine":
        steps = [
            (operator, number)
            for operator, number, same in (("Mul", layer.alpha, 1.0), ("Add", layer.beta, 0.0))
            if number != same
        ]
        (value,) = inputs
        for operator, number in steps:
            part = f"{name}/{operator.lower()}"
            constant = graph.initializer(f"{part}/number", np.array(number))
            last = operator == steps[-1][0]
            value = graph.node(operator, [value, constant], name if last else part)
        return
    if layer.function == "pow":
        exponent = graph.initializer(f"{name}/exponent", np.array(layer.alpha))
        graph.node("Pow", [*inputs, exponent], name)
        return
    gates = {"silu": ("Sigmoid",), "mish": ("Softplus", "Tanh")}.get(layer.function, ())
    if not gates:
        numbers: dict[str, Any] = dict(layer.numbers)
        graph.node(FUNCTIONS[layer.function].operator, inputs, name, **numbers)
        return
    (gate,) = inputs
    for operator in gates:
        gate = graph.node(operator, [gate], f"{name}/{operator.lower()}")
    graph.node("Mul", [*inputs, gate], name)


def _prelu(graph: Graph, name: str, layer: L.PReLU, inputs: list[str], shapes: list[Shape]) -> None:
    """ONNX aligns slopes with the last axis."""
    slope, places = f"{name}.slope", len(shapes[0]) - 1
    if places and not layer.shared:
        axes = graph.initializer(f"{name}/axes", np.arange(1, 1 + places))
        slope = graph.node("Unsqueeze", [slope, axes], f"{name}/slope")
    graph.node("PRelu", [*inputs, slope], name)


def _dropout(
    graph: Graph, name: str, layer: L.Dropout, inputs: list[str], shapes: list[Shape]
) -> None:
    if graph.training and name in graph.masks:
        mask = graph.initializer(f"{name}/mask", graph.masks[name])
        keep_rate = graph.initializer(f"{name}/kept", np.array(1 - layer.rate))
        masked = graph.node("Mul", [*inputs, mask], f"{name}/masked")
        graph.node("Div", [masked, keep_rate], name)
        return
    rate = 0.0 if graph.training else layer.rate
    graph.node("Dropout", [*inputs, graph.initializer(f"{name}/rate", np.array(rate))], name)


def _reshape(
    graph: Graph, name: str, layer: L.Reshape, inputs: list[str], shapes: list[Shape]
) -> None:
    """A 0 in the shape keeps the batch."""
    shape = graph.initializer(f"{name}/shape", np.array([0, *layer.shape]))
    graph.node("Reshape", [*inputs, shape], name)


def _transpose(
    graph: Graph, name: str, layer: L.Transpose, inputs: list[str], shapes: list[Shape]
) -> None:
    graph.node("Transpose", inputs, name, perm=[0, *layer.axes])


def _reduce(
    graph: Graph, name: str, layer: L.Reduce, inputs: list[str], shapes: list[Shape]
) -> None:
    """Opset 17 has the axes of a sum as an input, and of the others as an attribute."""
    operator, keepdims = f"Reduce{layer.function.title()}", int(layer.keepdims)
    if layer.function == "sum":
        axes = graph.initializer(f"{name}/axes", np.array(layer.axes))
        graph.node(operator, [*inputs, axes], name, keepdims=keepdims)
    else:
        graph.node(operator, inputs, name, axes=list(layer.axes), keepdims=keepdims)


def _binary(
    graph: Graph, name: str, layer: L.Binary, inputs: list[str], shapes: list[Shape]
) -> None:
    graph.node(layer.function.title(), inputs, name)


def _where(graph: Graph, name: str, layer: L.Where, inputs: list[str], shapes: list[Shape]) -> None:
    truth = graph.node("Cast", inputs[:1], f"{name}/truth", to=onnx.TensorProto.BOOL)
    values = inputs[1:]
    for place, number in enumerate((layer.first, layer.second)):
        if number is not None:
            values.insert(place, graph.initializer(f"{name}/number", np.array(number)))
    graph.node("Where", [truth, *values], name)


def _softmax(
    graph: Graph, name: str, layer: L.Softmax, inputs: list[str], shapes: list[Shape]
) -> None:
    graph.node("LogSoftmax" if layer.log else "Softmax", inputs, name, axis=layer.axis)


def _top_k(graph: Graph, name: str, layer: L.TopK, inputs: list[str], shapes: list[Shape]) -> None:
    k = graph.initializer(f"{name}/k", np.array([layer.k]))
    outputs = [f"{name}/values", f"{name}/indices"]
    graph.node("TopK", [*inputs, k], outputs, axis=layer.axis, largest=int(layer.largest))
    real = helper.np_dtype_to_tensor_dtype(graph.dtype)
    graph.node("Cast", outputs[1:], name, to=real)


def _gather_elements(
    graph: Graph, name: str, layer: L.GatherElements, inputs: list[str], shapes: list[Shape]
) -> None:
    """Indices within bounds; both inputs with equal sizes along all other axes."""
    along = layer.axis - 1
    bounds = [
        graph.initializer(f"{name}/{end}", np.array(float(number)))
        for end, number in (("first", 0), ("last", shapes[0][along] - 1))
    ]
    within = graph.node("Clip", [inputs[1], *bounds], f"{name}/within")
    both = [inputs[0], graph.node("Cast", [within], f"{name}/indices", to=onnx.TensorProto.INT64)]
    common = list(map(max, *shapes))
    for place, shape in enumerate(shapes):
        sizes = [size if axis == along else common[axis] for axis, size in enumerate(shape)]
        if list(shape) != sizes:
            repeated = graph.initializer(f"{name}/sizes{place}", np.array([1, *sizes]))
            both[place] = graph.node("Expand", [both[place], repeated], f"{name}/repeated{place}")
    graph.node("GatherElements", both, name, axis=layer.axis)


def _mask(graph: Graph, name: str, layer: L.Mask, inputs: list[str], shapes: list[Shape]) -> None:
    kept = graph.initializer(f"{name}/kept", kept_places(lower_layer(layer, shapes[0])))
    value = graph.initializer(f"{name}/value", np.array(layer.value))
    graph.node("Where", [kept, *inputs, value], name)


def _resize(
    graph: Graph, name: str, layer: L.Resize, inputs: list[str], shapes: list[Shape]
) -> None:
    """Sizes include the batch's, which is read from the value."""
    attributes: dict[str, Any] = {
        "mode": layer.mode,
        "coordinate_transformation_mode": layer.coordinates,
    }
    if layer.mode == "cubic":
        attributes |= {
            "cubic_coeff_a": layer.cubic_a,
            "exclude_outside": int(layer.exclude_outside),
        }
    if layer.scales:
        # Scales are float32 in a graph of any type.
        graph.initializers[f"{name}/scales"] = np.array([1, *layer.scales], np.float32)
        graph.node("Resize", [*inputs, "", f"{name}/scales"], name, **attributes)
        return
    first = graph.initializer(f"{name}/first", np.array([0]))
    sizes = graph.initializer(f"{name}/sizes", np.array(layer.sizes))
    shape = graph.node("Shape", inputs, f"{name}/shape")
    batch = graph.node("Gather", [shape, first], f"{name}/batch", axis=0)
    whole = graph.node("Concat", [batch, sizes], f"{name}/whole", axis=0)
    graph.node("Resize", [*inputs, "", "", whole], name, **attributes)


def _reduce_mean(
    graph: Graph, name: str, layer: L.ReduceMean, inputs: list[str], shapes: list[Shape]
) -> None:
    graph.node("ReduceMean", inputs, name, axes=[layer.axis], keepdims=0)


def _select(
    graph: Graph, name: str, layer: L.Select, inputs: list[str], shapes: list[Shape]
) -> None:
    index = graph.initializer(f"{name}/index", np.array(layer.index))
    graph.node("Gather", [*inputs, index], name, axis=layer.axis)


def _pad(graph: Graph, name: str, layer: L.Pad, inputs: list[str], shapes: list[Shape]) -> None:
    rank = len(shapes[0])
    numbers = np.array([0, *layer.pads[:rank], 0, *layer.pads[rank:]])
    pads = graph.initializer(f"{name}/pads", numbers)
    value = graph.initializer(f"{name}/value", np.array(float(layer.value)))
    graph.node("Pad", [*inputs, pads, value], name, mode="constant")


def _slice(graph: Graph, name: str, layer: L.Slice, inputs: list[str], shapes: list[Shape]) -> None:
    ranges = places_along(layer, shapes[0])
    numbers = {
        "starts": [span.start for span in ranges],
        "ends": [span.stop for span in ranges],
        "axes": range(1, len(ranges) + 1),
        "steps": [span.step for span in ranges],
    }
    constants = [
        graph.initializer(f"{name}/{key}", np.array(span)) for key, span in numbers.items()
    ]
    graph.node("Slice", [*inputs, *constants], name)


def _gather(
    graph: Graph, name: str, layer: L.Gather, inputs: list[str], shapes: list[Shape]
) -> None:
    indices = graph.initializer(f"{name}/indices", np.array(layer.indices))
    graph.node("Gather", [*inputs, indices], name, axis=layer.axis)


def _embedding(
    graph: Graph, name: str, layer: L.Embedding, inputs: list[str], shapes: list[Shape]
) -> None:
    graph.node("Gather", [f"{name}.weight", *inputs], name, axis=0)


def _recurrent(
    graph: Graph, name: str, layer: L.LSTM | L.GRU | L.RNN, inputs: list[str], shapes: list[Shape]
) -> None:
    """[N, T, F] to [T, N, F], a forward ONNX operator, and back. One bias is B = [bias, 0]."""
    rows = L.GATES[type(layer)] * layer.hidden
    direction = graph.initializer(f"{name}/direction_axis", np.array([0]))
    input_weight = graph.node("Unsqueeze", [f"{name}.input_weight", direction], f"{name}/W")
    recurrent_weight = graph.node("Unsqueeze", [f"{name}.recurrent_weight", direction], f"{name}/R")
    if L.has_two_biases(layer):
        shape = graph.initializer(f"{name}/bias_shape", np.array([1, 2 * rows]))
        bias = graph.node("Reshape", [f"{name}.bias", shape], f"{name}/B")
    else:
        zeros = graph.initializer(f"{name}/recurrent_bias", np.zeros(rows))
        biases = graph.node("Concat", [f"{name}.bias", zeros], f"{name}/biases", axis=0)
        bias = graph.node("Unsqueeze", [biases, direction], f"{name}/B")
    steps_first = graph.node("Transpose", inputs, f"{name}/steps_first", perm=[1, 0, 2])
    options: dict[str, Any] = {}
    if isinstance(layer, L.GRU):
        options["linear_before_reset"] = int(layer.linear_before_reset)
    if isinstance(layer, L.RNN):
        options["activations"] = [layer.activation.title()]
    graph.node(
        type(layer).__name__,
        [steps_first, input_weight, recurrent_weight, bias],
        f"{name}/directions",
        name=name,
        hidden_size=layer.hidden,
        direction="forward",
        **options,
    )
    axis = graph.initializer(f"{name}/directions_axis", np.array([1]))
    hidden = graph.node("Squeeze", [f"{name}/directions", axis], f"{name}/hidden")
    graph.node("Transpose", [hidden], name, name=f"{name}/batch_first", perm=[1, 0, 2])


def _attention(
    graph: Graph, name: str, layer: L.Attention, inputs: list[str], shapes: list[Shape]
) -> None:
    """[N, T, F] to three times heads [N, heads, T, d], scores [N, heads, T, T], and back."""
    steps, features = shapes[0]
    size = features // layer.heads
    split = graph.initializer(f"{name}/heads", np.array([0, steps, layer.heads, size]))

    def linear_map(role: str, x: str, output: str) -> str:
        weight = f"{name}.{role}_weight"
        weight = graph.node("Transpose", [weight], f"{name}/{role}/weight", perm=[1, 0])
        if not layer.bias:
            return graph.node("MatMul", [x, weight], output, name=f"{name}/{role}")
        product = graph.node("MatMul", [x, weight], f"{output}/product", name=f"{name}/{role}")
        return graph.node(
            "Add", [product, f"{name}.{role}_bias"], output, name=f"{name}/{role}/add"
        )

    def split_heads(role: str, perm: list[int]) -> str:
        mapped = linear_map(role, inputs[0], f"{name}/{role}")
        heads = graph.node("Reshape", [mapped, split], f"{name}/{role}/heads")
        return graph.node("Transpose", [heads], f"{name}/{role}/head", perm=perm)

    queries, keys = split_heads("query", [0, 2, 1, 3]), split_heads("key", [0, 2, 3, 1])
    values = split_heads("value", [0, 2, 1, 3])
    products = graph.node("MatMul", [queries, keys], f"{name}/products")
    scale = graph.initializer(f"{name}/scale", np.array(1 / math.sqrt(size)))
    scores = graph.node("Mul", [products, scale], f"{name}/scores")
    if layer.causal:
        future = np.triu(np.full((steps, steps), -np.inf), 1)
        mask = graph.initializer(f"{name}/mask", future)
        scores = graph.node("Add", [scores, mask], f"{name}/masked")
    probabilities = graph.node("Softmax", [scores], f"{name}/shares", axis=-1)
    attended = graph.node("MatMul", [probabilities, values], f"{name}/mixed", name=name)
    steps_first = graph.node("Transpose", [attended], f"{name}/steps", perm=[0, 2, 1, 3])
    shape = graph.initializer(f"{name}/shape", np.array([0, steps, features]))
    linear_map("output", graph.node("Reshape", [steps_first, shape], f"{name}/joined"), name)


def _operator(
    operator: str, *, parameters: Sequence[str] = (), fields: Sequence[str] = (), **attributes: Any
) -> Callable[..., None]:
    """A rule for a layer that is one operator.

    Args:
        parameters: of the layer, which the operator reads after the layer's inputs.
        fields: of the layer, which are attributes of the same names.
        attributes: the other attributes.
    """

    def rule(
        graph: Graph, name: str, layer: L.Layer, inputs: list[str], shapes: list[Shape]
    ) -> None:
        read = [*inputs, *(f"{name}.{parameter}" for parameter in parameters)]
        copied = {field: getattr(layer, field) for field in fields}
        graph.node(operator, read, name, **copied, **attributes)

    return rule


_RULES: dict[type, Callable[..., None]] = {
    L.Conv: _conv,
    L.ConvTranspose: _conv_transpose,
    L.Linear: _linear,
    L.BatchNorm: _batch_norm,
    L.LayerNorm: _operator(
        "LayerNormalization", parameters=("scale", "bias"), fields=("epsilon",), axis=-1
    ),
    L.GroupNorm: _group_norm,
    L.RMSNorm: _rms_norm,
    L.LRN: _operator("LRN", fields=("alpha", "beta", "bias", "size")),
    L.MaxPool: _pool,
    L.AveragePool: _pool,
    L.GlobalAveragePool: _operator("GlobalAveragePool"),
    L.ReLU: _operator("Relu"),
    L.ReLU6: _relu6,
    L.Tanh: _operator("Tanh"),
    L.Sigmoid: _operator("Sigmoid"),
    L.HardSigmoid: _operator("HardSigmoid", alpha=1 / 6, beta=0.5),
    L.GELU: _gelu,
    L.Elementwise: _elementwise,
    L.PReLU: _prelu,
    L.Dropout: _dropout,
    L.Add: _operator("Add"),
    L.Mul: _operator("Mul"),
    L.Binary: _binary,
    L.Where: _where,
    L.MatMul: _operator("MatMul"),
    L.Scale: _operator("Mul", parameters=("scale",)),
    L.Shift: _operator("Add", parameters=("bias",)),
    L.Mask: _mask,
    L.Resize: _resize,
    L.Softmax: _softmax,
    L.Reduce: _reduce,
    L.TopK: _top_k,
    L.GatherElements: _gather_elements,
    L.Concat: _operator("Concat", fields=("axis",)),
    L.Flatten: _operator("Flatten", axis=1),
    L.Reshape: _reshape,
    L.Transpose: _transpose,
    L.ReduceMean: _reduce_mean,
    L.Select: _select,
    L.Pad: _pad,
    L.Slice: _slice,
    L.Gather: _gather,
    L.Embedding: _embedding,
    L.PositionEmbedding: _operator("Add", parameters=("weight",)),
    **dict.fromkeys(L.RECURRENT, _recurrent),
    L.Attention: _attention,
}
