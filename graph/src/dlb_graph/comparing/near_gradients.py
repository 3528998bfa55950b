"""A loss or a backward pass with one thing otherwise, as ports have it."""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np

from dlb_graph.comparing.distance import relative_l2
from dlb_graph.comparing.near_misses import NARROWER, Otherwise, fields_otherwise, harmless
from dlb_graph.comparing.tolerances import (
    EXTREME_TOLERANCE,
    FLOAT64_TOLERANCE,
    SMALL,
    Tensors,
    norm_floor,
)
from dlb_graph.layers import MaxPool, Pass
from dlb_graph.layers.base import Gradients
from dlb_graph.layers.numbers import Array
from dlb_graph.losses import LOSSES, Loss, SoftmaxCrossEntropy
from dlb_graph.truth.backward import Altered
from dlb_graph.workload.model import Model, Node

__all__ = ["gradients_otherwise", "loss_otherwise"]

#: Seconds for a search, and the most classes and numbers of a tensor that it is worth.
_SECONDS = 20.0
_CLASSES = 100
_NUMBERS = 2_000_000
#: The most places of a window whose orders are all tried.
_TIED = 4
#: Bounds of probabilities that losses have.
_BOUNDS = (1e-15, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
#: So far is another side of a kink, or a place before another of equal value.
_BESIDE = 1e-13

Compute = Callable[[], float]


@harmless
def loss_otherwise(
    loss: Loss, outputs: Array, targets: Array, actual: float, tolerance: float = FLOAT64_TOLERANCE
) -> tuple[Otherwise, ...]:
    """What of a loss was otherwise, such as ``{"label_smoothing": 0.1}``; empty if nothing fits.

    Args:
        outputs: float64, what the loss reads.
        actual: the loss that a framework computed.
    """
    if outputs.size > _NUMBERS:
        return ()
    for otherwise, compute in _losses(loss, outputs, targets):
        try:
            with np.errstate(all="ignore"):
                value = compute()
        except Exception:  # what nobody would write down fails in many ways
            continue
        near = abs(value - actual) <= tolerance * min(abs(actual), sys.float_info.max)
        overflows = "softmax" in otherwise and not math.isfinite(value)
        if near or (overflows and not math.isfinite(actual)):
            return (otherwise,)
    return ()


def _losses(loss: Loss, outputs: Array, targets: Array) -> Iterator[tuple[Otherwise, Compute]]:
    """What ports have otherwise in a loss, and its value with it."""

    def value(other: Loss = loss, of: Array = outputs, to: Array = targets) -> float:
        return other.value_and_gradient(of, to)[0]

    for otherwise, other in fields_otherwise(loss, LOSSES.values()):
        yield otherwise, partial(value, other)
    whole, samples = value(), len(outputs)
    for name, number in msgspec.structs.asdict(loss).items():
        if isinstance(number, float) and number:
            for factor, text in ((number, "times"), (1 / number, "divided by")):
                yield {"loss": f"{text} its {name}"}, partial(float, whole * factor)
    counts = {samples: ", the number of samples"}
    counts.setdefault(targets.size // samples, ", the number of targets of a sample")
    counts.setdefault(targets.size, ", the number of targets")
    for count, name in {**counts, 2: counts.get(2, "")}.items():
        for factor, text in ((count, f"times {count}"), (1 / count, f"divided by {count}")):
            yield {"loss": f"{text}{name}"}, partial(float, whole * factor)
    if outputs.ndim > 2:
        for what, place in (("first", slice(0, 1)), ("last", slice(-1, None))):
            part = partial(value, of=outputs[:, place], to=targets[:, place])
            yield {"loss": f"of the {what} step alone"}, part
    if targets.dtype.kind == "f":
        for what, narrow in NARROWER.items():
            yield {"targets": f"rounded to {what}"}, partial(value, to=narrow(targets))
        yield {"targets": "rounded to whole numbers"}, partial(value, to=np.round(targets))
    if isinstance(loss, SoftmaxCrossEntropy):
        yield from _classified(loss, outputs, targets, whole)


def _classified(
    loss: SoftmaxCrossEntropy, outputs: Array, targets: Array, whole: float
) -> Iterator[tuple[Otherwise, Compute]]:
    """As :func:`_losses`, of a cross-entropy of classes."""

    def without(label: int) -> float:
        kept = float((targets != label).mean())
        other = msgspec.structs.replace(loss, ignore_index=label)
        return other.value_and_gradient(outputs, targets)[0] / kept

    for label in range(min(outputs.shape[-1], _CLASSES)):
        yield {"loss": f"without label {label}, which is ignored"}, partial(without, label)
    if loss.class_weights:
        weight = float(np.array(loss.class_weights)[targets].mean())
        yield {"loss": "divided by the sum of its weights"}, partial(float, whole / weight)
    if outputs.ndim > 2 and targets.ndim > 2:
        return  # of maps, whose classes are not last
    with np.errstate(all="ignore"):
        shifted = np.exp(outputs - outputs.max(-1, keepdims=True))
        plain = np.exp(outputs)
        shares, overflowing = (each / each.sum(-1, keepdims=True) for each in (shifted, plain))

    def of_shares(shares: Array) -> float:
        return float(-np.log(np.take_along_axis(shares, targets[..., None], -1)).mean())

    for bound in _BOUNDS:
        clipped = np.clip(shares, bound, 1 - bound)
        yield {"probabilities": f"clipped at {bound:g}"}, partial(of_shares, clipped)
    yield {"softmax": "of exponents that overflow"}, partial(of_shares, overflowing)
    twice = loss.value_and_gradient(shares, targets)[0]
    yield {"softmax": "taken twice"}, partial(float, twice)


@harmless
def gradients_otherwise(
    model: Model,
    actual: Tensors,
    compute: Callable[[Altered | None], Tensors],
    tolerance: float = FLOAT64_TOLERANCE,
) -> tuple[Otherwise, ...]:
    """What of a backward pass was otherwise, such as ``{"gradient": "stopped at sum"}``.

    Args:
        actual: the gradients that a framework computed, by name.
        compute: the gradients, with another backward pass of layers.
        tolerance: of the relative distance of each.
    """
    truth = compute(None)
    if sum(array.size for array in truth.values()) > _NUMBERS:
        return ()
    least, until = norm_floor(truth, SMALL), time.thread_time() + _SECONDS

    def beyond(computed: Tensors) -> list[str]:
        return [
            name
            for name, array in computed.items()
            if name != "loss" and not relative_l2(actual[name], array, least) <= tolerance
        ]

    failing = beyond(truth)
    if not failing:
        return ()
    rows = [_empty_rows(name, actual[name], truth[name], tolerance) for name in failing]
    if all(rows):
        return ({"gradient": " and ".join(rows)},)
    for otherwise, altered in _backward(model, tolerance > EXTREME_TOLERANCE):
        if time.thread_time() > until:
            break
        try:
            with np.errstate(all="ignore"):
                near = not beyond(compute(altered))
        except Exception:  # what nobody would write down fails in many ways
            continue
        if near:
            return (otherwise,)
    return ()


def _empty_rows(name: str, actual: Array, truth: Array, tolerance: float) -> str:
    """That some rows of a gradient are 0 and the others are right; "" if that is not so."""
    empty = ~actual.reshape(len(actual), -1).any(1) & truth.reshape(len(truth), -1).any(1)
    if not empty.any() or empty.all() or relative_l2(actual[~empty], truth[~empty]) > tolerance:
        return ""
    return f"of {name} left out in row {', '.join(map(str, np.flatnonzero(empty)))}"


def _backward(model: Model, narrows: bool) -> Iterator[tuple[Otherwise, Altered]]:
    """What ports have otherwise in the backward pass of a layer; those near the loss first.

    Args:
        narrows: whether a layer's may be rounded, as in float32; else its slopes at kinks may be others.
    """
    nodes = list(reversed(model.wired()))
    for node in nodes:
        for what, other in _ways(node):
            yield {"gradient": f"{what} {node.name}"}, partial(_at, node.name, other)
    for node in nodes:
        for what, other in _narrowed() if narrows else _beside(node):
            yield {f"gradient of {node.name}": what}, partial(_at, node.name, other)


def _at(name: str, other: Way, node: Node, read: Pass, cotangent: Array) -> Gradients:
    """The gradients of a layer, which another way computes at one."""
    return (
        other(node, read, cotangent) if node.name == name else node.layer.gradients(read, cotangent)
    )


Way = Callable[[Node, Pass, Array], Gradients]


def _ways(node: Node) -> Iterator[tuple[str, Way]]:
    """Ways to pass no gradient, or another one."""

    def stopped(place: int, node: Node, read: Pass, cotangent: Array) -> Gradients:
        of_inputs, of_parameters = node.layer.gradients(read, cotangent)
        kept = [None if at == place else each for at, each in enumerate(of_inputs)]
        return tuple(kept), of_parameters

    def straight(node: Node, read: Pass, cotangent: Array) -> Gradients:
        return (cotangent,), node.layer.gradients(read, cotangent)[1]

    def unmasked(node: Node, read: Pass, cotangent: Array) -> Gradients:
        if read.mask is None:
            raise ValueError("no mask")
        return node.layer.gradients(replace(read, mask=np.ones_like(read.mask)), cotangent)

    def forgotten(node: Node, read: Pass, cotangent: Array) -> Gradients:
        return node.layer.gradients(read, cotangent)[0], {}

    for place, source in enumerate(node.inputs):
        yield f"stopped before {source}, at", partial(stopped, place)
    if len(node.inputs) == 1:
        yield "passed on as it is by", straight
    yield "that is not masked, of", unmasked
    yield "not added to the weights that it shares, of", forgotten


def _moved(by: Callable[[Array], Array], node: Node, read: Pass, cotangent: Array) -> Gradients:
    """The gradients at inputs that lie beside those that were read."""
    inputs = tuple(x + by(x) if x.dtype.kind == "f" else x for x in read.inputs)
    return node.layer.gradients(replace(read, inputs=inputs), cotangent)


def _narrowed() -> Iterator[tuple[str, Way]]:
    """The gradients of what is rounded to the types that hardware multiplies in."""

    def narrow(
        rounded: Callable[[Array], Array], node: Node, read: Pass, cotangent: Array
    ) -> Gradients:
        return node.layer.gradients(read, rounded(cotangent))

    for name, rounded in NARROWER.items():
        yield f"rounded to {name}", partial(narrow, rounded)


def _beside(node: Node) -> Iterator[tuple[str, Way]]:
    """The slopes of the other side of a kink, and those of other tied numbers."""
    if isinstance(node.layer, MaxPool):
        yield from _ties()
    for what, by in (("above", _BESIDE), ("below", -_BESIDE)):
        yield (
            f"at a kink the slope {what} it",
            partial(_moved, partial(np.full_like, fill_value=by)),
        )


def _ties() -> Iterator[tuple[str, Way]]:
    """Gradients of tied numbers in windows: of the last, a share for each, or the whole for each."""

    def at_places(node: Node, read: Pass, cotangent: Array, order: Iterable[int]) -> Array:
        """The gradient where the places of a window, in an order, have a bit more than they have."""
        offsets = _offsets(node, read.input)
        beside = np.asarray(sum(by * mask for by, mask in zip(order, offsets)) * _BESIDE)
        (of_input,), _ = _moved(lambda x: beside, node, read, cotangent)
        found: Array = np.asarray(of_input)
        return found

    def shared(node: Node, read: Pass, cotangent: Array) -> Gradients:
        count = len(_offsets(node, read.input))
        if count > _TIED:
            raise ValueError("a window has too many orders")
        orders = [*itertools.permutations(range(count))]
        parts = [at_places(node, read, cotangent, order) for order in orders]
        return (np.asarray(np.mean(parts, axis=0)),), {}

    def whole(node: Node, read: Pass, cotangent: Array) -> Gradients:
        offsets = _offsets(node, read.input)
        chosen = np.eye(len(offsets), dtype=int)
        parts = [
            mask * at_places(node, read, cotangent, order) for mask, order in zip(offsets, chosen)
        ]
        return (np.sum(parts, axis=0),), {}

    def last(node: Node, read: Pass, cotangent: Array) -> Gradients:
        order = range(len(_offsets(node, read.input)))
        return (at_places(node, read, cotangent, order),), {}

    yield "among ties that of the last", last
    yield "among ties a share for each", shared
    yield "among ties the whole for each", whole


def _offsets(node: Node, x: Array) -> list[Array]:
    """Where each place of a window is, of windows that do not overlap."""
    stride = node.layer.stride  # type: ignore[attr-defined]
    places = np.indices(x.shape[2:]) % np.reshape(stride, (-1, *(1,) * len(stride)))
    numbers = np.ravel_multi_index(tuple(places), stride)
    return [np.asarray(numbers == place) for place in range(math.prod(stride))]
