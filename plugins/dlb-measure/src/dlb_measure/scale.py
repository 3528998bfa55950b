"""Scaling: how much faster several workers of a strategy are than one, as a use of the sweep.

Jäger et al., Parallelized Training of Deep NN (DIDL 2018), equations 1 and 2: throughput is samples divided by
time; speed-up is the throughput of n workers divided by that of one. Efficiency is the speed-up divided by n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlb.adapters import AdapterEnvironment, describe_environment
from dlb.errors import RequestError, UnknownNameError, WorkerError
from dlb.resolver import Resolver
from dlb.settings import Settings
from dlb_measure.matrix import NONE, SweepCell
from dlb_measure.ratios import Ratio
from dlb_measure.results.compared import compared_cells
from dlb_measure.sweeping import CellResult, Swept

__all__ = ["ScaleRow", "scale_cells", "scale_rows", "strategies_of"]


@dataclass(frozen=True)
class ScaleRow:
    """A number of workers next to one worker.

    Attributes:
        result: the cell and its figures.
        strategy: "" for a single worker, which has none.
        workers: how many.
        batch_size: samples of a step of all workers.
        speedup: samples in a second, divided by those of one worker; None of one worker itself, and if either
            failed.
        efficiency: the speed-up divided by the number of workers.
    """

    result: CellResult
    strategy: str
    workers: int
    batch_size: int
    speedup: Ratio | None = None
    efficiency: Ratio | None = None


def strategies_of(
    environments: Sequence[AdapterEnvironment], asked: Sequence[str], *, lenient: bool = False
) -> dict[str, list[str]]:
    """The strategies of each adapter that were asked for; all that it has if none were, or ``all``.

    Args:
        lenient: an adapter without any has one worker alone, in place of an error.

    Raises:
        UnknownNameError: no adapter has a strategy of that name.
        RequestError: an adapter has none of them, or cannot report its own.
    """
    found: dict[str, list[str]] = {}
    asked = () if "all" in asked else asked
    for environment in environments:
        try:
            described = describe_environment(environment)["strategies"]
        except WorkerError as error:
            raise RequestError(
                f"adapter '{environment.adapter}' could not report its strategies: {error}; leave it out"
            ) from None
        found[environment.adapter] = [
            entry["name"] for entry in described if environment.adapter in entry["frameworks"]
        ]
    known = {name for names in found.values() for name in names}
    for name in asked:
        if name not in known and not lenient:
            adapters = ", ".join(found)
            raise UnknownNameError("strategy", name, known, f"adapters asked: {adapters}")
    chosen = {
        adapter: [name for name in names if not asked or name in asked]
        for adapter, names in found.items()
    }
    for adapter, names in chosen.items():
        if not names and not lenient:
            has = ", ".join(found[adapter]) or "none"
            raise RequestError(f"adapter '{adapter}' has none of these strategies; it has {has}")
    return chosen


def scale_cells(
    resolver: Resolver,
    environments: Sequence[AdapterEnvironment],
    strategies: dict[str, list[str]],
    workers: Sequence[int],
    batch_sizes: Sequence[int | None],
    settings: Settings,
    *,
    weak: bool,
) -> list[SweepCell]:
    """One worker without a strategy, and several with each strategy, for each batch size and adapter.

    Args:
        resolver: makes the requests.
        strategies: of each adapter.
        workers: how many; one is among them.
        batch_sizes: samples of a step; None for the workload's.
        settings: what all have in common; the threads of a worker among them.
        weak: batch sizes are of each worker, in place of all together.

    Raises:
        RequestError: a combination cannot be run.
    """
    cells = []
    for size in batch_sizes:
        for environment in environments:
            for strategy, count in _pairs(strategies[environment.adapter], workers):
                own = replace(settings, strategy=strategy, workers=count, batch_size=size)
                alone = replace(own, strategy="", workers=1)
                base = resolver.resolve(alone, [environment], environments)
                if weak:
                    own = replace(own, batch_size=base.batch_size * count)
                varied = {
                    "strategy": strategy or NONE,
                    "workers": count,
                    "batch_size": base.batch_size,
                }
                cells.append(SweepCell(resolver.resolve(own, [environment], environments), varied))
    return cells


def scale_rows(swept: Swept, cells: Sequence[SweepCell]) -> list[ScaleRow]:
    """What came of each cell, next to one worker of the same adapter and batch size."""
    results, rows = swept.results(), []
    alone = {
        (cell.adapter, cell.varied["batch_size"]): place
        for place, cell in enumerate(cells)
        if cell.request.workers == 1
    }
    for place, (cell, result) in enumerate(zip(cells, results)):
        request = cell.request
        row = ScaleRow(result, request.strategy, request.workers, request.batch_size)
        first = alone[cell.adapter, cell.varied["batch_size"]]
        base, own = (swept.places[each] if swept.places else None for each in (first, place))
        if (
            place != first
            and base is not None
            and own is not None
            and swept.measurement is not None
        ):
            ratio = compared_cells(swept.measurement, base)[own].ratio
            speedup = None if ratio is None else ratio.inverse
            row = replace(row, speedup=speedup, efficiency=_divided(speedup, request.workers))
        rows.append(row)
    return rows


def _pairs(strategies: Sequence[str], workers: Sequence[int]) -> list[tuple[str, int]]:
    several = [count for count in workers if count > 1]
    return [("", 1), *((name, count) for name in strategies for count in several)]


def _divided(ratio: Ratio | None, number: int) -> Ratio | None:
    if ratio is None:
        return None
    return Ratio(ratio.ratio / number, ratio.low / number, ratio.high / number, ratio.rounds)
