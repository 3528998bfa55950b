"""A layer with one thing otherwise, as ports have it.

Where what a framework computed is exactly what one of these computes, that is what is wrong.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from dlb_graph.comparing.distance import relative_l2
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE, Tensors
from dlb_graph.layers import LAYERS, BatchNorm, LayerNorm
from dlb_graph.layers.base import Layer, fields_of
from dlb_graph.truth.canonical import INPUT_PREFIX, canonical_graph, layers_graph
from dlb_graph.truth.evaluate import Evaluator
from dlb_graph.workload import Input, Model, Node
from dlb_graph.workload.shapes import tied_to

__all__ = [
    "NARROWER",
    "Otherwise",
    "factor_text",
    "fields_otherwise",
    "harmless",
    "is_written",
    "layer_otherwise",
    "solved",
    "weights_otherwise",
]

Array = npt.NDArray[Any]
P = TypeVar("P", bound=msgspec.Struct)
#: What is otherwise: a field and its number, or a parameter and what was done with it.
Otherwise = dict[str, Any]
#: What is otherwise, and the value with it.
Tries = Iterator[tuple[Otherwise, Callable[[], Array]]]
#: Numbers that frameworks and papers have in one place or another.
_USUAL = (
    0.0, 1.0, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9, 0.99, 2.0
)  # fmt: skip
#: Usual numbers below the first guard divisions, and are tried where a number up to the second is.
_GUARDS, _GUARDS_MOST = 1e-5, 1e-2
#: Seconds for a search, and the most numbers of what it is worth.
_SECONDS = 10.0
_NUMBERS = 2_000_000
#: What is so many times nearer is what was computed; the least distance that says something.
_NEARER = 8.0
_ROUNDING = 1e-13
#: What is rounded to float32 is no further away.
_NEAR_FLOAT32 = 1e-6
#: A number of so many digits was written by somebody.
_DIGITS = 3
#: The share of numbers that are in another tensor by chance, at most.
_BY_CHANCE = 0.01
#: Axes whose every order is tried.
_MOST_AXES = 5
#: What fits equally well is told, up to so many.
_MOST = 3
#: Fields that say where training starts, and the one that a schedule changes.
_OTHERS = ("init", "bias_init", "learning_rate")


def fields_otherwise(part: P, kinds: Iterable[type[P]] = ()) -> Iterator[tuple[Otherwise, P]]:
    """The same with one field otherwise, with what one field says in another, or of another kind.

    They are not checked: some may be impossible.

    Args:
        kinds: other kinds; those with the same fields are tried.
    """
    values = msgspec.structs.asdict(part)
    for field in fields_of(type(part)):
        if field.name in _OTHERS:
            continue
        for value in _others(field.type, values[field.name]):
            yield {field.name: value}, msgspec.structs.replace(part, **{field.name: value})
    numbers = {name: value for name, value in values.items() if isinstance(value, float)}
    for name, value in numbers.items():
        for other, its in numbers.items():
            if value and other != name and not its:
                yield {other: value}, msgspec.structs.replace(part, **{name: its, other: value})
    for kind in kinds:
        if kind is not type(part) and {each.name for each in fields_of(kind)} == values.keys():
            yield {"type": str(kind.__struct_config__.tag)}, kind(**values)


def _others(kind: Any, value: Any) -> Iterator[Any]:
    """Other values of a field."""
    if get_origin(kind) is Literal:
        yield from (other for other in get_args(kind) if other != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, float):
        near = (-value, 2 * value, value / 2, 1 - value, math.sqrt(abs(value)), value**2)
        rounded = (float(np.float32(value)), 1 / value if value else 0.0)
        # Numbers that only guard a division stand where such a number is.
        usual = (
            each for each in _USUAL if not 0 < each < _GUARDS or 0 < abs(value) <= _GUARDS_MOST
        )
        yield from dict.fromkeys(each for each in (*usual, *near, *rounded) if each != value)
    elif isinstance(value, int):
        yield from dict.fromkeys((value + 1, value - 1, -value, 0, 1))
    elif isinstance(value, tuple) and value and all(isinstance(each, int) for each in value):
        half = len(value) // 2
        shifted = [tuple(each + by for each in value) for by in (1, -1)]
        shifted += [tuple(each + by * (each < 0) for each in value) for by in (1, -1)]
        places = itertools.product(range(len(value)), (1, -1))
        shifted += [(*value[:at], value[at] + by, *value[at + 1 :]) for at, by in places]
        yield from dict.fromkeys(
            (
                (*value[half:], *value[:half]),
                value[::-1],
                *shifted,
                (0,) * len(value),
                (1,) * len(value),
            )
        )


def _parameters_otherwise(
    parameters: Mapping[str, Array], layer: Layer
) -> Iterator[tuple[Otherwise, dict[str, Array]]]:
    """Parameters by role with one of them left out, transposed, turned or shifted, or two exchanged."""
    for role, array in parameters.items():
        for what, other in (
            ("left out", np.full_like(array, float(role in ("scale", "variance")))),
            ("transposed", array.swapaxes(-1, -2) if array.ndim > 1 else array),
            ("turned", np.flip(array, tuple(range(2, array.ndim)))),
            ("shifted by one", np.roll(array, 1, 0)),
            ("shifted back by one", np.roll(array, -1, 0)),
        ):
            if other.shape == array.shape and other is not array:
                yield {role: what}, {**parameters, role: other}
    names = list(parameters)
    for place, role in enumerate(names):
        for other_role in names[place + 1 :]:
            one, other = parameters[role], parameters[other_role]
            if one.shape == other.shape:
                exchanged = {**parameters, role: other, other_role: one}
                yield {role: f"exchanged with {other_role}"}, exchanged
    gates, heads = getattr(layer, "gates", 0), getattr(layer, "heads", 0)
    for order in itertools.permutations(range(gates)) if gates else ():
        blocks = {role: np.stack(np.split(array, gates)) for role, array in parameters.items()}
        turned = {
            role: array[list(order)].reshape(parameters[role].shape)
            for role, array in blocks.items()
        }
        yield {"gates": f"in the order {list(order)}"}, turned
    for gate in range(gates):
        raised = np.stack(np.split(parameters["bias"], gates))
        raised[gate] += 1.0
        yield {"bias": f"plus 1 in gate {gate}"}, {**parameters, "bias": raised.ravel()}
    if heads:
        size = len(parameters["output_weight"])
        rows = np.arange(size).reshape(-1, heads).T.ravel()
        regrouped = {role: array[rows] for role, array in parameters.items()}
        for role in (
            ("output_weight", "output_bias") if "output_bias" in parameters else ("output_weight",)
        ):
            whole = parameters[role]
            regrouped[role] = whole[:, rows] if whole.ndim > 1 else whole
        yield {"heads": "of features that are not consecutive"}, regrouped


def _input_otherwise(array: Array, entries: int) -> Iterator[tuple[str, Array]]:
    """What a layer reads, with its axes in another order, turned, shifted, or counted from elsewhere."""
    if array.dtype.kind in "iu":
        yield "plus 1", (array + 1) % entries
        yield "minus 1", (array - 1) % entries
    for axis in range(1, array.ndim):
        yield f"turned along axis {axis}", np.flip(array, axis)
        yield f"shifted along axis {axis}", np.roll(array, 1, axis)
        yield f"shifted back along axis {axis}", np.roll(array, -1, axis)
    if array.ndim <= _MOST_AXES:
        for order in itertools.permutations(range(1, array.ndim)):
            yield f"with its axes in the order {[0, *order]}", array.transpose(0, *order)


def harmless(search: Callable[..., tuple[Otherwise, ...]]) -> Callable[..., tuple[Otherwise, ...]]:
    """A search that finds nothing where it fails: what was computed may be anything, and a verdict stays."""

    @functools.wraps(search)
    def found(*args: Any, **options: Any) -> tuple[Otherwise, ...]:
        try:
            with np.errstate(all="ignore"):
                return search(*args, **options)
        except Exception:
            return ()

    return found


@harmless
def layer_otherwise(
    model: Model,
    name: str,
    values: Tensors,
    *,
    training: bool = False,
    masks: Tensors | None = None,
    start: Tensors | None = None,
    tolerance: float = FLOAT64_TOLERANCE,
) -> tuple[Otherwise, ...]:
    """What of a layer was otherwise, such as ``{"epsilon": 0.001}``; several if all fit equally well.

    Empty if nothing fits, or if nothing is otherwise.

    Args:
        values: float64: every layer's value, as a framework computed it; the model's input; and parameters by
            ``layer.parameter``.
        masks: of dropouts in training mode, by layer.
        start: parameters that the model was built with, if it has others now.
        tolerance: what is nearer is what was computed.
    """
    node = next(each for each in model.wired() if each.name == name)
    actual, until = values[name], time.thread_time() + _SECONDS
    if actual.size > _NUMBERS:
        return ()
    layer = _Alone(model, node, values, training, masks or {})
    try:
        expected = layer.value()
    except Exception:  # it cannot be computed by itself
        return ()
    if not np.isfinite(actual).all():
        return _not_finite(actual, expected, values[node.inputs[0]], tolerance)
    found = _Fits(tolerance)
    found.add({}, _distances({"": actual}, {"": expected}))
    if found.nearest:
        return ()
    tried, numbers = _tried(layer, actual, expected, start or {}), _solved(layer, actual, expected)
    for search in (tried, numbers):
        fits = _Fits(tolerance)
        for otherwise, compute in search:
            if time.thread_time() > until:
                break
            try:
                fits.add(otherwise, _distances({"": actual}, {"": compute()}))
            except Exception:  # what nobody would write down fails in many ways
                continue
            if search is numbers and otherwise in fits.nearest and is_written(otherwise):
                break  # others that make the same follow from it
        if fits.nearest:
            return tuple(filter(is_written, fits.nearest)) or fits.nearest
    return ()


def is_written(otherwise: Otherwise) -> bool:
    """Whether somebody wrote a number, as its few digits show; others follow from what they did."""
    (value,) = otherwise.values()
    if isinstance(value, str) and value.startswith("times "):
        value = float(value.split()[1])
    return not isinstance(value, float) or abs(float(f"{value:.{_DIGITS}g}") - value) <= 1e-9 * abs(
        value
    )


def _not_finite(
    actual: Array, expected: Array, x: Array, tolerance: float
) -> tuple[Otherwise, ...]:
    """How many values are not finite, if the others are as they are to be."""
    wrong = ~np.isfinite(actual) & np.isfinite(expected)
    if relative_l2(np.where(wrong, expected, actual), expected) > tolerance:
        return ()
    text = f"that are not a number in {wrong.sum()} of {wrong.size} places, and right in the others"
    if x.shape == wrong.shape and x[~wrong].max(initial=-np.inf) < x[wrong].min():
        text = f"that overflow where inputs are {x[wrong].min():.2g} or more"
    return ({"values": text},)


class _Alone:
    """One layer, computed on what its inputs are."""

    def __init__(
        self, model: Model, node: Node, values: Tensors, training: bool, masks: Tensors
    ) -> None:
        self.model, self.node, self.values = model, node, values
        self.training, self.masks = training, masks
        owners = {"weight": tied_to(node)} if tied_to(node) else {}
        own = {key for key in values if key.rpartition(".")[0] == node.owner}
        roles = {key.rpartition(".")[2]: values[key] for key in own}
        roles |= {role: values[f"{owner}.{role}"] for role, owner in owners.items()}
        self.roles = {role: array.astype(np.float64) for role, array in roles.items()}
        if owners:
            self.node = msgspec.structs.replace(
                node, layer=msgspec.structs.replace(node.layer, tied_to="")
            )

    def value(
        self,
        layer: Layer | None = None,
        parameters: Mapping[str, Array] | None = None,
        read: Mapping[str, Array] | None = None,
        inputs: tuple[str, ...] = (),
        training: bool | None = None,
    ) -> Array:
        """Its value, with what is given otherwise: the layer, its parameters, what it reads, or the mode."""
        node = msgspec.structs.replace(
            self.node,
            layer=layer or self.node.layer,
            inputs=inputs or self.node.inputs,
            weights_of="",
        )
        read = {**self.values, **(read or {})}
        graph, given = self._graph(node, read, self.training if training is None else training)
        roles = self.roles if parameters is None else parameters
        given |= {f"{node.name}.{role}": array for role, array in roles.items()}
        needed = {each.name: given[each.name] for each in graph.graph.input if each.name in given}
        return _one(Evaluator(graph), needed, node.name)

    def _graph(
        self, node: Node, read: Mapping[str, Array], training: bool
    ) -> tuple[onnx.ModelProto, dict[str, Array]]:
        count = len(read[node.inputs[0]])
        masks = {name: mask[:count] for name, mask in self.masks.items() if name == node.name}
        if len(set(node.inputs)) == 1:
            (source,) = set(node.inputs)
            array = read[source]
            kind: Literal["real", "index"] = "real" if array.dtype.kind == "f" else "index"
            alone = Model(input=Input(name=source, shape=array.shape[1:], kind=kind), nodes=(node,))
            graph = canonical_graph(alone, None, dtype="float64", training=training, masks=masks)
            return graph, {source: array}
        nodes = tuple(node if each.name == node.name else each for each in self.model.wired())
        whole = msgspec.structs.replace(self.model, nodes=nodes)
        graph = layers_graph(whole, None, dtype="float64", training=training, masks=masks)
        names = [each.name for each in graph.graph.input]
        return graph, {
            name: read[name.removeprefix(INPUT_PREFIX)]
            for name in names
            if name.removeprefix(INPUT_PREFIX) in read
        }

    def _given(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """Its graph, and what that reads."""
        node = msgspec.structs.replace(self.node, weights_of="")
        graph, given = self._graph(node, self.values, self.training)
        given |= {f"{node.name}.{role}": array for role, array in self.roles.items()}
        return graph, {
            each.name: given[each.name] for each in graph.graph.input if each.name in given
        }

    def constants(self) -> Tries:
        """Its value with a constant or an attribute of its graph otherwise, which no field sets."""
        graph, given = self._given()
        evaluator, output = Evaluator(graph), self.node.name
        own = f"{output}/"
        for tensor in (each for each in graph.graph.initializer if each.name.startswith(own)):
            array, what = numpy_helper.to_array(tensor), _shown(tensor.name)
            for axis in range(array.ndim if array.dtype.kind == "f" else 0):
                for by in (1, -1):
                    places = np.clip(np.arange(array.shape[axis]) + by, 0, array.shape[axis] - 1)
                    other = {tensor.name: array.take(places, axis)}
                    text = f"shifted by {by} along axis {axis}"
                    yield {what: text}, partial(_one, evaluator, given | other, output)
        for place, node in enumerate(graph.graph.node):
            for number, attribute in enumerate(node.attribute):
                if attribute.name != "axis" or not f"{node.output[0]}/".startswith(own):
                    continue
                for axis in (attribute.i - 1, attribute.i + 1):
                    turned = onnx.ModelProto.FromString(graph.SerializeToString())
                    turned.graph.node[place].attribute[number].i = axis
                    text = f"over axis {axis} for {attribute.i}"
                    yield {node.op_type: text}, partial(_evaluated, turned, given, output)

    def numbers(self) -> Iterator[tuple[str, float, Callable[[float], Array]]]:
        """The single real constants of its graph, which no field sets, and its value with another."""
        graph, given = self._given()
        evaluator = Evaluator(graph)
        for tensor in graph.graph.initializer:
            array = numpy_helper.to_array(tensor)
            if array.ndim or array.dtype.kind != "f" or not tensor.name.startswith(self.node.name):
                continue

            def with_number(number: float, name: str = tensor.name) -> Array:
                return _one(evaluator, given | {name: np.float64(number)}, self.node.name)

            yield _shown(tensor.name), float(array), with_number


def _shown(name: str) -> str:
    """A constant as it is told: by its name, if a layer gave it one."""
    last = name.rpartition("/")[2]
    return "a constant of its graph" if last.isdigit() else last


def _evaluated(graph: onnx.ModelProto, given: Mapping[str, Array], name: str) -> Array:
    return _one(Evaluator(graph), given, name)


def _one(evaluator: Evaluator, given: Mapping[str, Array], name: str) -> Array:
    return evaluator.run(given, [name])[name]


def _tried(layer: _Alone, actual: Array, expected: Array, start: Tensors) -> Tries:
    """What ports have otherwise, and the value with it."""
    node, values = layer.node, layer.values
    for it, kind in fields_otherwise(node.layer, LAYERS.values()):
        yield it, partial(layer.value, kind)
    for it, parameters in _parameters_otherwise(layer.roles, node.layer):
        yield it, partial(layer.value, None, parameters)
    yield {"inputs": "the other way round"}, partial(layer.value, inputs=node.inputs[::-1])
    if layer.training:
        yield {"mode": "that of evaluation"}, partial(layer.value, training=False)
    for source in dict.fromkeys(node.inputs):
        array, name = values[source], "input" if len(node.inputs) == 1 else f"input {source}"
        entries = (
            int(getattr(node.layer, "entries", 0)) or int(array.max()) + 1 if array.size else 1
        )
        for what, other in _input_otherwise(array, entries):
            yield {name: what}, partial(layer.value, read={source: other})
        if array.size == actual.size and array.dtype.kind == "f":
            what = (
                f"left out but for {name}"
                if array.shape == actual.shape
                else "a reshape in its place"
            )
            yield {"layer": what}, partial(np.reshape, array, actual.shape)
            own = layer.training and node.name in layer.masks
            dropout = {"mask": "of its own"} if own else {"dropout": "in it"}
            yield dropout, partial(_dropped, array, actual, expected)
    owners = {key.rpartition(".")[0] for key in values} - {node.owner, ""}
    for owner in sorted(owners):
        parameters = {role: values.get(f"{owner}.{role}", np.empty(0)) for role in layer.roles}
        if all(array.shape == layer.roles[role].shape for role, array in parameters.items()):
            yield {"parameters": f"of {owner}"}, partial(layer.value, None, parameters)
    began = {role: start.get(f"{node.owner}.{role}", array) for role, array in layer.roles.items()}
    if tied := tied_to(next(each for each in layer.model.nodes if each.name == node.name)):
        began["weight"] = start.get(f"{tied}.weight", began["weight"])
    yield {"parameters": "that it was built with, of its own"}, partial(layer.value, None, began)
    pads = getattr(node.layer, "pads", ())
    if pads and not hasattr(node.layer, "count_include_pad"):
        half, (source, *_) = len(pads) // 2, node.inputs
        widths = ((0, 0), (0, 0), *zip(pads[:half], pads[half:]))
        bare = msgspec.structs.replace(node.layer, pads=(0,) * len(pads))
        if values[source].ndim == len(widths):
            padded = np.pad(values[source], widths)
            yield {"pads": "that are zeros"}, partial(layer.value, bare, read={source: padded})
    yield {"values": "rounded to float32"}, partial(_rounded, actual, expected)
    if getattr(node.layer, "function", "").endswith("round"):
        x = values[node.inputs[0]]
        away = np.copysign(np.floor(np.abs(x) + 0.5), x)
        yield {"halves": "rounded away from 0"}, partial(np.asarray, away)
    for what, narrow in NARROWER.items():
        for rounds in (False, True):
            rounded = partial(_narrow, layer, narrow, rounds)
            yield {f"products of {node.name}": f"in {what}"}, rounded
    yield from layer.constants()
    for otherwise, array in _normalised_otherwise(layer, expected):
        yield otherwise, partial(np.asarray, array)


def _normalised_otherwise(layer: _Alone, expected: Array) -> Iterator[tuple[Otherwise, Array]]:
    """The value of a normalisation by another variance, or with its epsilon elsewhere."""
    kind = layer.node.layer
    if not isinstance(kind, (BatchNorm, LayerNorm)):
        return
    if "mean" in layer.roles and not layer.training:
        return
    x = layer.values[layer.node.inputs[0]]
    of_channels = isinstance(kind, BatchNorm)
    axes = (0, *range(2, x.ndim)) if of_channels else (-1,)
    shape = (1, -1, *(1,) * (x.ndim - 2)) if of_channels else (-1,)
    scale, bias = (layer.roles[role].reshape(shape) for role in ("scale", "bias"))
    mean, variance = (f(x, axis=axes, keepdims=True) for f in (np.mean, np.var))
    count = x.size // mean.size
    roots = {
        f"over n - 1 for n = {count}": np.sqrt(variance * count / (count - 1) + kind.epsilon),
        "the mean of squares less the square of the mean": np.sqrt(
            np.mean(x * x, axis=axes, keepdims=True) - mean * mean + kind.epsilon
        ),
    }
    for what, root in roots.items():
        yield {"variance": what}, scale * (x - mean) / root + bias
    outside = np.sqrt(variance) + kind.epsilon
    yield {"epsilon": "outside of the root"}, scale * (x - mean) / outside + bias


def _dropped(array: Array, actual: Array, expected: Array) -> Array:
    """What dropouts make of an array: some of its numbers are 0, the others are one multiple."""
    kept = actual != 0
    factor = np.median(actual[kept] / array[kept])
    if (kept == (expected != 0)).all():
        raise ValueError("no other numbers are dropped")
    return np.where(kept, array * factor, 0.0)


def _narrow(layer: _Alone, narrow: Callable[[Array], Array], rounds: bool) -> Array:
    """The value of a layer whose inputs and weights are rounded, and if so its products, before a bias."""
    read = {name: narrow(layer.values[name]) for name in layer.node.inputs}
    roles = {role: narrow(array) for role, array in layer.roles.items() if "bias" not in role}
    whole = layer.value(None, {**layer.roles, **roles}, read)
    if not rounds:
        return whole
    zeros = {role: np.zeros_like(array) for role, array in layer.roles.items()}
    value = layer.value(None, zeros | roles, read)
    rounded: Array = narrow(value) + (whole - value)
    return rounded


def _rounded(actual: Array, expected: Array) -> Array:
    """Values of which each is one of float32, if they are near what is expected."""
    if relative_l2(actual, expected) > _NEAR_FLOAT32:
        raise ValueError("not by rounding")
    return actual.astype(np.float32).astype(actual.dtype)


def _solved(layer: _Alone, actual: Array, expected: Array) -> Tries:
    """Numbers of the layer, each solved for, and the value with it."""
    size = float(np.linalg.norm(expected)) or 1.0

    def search(compute: Callable[[float], Array], begin: float) -> float:
        return solved(lambda point: ((compute(point[0]) - actual) / size).ravel(), (begin,))[0]

    if actual.shape == expected.shape:
        factor = search(lambda number: number * expected, 1.0)
        yield {"value": f"times {factor_text(factor)}"}, partial(np.multiply, factor, expected)
        for bound, limited in (("most", np.minimum), ("least", np.maximum)):
            number = float(actual.max() if bound == "most" else actual.min())
            yield {"value": f"at {bound} {number:.6g}"}, partial(limited, number, expected)
        (source, *others) = layer.node.inputs
        x = layer.values[source]
        if not others and x.shape == expected.shape and x.dtype.kind == "f":
            slope = search(lambda number: expected + number * np.minimum(x, 0.0), 0.0)
            sloped = expected + slope * np.minimum(x, 0.0)
            yield {"slope below zero": slope}, partial(np.asarray, sloped)
    for name, value in msgspec.structs.asdict(layer.node.layer).items():
        if isinstance(value, float):

            def with_number(number: float, name: str = name) -> Array:
                return layer.value(
                    msgspec.structs.replace(layer.node.layer, **{name: float(number)})
                )

            found = search(with_number, value or 1e-3)
            yield {name: found}, partial(with_number, found)
    for name, value, with_constant in layer.numbers():
        found = search(with_constant, value or 1e-3)
        yield {name: found}, partial(with_constant, found)
    for role, array in layer.roles.items():

        def with_factor(factor: float, role: str = role, array: Array = array) -> Array:
            return layer.value(None, {**layer.roles, role: factor * array})

        found = search(with_factor, 1.0)
        yield {role: f"times {factor_text(found)}"}, partial(with_factor, found)


def factor_text(factor: float) -> str:
    """A factor in six digits; in more if these say that it is 1."""
    text = f"{factor:.6g}"
    return text if text != "1" else f"{factor:.12g}"


def _keeping(dropped: int, array: Array) -> Array:
    """Numbers of float32 rounded to fewer bits, ties to even."""
    if array.dtype.kind != "f":
        return array
    bits = np.atleast_1d(array).astype(np.float32).view(np.uint32)
    odd = (bits >> np.uint32(dropped)) & np.uint32(1)
    raised = bits + np.uint32((1 << (dropped - 1)) - 1) + odd
    kept = (raised & np.uint32((0xFFFFFFFF << dropped) & 0xFFFFFFFF)).view(np.float32)
    rounded: Array = kept.reshape(array.shape).astype(array.dtype)
    return rounded


def _cut(array: Array) -> Array:
    if array.dtype.kind != "f":
        return array
    bits = np.atleast_1d(array).astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    cut: Array = bits.view(np.float32).reshape(array.shape).astype(array.dtype)
    return cut


def _half(array: Array) -> Array:
    half: Array = array.astype(np.float16).astype(array.dtype)
    return half if array.dtype.kind == "f" else array


#: What rounds numbers to the types that hardware multiplies in, by name.
NARROWER: Mapping[str, Callable[[Array], Array]] = {
    "bfloat16": partial(_keeping, 16),
    "TensorFloat-32": _cut,
    "TensorFloat-32, rounded": partial(_keeping, 13),
    "float16": _half,
}


def weights_otherwise(actual: Tensors, expected: Tensors) -> tuple[Otherwise, ...]:
    """What the first tensor holds that has other numbers than it was given; empty if none has.

    Args:
        actual, expected: by the same names.
    """
    for name, array in expected.items():
        own = actual.get(name)
        if own is None or own.shape != array.shape or (own == array).all():
            continue
        others = [key for key, other in expected.items() if np.array_equal(own, other)]
        wrong = np.count_nonzero(own != array)
        if others:
            return ({name: f"that of {others[0]}"},)
        if np.array_equal(np.sort(own, None), np.sort(array, None)):
            return ({name: "in another order"},)
        if wrong < own.size:
            return ({name: f"off in {wrong} of {own.size} numbers"},)
        for kind in ("float32", "float16"):
            if np.array_equal(own, array.astype(kind)):
                return ({name: f"rounded to {kind}"},)
        if np.isin(own, array).mean() < _BY_CHANCE:
            return ({name: "of numbers that were not given: not loaded, or overwritten"},)
    return ()


def solved(
    residuals: Callable[[Array], Array], start: Sequence[float], rounds: int = 8
) -> tuple[float, ...]:
    """The numbers at which residuals are least, by Gauss and Newton from a start."""
    point = np.array(start, np.float64)
    with np.errstate(all="ignore"):
        for _ in range(rounds):
            here, slopes = residuals(point), []
            for place, number in enumerate(point):
                moved = point.copy()
                moved[place] += 1e-6 * max(abs(number), 1e-6)
                slopes.append((residuals(moved) - here) / (moved[place] - number))
            matrix = np.stack(slopes, axis=1)
            if not (np.isfinite(matrix).all() and np.isfinite(here).all()):
                break
            step = np.linalg.lstsq(matrix, here, rcond=None)[0]
            point = point - step
            if np.linalg.norm(step) <= 1e-15 * np.linalg.norm(point):
                break
    return tuple(float(number) for number in point)


class _Fits:
    """The nearest of what was tried, of what is within rounding."""

    def __init__(self, tolerance: float) -> None:
        self.nearest: tuple[Otherwise, ...] = ()
        self._distance = tolerance

    def add(self, otherwise: Otherwise, distances: Sequence[float]) -> None:
        distance = max(_ROUNDING, *distances)
        if distance < self._distance / _NEARER:
            self.nearest = ()
        near = distance <= self._distance * (_NEARER if self.nearest else 1.0)
        known = {name for each in self.nearest for name in each}
        if near and known.isdisjoint(otherwise):
            self.nearest = (*self.nearest, otherwise)[:_MOST]
            self._distance = min(distance, self._distance)


def _distances(actual: Tensors, computed: Tensors) -> list[float]:
    return [
        relative_l2(actual[name], array) if actual[name].shape == array.shape else math.inf
        for name, array in computed.items()
    ]
