"""The fastest way that a workload can be run on this machine: every way is proven before it is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dlb.execution.run import Outcome, run
from dlb.record import Record
from dlb.request import Reporter, Request
from dlb_measure.measure import measure_cells
from dlb_measure.plan import Plan
from dlb_measure.results.compared import compared_cells
from dlb_measure.results.measurement import Measurement
from dlb_worker.contract import PRECISION

__all__ = ["ALLOCATOR", "Tuned", "Way", "settings_of", "tune", "ways"]

#: glibc's allocator keeps what it has freed, and takes no memory map for large arrays: their pages are not
#: taken anew from the system in each step. Source: mallopt(3).
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


@dataclass(frozen=True)
class Way:
    """A way to run a workload, by what differs from the default.

    Attributes:
        threads: of each worker; None for the default.
        variant: choices of the adapter.
        variables: environment variables of its workers.
    """

    threads: int | None = None
    variant: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    def of(self, request: Request) -> Request:
        """The request in this way."""
        adapter = request.environments[0].adapter
        variant = {**request.variant(adapter), **self.variant}
        return replace(
            request,
            threads=self.threads or request.threads,
            choices={adapter: variant} if variant else {},
            variables={**request.variables, **self.variables},
        )

    def with_other(self, other: Way) -> Way:
        """Both together."""
        return Way(
            other.threads or self.threads,
            {**self.variant, **other.variant},
            {**self.variables, **other.variables},
        )


@dataclass(frozen=True)
class Tuned:
    """What came of it.

    Attributes:
        measurement: every way that was proven next to the default, which is the first cell.
        final: all that made it faster together, next to the default; None if that is no more than one thing.
        best: the way that is fastest; the default where nothing is faster.
        left_out: ways that were not proven or failed, with the proof's status.
    """

    measurement: Measurement | None
    final: Measurement | None
    best: Way
    left_out: Sequence[tuple[Way, str]]


def ways(
    cores: int, default_threads: int, offers: Mapping[str, Sequence[str]], system: str
) -> list[Way]:
    """What to try, one thing at a time.

    Args:
        cores: cores that may be used.
        default_threads: threads of the default.
        offers: choices of the adapter, the default first.
        system: of the machine, as :func:`platform.libc_ver` names its C library.
    """
    counts = sorted({1, cores // 2, cores} - {0, default_threads})
    found = [Way(threads=count) for count in counts]
    # A way that rounds more is not the same computation.
    same = {name: values for name, values in offers.items() if name != PRECISION}
    found += [Way(variant={name: value}) for name, values in same.items() for value in values[1:]]
    return [*found, Way(variables=ALLOCATOR)] if system == "glibc" else found


def tune(request: Request, tried: Sequence[Way], plan: Plan, reporter: Reporter) -> Tuned:
    """Prove and measure ways to run a request of one adapter.

    Raises:
        RecordError: a file cannot be written; finished trials are kept.
        KeyboardInterrupt: it was interrupted; finished trials are kept.
    """
    left_out: list[tuple[Way, str]] = []
    proven: list[tuple[Way, Request, Record]] = []
    for way in (Way(), *tried):
        own = way.of(request)
        record, status = _proven(run(own, reporter))
        if record is not None:
            proven.append((way, own, record))
        else:
            left_out.append((way, status))
            if not proven:  # what others are compared with
                return Tuned(None, None, Way(), left_out)
    measurement = _measured(proven, plan, reporter)
    better = [
        (each.ratio.ratio, proven[each.cell][0])
        for each in compared_cells(measurement)
        if each.word == "faster" and each.ratio is not None
    ]
    better.sort(key=lambda pair: pair[0])
    if len(better) < 2:
        return Tuned(measurement, None, better[0][1] if better else Way(), left_out)
    together = better[-1][1]
    for _, way in reversed(better[:-1]):  # of two that exclude each other, the faster one last
        together = together.with_other(way)
    own = together.of(request)
    record, status = _proven(run(own, reporter))
    if record is None:
        left_out.append((together, status))
        return Tuned(measurement, None, better[0][1], left_out)
    fastest = next(each for each in proven if each[0] == better[0][1])
    final = _measured([proven[0], fastest, (together, own, record)], plan, reporter)
    medians = {
        each.cell: each.seconds for each in compared_cells(final) if each.seconds is not None
    }
    best = min(medians, key=lambda cell: medians[cell], default=0)
    return Tuned(measurement, final, (Way(), better[0][1], together)[best], left_out)


def _proven(outcome: Outcome) -> tuple[Record | None, str]:
    """The record of a run that was proven; else why it was not."""
    if outcome.interrupted:
        raise KeyboardInterrupt
    (record,) = outcome.records
    if record.failure is not None:
        return None, record.failure.line
    return (record, "") if record.proof == "proven" else (None, record.proof)


def _measured(
    cells: Sequence[tuple[Way, Request, Record]], plan: Plan, reporter: Reporter
) -> Measurement:
    measurement = measure_cells([(own, record) for _, own, record in cells], plan, reporter)
    if measurement.ended == "interrupted":
        raise KeyboardInterrupt
    return measurement


def settings_of(way: Way) -> dict[str, object]:
    """A way as plain data."""
    return {"threads": way.threads, "variant": dict(way.variant), "variables": dict(way.variables)}
