"""Which numbers two models hold, whatever the layout: the same, or which only one has.

What counts is the constant that an operator reads beside what depends on the input, whatever chain
of operators made it. Zeros, and single numbers of analytic operators, are left to the comparison of
values: whether they are there at all is a matter of how the operators are written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.graph.decimals import decimal
from dlb.graph.layout import LAYOUT, gather_permutation
from dlb.graph.operations import reader_of
from dlb.graph.trace import Trace, attributes_of
from dlb.proof.distance import figure, relative_l2, worst_first
from dlb.proof.files.analytic import clips_shown, is_analytic
from dlb.proof.files.parting import called, transposed
from dlb.proof.findings import Figure
from dlb.proof.findings.files import WeightDiffers, WeightFacts, WeightInOne
from dlb.proof.tolerances import FOLDED_TOLERANCE

__all__ = ["MatchedWeights", "Weight", "match_weights", "weights_of"]

Array = npt.NDArray[Any]

#: Whole numbers fewer than these are shapes, axes and permutations, which structure compares.
_FEW_INTEGERS = 16
#: Operators of two values, number by number.
_BY_NUMBER = {"Add", "Div", "Mul", "Sub", "Sum"}
#: A bound this far out is none in float32.
_UNBOUNDED = 3e38


@dataclass(frozen=True, eq=False)
class Weight:
    """A constant that a model computes with.

    Attributes:
        name: of the initialiser that it comes from, or of the value.
        values: in the model's own layout; real numbers in float64.
        operator, node: of the node that reads it first.
        exact: not every number matters to every input: rows that are looked up, and bounds.
        initialiser: the name of the one initialiser that it is made of; empty if there is none.
    """

    name: str
    values: Array
    operator: str
    node: str
    exact: bool = False
    initialiser: str = ""


@dataclass(frozen=True)
class MatchedWeights:
    """The weights of two models compared with each other.

    Attributes:
        figures: every weight of the first model against its counterpart, and every one that only
            the second has; worst first.
        unmatched: those that differ or have no counterpart; empty if all are the same.
        folded: of the first and of the second model, those that hold a batch normalisation of the
            other, rounded.
    """

    figures: tuple[Figure, ...]
    unmatched: tuple[WeightDiffers | WeightInOne, ...]
    folded: tuple[tuple[Weight, ...], tuple[Weight, ...]]


def weights_of(traced: Trace) -> list[Weight]:
    """Every weight of a model that was run, once each, in the order in which they are used.

    Real attributes of operators that are not analytic, which may be bounds, are among them.
    """
    held: dict[str, Weight] = {}
    reader = reader_of(traced)
    traced = clips_shown(reader)
    attended = {
        name
        for end, block in reader.blocks.items()
        if block.kind == "Attention"
        for name in (end, *block.intermediates)
    }
    for node in traced.nodes:
        # What attention computes with is its masks, which structure compares.
        if traced.live.isdisjoint(node.input) or not attended.isdisjoint(node.output):
            continue
        exact = not is_analytic(traced, node)
        rank = traced.values[node.output[0]].ndim if node.op_type in _BY_NUMBER else None
        constants = {
            name: (traced.constant(node, k), name)
            for k, name in enumerate(node.input)
            if name not in reader.nominal_values
        }
        if node.op_type in LAYOUT or gather_permutation(traced, node) is not None:
            constants = {}
        if exact:
            constants |= {
                f"{called(node)}.{name}": (np.asarray(value), "")
                for name, value in attributes_of(node).items()
                if isinstance(value, float)
            }
        for name, (array, value) in constants.items():
            if array is None or not np.any(array) or array.dtype.kind not in "fiub":
                continue
            if (
                rank
                and array.ndim == rank
                and len(array) == traced.batch
                and (array == array[:1]).all()
            ):
                array = array[:1]  # repeated for each sample
            if array.dtype.kind == "f":
                # What only has to be larger than any number is written in many ways.
                small = not exact or bool(np.all(np.abs(array) >= _UNBOUNDED))
                if array.size == 1 and small:
                    continue
            elif array.size <= _FEW_INTEGERS:
                continue
            before = held.get(name)
            source = _source(traced, value) if value else ""
            held[name] = Weight(
                name=source or name,
                values=array,
                operator=before.operator if before else node.op_type,
                node=before.node if before else called(node),
                exact=exact or (before is not None and before.exact),
                initialiser=source,
            )
    return list(held.values())


def match_weights(
    first: Trace, second: Trace, labels: tuple[str, str], *, folding: bool
) -> MatchedWeights:
    """Match by content: first in the same or a transposed layout, then in any order of the numbers.

    That an order is right, the comparison of values tells, since every number takes part in it;
    but for those marked exact, which therefore are only matched as they are.

    Args:
        labels: what the files are called.
        folding: batch normalisation of one model may be folded into weights of the other.
    """
    ours, theirs = weights_of(first), weights_of(second)
    compared: list[Figure] = []
    for same in (_same_layout, _same_numbers):
        for weight in list(ours):
            other = next((each for each in theirs if same(weight, each)), None)
            if other is not None:
                ours.remove(weight)
                theirs.remove(other)
                compared.append(Figure(tensor=weight.name, relative_l2=0.0, largest=0.0))
    if ours and theirs and _pooled(ours, theirs):
        compared += [Figure(tensor=each.name, relative_l2=0.0, largest=0.0) for each in ours]
        ours, theirs = [], []
    folded: tuple[tuple[Weight, ...], tuple[Weight, ...]] = ((), ())
    if folding and (ours or theirs):
        in_second, used_first, figures_second = _derived(first, theirs)
        in_first, used_second, figures_first = _derived(second, ours)
        ours = [each for each in ours if each.name not in used_first and each not in in_first]
        theirs = [each for each in theirs if each.name not in used_second and each not in in_second]
        folded = (tuple(in_first), tuple(in_second))
        compared += [*figures_second, *figures_first]
    unmatched: list[WeightDiffers | WeightInOne] = []
    # One model may hold once what the other holds twice: a table that is also a projection.
    shared = (weights_of(first), weights_of(second))
    for weight in ours:
        nearest = min(theirs, key=lambda each: _apart(weight, each), default=None)
        if nearest is None or not math.isfinite(_apart(weight, nearest)):
            if any(_same_layout(weight, each) for each in shared[1]):
                continue
            compared.append(Figure(tensor=weight.name, relative_l2=None, largest=None))
            unmatched.append(WeightInOne(file=labels[0], weight=_facts(weight)))
            continue
        theirs.remove(nearest)
        one = _figure(weight, nearest)
        compared.append(one)
        unmatched.append(
            WeightDiffers(weight=_facts(weight), other=_facts(nearest), largest=one.largest)
        )
    for weight in theirs:
        if any(_same_layout(weight, each) for each in shared[0]):
            continue
        compared.append(Figure(tensor=weight.name, relative_l2=None, largest=None))
        unmatched.append(WeightInOne(file=labels[1], weight=_facts(weight)))
    return MatchedWeights(worst_first(compared), tuple(unmatched), folded)


def _facts(weight: Weight) -> WeightFacts:
    return WeightFacts(
        name=weight.name,
        shape=tuple(int(size) for size in weight.values.shape),
        operator=weight.operator,
        node=weight.node,
    )


def _source(traced: Trace, name: str) -> str:
    """The one initialiser of more than one number that a constant is made of, if it is one."""
    waiting, found, seen = [name], set(), set()
    while waiting:
        each = waiting.pop()
        if each in seen or not each:
            continue
        seen.add(each)
        node = traced.producers.get(each)
        if node is not None:
            waiting += node.input
        elif traced.values[each].size > 1 and traced.values[each].dtype.kind == "f":
            found.add(each)
    return found.pop() if len(found) == 1 else ""


def _same_layout(a: Weight, b: Weight) -> bool:
    return bool(a.values.size == b.values.size) and any(
        np.array_equal(one, b.values.squeeze()) for one in transposed(a.values, b.values)
    )


def _same_numbers(a: Weight, b: Weight) -> bool:
    if a.values.size != b.values.size or a.exact or b.exact:
        return False
    return np.array_equal(_sorted(a.values), _sorted(b.values))


def _pooled(ours: list[Weight], theirs: list[Weight]) -> bool:
    """Whether one splits what the other holds in one piece, such as the weights of three layers."""
    if any(each.exact for each in (*ours, *theirs)):
        return False
    pools = [np.concatenate([each.values.ravel() for each in side]) for side in (ours, theirs)]
    return np.array_equal(_sorted(pools[0]), _sorted(pools[1]))


def _sorted(array: Array) -> Array:
    return np.sort(array, axis=None)


def _apart(a: Weight, b: Weight) -> float:
    """The distance in the nearest layout; infinite where sizes differ."""
    if a.values.size != b.values.size:
        return math.inf
    return min(
        [
            *(relative_l2(b.values.squeeze(), one) for one in transposed(a.values, b.values)),
            relative_l2(_sorted(b.values), _sorted(a.values)),
        ]
    )


def _figure(a: Weight, b: Weight) -> Figure:
    name = a.name if a.name == b.name else f"{a.name} / {b.name}"
    layouts = list(transposed(a.values, b.values))
    if layouts:
        nearest = min(layouts, key=lambda one: relative_l2(b.values.squeeze(), one))
        return figure(name, b.values.squeeze(), nearest)
    return figure(name, _sorted(b.values), _sorted(a.values))


def _derived(
    traced: Trace, others: Iterable[Weight]
) -> tuple[list[Weight], set[str], list[Figure]]:
    """Weights of another model that are this one's after batch normalisation was folded.

    Returns:
        them, the names of this model's weights that went into any of them, and figures.
    """
    made = list(_foldings(traced))
    derived, used, figures = [], set(), []
    for weight in others:
        near = [
            (relative_l2(_sorted(weight.values), _sorted(values)), sources)
            for values, sources in made
            if values.size == weight.values.size and not weight.exact
        ]
        distance, sources = min(near, key=lambda each: each[0], default=(math.inf, set()))
        if distance <= FOLDED_TOLERANCE:
            derived.append(weight)
            used |= sources
            figures.append(Figure(tensor=weight.name, relative_l2=distance, largest=None))
    return derived, used, figures


def _foldings(traced: Trace) -> Iterator[tuple[Array, set[str]]]:
    """What each batch normalisation may be folded to, and the names of what goes into it.

    With a factor ``k = scale / sqrt(variance + epsilon)`` for each channel: ``k`` itself and the
    shift ``bias - mean * k``; the weights of the layer before times ``k``, and its bias ``b`` as
    ``(b - mean) * k + bias``.
    """
    for node in traced.nodes:
        parameters = [traced.constant(node, index) for index in (1, 2, 3, 4)]
        if node.op_type != "BatchNormalization" or any(each is None for each in parameters):
            continue
        scale, bias, mean, variance = (np.asarray(each, np.float64) for each in parameters)
        epsilon = decimal(attributes_of(node).get("epsilon", 1e-5))
        factor = scale / np.sqrt(variance + epsilon)
        names = {_source(traced, name) or name for name in node.input[1:5]}
        yield factor, names
        yield bias - mean * factor, names
        before = traced.producers.get(node.input[0])
        own = np.zeros_like(bias)
        if before is not None and before.op_type == "Add":
            constants = [k for k in (0, 1) if before.input[k] not in traced.live]
            if constants and traced.values[before.input[constants[0]]].size == bias.size:
                name = before.input[constants[0]]
                own = traced.values[name].ravel()
                names = names | {_source(traced, name) or name}
                before = traced.producers.get(before.input[1 - constants[0]])
        if before is None or before.op_type not in ("Conv", "Gemm", "MatMul"):
            continue
        weight, added = traced.constant(before, 1), traced.constant(before, 2)
        if weight is None or weight.ndim < 2:
            continue
        if added is not None:
            own = added.ravel()
        names = names | {_source(traced, name) or name for name in before.input[1:] if name}
        last = before.op_type == "MatMul" or (
            before.op_type == "Gemm" and not attributes_of(before).get("transB", 0)
        )
        if weight.shape[-1 if last else 0] == factor.size == own.size:
            yield (
                weight * (factor if last else factor.reshape(-1, *(1,) * (weight.ndim - 1))),
                names,
            )
            yield (own - mean) * factor + bias, names
