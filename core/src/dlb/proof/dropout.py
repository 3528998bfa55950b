"""The rung of native dropout: what a framework draws by itself, held against what dropout means.

Everywhere else dropouts are given masks, since what frameworks draw cannot be matched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import Figure, Rung
from dlb.proof.distance import figure, worst_first
from dlb.proof.rungs import culprit
from dlb.workload import Dropout, Model

__all__ = ["DROPOUT_GATE", "dropout_rung"]

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]

#: A product or two, each rounded. Of every element by itself.
DROPOUT_GATE = 1e-12
#: The chance that one count of right draws is called wrong; a layer has less than ten.
FALSE_ALARM = 1e-10


class Pass(NamedTuple):
    """One pass of a dropout: its input and its output."""

    given: Array
    found: Array


def dropout_rung(
    adapter: str,
    model: Model,
    first: Tensors,
    second: Tensors,
    evaluated: Tensors,
    native: Mapping[str, str],
) -> Rung:
    """Each element is 0 or its input / (1 - rate); as many are 0 as the rate says, drawn each by
    itself and anew at every pass; evaluation is the identity. Of every dropout of a rate above 0.

    Args:
        first, second, evaluated: values of every dropout and of what it reads, by name: of two
            passes in training mode, and of one in evaluation.
        native: what the framework says of each layer, by name.
    """
    collected: list[Figure] = []
    wrong: dict[str, str] = {}
    few: list[str] = []
    for node in model.wired():
        if not isinstance(node.layer, Dropout) or not node.layer.rate:
            continue
        name, rate = node.name, node.layer.rate
        one, other, still = (
            Pass(values[node.inputs[0]], values[name]) for values in (first, second, evaluated)
        )
        collected.append(_figure(name, (one, other), still, rate))
        fault = next(_faults(one, other, still, rate), "")
        if fault:
            wrong[name] = fault
        elif not _can_tell(one, other, rate):
            few.append(name)
    detail = ""
    if wrong:
        name = next(iter(wrong))
        detail = f"{wrong[name]}: {culprit(adapter, model, name, native)}"
    elif few:
        detail = f"too few elements reach {', '.join(few)} to tell how many are dropped"
    return Rung(
        name="dropout",
        level="forward",
        adapter=adapter,
        against="the definition, of what the framework itself draws, in float64",
        verdict="failed" if wrong else "not run" if few else "passed",
        gate=DROPOUT_GATE,
        figures=worst_first(collected),
        detail=detail,
    )


def _figure(name: str, passes: tuple[Pass, Pass], still: Pass, rate: float) -> Figure:
    """The furthest of three passes from what was kept of the input, or from the input itself."""
    expected = [
        (one.found, np.where(one.found == 0, 0.0, one.given / (1 - rate))) for one in passes
    ]
    return worst_first(figure(name, *pair) for pair in [*expected, (still.found, still.given)])[0]


def _faults(one: Pass, other: Pass, still: Pass, rate: float) -> Iterator[str]:
    """What is wrong with a layer, in words."""
    if any(each.found.shape != each.given.shape for each in (one, other, still)):
        yield "another shape than its input's"
        return
    if not np.array_equal(still.found, still.given):
        yield "evaluation is not the identity"
    for each in (one, other):
        scaled = each.given / (1 - rate)
        apart = np.minimum(np.abs(each.found), np.abs(each.found - scaled))
        if not (apart <= DROPOUT_GATE * np.abs(scaled)).all():
            yield f"an element is neither 0 nor its input / (1 - {rate})"
    for words, hits, chance in _counts(one, other, rate):
        if _alarm(hits, chance):
            yield f"{words} {hits.mean():.4g} of the time, and should be {chance:.4g}"


def _counts(one: Pass, other: Pass, rate: float) -> Iterator[tuple[str, Array, float]]:
    """Independent events that each must happen with a known chance: words, [n] of them, chance.

    Where the input is 0, nothing can be said.
    """
    alike = rate**2 + (1 - rate) ** 2
    alive, dropped = one.given != 0, one.found == 0
    others_alive, others_dropped = other.given != 0, other.found == 0
    yield "dropped", np.concatenate([dropped[alive], others_dropped[others_alive]]), rate
    both = alive & others_alive
    yield "two passes treat an element alike", (dropped == others_dropped)[both], alike
    for axis in range(dropped.ndim):
        count = dropped.shape[axis] // 2
        evens, odds = (
            tuple(
                slice(start, 2 * count, 2) if a == axis else slice(None)
                for a in range(dropped.ndim)
            )
            for start in (0, 1)
        )
        pairs = alive[evens] & alive[odds]
        where = "samples" if axis == 0 else f"elements along axis {axis}"
        words = f"neighbouring {where} are treated alike"
        yield words, (dropped[evens] == dropped[odds])[pairs], alike


def _can_tell(one: Pass, other: Pass, rate: float) -> bool:
    """Whether a layer that drops nothing, or the same at each pass, would have been found."""
    dropped, passes, *_ = _counts(one, other, rate)
    return all(
        _alarm(np.full_like(hits, extreme), chance)
        for (_, hits, chance), extreme in ((dropped, False), (passes, True))
    )


def _alarm(hits: Array, chance: float) -> bool:
    """Whether so many hits are less likely than :data:`FALSE_ALARM`.

    Of n independent events of chance p, a share s as far from p has a probability of at most
    2 exp(-n KL(s, p)): Chernoff's bound, Hoeffding 1963, theorem 1.
    """
    if not hits.size:
        return False
    share = float(hits.mean())
    parts = ((share, chance), (1 - share, 1 - chance))
    divergence = sum(s * math.log(s / p) for s, p in parts if s > 0)
    return 2 * math.exp(-hits.size * divergence) < FALSE_ALARM
