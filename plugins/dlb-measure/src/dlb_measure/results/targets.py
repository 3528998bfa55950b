"""How long training takes until a test reaches a target, over seeds.

Time to accuracy says what a framework costs a user where its steps are not those of another: in other batch
sizes, dtypes or strategies. A seed is a sample: times of one seed vary by tens of percent.

Sources: Coleman et al., DAWNBench (NeurIPS ML Systems 2017); Mattson et al., MLPerf Training benchmark (MLSys
2020), for the spread over seeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from dlb.record import Options, Record, StoredRecord, Tested
from dlb_measure.ratios import Ratio, Word, ratio_of, word_for

__all__ = ["Reached", "Target", "TargetCell", "compare_to", "target_cells"]


@dataclass(frozen=True)
class Target:
    """What a test must reach: an accuracy from 0 to 1, or a mean loss; the other is None."""

    accuracy: float | None = None
    loss: float | None = None

    def is_met(self, test: Tested) -> bool:
        """Whether a test reaches it."""
        if self.accuracy is not None:
            return test.accuracy is not None and test.accuracy >= self.accuracy
        return self.loss is not None and test.loss is not None and test.loss <= self.loss


@dataclass(frozen=True)
class Reached:
    """A run's first test that reached the target.

    Attributes:
        record: the run's name.
        seed: its seed.
        proof: the status of its proof.
        step, seconds: steps before the test, and their time with the waiting for batches; None if no test
            reached it.
        accuracy: of the last test; None for losses of numbers.
    """

    record: str
    seed: int
    proof: str
    step: int | None
    seconds: float | None
    accuracy: float | None


@dataclass(frozen=True)
class TargetCell:
    """The runs of a workload on an adapter that differ in their seed alone.

    Attributes:
        adapter, framework, workload, workload_hash: what ran.
        options: of all runs, with a seed of 0.
        runs: by seed; of several runs with one seed, the last.
    """

    adapter: str
    framework: str
    workload: str
    workload_hash: str
    options: Options
    runs: tuple[Reached, ...]

    @property
    def reached(self) -> int:
        """How many runs reached the target."""
        return sum(each.seconds is not None for each in self.runs)

    @property
    def steps(self) -> float | None:
        """The median number of steps; a run that did not reach the target took more than any other."""
        return _median([each.step for each in self.runs])

    @property
    def seconds(self) -> float | None:
        """The median time, as :attr:`steps`."""
        return _median([each.seconds for each in self.runs])

    @property
    def range(self) -> tuple[float, float] | None:
        """The shortest and the longest time of runs that reached the target."""
        times = [each.seconds for each in self.runs if each.seconds is not None]
        return (min(times), max(times)) if times else None


def target_cells(records: Iterable[Record | StoredRecord], target: Target) -> list[TargetCell]:
    """The runs that were tested while they trained, by what they have in common.

    Args:
        records: runs in the order of their start.
    """
    cells: dict[bytes, dict[int, tuple[Record | StoredRecord, Reached]]] = {}
    for record in records:
        if record.quality is None or not record.quality.tests or record.failure is not None:
            continue
        options = msgspec.structs.replace(record.options, seed=0)
        key = msgspec.json.encode(
            [record.adapter, _framework(record), record.workload_hash, options]
        )
        cells.setdefault(key, {})[record.options.seed] = record, _reached(record, target)
    found = []
    for runs in cells.values():
        record, _ = next(iter(runs.values()))
        found.append(
            TargetCell(
                adapter=record.adapter,
                framework=_framework(record),
                workload=record.workload_name,
                workload_hash=record.workload_hash,
                options=msgspec.structs.replace(record.options, seed=0),
                runs=tuple(runs[seed][1] for seed in sorted(runs)),
            )
        )
    return found


def compare_to(baseline: TargetCell, cell: TargetCell, margin: float) -> tuple[Ratio, Word] | None:
    """The ratio of times to the target, pairs of one seed each, and what may be said of it.

    None unless two seeds or more are of both, and each of them reached the target on both: times of those alone
    that did would be those of lucky seeds.
    """
    before = {each.seed: each.seconds for each in baseline.runs}
    pairs = [(each.seconds, before[each.seed]) for each in cell.runs if each.seed in before]
    both = [(own, other) for own, other in pairs if own is not None and other is not None]
    if len(both) < max(2, len(pairs)):
        return None
    ratio = ratio_of([own for own, _ in both], [other for _, other in both])
    return ratio, word_for(ratio, margin)


def _reached(record: Record | StoredRecord, target: Target) -> Reached:
    assert record.quality is not None
    tests = sorted(record.quality.tests, key=lambda test: test.step)
    first = next((test for test in tests if target.is_met(test)), None)
    return Reached(
        record=record.name,
        seed=record.options.seed,
        proof=record.proof,
        step=None if first is None else first.step,
        seconds=None if first is None else first.seconds,
        accuracy=tests[-1].accuracy,
    )


def _framework(record: Record | StoredRecord) -> str:
    return f"{record.framework} {record.framework_version}".strip()


def _median(values: Sequence[float | None]) -> float | None:
    middle = statistics.median([math.inf if each is None else float(each) for each in values])
    return middle if math.isfinite(middle) else None
