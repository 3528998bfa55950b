"""Layers that exporters write out as several operators, told by the numbers that these give.

There are many ways to write a normalisation, and each version of an exporter has its own. Which
one was taken does not matter: the operators between two values are run on random numbers, and what
comes out is held against the layer's formula. They are analytic, so that they agree everywhere if
they agree there (:mod:`dlb.proof.files.analytic`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb.graph.decimals import ROUNDING, decimal, six_digits
from dlb.graph.evaluate import Evaluator
from dlb.graph.layout import LAYOUT
from dlb.graph.linear_parts import part_of_linear
from dlb.graph.precision import REAL_TYPES, in_precision
from dlb.graph.reader import Reader
from dlb.graph.trace import Trace

__all__ = ["Block", "attention", "gelu", "hard_sigmoid", "layer_normalization"]

Array = npt.NDArray[Any]

_ELEMENTWISE = {"Add", "Cast", "Div", "Exp", "Mul", "Neg", "Pow", "Sub", "Sum"}
_OF_GELU = LAYOUT | _ELEMENTWISE | {"Erf", "Tanh"}
_BOUNDS = ("Clip", "Max", "Min", "Relu")
_OF_HARD_SIGMOID = LAYOUT | {"Add", "Cast", "Div", "Mul", "Sum", *_BOUNDS}
_HARD = ("HardSigmoid", "HardSwish")
_MEANS = ("ReduceMean", "GlobalAveragePool")
_OF_NORM = LAYOUT | _ELEMENTWISE | {"Expand", "Reciprocal", "Sqrt", *_MEANS}
_OF_ATTENTION = LAYOUT | _ELEMENTWISE | {
    "Einsum", "Expand", "IsNaN", "MatMul", "Max", "Reciprocal", "ReduceMax", "ReduceSum", "Softmax",
    "Where",
}  # fmt: skip
#: Operators of the longest block that is looked for.
_LONGEST = 30
#: Relative L2 distance within which a block is a formula: its constants may be float32. The two
#: kinds of GELU are 1e-4 apart.
_NEAR = 1e-6
#: Numbers of a value that are looked at first.
_FEW = 64
#: Random numbers of which many lie in every piece of a hard sigmoid.
_MANY = 64
#: Numbers that GELU is written with.
_OF_GELU_NUMBERS = (
    *(math.sqrt(2), math.sqrt(0.5), math.sqrt(2 / math.pi), 0.044715, math.sqrt(8 / math.pi)),
    *(0.044715 * math.sqrt(2 / math.pi), math.sqrt(math.pi / 2)),
)
#: Of the features of a head, by which scores or queries and keys are scaled.
_POWERS = (0.5, -0.5, 0.25, -0.25)


@dataclass(frozen=True)
class Block:
    """Operators that together are a layer.

    Attributes:
        kind, attributes, parameters: of the operation that they are.
        starts: names of the values that they read.
        meant: constants of the formula by name, as it has them: in a file they are rounded.
        weights: of a normalisation, ``scale`` and ``bias`` [features]; of a GELU ``scale`` [C], if an
            exporter took the scale of a batch normalisation after it in.
        table: [T, features] that is added to every sequence that a normalisation gives; its bias is
            in it.
        places: of GELU and attention, int64 in the shape of the last value: where each number lies in
            what GELU reads, or in what the heads give one after another, [N, T, features].
        inside: of a hard sigmoid and of attention, names of the values between.
        parts: of attention, by name, int64 in the shape of those values that it reads which are
            parts of what a linear layer makes: where each number lies in [N, T, features].
    """

    kind: str
    attributes: dict[str, Any]
    inputs: tuple[str, ...]
    parameters: int = 0
    nominal_values: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, Array] = field(default_factory=dict)
    table: Array | None = None
    index_map: Array | None = None
    intermediates: tuple[str, ...] = ()
    linear_parts: Mapping[str, Array] = field(default_factory=dict)


def gelu(trace: Trace, end: onnx.NodeProto) -> Block | None:
    """The GELU that ends in a node, or None."""
    kinds = {"none": _exact_gelu, "tanh": _gelu_by_tanh}
    for start, nodes in _blocks(trace, end, _OF_GELU, ("Erf", "Tanh")):
        x = 2 * np.random.default_rng(0).standard_normal(trace.values[start].shape)
        found = _run(trace, nodes, {start: x}, end.output[0])
        meant = _meant(trace, nodes, _OF_GELU_NUMBERS)
        for approximate, formula in kinds.items():
            true = formula(x.ravel())
            attributes = {"approximate": approximate}
            for places in _orders(x.shape, found.shape):
                if _near(found.ravel(), true[places.ravel()]):
                    return Block(
                        "Gelu", attributes, (start,), nominal_values=meant, index_map=places
                    )
            scale = _per_channel(found, true.reshape(found.shape))
            # Of a constant, that is: GELU(x) + GELU(x) is twice as much as well.
            if scale is not None and any(
                each.size == scale.size for each in _constants(trace, nodes).values()
            ):
                return Block(
                    "Gelu", attributes, (start,), nominal_values=meant, weights={"scale": scale}
                )
    return None


def hard_sigmoid(reader: Reader, end: onnx.NodeProto) -> Block | None:
    """The hard sigmoid, or the product of it and what it reads, that ends in a node, or None.

    Sums, products and bounds one after the other, of one number each, are a straight line between two
    bounds, however many they are: those that agree between the bounds and beyond either agree
    everywhere.
    """
    trace = reader.trace
    random = np.random.default_rng(0)
    for start, nodes in _blocks(trace, end, _OF_HARD_SIGMOID, _BOUNDS):
        kind = _line(reader, start, nodes)
        inner = (reader.blocks.get(name) for node in nodes for name in node.output)
        # One that was found within is a layer already, and a product of it, or a bound, another.
        if kind is None or any(each is not None and each.kind in _HARD for each in inner):
            continue
        constants = _constants(trace, nodes).values()
        if any((each != each.flat[:1]).any() for each in constants):
            continue
        given = trace.values[start]
        draws = [4 * random.standard_normal(given.shape) for _ in range(-(-_MANY // given.size))]
        found = [_run(trace, nodes, {start: x}, end.output[0]).ravel() for x in draws]
        x = np.concatenate([each.ravel() for each in draws])
        true = np.clip(x / 6 + 0.5, 0.0, 1.0)
        if _near(np.concatenate(found), true if kind == "HardSigmoid" else x * true):
            inside = tuple(name for node in nodes if node is not end for name in node.output)
            return Block(
                kind,
                {},
                (start,),
                nominal_values=_meant(trace, nodes, (1 / 6,)),
                intermediates=inside,
            )
    return None


def _line(reader: Reader, start: str, nodes: list[onnx.NodeProto]) -> str | None:
    """What nodes may be, if each reads one value, and at most one of them the product of that and
    what they began with, which nothing bounds; or None."""
    twice = [place for place, node in enumerate(nodes) if len(reader.live_inputs(node)) > 1]
    bounds = sum(2 if node.op_type == "Clip" else node.op_type in _BOUNDS for node in nodes)
    if not any(node.op_type in ("Add", "Sum") for node in nodes) or bounds < 2 or len(twice) > 1:
        return None
    if not twice:
        return "HardSigmoid"
    product, *after = nodes[twice[0] :]
    if product.op_type != "Mul" or start not in product.input:
        return None
    return None if any(node.op_type in _BOUNDS for node in after) else "HardSwish"


def _orders(shape: tuple[int, ...], other: tuple[int, ...]) -> Iterator[Array]:
    """Positions of a value's numbers in another shape: as they are, and with its axes turned."""
    places = np.arange(math.prod(shape)).reshape(shape)
    yield places.reshape(other)
    for order in permutations(range(len(shape))):
        if order != tuple(range(len(shape))) and tuple(shape[axis] for axis in order) == other:
            yield places.transpose(order)


