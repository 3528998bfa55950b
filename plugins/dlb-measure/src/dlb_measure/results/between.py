"""Two measurements next to each other: each cell of the second as a ratio to the same cell of the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from dlb_measure.comparison import figures_by_round
from dlb_measure.ratios import Ratio, Word, ratio_unpaired, word_for
from dlb_measure.results.compared import oversubscribed
from dlb_measure.results.measurement import Cell, Measurement

__all__ = ["Pair", "differences", "other_machine", "pairs", "word_between"]


@dataclass(frozen=True)
class Pair:
    """A cell in two measurements.

    Attributes:
        first, second: its places.
        ratio: its time in the second divided by that in the first; None if a side has no steady trial.
        word: what may be said; None without a ratio.
    """

    first: int
    second: int
    ratio: Ratio | None
    word: Word | None


def pairs(first: Measurement, second: Measurement) -> list[Pair]:
    """The cells that both measurements have, in the order of the second."""
    found = []
    for place, cell in enumerate(second.cells):
        other = _counterpart(first, cell)
        if other is None:
            continue
        times = list(figures_by_round(second.trials, place).values())
        before = list(figures_by_round(first.trials, other).values())
        if not times or not before:
            found.append(Pair(other, place, None, None))
            continue
        ratio = ratio_unpaired(times, before)
        found.append(
            Pair(other, place, ratio, word_between(ratio, (first, other), (second, place)))
        )
    return found


def word_between(
    ratio: Ratio, first: tuple[Measurement, int], second: tuple[Measurement, int]
) -> Word:
    """The word for a ratio of cells of two measurements."""
    if oversubscribed(*first) or oversubscribed(*second):
        return "unclear"
    return word_for(ratio, max(first[0].margin, second[0].margin))


def other_machine(first: Measurement, second: Measurement) -> Iterator[str]:
    """What says that two measurements come from two machines."""
    for fact in ("cpu", "physical_cores", "logical_cores", "memory_bytes"):
        one, other = first.machine.get(fact), second.machine.get(fact)
        if one != other:
            yield f"{fact}: {one}, {other}"


def differences(first: Measurement, second: Measurement) -> Iterator[str]:
    """What else differs between two measurements."""
    for fact in ("available_cores", "system", "python"):
        one, other = first.machine.get(fact), second.machine.get(fact)
        if one != other:
            yield f"{fact}: {one}, {other}"
    states = [_state(each) for each in (first, second)]
    for fact in ("governor", "boost", "transparent_hugepages"):
        one, other = (each.get(fact) for each in states)
        if one != other:
            yield f"{fact}: {one}, {other}"
    for side in (first, second):
        if any(oversubscribed(side, place) for place in range(len(side.cells))):
            yield f"{side.name}: threads waited for cores that other work used"
    if first.core != second.core:
        yield f"dlb: {first.core.get('version')}, {second.core.get('version')}, or its commit"
    for cell in second.cells:
        place = _counterpart(first, cell)
        if place is None:
            continue
        each = first.cells[place]
        if each.framework != cell.framework:
            yield f"{cell.adapter}: {each.framework}, {cell.framework}"
        if each.workload_hash != cell.workload_hash:
            yield f"{cell.adapter}: the workload"
        before: dict[str, Any] = msgspec.to_builtins(each.options)
        after: dict[str, Any] = msgspec.to_builtins(cell.options)
        for name in before:
            if before[name] != after[name]:
                yield f"{cell.adapter}, {name}: {before[name]}, {after[name]}"


def _state(measurement: Measurement) -> dict[str, Any]:
    """The state of the machine; empty if it was not kept."""
    state = measurement.machine.get("state")
    return state if isinstance(state, dict) else {}


def _same_cell(one: Cell, other: Cell) -> bool:
    """Whether both are one adapter in one way, with any number of threads."""
    ways = [(cell.adapter, cell.options.variant, cell.options.variables) for cell in (one, other)]
    return ways[0] == ways[1]


def _counterpart(first: Measurement, cell: Cell) -> int | None:
    """The place of the same cell in another measurement, with as many threads if there is such a one."""
    places = [place for place, each in enumerate(first.cells) if _same_cell(each, cell)]
    alike = [p for p in places if first.cells[p].options.threads == cell.options.threads]
    if alike:
        return alike[0]
    return places[0] if len(places) == 1 else None
