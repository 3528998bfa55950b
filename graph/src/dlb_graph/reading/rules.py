"""A rule for each supported operator: the layer that it means, and its weights.

A rule returns the view of its node's first output. It raises
:class:`~dlb_graph.reading.layers.UnsupportedNode` if the node is used in an unsupported way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from dlb_graph import layers as L
from dlb_graph.layers.decimals import decimal
from dlb_graph.layers.numbers import Array
from dlb_graph.layers.windows import Window, window_of
from dlb_graph.reading.combining import arithmetic, concat, elementwise
from dlb_graph.reading.importer import Attributes, Importer, Rule
from dlb_graph.reading.layers import InputMisread, PendingAttention, UnsupportedNode, unsupported
from dlb_graph.reading.maps import Maps, add_map, map_layer, maps_of_samples, rows_as_map
from dlb_graph.reading.masks import triangle, where
from dlb_graph.reading.matrices import matrices_times, matrix_times, times_matrices
from dlb_graph.reading.normalisations import group_norm, rms_norm
from dlb_graph.reading.primitives import (
    COMPOSED_REDUCTIONS,
    matmul,
    matmul_of_a_constant,
    power,
    reduce,
    softmax,
)
from dlb_graph.reading.recurrent import recurrent
from dlb_graph.reading.resizing import resize
from dlb_graph.reading.samples_first import samples_first
from dlb_graph.reading.selections import gathered, look_up, rank, scatter, select_places
from dlb_graph.reading.slices import pad, select_part
from dlb_graph.reading.slopes import prelu
from dlb_graph.reading.transformers import (
    attention,
    complete_attention,
    gelu,
    layer_norm,
    reduce_mean,
)
from dlb_graph.reading.transposed import conv_transpose
from dlb_graph.reading.views import (
    ValueView,
    axes_of,
    layout_layers,
    per_channel,
    positions,
    view_of,
)
from dlb_graph.truth.blocks import BLOCK_OPERATORS
from dlb_graph.truth.bounds import bounds_of
from dlb_graph.truth.copies import COPY_OPERATORS
from dlb_graph.truth.elementwise_blocks import NAMED, named
from dlb_graph.truth.layout import (
    LAYOUT,
    REPEATING,
    RESIZING,
    SCATTERING,
    SELECTING,
    padding_before,
)
from dlb_graph.truth.lookups import LOOKING_UP, RANKING, one_hot_table
from dlb_graph.truth.operators import ACTIVATIONS

__all__ = ["READ_OPERATORS", "RULES"]


def _conv(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    weights = importer.weights(node)
    weight = weights["weight"]
    if weight.ndim not in (3, 4, 5):
        raise unsupported(node, f"has {weight.ndim - 2} spatial axes; dlb's convolution has 2 or 3")
    data, window, _ = _padded_window(importer, node, attributes, tuple(weight.shape[2:]), L.Conv)
    layer = L.Conv(
        out_channels=len(weight),
        kernel=data.sizes(window.kernel, 1),
        stride=data.sizes(window.stride, 1),
        pads=data.pads(window),
        dilation=data.sizes(window.dilation, 1),
        groups=attributes.get("group", 1),
        bias="bias" in weights,
    )
    weights["weight"] = weight.reshape(*weight.shape[:2], *layer.kernel)
    return data.add(importer, node, layer, weights)


def _pool(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    if node.op_type == "GlobalMaxPool":
        map_size = list(importer.value_shape(node.input[0])[2:])
        attributes = {"kernel_shape": map_size, "strides": map_size}
    kernel = tuple(attributes["kernel_shape"])
    if len(kernel) not in (1, 2, 3):
        raise unsupported(node, f"has {len(kernel)} spatial axes; dlb's poolings have 2 or 3")
    layer_type = L.AveragePool if node.op_type == "AveragePool" else L.MaxPool
    dilations = attributes.get("dilations", [1])
    if layer_type is L.AveragePool and set(dilations) != {1}:
        raise unsupported(node, f"dilations = {dilations}")
    data, window, merged = _padded_window(importer, node, attributes, kernel, layer_type)
    options: dict[str, Any] = {}
    if layer_type is L.AveragePool:
        options["count_include_pad"] = bool(attributes.get("count_include_pad", 0)) or merged
    else:
        options["dilation"] = data.sizes(window.dilation, 1)
    layer = layer_type(
        kernel=data.sizes(window.kernel, 1),
        stride=data.sizes(window.stride, 1),
        pads=data.pads(window),
        ceil_mode=bool(attributes.get("ceil_mode", 0)),
        **options,
    )
    return data.add(importer, node, layer)


def _padded_window(
    importer: Importer,
    node: onnx.NodeProto,
    attributes: Attributes,
    kernel: tuple[int, ...],
    layer_type: type,
) -> tuple[Maps, Window, bool]:
    """The windows of a convolution or a pooling, merged with a Pad before it if both mean the same.

    Returns:
        what the windows read, the windows, and whether a Pad was merged.
    """
    name = node.input[0]
    size = importer.value_shape(name)[2:]
    window = window_of(lambda key, default: attributes.get(key, default), size, kernel)
    several = maps_of_samples(importer, name)
    if several is not None:
        return several, window, False
    padding = padding_before(importer.trace, name)
    if not padding.before:
        return Maps(map_layer(importer, node, name)), window, False
    has_own_padding = any(window.before) or any(window.after)
    inner = window.with_padding(padding.before, padding.after)
    shape = (*importer.value_shape(name)[:2], *inner.size)
    layer = map_layer(importer, node, padding.value, shape)
    nonnegative = isinstance(
        importer.layers[layer].layer, (L.ReLU, L.ReLU6, L.Sigmoid, L.HardSigmoid)
    )
    mergeable: dict[type, bool] = {
        L.Conv: padding.number == 0,
        L.AveragePool: padding.number == 0
        and bool(attributes.get("count_include_pad", 0) or not has_own_padding),
        L.MaxPool: padding.number < -3e38 or (padding.number == 0 and nonnegative),
    }
    if not mergeable[layer_type]:  # the padding becomes a layer of its own
        return Maps(map_layer(importer, node, name)), window, False
    return Maps(layer), inner, True


_ACTIVATIONS: Mapping[str, L.Layer] = {"Relu": L.ReLU(), "Tanh": L.Tanh(), "Sigmoid": L.Sigmoid()}


def _activation(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    return elementwise(importer, node, _ACTIVATIONS[node.op_type], node.input[0])


def _hard_sigmoid(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A hard sigmoid, or its product with its input, as an operator or decomposed."""
    block = importer.blocks.get(node.output[0])
    if block is None:
        alpha, beta = attributes.get("alpha", 0.2), attributes.get("beta", 0.5)
        layer = L.Elementwise(function="hard_sigmoid", alpha=decimal(alpha), beta=decimal(beta))
        return elementwise(importer, node, layer, node.input[0])
    (input_name,) = block.inputs
    importer.revert_fusion(input_name)
    importer.nominal_values.update(block.nominal_values)
    view = importer.elementwise(input_name)
    shape = importer.shape(view)
    gate, is_swish = L.HardSigmoid(), block.kind == "HardSwish"
    layer_name = node.name or node.output[0]
    name = importer.add_named(
        f"{layer_name}_gate" if is_swish else layer_name, gate, (view.layer,), {}, shape
    )
    if is_swish:
        name = importer.add_named(layer_name, L.Mul(), (view.layer, name), {}, shape)
    return importer.value_of(node, name, importer.index_map_of(view))


