"""The layer that each operator means, and its weights. One rule for each operator that is covered.

A rule gives what its node's first output is, or raises :class:`~dlb.imported.walk.NotCovered` with
what of the node is not covered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.bounds import bounds_of
from dlb.graph.decimals import decimal
from dlb.graph.decomposed import local_response_normalization, numbers_of_normalization
from dlb.graph.layout import padding_before, repeated
from dlb.graph.windows import Window, window_of
from dlb.imported.affine import with_constant
from dlb.imported.parts import pad, part
from dlb.imported.transformers import (
    attention,
    gelu,
    joined,
    last_map,
    layer_norm,
    reduce_mean,
)
from dlb.imported.values import Held, Shape, arranged, axes_of, per_channel, positions
from dlb.imported.walk import Mixed, NotCovered, ReadAnew, Rule, Walk, called
from dlb.workload import layers as L

__all__ = ["RULES"]

Array = npt.NDArray[Any]
Given = Mapping[str, Any]


def _conv(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    weight, bias = walk.trace.constant(node, 1), walk.trace.constant(node, 2)
    if weight is None or (bias is None and len(node.input) > 2 and node.input[2]):
        raise NotCovered(f"{called(node)}: a filter or a bias that depends on the input")
    if weight.ndim != 4:
        raise NotCovered(f"{called(node)}: of {weight.ndim - 2} axes; dlb's convolution has two")
    data, window, _ = _window(walk, node, given, tuple(weight.shape[2:]), L.Conv)
    layer = L.Conv(
        out_channels=len(weight),
        kernel=_pair(window.kernel),
        stride=_pair(window.stride),
        pads=_pads(window),
        dilation=_pair(window.dilation),
        groups=given.get("group", 1),
        bias=bias is not None,
    )
    weights = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    return _new(walk, node, layer, [data], weights)


def _pool(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    if node.op_type == "GlobalMaxPool":
        whole = list(walk.trace.values[node.input[0]].shape[2:])
        given = {"kernel_shape": whole, "strides": whole}
    kernel = tuple(given["kernel_shape"])
    if len(kernel) != 2:
        raise NotCovered(f"{called(node)}: of {len(kernel)} axes; dlb's poolings have two")
    if set(given.get("dilations", [1])) != {1}:
        raise NotCovered(f"{called(node)}: dilations = {given['dilations']}")
    kind = L.AveragePool if node.op_type == "AveragePool" else L.MaxPool
    data, window, merged = _window(walk, node, given, kernel, kind)
    more: dict[str, Any] = {}
    if kind is L.AveragePool:
        more["count_include_pad"] = bool(given.get("count_include_pad", 0)) or merged
    layer = kind(
        kernel=_pair(window.kernel),
        stride=_pair(window.stride),
        pads=_pads(window),
        ceil_mode=bool(given.get("ceil_mode", 0)),
        **more,
    )
    return _new(walk, node, layer, [data])


def _readable(walk: Walk, name: str) -> bool:
    try:
        walk.of(name)
    except NotCovered:
        return False
    return True


def _window(
    walk: Walk, node: onnx.NodeProto, given: Given, kernel: tuple[int, ...], kind: type
) -> tuple[str, Window, bool]:
    """The layer whose map the windows lie in, the windows, with what a Pad before them added, and
    whether one did."""
    name = node.input[0]
    size = walk.trace.values[name].shape[2:]
    window = window_of(lambda key, default: given.get(key, default), size, kernel)
    padding = padding_before(walk.trace, name)
    if not padding.before:
        return walk.as_map(node, name).layer, window, False
    own = any(window.before) or any(window.after)
    before = tuple(int(n) for n in padding.before)
    after = tuple(int(n) for n in padding.after)
    inside = tuple(n - b - a for n, b, a in zip(size, before, after))
    shape = (*walk.trace.values[name].shape[:2], *inside)
    layer = walk.as_map(node, padding.value, shape).layer
    least = isinstance(walk.made[layer].layer, (L.ReLU, L.ReLU6, L.Sigmoid, L.HardSigmoid))
    fitting: dict[type, bool] = {
        L.Conv: padding.number == 0,
        L.AveragePool: padding.number == 0 and bool(given.get("count_include_pad", 0) or not own),
        L.MaxPool: padding.number < -3e38 or (padding.number == 0 and least),
    }
    if not fitting[kind]:  # what is put around it is a layer
        return walk.as_map(node, name).layer, window, False
    whole = Window(
        window.kernel,
        window.stride,
        window.dilation,
        inside,
        tuple(x + y for x, y in zip(window.before, before)),
        tuple(x + y for x, y in zip(window.after, after)),
        window.output,
    )
    return layer, whole, True


def _pair(numbers: Sequence[int]) -> tuple[int, int]:
    first, second = (int(number) for number in numbers)
    return first, second


def _pads(window: Window) -> tuple[int, int, int, int]:
    (top, left), (bottom, right) = _pair(window.before), _pair(window.after)
    return top, left, bottom, right


def _new(
    walk: Walk,
    node: onnx.NodeProto,
    layer: L.Layer,
    inputs: Sequence[str],
    weights: Mapping[str, Array] | None = None,
) -> Held:
    """A layer whose value is arranged as the file's."""
    shape = walk.trace.values[node.output[0]].shape
    return Held(walk.add(node, layer, inputs, shape, weights))


