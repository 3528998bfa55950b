"""What a factory computes and no step of training moves: tables, compared before they are carried.

Weights are trained, so those of the reference replace the port's. A table that code computes is part of the
code: a rotary embedding, a window, a mean of the inputs. If it were carried, the port's own would never be
seen. Whether an array is computed shows when the factory is called twice: what is drawn differs. A state that
a training pass moves is carried too, as running statistics are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.findings import Figure, Finding
from dlb_graph.comparing.distance import figure, same_bits, worst_first
from dlb_port.findings.port import FrozenDiffers, StateDiffers, StatesRounded
from dlb_port.matching import BY_SHAPE, STATISTICS
from dlb_port.model import Model
from dlb_port.weight_map import Pair

__all__ = ["ComparedStates", "compare_states", "within_rounding"]

Array = npt.NDArray[Any]
Weights = Mapping[str, Array]
#: Units in the last place of float32 that an element of a table may be off by, next to its largest.
_UNITS = 4
#: An array of at most this many values holds a place for what is loaded later.
_FEW_VALUES = 2


@dataclass(frozen=True)
class ComparedStates:
    """The result of comparing what two factories compute.

    Attributes:
        carried: the pairs whose arrays are carried from the reference.
        left: pairs by shape alone that stay as each factory made them, since they differ.
        figures: distance of every state that both compute.
        faults: states that differ. They stay as each factory made them.
        doubts: frozen parameters that differ, though both factories make the same at each call.
        facts: states that differ by rounding.
    """

    carried: tuple[Pair, ...]
    left: tuple[Pair, ...] = ()
    figures: tuple[Figure, ...] = ()
    faults: tuple[Finding, ...] = ()
    doubts: tuple[Finding, ...] = ()
    facts: tuple[Finding, ...] = ()


def compare_states(
    reference: Model,
    model: Model,
    pairs: Sequence[Pair],
    own: Weights,
    other: Weights,
    drawn: Callable[[], tuple[Weights, Weights]],
    moved: Callable[[], Weights],
) -> ComparedStates:
    """Compare what neither model trains, as their factories made it.

    Args:
        pairs: matched parameters.
        own, other: parameters of the reference and of the model, as made.
        drawn: the arrays of both as another call of each factory makes them; those of parameters that are
            drawn differ. A name that is missing is not drawn.
        moved: states of the model after a pass in training mode.
    """
    carried: list[Pair] = []
    left: list[Pair] = []
    figures: list[Figure] = []
    faults: list[Finding] = []
    doubts: list[Finding] = []
    rounded: list[Figure] = []
    again: tuple[Weights, Weights] | None = None
    after: Weights | None = None
    for pair in pairs:
        mine, its = pair.of_source(own), pair.of_target(other)
        # A file does not say what is trained.
        sides = [
            part
            for side, part in ((reference, pair.source), (model, pair.target))
            if not side.remote.evaluation_only
        ]
        computed = all(not part.trained and part.role not in STATISTICS for part in sides)
        if (
            not computed
            or mine is None
            or its is None
            or same_bits(mine.astype(its.dtype, copy=False), its)
        ):
            carried.append(pair)
            continue
        distance = figure(pair.source.name, its, mine)
        if within_rounding(its, mine):
            carried.append(pair)
            figures.append(distance)
            rounded.append(distance)
            continue
        frozen = any(part.frozen for part in sides)
        again = drawn() if again is None else again
        is_drawn = not _same(pair.of_source(again[0]), mine) or not _same(
            pair.of_target(again[1]), its
        )
        placeholder = min(np.unique(array).size for array in (mine, its)) <= _FEW_VALUES
        if is_drawn or (frozen and placeholder):
            carried.append(pair)
            continue
        if not frozen:
            after = moved() if after is None else after
            if not _same(pair.of_target(after), its):
                carried.append(pair)
                continue
            if pair.why == BY_SHAPE:
                # Two tables of one shape need not be the same table: outputs show whether each is right.
                left.append(pair)
                continue
        figures.append(distance)
        cause = (FrozenDiffers if frozen else StateDiffers)(
            parameter=pair.source.name,
            model=reference.name,
            other=pair.target.name,
            other_model=model.name,
        )
        if frozen:
            carried.append(pair)
        (doubts if frozen else faults).append(Finding(cause=cause, figure=distance))
    facts: tuple[Finding, ...] = ()
    if rounded:
        names = tuple(item.tensor for item in rounded)
        worst = worst_first(rounded)[0]
        facts = (Finding(cause=StatesRounded(parameters=names), figure=worst),)
    return ComparedStates(
        tuple(carried), tuple(left), tuple(figures), tuple(faults), tuple(doubts), facts
    )


def _same(array: Array | None, made: Array) -> bool:
    return array is None or same_bits(array, made)


def within_rounding(actual: Array, expected: Array) -> bool:
    """Whether arrays differ by no more than computing them in float32 does.

    A unit is one in the last place of float32 of the largest element. A table of several axes may hold the
    sine of an angle as large as its longest axis, and a rounded angle is off by as many units.
    """
    if actual.shape != expected.shape or not (
        np.isfinite(actual).all() and np.isfinite(expected).all()
    ):
        return False
    axes = [size for size in expected.shape if size > 1]
    units = max(_UNITS, max(axes)) if len(axes) > 1 else _UNITS
    largest = float(np.abs(expected).max(initial=0.0))
    allowed = units * float(np.finfo(np.float32).eps) * largest
    return bool((np.abs(actual - expected) <= allowed).all())