#: The layers that limit a value to these bounds.
_BOUNDS: Mapping[tuple[float, float], L.Layer] = {(0.0, math.inf): L.ReLU(), (0.0, 6.0): L.ReLU6()}


def _clip(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """Clip, or the maximum or minimum of a value and a number, as a ReLU or a ReLU6 if it is one."""
    if node.op_type != "Clip" and importer.trace.live.issuperset(node.input):
        return arithmetic(importer, node, attributes)
    bounds = bounds_of(importer.trace, node, attributes)
    if bounds is None:
        raise unsupported(node, "each bound must be one constant number")
    (name,) = (name for name in node.input if name in importer.trace.live)
    view = importer.elementwise(name)
    low, high = bounds
    # The lower bound may come from the ReLU before it.
    only_upper = low < 0 and isinstance(importer.layers[view.layer].layer, (L.ReLU, L.ReLU6))
    layer = _BOUNDS.get((0.0 if only_upper else low, high))
    if layer is None:
        finite = {"min": low, "max": high}
        numbers = {k: decimal(v) for k, v in finite.items() if math.isfinite(v)}
        if not numbers:
            return view
        importer.nominal_values.update(
            (bound, decimal(float(importer.trace.values[bound].ravel()[0])))
            for bound in node.input
            if bound and bound not in importer.trace.live
        )
        only_upper, layer = False, L.Elementwise(function="clip", **numbers)
    if only_upper and importer.has_one_reader(name):
        importer.change(view.layer, layer=layer)
        return view
    return elementwise(importer, node, layer, name)


def _function(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A function of single numbers, as an operator or decomposed; or a mask."""
    block = importer.blocks.get(node.output[0])
    if block is None and node.op_type == "Where":
        return where(importer, node)
    if block is None and node.op_type not in NAMED:
        raise unsupported(node, "dlb has no layer for this use of the operator")
    if block is None:
        function, numbers = named(node, attributes)
        others = numbers.keys() - set(L.FUNCTION_NUMBERS.get(function, ()))
        if others:
            raise unsupported(node, f"{', '.join(sorted(others))} other than ONNX's own")
        layer = L.Elementwise(function=function, **numbers)  # type: ignore[arg-type]
        return elementwise(importer, node, layer, node.input[0])
    importer.revert_fusion(block.inputs[0])
    importer.nominal_values.update(block.nominal_values)
    return elementwise(importer, node, L.Elementwise(**block.attributes), block.inputs[0])


def _dropout(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    if not importer.trace.live.isdisjoint(node.input[1:]):
        raise unsupported(node, "its rate or mode depends on the input")
    ratio, training = importer.trace.constant(node, 1), importer.trace.constant(node, 2)
    if training is not None and bool(np.any(training)):
        raise unsupported(node, "in training mode; export the model for inference")
    rate = attributes.get("ratio", 0.5) if ratio is None else float(np.ravel(ratio)[0])
    return elementwise(importer, node, L.Dropout(rate=decimal(float(rate))), node.input[0])


def _batch_norm(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    constants = importer.weights(node)
    if attributes.get("training_mode", 0) or not attributes.get("spatial", 1):
        raise unsupported(node, "in training mode, or with statistics for each number (spatial 0)")
    view = importer.elementwise(node.input[0])
    weights = _norm_weights(importer, node, view, constants)
    if weights is None:  # the normalised axis is not the layer's channels: transpose it first
        if importer.trace.values[node.input[0]].ndim == 3:
            view = rows_as_map(importer, node, node.input[0])
        elif importer.trace.values[node.input[0]].ndim == 2:
            view = _steps_as_map(importer, node)
        else:
            view = importer.materialise_layout(node.input[0])
        weights = _norm_weights(importer, node, view, constants)
    if weights is None:
        raise unsupported(
            node,
            f"it does not normalise the channels of layer '{view.layer}' {list(importer.shape(view))}",
        )
    layer = L.BatchNorm(
        epsilon=decimal(attributes.get("epsilon", 1e-5)),
        momentum=decimal(attributes.get("momentum", 0.9)),
    )
    return importer.apply(node, layer, view, weights)


def _steps_as_map(importer: Importer, node: onnx.NodeProto) -> ValueView:
    """Steps of sequences that a node reads as samples, as a map [N, features, T, 1]."""
    value = samples_first(importer, node, node.input[0])
    if not value.shifted:
        return importer.materialise_layout(node.input[0])
    samples, steps, features = value.shape
    shape = (samples, features, steps, 1)
    turned = importer.add(node, L.Transpose(axes=(2, 1)), [value.layer], (samples, features, steps))
    name = importer.add(node, L.Reshape(shape=shape[1:]), [turned], shape)
    index_map = value.view(value.layer, value.shape)
    order = importer.index_map_of(index_map)
    places = positions(shape).reshape(samples, features, steps).transpose(0, 2, 1)
    return view_of(name, places.ravel()[order], shape)


def _norm_weights(
    importer: Importer, node: onnx.NodeProto, view: ValueView, constants: Mapping[str, Array]
) -> dict[str, Array] | None:
    """The weights of a batch normalisation, by name, each float64 [C].

    Args:
        view: of the value that the node reads.
        constants: as the node reads them.

    Returns:
        None if the node does not normalise the channels of the layer.
    """
    value, shape = importer.trace.values[node.input[0]], importer.shape(view)
    weights = {}
    for name, constant in constants.items():
        if len(shape) not in (2, 4, 5):
            return None
        if view.index_map is None:  # spares the numbers of large maps
            weights[name] = constant.ravel()
            continue
        broadcast = np.broadcast_to(constant.reshape(1, -1, *(1,) * (value.ndim - 2)), value.shape)
        channels = per_channel(broadcast, view.index_map, shape)
        if channels is None:
            return None
        weights[name] = channels
    return weights


def _lrn(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    block = importer.blocks.get(node.output[0])
    if block is not None:
        attributes = block.attributes
        importer.nominal_values.update(block.nominal_values)
        if attributes["before"] != (attributes["size"] - 1) // 2:
            raise unsupported(node, "normalises over channels on one side only")
    layer = L.LRN(
        size=attributes["size"],
        alpha=decimal(attributes.get("alpha", 1e-4)),
        beta=decimal(attributes.get("beta", 0.75)),
        bias=decimal(attributes.get("bias", 1.0)),
    )
    return add_map(importer, node, layer, importer.as_map(node, node.input[0]).layer)


def _linear(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """Gemm and MatMul with a constant matrix on the right."""
    if node.op_type == "MatMul" and importer.trace.live.issuperset(node.input):
        return matmul(importer, node)
    left, right = (importer.trace.constant(node, place) for place in (0, 1))
    if node.op_type == "MatMul" and left is not None and left.ndim == 2:
        return matrix_times(importer, node, left)
    several = [each for each in (left, right) if each is not None and each.ndim > 2]
    if node.op_type == "MatMul" and several:
        product = times_matrices if left is None else matrices_times
        try:
            return product(importer, node, several[0])
        except UnsupportedNode as reason:
            try:
                return matmul_of_a_constant(importer, node)
            except UnsupportedNode:
                raise reason from None
    constants = importer.weights(node)
    weight, bias = constants["weight"], constants.get("bias")
    if weight.ndim != 2 or attributes.get("transA", 0):
        raise unsupported(node, "only a value times a constant matrix is supported")
    if (alpha := attributes.get("alpha", 1.0)) != 1:
        weight = weight * alpha
    source, rows, order = importer.features(node, node.input[0])
    if not np.array_equal(order, np.arange(len(order))):
        weight = weight[:, np.argsort(order)]
    out_features = len(weight)
    weights = {"weight": weight}
    if bias is not None:
        biases = np.broadcast_to(bias, (len(rows), out_features)) * attributes.get("beta", 1.0)
        if not (biases == biases[:1]).all():
            raise unsupported(node, "adds different numbers to each row")
        weights["bias"] = biases[0]
    layer = L.Linear(out_features=out_features, bias=bias is not None)
    shape = (*importer.layers[source].shape[:-1], out_features)
    if isinstance(importer.layers[source].layer, PendingAttention) and importer.has_one_reader(
        node.input[0]
    ):
        complete_attention(importer, node, source, weight, weights.get("bias"))
        layer_name = source
    else:
        layer_name = importer.add(node, layer, [source], shape, weights)
    return importer.value_of(
        node, layer_name, rows[:, None] * out_features + np.arange(out_features)
    )


def _embedding(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    table = importer.trace.constant(node, 0)
    if table is None:
        return look_up(importer, node) or select_part(importer, node, attributes)
    if table.ndim != 2 or attributes.get("axis", 0):
        raise unsupported(node, "only looking up rows of a constant table is supported")
    view, index_map = importer.view(node.input[1]), importer.index_map(node.input[1])
    if importer.kind != "index" and importer.is_part_of_input(view.layer):
        raise InputMisread(index=True)
    if view.layer != importer.input:
        raise unsupported(node, "its indices are computed by a layer")
    entries, features = (int(size) for size in table.shape)
    shape = (*importer.shape(view), features)
    layer = L.Embedding(entries=entries, features=features)
    layer_name = importer.add(node, layer, [view.layer], shape, {"weight": table})
    kept = layout_layers(index_map, shape[:-1])
    if kept is not None or axes_of(index_map, shape[:-1]) is not None:
        return view_of(layer_name, index_map[..., None] * features + np.arange(features), shape)
    # Integers of other places are looked up as well, since layers read the whole input.
    places = np.divmod(index_map, math.prod(shape[1:-1]))
    return gathered(importer, node, layer_name, shape[0], *places)


def _select(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """Numbers in places that are constants, or computed."""
    looked_up = look_up(importer, node) if node.op_type in LOOKING_UP else None
    return looked_up or select_places(importer, node, attributes)


def _truth(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """Whether numbers are not 0, which only a Where reads: its layer reads the numbers.

    So does the layer of a GatherElements, of indices.
    """
    if importer.trace.values[node.output[0]].dtype != bool:
        view = importer.view(node.input[0])
        # Real numbers that are cast to integers look up rows, as MXNet and Keras write their inputs.
        if importer.kind != "index" and importer.is_part_of_input(view.layer):
            raise InputMisread(index=True)
        if view.layer == importer.input:
            return view
        if node.output[0] in importer.of_lookups:
            return importer.elementwise(node.input[0])
        raise unsupported(node, "a cast to integers is only supported of indices")
    return importer.elementwise(node.input[0])


def _one_hot(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """OneHot, and Equal with the numbers from 0: rows of a table that has a 1 in each."""
    output, found = importer.value_shape(node.output[0]), one_hot_table(importer.trace, node)
    if found is None or importer.view(found[0]).layer != importer.input:
        raise unsupported(node, "only the class of an input is supported, along a last axis")
    name, table = found
    if importer.kind != "index":
        raise InputMisread(index=True)
    view, index_map = importer.view(name), importer.index_map(name)
    if index_map.size * table.shape[1] != math.prod(output):
        raise unsupported(node, "compares every input with every number")
    shape = (*importer.shape(view), table.shape[1])
    layer = L.Embedding(entries=table.shape[0], features=table.shape[1])
    layer_name = importer.add(node, layer, [view.layer], shape, {"weight": table})
    places = index_map.reshape(*output[:-1], 1) * table.shape[1] + np.arange(table.shape[1])
    return view_of(layer_name, places, shape)


def _global_average(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    value = importer.trace.values[node.input[0]]
    view = importer.view(node.input[0])
    shape = importer.shape(view)
    mean_axes = tuple(range(2, value.ndim))
    if node.op_type == "ReduceMean":
        axes = attributes.get("axes", importer.trace.constant(node, 1))
        axis_numbers = range(value.ndim) if axes is None else np.ravel(axes).tolist()
        mean_axes = tuple(sorted(int(axis) % value.ndim for axis in axis_numbers))
    mean = reduce_mean(importer, node, mean_axes) if node.op_type == "ReduceMean" else None
    if mean is not None:
        return mean
    if value.ndim == 3 and mean_axes == (2,):  # rows of places, [N, C, L]
        view = rows_as_map(importer, node, node.input[0])
        output_shape = (*importer.shape(view)[:2], 1, 1)
        layer_name = importer.add(node, L.GlobalAveragePool(), [view.layer], output_shape)
        return importer.value_of(node, layer_name)
    axes_order = axes_of(importer.index_map(node.input[0]), shape)
    places = set(range(2, len(shape)))
    other_axes = (
        len(shape) in (4, 5)
        and axes_order is not None
        and {axes_order[axis] for axis in mean_axes} != places
    )
    is_whole = value.ndim in (4, 5) and mean_axes == tuple(range(2, value.ndim))
    if is_whole and (other_axes or axes_order is None):
        view = importer.materialise_layout(node.input[0])
        shape, places = importer.shape(view), set(range(2, value.ndim))
        axes_order = axes_of(importer.index_map_of(view), shape)
    if (
        len(shape) not in (4, 5)
        or axes_order is None
        or {axes_order[axis] for axis in mean_axes} != places
    ):
        return reduce(importer, node, attributes)
    output_shape = (*shape[:2], *(1 for _ in shape[2:]))
    layer_name = importer.add(node, L.GlobalAveragePool(), [view.layer], output_shape)
    return importer.value_of(node, layer_name, positions(output_shape).transpose(axes_order))


RULES: dict[str, Rule] = {
    "Conv": _conv,
    "ConvTranspose": conv_transpose,
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalMaxPool"), _pool),
    **dict.fromkeys(_ACTIVATIONS, _activation),
    **dict.fromkeys(("Clip", "Max", "Min"), _clip),
    "PRelu": prelu,
    **dict.fromkeys(("HardSigmoid", "HardSwish"), _hard_sigmoid),
    **dict.fromkeys((*NAMED, "Where"), _function),
    "Dropout": _dropout,
    "BatchNormalization": _batch_norm,
    "LRN": _lrn,
    **dict.fromkeys(("Gemm", "MatMul"), _linear),
    "Gather": _embedding,
    **dict.fromkeys(("Equal", "OneHot"), _one_hot),
    **dict.fromkeys(("Slice", *REPEATING), select_part),
    **dict.fromkeys(RESIZING, resize),
    **dict.fromkeys(SELECTING, _select),
    **dict.fromkeys(RANKING, rank),
    **dict.fromkeys(SCATTERING, scatter),
    "Split": select_part,
    "Pad": pad,
    **dict.fromkeys(ACTIVATIONS, recurrent),
    "LayerNormalization": layer_norm,
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization"), group_norm),
    "RMSNormalization": rms_norm,
    "Gelu": gelu,
    "Attention": attention,
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean"), _global_average),
    **dict.fromkeys(("ReduceMax", "ReduceMin", "ReduceSum", *COMPOSED_REDUCTIONS), reduce),
    **dict.fromkeys(("Softmax", "LogSoftmax"), softmax),
    "Pow": power,
    "Cast": _truth,
    "Trilu": lambda importer, node, attributes: triangle(importer, node),
    "Concat": concat,
    **dict.fromkeys(("Add", "Sum", "Sub", "Mul", "Div"), arithmetic),
}

#: Operators that a rule may read, or that may be part of what one reads.
READ_OPERATORS = frozenset(
    (RULES.keys() - {"Attention"})
    | LAYOUT
    | BLOCK_OPERATORS
    | COPY_OPERATORS
    | {"ArgMax", "Shape", "Size"}
)