def _elementwise(walk: Walk, node: onnx.NodeProto, layer: L.Layer, name: str) -> Held:
    """A layer that takes every number by itself, and leaves it where it is."""
    held = walk.elementwise(name)
    made = walk.add(node, layer, [held.layer], walk.shape(held))
    return Held(made, held.places)


_ACTIVATIONS: Mapping[str, L.Layer] = {"Relu": L.ReLU(), "Tanh": L.Tanh(), "Sigmoid": L.Sigmoid()}


def _activation(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    return _elementwise(walk, node, _ACTIVATIONS[node.op_type], node.input[0])


def _hard_sigmoid(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    """A hard sigmoid, or its product with what it reads, as an operator or written out."""
    block = walk.blocks.get(node.output[0])
    if block is None:
        alpha, beta = given.get("alpha", 0.2), given.get("beta", 0.5)
        raise NotCovered(
            f"{called(node)}: alpha {alpha:g} and beta {beta:g}; only 1/6 and 0.5 are covered"
        )
    (start,) = block.starts
    walk.undo(start)
    walk.meant.update(block.meant)
    held = walk.elementwise(start)
    shape = walk.shape(held)
    gate, swish = L.HardSigmoid(), block.kind == "HardSwish"
    wanted = node.name or node.output[0]
    made = walk.new(f"{wanted}_gate" if swish else wanted, gate, (held.layer,), {}, shape)
    if swish:
        made = walk.new(wanted, L.Mul(), (held.layer, made), {}, shape)
    places = walk.places_of(held).reshape(walk.trace.values[node.output[0]].shape)
    return arranged(made, places, shape)


#: What keeps a value within bounds.
_BOUNDS: Mapping[tuple[float, float], L.Layer] = {
    (0.0, math.inf): L.ReLU(),
    (0.0, 6.0): L.ReLU6(),
}


def _clip(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    """Clip, or the larger or smaller of a value and a number, as a ReLU or a ReLU6."""
    bounds = bounds_of(walk.trace, node, given)
    if bounds is None:
        raise NotCovered(f"{called(node)}: bounds that are not one constant number each")
    (name,) = (name for name in node.input if name in walk.trace.live)
    held = walk.elementwise(name)
    low, high = bounds
    # The other bound may be that of the ReLU before it.
    half = low < 0 and isinstance(walk.made[held.layer].layer, (L.ReLU, L.ReLU6))
    layer = _BOUNDS.get((0.0 if half else low, high))
    if layer is None:
        raise NotCovered(
            f"{called(node)}: bounds {low:g} and {high:g}; only 0, and above it 6 or none, are "
            "covered: a ReLU6 or a ReLU"
        )
    if half and walk.alone(name):
        walk.change(held.layer, layer=layer)
        return held
    return _elementwise(walk, node, layer, name)


def _dropout(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    ratio, training = walk.trace.constant(node, 1), walk.trace.constant(node, 2)
    if training is not None and bool(np.any(training)):
        raise NotCovered(f"{called(node)}: in training mode; export the model for inference")
    rate = given.get("ratio", 0.5) if ratio is None else float(np.ravel(ratio)[0])
    return _elementwise(walk, node, L.Dropout(rate=decimal(float(rate))), node.input[0])


def _batch_norm(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    constants = [walk.trace.constant(node, place) for place in range(1, 5)]
    if given.get("training_mode", 0) or not given.get("spatial", 1):
        raise NotCovered(f"{called(node)}: in training mode, or of every number by itself")
    held = walk.elementwise(node.input[0])
    places = walk.places(node.input[0]) if held.places is None else held.places
    weights = _norm_weights(walk, node, places, walk.shape(held), constants)
    if weights is None:  # of another axis than the layer's channels: it is turned first
        held = walk.laid_out(node.input[0])
        weights = _norm_weights(walk, node, walk.places_of(held), walk.shape(held), constants)
    if weights is None:
        raise NotCovered(
            f"{called(node)}: its channels are not those of '{held.layer}' {list(walk.shape(held))}"
        )
    layer = L.BatchNorm(
        epsilon=decimal(given.get("epsilon", 1e-5)), momentum=decimal(given.get("momentum", 0.9))
    )
    made = walk.add(node, layer, [held.layer], walk.shape(held), weights)
    return Held(made, held.places)


def _norm_weights(
    walk: Walk,
    node: onnx.NodeProto,
    places: Array,
    shape: Shape,
    constants: Sequence[Array | None],
) -> dict[str, Array] | None:
    """Of a batch normalisation of the channels of a layer of that shape; None if not of these."""
    value = walk.trace.values[node.input[0]]
    weights = {}
    for name, constant in zip(("scale", "bias", "mean", "variance"), constants):
        if constant is None:
            raise NotCovered(f"{called(node)}: with numbers that depend on the input")
        if len(shape) not in (2, 4):
            return None
        whole = np.broadcast_to(constant.reshape(1, -1, *(1,) * (value.ndim - 2)), value.shape)
        channels = per_channel(whole, places, shape)
        if channels is None:
            return None
        weights[name] = channels
    return weights


def _lrn(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    layer = L.LRN(
        size=given["size"],
        alpha=decimal(given.get("alpha", 1e-4)),
        beta=decimal(given.get("beta", 0.75)),
        bias=decimal(given.get("bias", 1.0)),
    )
    return _new(walk, node, layer, [walk.as_map(node, node.input[0]).layer])


def _linear(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    """Gemm and MatMul with a constant matrix on the right."""
    matrix, bias = walk.trace.constant(node, 1), walk.trace.constant(node, 2)
    if matrix is None or matrix.ndim != 2 or given.get("transA", 0):
        raise NotCovered(f"{called(node)}: only a value times a constant matrix is covered")
    if bias is None and len(node.input) > 2 and node.input[2]:
        raise NotCovered(f"{called(node)}: adds a value that depends on the input")
    matrix = (matrix.T if given.get("transB", 0) else matrix) * given.get("alpha", 1.0)
    source, rows, order = walk.features(node, node.input[0])
    weight = np.empty(matrix.shape[::-1])
    weight[:, order] = matrix.T
    count = len(weight)
    weights = {"weight": weight}
    if bias is not None:
        whole = np.broadcast_to(bias, (len(rows), count)) * given.get("beta", 1.0)
        if not (whole == whole[:1]).all():
            raise NotCovered(f"{called(node)}: adds another number in each row")
        weights["bias"] = whole[0]
    layer = L.Linear(out_features=count, bias=bias is not None)
    shape = (*walk.made[source].shape[:-1], count)
    if isinstance(walk.made[source].layer, Mixed) and walk.alone(node.input[0]):
        last_map(walk, node, source, weight, weights.get("bias"))
        made = source
    else:
        made = walk.add(node, layer, [source], shape, weights)
    places = rows[:, None] * count + np.arange(count)
    return arranged(made, places.reshape(walk.trace.values[node.output[0]].shape), shape)


def _embedding(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    table = walk.trace.constant(node, 0)
    if table is None:
        return part(walk, node, given)
    if table.ndim != 2 or given.get("axis", 0):
        raise NotCovered(f"{called(node)}: only rows of a constant table are looked up")
    held, places = walk.of(node.input[1]), walk.places(node.input[1])
    if held.layer != walk.input:
        raise NotCovered(f"{called(node)}: looks up what a layer computes")
    if walk.kind != "index":
        raise ReadAnew(index=True)
    entries, features = (int(size) for size in table.shape)
    shape = (*walk.shape(held), features)
    layer = L.Embedding(entries=entries, features=features)
    made = walk.add(node, layer, [held.layer], shape, {"weight": table})
    return arranged(made, places[..., None] * features + np.arange(features), shape)


def _lstm(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    trace, what = walk.trace, called(node)
    w, r, b, lengths, _, _, peepholes = (trace.constant(node, place) for place in range(1, 8))
    states = [name for name in node.input[5:7] if name]
    steps = trace.values[node.input[0]].shape[0]
    names = [each.decode().lower() for each in given.get("activations", [])]
    wrong = {
        "weights that depend on the input": w is None or r is None,
        f"direction {given.get('direction', 'forward')}": given.get("direction", "forward")
        != "forward",
        "the batch before the steps (layout 1)": bool(given.get("layout", 0)),
        f"activations {', '.join(names)}": names not in ([], ["sigmoid", "tanh", "tanh"]),
        "clip": bool(given.get("clip", 0.0)),
        "input_forget": bool(given.get("input_forget", 0)),
        "peepholes": peepholes is not None and bool(np.any(peepholes)),
        "sequences of several lengths": lengths is not None and bool(np.any(lengths != steps)),
        "an initial state that is not zero": any(
            name in trace.live or bool(np.any(trace.values[name])) for name in states
        ),
    }
    if any(wrong.values()):
        raise NotCovered(f"{what}: {', '.join(name for name, found in wrong.items() if found)}")
    assert w is not None and r is not None
    held = walk.of(node.input[0])
    shape, places = walk.shape(held), walk.places(node.input[0])
    if len(shape) != 3 or not np.array_equal(places.transpose(1, 0, 2), positions(shape)):
        laid = walk.laid_out(node.input[0], axes=(1, 0, 2))
        if laid.layer == held.layer:
            raise NotCovered(f"{what}: does not read the steps of '{held.layer}' {list(shape)}")
        held, shape = laid, walk.shape(laid)
    hidden = int(r.shape[2])
    weights = {
        "input_weight": w[0],
        "recurrent_weight": r[0],
        "bias": np.zeros(4 * hidden) if b is None else b[0][: 4 * hidden] + b[0][4 * hidden :],
    }
    made_shape = (*shape[:2], hidden)
    made = walk.add(node, L.LSTM(hidden=hidden), [held.layer], made_shape, weights)
    return Held(made, positions(made_shape).transpose(1, 0, 2)[:, None])


def _global_average(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    value = walk.trace.values[node.input[0]]
    held = walk.of(node.input[0])
    shape = walk.shape(held)
    over = tuple(range(2, value.ndim))
    if node.op_type == "ReduceMean":
        axes = given.get("axes", walk.trace.constant(node, 1))
        named = range(value.ndim) if axes is None else np.ravel(axes).tolist()
        over = tuple(sorted(int(axis) % value.ndim for axis in named))
    mean = reduce_mean(walk, node, over) if node.op_type == "ReduceMean" else None
    if mean is not None:
        return mean
    order = axes_of(walk.places(node.input[0]), shape)
    turned = len(shape) == 4 and order is not None and {order[axis] for axis in over} != {2, 3}
    if value.ndim == 4 and over == (2, 3) and (turned or order is None):
        held = walk.laid_out(node.input[0])
        shape, order = walk.shape(held), axes_of(walk.places_of(held), walk.shape(held))
    if len(shape) != 4 or order is None or {order[axis] for axis in over} != {2, 3}:
        raise NotCovered(
            f"{called(node)}: only the mean of a map over height and width, or of a "
            "sequence over one axis, is covered"
        )
    made_shape = (*shape[:2], 1, 1)
    made = walk.add(node, L.GlobalAveragePool(), [held.layer], made_shape)
    places = positions(made_shape).transpose(order)
    return arranged(made, places.reshape(walk.trace.values[node.output[0]].shape), made_shape)


def _concat(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    if not walk.trace.live.issuperset(node.input):
        return joined(walk, node, given)
    held = [walk.elementwise(name) for name in node.input]
    if len(held) == 1:
        return held[0]
    shapes = [walk.shape(each) for each in held]
    orders = {
        tuple(range(len(shape))) if each.places is None else axes_of(each.places, shape) or ()
        for each, shape in zip(held, shapes)
    }
    order = orders.pop()
    value = walk.trace.values[node.output[0]]
    if orders or len(order) != value.ndim:
        held = [walk.laid_out(name) for name in node.input]
        shapes = [walk.shape(each) for each in held]
        orders = {() for each in held if each.places is not None}
        order = tuple(range(value.ndim))
    if orders or len(order) != value.ndim:
        raise NotCovered(f"{called(node)}: joins values whose numbers are in another order")
    axis = order[given["axis"] % value.ndim]
    total = sum(shape[axis] for shape in shapes)
    shape = (*shapes[0][:axis], total, *shapes[0][axis + 1 :])
    made = walk.add(node, L.Concat(axis=axis), [each.layer for each in held], shape)
    return arranged(made, positions(shape).transpose(order), shape)


def _arithmetic(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    """Sums and products of values; with constants see :mod:`dlb.imported.affine`."""
    live = [name for name in node.input if name in walk.trace.live]
    if node.op_type == "Sum" and len(node.input) == 1:
        return walk.of(node.input[0])
    if len(live) == 1 and len(node.input) == 2:
        return with_constant(walk, node, given)
    if node.op_type == "Div" and len(live) == 2:
        found = _decomposed_lrn(walk, node)
        if found is not None:
            return found
    if len(live) != len(node.input) or node.op_type not in ("Add", "Sum", "Mul"):
        raise NotCovered(f"{called(node)}: of values, only sums and products are covered")
    if node.op_type == "Mul":
        live = [repeated(walk.trace, name) for name in live]
        if len({walk.trace.values[name].shape for name in live}) > 1:
            return _gated(walk, node, live)
    held = [walk.elementwise(name) for name in live]
    shapes = {walk.shape(each) for each in held}
    first = held[0]
    alike = all(
        (each.places is None and first.places is None)
        or (
            each.places is not None
            and first.places is not None
            and np.array_equal(each.places, first.places)
        )
        for each in held
    )
    if len(shapes) != 1 or not alike:
        held = [walk.laid_out(name) for name in live]
        shapes, first = {walk.shape(each) for each in held}, held[0]
        alike = all(each.places is None for each in held)
    if len(shapes) != 1 or not alike:
        raise NotCovered(f"{called(node)}: combines values that are not arranged alike")
    layer = L.Mul() if node.op_type == "Mul" else L.Add()
    total = first.layer
    for each in held[1:]:
        total = walk.add(node, layer, [total, each.layer], walk.shape(first))
    return Held(total, first.places)


def _gated(walk: Walk, node: onnx.NodeProto, read: Sequence[str]) -> Held:
    """A map times a number for each of its channels."""
    output = walk.trace.values[node.output[0]]
    small, large = sorted(read, key=lambda name: walk.trace.values[name].size)
    if walk.trace.values[large].shape != output.shape:
        raise NotCovered(f"{called(node)}: a product that is larger than both values")
    held = walk.of(large)
    shape, places = walk.shape(held), walk.places_of(held)
    gate, given = walk.of(small), walk.shape(walk.of(small))
    channels = shape[:2] if len(shape) == 4 else ()
    # The place of the gate's number that each number of the map is multiplied by.
    spread = np.broadcast_to(walk.places(small), output.shape)
    wanted = positions((*channels, 1, 1)) if channels else None
    if wanted is None or not np.array_equal(np.broadcast_to(wanted, shape).ravel()[places], spread):
        raise NotCovered(
            f"{called(node)}: a product of values of two sizes; only a map times a number for each of "
            "its channels is covered"
        )
    layer = gate.layer
    if given != (*channels, 1, 1):
        layer = walk.new(
            f"{layer}_map", L.Reshape(shape=(shape[1], 1, 1)), (layer,), {}, wanted.shape
        )
    made = walk.add(node, L.Mul(), [held.layer, layer], shape)
    return arranged(made, places, shape)


class _Sources(dict[str, int]):
    """A number for each layer that a value is of."""

    def __init__(self, walk: Walk) -> None:
        super().__init__()
        self.walk = walk

    def __missing__(self, name: str) -> int:
        if not _readable(self.walk, name):
            return -len(self.walk.made) - hash(name) % 1_000_000
        return list(self.walk.made).index(self.walk.of(name).layer)


def _decomposed_lrn(walk: Walk, node: onnx.NodeProto) -> Held | None:
    found = local_response_normalization(walk.trace, _Sources(walk), node)
    if found is None:
        return None
    if found["before"] != (found["size"] - 1) // 2:
        raise NotCovered(f"{called(node)}: a response normalised by channels that lie on one side")
    layer = L.LRN(
        size=found["size"],
        alpha=decimal(found["alpha"]),
        beta=decimal(found["beta"]),
        bias=decimal(found["bias"]),
    )
    walk.meant.update(numbers_of_normalization(walk.trace, node))
    return _elementwise(walk, node, layer, node.input[0])


RULES: dict[str, Rule] = {
    "Conv": _conv,
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalMaxPool"), _pool),
    **dict.fromkeys(_ACTIVATIONS, _activation),
    **dict.fromkeys(("Clip", "Max", "Min"), _clip),
    **dict.fromkeys(("HardSigmoid", "HardSwish"), _hard_sigmoid),
    "Dropout": _dropout,
    "BatchNormalization": _batch_norm,
    "LRN": _lrn,
    **dict.fromkeys(("Gemm", "MatMul"), _linear),
    "Gather": _embedding,
    "Slice": part,
    "Split": part,
    "Pad": pad,
    "LSTM": _lstm,
    "LayerNormalization": layer_norm,
    "Gelu": gelu,
    "Attention": attention,
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean"), _global_average),
    "Concat": _concat,
    **dict.fromkeys(("Add", "Sum", "Sub", "Mul", "Div"), _arithmetic),
}
