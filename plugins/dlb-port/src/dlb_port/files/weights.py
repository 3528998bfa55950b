"""Comparison of the numbers that two models hold, in any layout.

A weight is a constant that an operator reads together with a value that depends on the input. Any chain of
operators may have computed it. Zeros and single numbers of analytic operators are left to the comparison of
values, since models may write the same operator with or without them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.findings import Figure
from dlb_graph.comparing.analytic import default_attributes, is_analytic, show_functions
from dlb_graph.comparing.counterparts import transpositions
from dlb_graph.comparing.distance import figure, relative_l2, worst_first
from dlb_graph.comparing.foldings import foldings, source_initialiser
from dlb_graph.comparing.tolerances import FOLDED_TOLERANCE
from dlb_graph.truth.layout import LAYOUT, before_expand, gather_permutation
from dlb_graph.truth.lookups import one_hot_table
from dlb_graph.truth.recognition import recognise
from dlb_graph.truth.trace import Trace, attributes_of, node_name
from dlb_port.findings.files import WeightDiffers, WeightFacts, WeightInOne

__all__ = ["MatchedWeights", "Weight", "match_weights", "weights_of"]

Array = npt.NDArray[Any]

#: Integer constants of at most this size are shapes, axes and permutations, which structure compares.
_FEW_INTEGERS = 16
#: Operators of several values of as many samples.
_OF_SAMPLES = {"Add", "Concat", "Div", "Mul", "Sub", "Sum"}
#: A bound at least this large is none in float32.
_UNBOUNDED = 3e38


@dataclass(frozen=True, eq=False)
class Weight:
    """A constant that a model computes with.

    Attributes:
        name: name of the initialiser that it comes from, or of the value.
        values: in the model's layout; real numbers in float64.
        operator, node: operator and name of the first node that reads it.
        exact: whether some inputs do not use every number: rows that are looked up, and bounds.
        initialiser: name of the one initialiser that it is computed from; empty if there is none.
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
        figures: the distance of every weight of the first model from its counterpart, and every weight
            that only the second model has; worst first.
        unmatched: weights that differ or have no counterpart, with their figures; empty if all are equal.
        folded: weights of the first and of the second model that a batch normalisation of the other is
            folded into.
    """

    figures: tuple[Figure, ...]
    unmatched: tuple[tuple[WeightDiffers | WeightInOne, Figure], ...]
    folded: tuple[tuple[Weight, ...], tuple[Weight, ...]]


def weights_of(traced: Trace) -> list[Weight]:
    """Every weight of a model, once, in the order of use.

    Real attributes of operators that are not analytic count too, since they may be bounds.
    """
    weights: dict[str, Weight] = {}
    known = recognise(traced)
    traced = show_functions(known)
    in_attention = {
        name
        for end, block in known.blocks.items()
        if block.kind == "Attention"
        for name in (end, *block.intermediates)
    }
    for node in traced.nodes:
        # The constants of attention are masks, which structure compares.
        if traced.live.isdisjoint(node.input) or not in_attention.isdisjoint(node.output):
            continue
        exact = not is_analytic(traced, node)
        rank = traced.values[node.output[0]].ndim if node.op_type in _OF_SAMPLES else None
        constants = {
            name: (traced.values[before_expand(traced, name)], name)
            for k, name in enumerate(node.input)
            if traced.constant(node, k) is not None and name not in known.nominal_values
        }
        # Those of a row for each class are its number, which structure compares.
        of_classes = node.op_type == "Equal" and one_hot_table(traced, node) is not None
        if of_classes or node.op_type in LAYOUT or gather_permutation(traced, node) is not None:
            constants = {}
        if exact:
            constants |= {
                f"{node_name(node)}.{name}": (np.asarray(value), "")
                for name, value in attributes_of(node).items()
                if isinstance(value, float) and value != default_attributes(traced, node).get(name)
            }
        for name, (array, value) in constants.items():
            if array is None or not np.any(array) or array.dtype.kind not in "fiub":
                continue
            # Groups are normalised as instances that are scaled by 1, and tools leave out products with 1.
            if node.op_type in ("InstanceNormalization", "Mul") and (array == 1).all():
                continue
            if (
                rank
                and array.ndim == rank
                and len(array) == traced.batch
                and (array == array[:1]).all()
            ):
                array = array[:1]  # repeated for each sample
            if array.dtype.kind == "f":
                # Models write a bound that no number reaches in many ways.
                small = not exact or bool(np.all(np.abs(array) >= _UNBOUNDED))
                if array.size == 1 and small:
                    continue
            # What an analytic Where chooses by is a mask, which structure and values compare.
            elif array.size <= _FEW_INTEGERS or (array.dtype.kind == "b" and not exact):
                continue
            known_weight = weights.get(name)
            source = source_initialiser(traced, value) if value else ""
            weights[name] = Weight(
                name=source or name,
                values=array,
                operator=known_weight.operator if known_weight else node.op_type,
                node=known_weight.node if known_weight else node_name(node),
                exact=exact or (known_weight is not None and known_weight.exact),
                initialiser=source,
            )
    return list(weights.values())


def match_weights(
    first: Trace, second: Trace, labels: tuple[str, str], *, folding: bool
) -> MatchedWeights:
    """Match weights by content: first in the same or a transposed layout, then in any order of numbers.

    The comparison of outputs shows whether an order is right, since every number has an effect. Weights
    marked exact are the exception, so they are matched in the same or a transposed layout only.

    Args:
        labels: names of the files in messages.
        folding: whether batch normalisations of one model may be folded into weights of the other.
    """
    first_weights, second_weights = weights_of(first), weights_of(second)
    compared: list[Figure] = []
    for match in (_same_layout, _same_numbers):
        for weight in list(first_weights):
            counterpart = next(
                (candidate for candidate in second_weights if match(weight, candidate)), None
            )
            if counterpart is not None:
                first_weights.remove(weight)
                second_weights.remove(counterpart)
                compared.append(Figure(tensor=weight.name, relative_l2=0.0, largest=0.0))
    # One model may hold a weight once, and the other twice: a table that is also a projection.
    all_weights = (weights_of(first), weights_of(second))
    left = [
        [weight for weight in side if not _has_same_layout(weight, others)]
        for side, others in zip((first_weights, second_weights), reversed(all_weights))
    ]
    # Of both, such weights may be in each other's place.
    in_one = len(left[0]) == len(first_weights) or len(left[1]) == len(second_weights)
    if all(left) and in_one and _same_numbers_together(*left):
        compared += [Figure(tensor=x.name, relative_l2=0.0, largest=0.0) for x in first_weights]
        first_weights, second_weights = [], []
    folded: tuple[tuple[Weight, ...], tuple[Weight, ...]] = ((), ())
    if folding and (first_weights or second_weights):
        in_second, used_first, figures_second = _match_foldings(first, second_weights)
        in_first, used_second, figures_first = _match_foldings(second, first_weights)
        first_weights = [
            candidate
            for candidate in first_weights
            if candidate.name not in used_first and candidate not in in_first
        ]
        second_weights = [
            candidate
            for candidate in second_weights
            if candidate.name not in used_second and candidate not in in_second
        ]
        folded = (tuple(in_first), tuple(in_second))
        compared += [*figures_second, *figures_first]
    unmatched: list[tuple[WeightDiffers | WeightInOne, Figure]] = []
    for weight in first_weights:
        nearest = min(second_weights, key=lambda each: _distance(weight, each), default=None)
        # Of numbers that are not finite, only a name says where they belong.
        if nearest is not None and not math.isfinite(_distance(weight, nearest)):
            own = weight.name, weight.values.size
            others = (each for each in second_weights if (each.name, each.values.size) == own)
            nearest = next(others, None)
        if nearest is None:
            if _has_same_layout(weight, all_weights[1]):
                continue
            unmatched.append(_in_one(labels[0], weight))
            continue
        second_weights.remove(nearest)
        unmatched.append(_difference(weight, nearest))
    for weight in second_weights:
        if not _has_same_layout(weight, all_weights[0]):
            unmatched.append(_in_one(labels[1], weight))
    compared += [size for _, size in unmatched]
    return MatchedWeights(worst_first(compared), tuple(unmatched), folded)


def _in_one(file: str, weight: Weight) -> tuple[WeightInOne, Figure]:
    size = Figure(tensor=weight.name, relative_l2=None, largest=None)
    return WeightInOne(file=file, weight=_facts(weight)), size


def _facts(weight: Weight) -> WeightFacts:
    return WeightFacts(
        name=weight.name,
        shape=tuple(int(size) for size in weight.values.shape),
        operator=weight.operator,
        node=weight.node,
    )


def _same_layout(a: Weight, b: Weight) -> bool:
    return bool(a.values.size == b.values.size) and any(
        np.array_equal(arranged, b.values.squeeze())
        for arranged in transpositions(a.values, b.values)
    )


def _has_same_layout(weight: Weight, others: Iterable[Weight]) -> bool:
    return any(_same_layout(weight, other) for other in others)


def _same_numbers(a: Weight, b: Weight) -> bool:
    if a.values.size != b.values.size or a.exact or b.exact:
        return False
    return np.array_equal(_sorted(a.values), _sorted(b.values))


def _same_numbers_together(first_weights: list[Weight], second_weights: list[Weight]) -> bool:
    """Whether both hold the same numbers in all weights together: one may join what the other splits."""
    if any(weight.exact for weight in (*first_weights, *second_weights)):
        return False
    pools = [
        np.concatenate([each.values.ravel() for each in side])
        for side in (first_weights, second_weights)
    ]
    return np.array_equal(_sorted(pools[0]), _sorted(pools[1]))


def _sorted(array: Array) -> Array:
    return np.sort(array, axis=None)


def _distance(a: Weight, b: Weight) -> float:
    """The relative L2 distance in the nearest layout; infinite if sizes differ."""
    if a.values.size != b.values.size:
        return math.inf
    return min(
        [
            *(
                relative_l2(b.values.squeeze(), arranged)
                for arranged in transpositions(a.values, b.values)
            ),
            relative_l2(_sorted(b.values), _sorted(a.values)),
        ]
    )


def _difference(first: Weight, second: Weight) -> tuple[WeightDiffers, Figure]:
    """How two weights of one size differ, in the nearest layout, or else in the order of their numbers."""
    name = first.name if first.name == second.name else f"{first.name} / {second.name}"
    own, layouts = first.values.squeeze(), list(transpositions(second.values, first.values))
    other = min(layouts, key=lambda arranged: relative_l2(arranged, own), default=None)
    if known := other is not None:
        size = figure(name, other, own)
    else:
        own, other = _sorted(first.values), _sorted(second.values)
        size = figure(name, other, own)
    apart = np.nan_to_num(np.abs(other - own.astype(np.float64)), nan=np.inf).ravel()
    places = [int(np.argmax(each)) for each in (apart > 0, apart)] if known else []
    at = [tuple(map(int, np.unravel_index(each, first.values.shape))) for each in places]
    cause = WeightDiffers(
        weight=_facts(first),
        other=_facts(second),
        largest=size.largest,
        differing=int(np.count_nonzero(apart)),
        **dict(zip(("first", "worst"), at)),
    )
    return cause, size


def _match_foldings(
    traced: Trace, weights: Iterable[Weight]
) -> tuple[list[Weight], set[str], list[Figure]]:
    """Weights of another model that equal weights of this model after folding batch normalisations.

    Returns:
        those weights, the names of this model's weights that were folded, and figures.
    """
    own_foldings = list(foldings(traced))
    derived, used, figures = [], set(), []
    for weight in weights:
        candidates = [
            (relative_l2(_sorted(weight.values), _sorted(values)), sources)
            for values, sources in own_foldings
            if values.size == weight.values.size and not weight.exact
        ]
        distance, sources = min(candidates, key=lambda match: match[0], default=(math.inf, set()))
        if distance <= FOLDED_TOLERANCE:
            derived.append(weight)
            used |= sources
            figures.append(Figure(tensor=weight.name, relative_l2=distance, largest=None))
    return derived, used, figures