def _per_channel(found: Array, true: Array) -> Array | None:
    """What the second or the last axis of a value is multiplied by, [C], where it is; or None."""
    for axis in {1, found.ndim - 1}:
        over = tuple(each for each in range(found.ndim) if each != axis)
        scale = np.sum(found * true, axis=over) / np.sum(true**2, axis=over)
        around = scale.reshape([-1 if each == axis else 1 for each in range(found.ndim)])
        if len(scale) > 1 and _near(found.ravel(), (around * true).ravel()):
            return np.asarray(scale)
    return None


def layer_normalization(reader: Reader, end: onnx.NodeProto) -> Block | None:
    """The normalisation over the last axis, scaled and moved, that ends in a node, or None.

    Epsilon is one of the numbers that its operators read; scale and bias follow from what they
    give, for each feature from many rows. Exporters add up constants: a bias may hold a table of
    positions as well, and is then another at each of them.
    """
    random = np.random.default_rng(0)
    trace = reader.trace
    live = all(name in trace.live for name in end.input)
    for start, nodes in _blocks(trace, end, _OF_NORM, _MEANS):
        if _layer_within(reader, nodes):
            continue
        shape = trace.values[start].shape
        constants = _constants(trace, nodes)
        numbers = {decimal(float(each.ravel()[0])) for each in constants.values() if each.size == 1}
        # Rows of many sizes, so that epsilon counts in some and not in others.
        rows = [
            random.standard_normal(shape) * 10.0 ** random.uniform(-4, 1, (*shape[:-1], 1))
            for _ in range(4)
        ]
        found = np.concatenate(
            [_run(trace, nodes, {start: x}, end.output[0]).reshape(-1, shape[-1]) for x in rows]
        )
        x = np.concatenate([each.reshape(-1, shape[-1]) for each in rows])
        for epsilon in sorted(number for number in numbers if 0 < number < 1):
            deviation = np.sqrt(x.var(axis=1, keepdims=True) + epsilon)
            normal = (x - x.mean(axis=1, keepdims=True)) / deviation
            scale, bias = _fitted(normal, found)
            table, tables = None, []
            if live and len(shape) == 3 and not _near(found, scale * normal + bias):
                at_positions = (each.reshape(-1, *shape[1:]) for each in (normal, found))
                scales, table = _fitted(*at_positions)
                scale, bias = scales.mean(axis=0), np.zeros(shape[-1])
                sized = (each for each in constants.values() if each.size == table.size)
                tables = [each.reshape(table.shape) for each in sized]
            moved = bias if table is None else np.tile(table, (len(found) // len(table), 1))
            if _near(found, scale * normal + moved):
                vectors = [each.ravel() for each in constants.values() if each.size == shape[-1]]
                attributes = {"features": shape[-1], "epsilon": six_digits(epsilon)}
                return Block(
                    "LayerNormalization",
                    attributes,
                    (start,),
                    shape[-1] * (2 if table is None else 1),
                    _meant(trace, nodes, (epsilon, 1 / shape[-1])),
                    {"scale": _exact(scale, vectors), "bias": _exact(bias, vectors)},
                    None if table is None else _exact(table, tables),
                )
    return None


def attention(reader: Reader, end: onnx.NodeProto) -> Block | None:
    """The attention whose last product, of shares and values, is a node, or None.

    It reads queries, keys and values as linear maps, or whatever else, give them: in either order
    of theirs the numbers tell which is which. What comes after it only arranges numbers.
    """
    trace = reader.trace
    if len(reader.live_inputs(end)) != 2 or len(end.input) != 2:
        return None
    nodes = _between_maps(reader, end)
    inside = {name for node in nodes for name in node.output}
    starts = sorted({name for node in nodes for name in reader.live_inputs(node)} - inside)
    if not any(node.op_type in ("Softmax", "Exp") for node in nodes) or len(starts) > 3:
        return None
    random = np.random.default_rng(0)
    given = {name: random.standard_normal(trace.values[name].shape) for name in starts}
    found = _run(trace, nodes, given, end.output[0])
    parts = {
        name: part.index_map
        for name in starts
        if (part := part_of_linear(reader, name)) is not None
    }
    width = _width(reader, starts[0])
    steps = found.size // trace.batch // width
    if trace.batch * steps * width != found.size or {x.size for x in given.values()} != {
        found.size
    }:
        return None
    shaped = {
        name: _in_order(x, parts.get(name)).reshape(trace.batch, steps, width)
        for name, x in given.items()
    }
    of_scores = {trace.values[name].size for name in end.input}
    heads = [n for n in range(1, width + 1) if trace.batch * n * steps * steps in of_scores]
    orders = permutations(starts) if len(starts) == 3 else product(starts, repeat=3)
    for names, count, causal in product(orders, heads, (False, True)):
        if width % count == 0:
            queries, keys, values = (shaped[name] for name in names)
            true = _attended(queries, keys, values, count, causal)
            near = [_near(found.ravel(), each.ravel()) for each in _arranged(true)]
            order = near.index(True) if any(near) else None
            if order is not None:
                size = width // count
                places = np.arange(found.size).reshape(trace.batch, steps, count, size)
                return Block(
                    "Attention",
                    {"heads": count, "causal": causal},
                    names,
                    nominal_values=_meant(trace, nodes, [size**power for power in _POWERS]),
                    index_map=_arranged(places.swapaxes(1, 2))[order].reshape(found.shape),
                    intermediates=tuple(inside),
                    linear_parts=parts,
                )
    return None


def _layer_within(reader: Reader, nodes: list[onnx.NodeProto]) -> bool:
    """Whether a layer that was found within nodes is one by itself, which others read too, or which
    is added to itself: not one that a constant is still to be added to."""
    inside = {name for node in nodes for name in node.output}
    # Of one feature, a variance is a normalisation too: nothing but a constant.
    found = {
        name
        for name, block in reader.blocks.items()
        if name in inside and block.attributes.get("features") != 1
    }
    return any(
        not found.isdisjoint(node.input)
        and (inside.isdisjoint(node.output) or len(reader.live_inputs(node)) > 1)
        for node in (reader.trace.nodes if found else ())
    )


def _between_maps(reader: Reader, end: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The nodes behind a node, as far as linear maps; what only arranges their outputs included."""
    trace = reader.trace
    names, waiting = set(end.output), [end]
    while waiting:
        for name in reader.live_inputs(waiting.pop()):
            node = trace.producers.get(name)
            if node is None or node.op_type not in _OF_ATTENTION or name in names:
                continue
            source = reader.source[name]
            linear = source >= 0 and reader.operations[source].kind == "Linear"
            # What multiplies by one, as the scale of heads of one feature, is the same value.
            copied = any(reader.source[each] == source for each in reader.live_inputs(node))
            if node.op_type in LAYOUT or copied or not linear:
                names.add(name)
                waiting.append(node)
        if len(names) > _LONGEST:
            return []
    return [node for node in trace.nodes if not names.isdisjoint(node.output)]


def _width(reader: Reader, name: str) -> int:
    """Features of a value [N, T, features], in whatever shape a linear map gives it."""
    part = part_of_linear(reader, name)
    if part is not None:
        return len(part.features)
    source = reader.source[name]
    if source >= 0 and reader.operations[source].kind == "Linear":
        return int(reader.operations[source].attributes["weight"][0])
    return int(reader.trace.values[name].shape[-1])


def _in_order(numbers: Array, places: Array | None) -> Array:
    """Numbers by their places, or as they are."""
    if places is None:
        return numbers
    ordered = np.empty(numbers.size)
    ordered[places.ravel()] = numbers.ravel()
    return ordered


def _attended(queries: Array, keys: Array, values: Array, heads: int, causal: bool) -> Array:
    """softmax(Q K^T / sqrt(d)) V of each head, [N, heads, T, d], from three [N, T, features]."""
    batch, steps, width = queries.shape
    q, k, v = (
        each.reshape(batch, steps, heads, -1).swapaxes(1, 2) for each in (queries, keys, values)
    )
    scores = q @ k.swapaxes(2, 3) / math.sqrt(width // heads)
    if causal:
        scores = scores + np.triu(np.full((steps, steps), -np.inf), 1)
    shares = np.exp(scores - scores.max(axis=3, keepdims=True))
    attended: Array = shares / shares.sum(axis=3, keepdims=True) @ v
    return attended


def _arranged(heads: Array) -> tuple[Array, ...]:
    """[N, heads, T, d] in the orders in which it may come."""
    return heads, heads.swapaxes(2, 3), heads.swapaxes(1, 2), heads.transpose(0, 3, 1, 2)


def _exact_gelu(x: Array) -> Array:
    found: Array = (
        0.5 * x * (1 + np.array([math.erf(each) for each in (x / math.sqrt(2)).tolist()]))
    )
    return found


def _gelu_by_tanh(x: Array) -> Array:
    found: Array = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return found


def _fitted(normal: Array, found: Array) -> tuple[Array, Array]:
    """The scale and bias [...] that bring ``normal`` [rows, ...] nearest ``found``; 1 is the scale of
    what does not vary."""
    middle, centre = normal.mean(axis=0), found.mean(axis=0)
    spread = ((normal - middle) ** 2).sum(axis=0)
    shared = ((normal - middle) * (found - centre)).sum(axis=0)
    scale = np.divide(shared, spread, out=np.ones_like(shared), where=spread > 0)
    return scale, centre - scale * middle


def _exact(fitted: Array, vectors: list[Array]) -> Array:
    """What was fitted, without its rounding: one of the vectors, or ones, or zeros."""
    plain = [np.ones_like(fitted), np.zeros_like(fitted)]
    close = (each for each in (*vectors, *plain) if np.allclose(each, fitted, _NEAR, _NEAR))
    return next(close, fitted)


def _near(found: Array, true: Array) -> bool:
    """Of one shape. A few numbers tell most that are not."""
    largest = float(np.abs(true).max())
    if np.abs(found[:_FEW] - true[:_FEW]).max() > _NEAR * largest * math.sqrt(true.size):
        return False
    return bool(np.linalg.norm(found - true) <= _NEAR * np.linalg.norm(true))


def _blocks(
    trace: Trace, end: onnx.NodeProto, operators: set[str], needed: tuple[str, ...]
) -> Iterator[tuple[str, list[onnx.NodeProto]]]:
    """Values from which alone a node's output is computed by these operators, and the nodes.

    The needed operators are among them, one at least.
    """
    seen: set[str] = set()
    waiting = [end.output[0]]
    while waiting and len(seen) <= _LONGEST:
        node = trace.producers.get(waiting.pop(0))
        if node is None or node.op_type not in operators:
            continue
        new = [name for name in node.input if name in trace.live and name not in seen]
        seen.update(new)
        waiting += new
    made = [trace.producers[name] for name in seen if name in trace.producers]
    if not any(node.op_type in needed for node in (end, *made)):
        return
    size = trace.values[end.output[0]].size
    starts = sorted(name for name in seen if trace.values[name].size == size)
    blocks = [(start, _between(trace, start, end, operators)) for start in starts]
    # The shortest first: what is normalised twice is normalised.
    for start, nodes in sorted(blocks, key=lambda block: len(block[1])):
        if any(node.op_type in needed for node in nodes):
            yield start, nodes


def _between(
    trace: Trace, start: str, end: onnx.NodeProto, operators: set[str]
) -> list[onnx.NodeProto]:
    """The nodes that compute a node's output from one value; none if they read another."""
    names, waiting = set(end.output), [end]
    while waiting:
        node = waiting.pop()
        if node.op_type not in operators or len(names) > _LONGEST:
            return []
        for name in node.input:
            if name in trace.live and name != start and name not in names:
                if name not in trace.producers:
                    return []
                names.add(name)
                waiting.append(trace.producers[name])
    return [node for node in trace.nodes if not names.isdisjoint(node.output)]


def _constants(trace: Trace, nodes: list[onnx.NodeProto]) -> dict[str, Array]:
    """Real numbers that nodes read and that do not depend on the input, by name."""
    names = {name for node in nodes for name in node.input if name and name not in trace.live}
    return {name: trace.values[name] for name in names if trace.values[name].dtype.kind == "f"}


def _meant(trace: Trace, nodes: list[onnx.NodeProto], numbers: Iterable[float]) -> dict[str, float]:
    """Single constants that nodes read, by name, that are one of the numbers, but for rounding."""
    numbers = list(numbers)
    found = {}
    for name, each in _constants(trace, nodes).items():
        near = [
            n for n in numbers if each.size == 1 and abs(float(each.ravel()[0]) - n) <= ROUNDING * n
        ]
        if near:
            found[name] = near[0]
    return found


def _run(trace: Trace, nodes: list[onnx.NodeProto], given: Mapping[str, Array], end: str) -> Array:
    """What nodes make of values, in float64."""
    inside = {name for node in nodes for name in node.output}
    names = {name for node in nodes for name in node.input if name} - inside - set(given)
    element = helper.np_dtype_to_tensor_dtype(trace.values[end].dtype)
    graph = helper.make_graph(
        nodes,
        "block",
        [helper.make_tensor_value_info(name, element, x.shape) for name, x in given.items()],
        [helper.make_tensor_value_info(end, element, None)],
        [numpy_helper.from_array(np.asarray(trace.values[name]), name) for name in sorted(names)],
    )
    model = helper.make_model(graph, opset_imports=trace.opsets)
    wide = in_precision(model, TensorProto.DOUBLE) if element in REAL_TYPES else model
    return Evaluator(wide).run(given, [end])[end]
