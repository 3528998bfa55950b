"""Times to a target over seeds, of headers as runs leave them."""

from __future__ import annotations

import math

import pytest

from dlb import record
from dlb.record import FORMAT, Options, QualitySummary, StoredRecord
from dlb_measure.results.targets import Target, compare_to, target_cells


def run(
    adapter: str,
    seed: int,
    name: str = "",
    *,
    pace: float = 1.0,
    best: float = 1.0,
    threads: int = 1,
) -> StoredRecord:
    """A run whose accuracy grows by a tenth in each of ten tests, but no further than the best."""
    tests = tuple(
        record.Tested(
            step=5 * number,
            seconds=pace * number,
            accuracy=min(best, number / 10),
            loss=None if number == 1 else 1 / number,
        )
        for number in range(1, 11)
    )
    return StoredRecord(
        format=FORMAT,
        name=name or f"run-{seed:03}-{adapter}",
        started="2026-01-01T00:00:00+00:00",
        command="run",
        adapter=adapter,
        framework="Example",
        framework_version="1.0",
        workload_name="mlp",
        workload={},
        workload_hash="0" * 64,
        data={},
        options=Options(
            batch_size=32,
            steps=50,
            warmup=5,
            threads=threads,
            device="cpu",
            dtype="float32",
            seed=seed,
            input="pipeline",
        ),
        proof="proven",
        machine={},
        worker={},
        core={},
        certificate="",
        quality=QualitySummary(test_accuracy=1.0, test_samples=10, tests=tests),
    )


def test_seeds_of_one_cell_are_gathered() -> None:
    runs = [run("one", seed, pace=pace) for seed, pace in enumerate((1.0, 2.0, 4.0))]
    runs += [run("one", 0, threads=2), run("two", 1)]
    first, threads, second = target_cells(runs, Target(accuracy=0.3))
    assert [each.seed for each in first.runs] == [0, 1, 2]
    assert (first.reached, first.steps, first.seconds, first.range) == (3, 15, 6.0, (3.0, 12.0))
    assert threads.options.threads == 2 and len(threads.runs) == len(second.runs) == 1


def test_of_two_runs_with_one_seed_the_last_counts() -> None:
    (cell,) = target_cells([run("one", 4, "a", pace=9.0), run("one", 4, "b")], Target(accuracy=0.5))
    assert [(each.record, each.seconds) for each in cell.runs] == [("b", 5.0)]


def test_a_loss_that_is_no_number_reaches_nothing() -> None:
    (cell,) = target_cells([run("one", 0)], Target(loss=5.0))
    assert cell.runs[0].step == 10


def test_a_run_that_did_not_reach_the_target_took_longer_than_any() -> None:
    lucky = [run("one", seed, best=0.4 if seed else 1.0) for seed in range(3)]
    (cell,) = target_cells(lucky, Target(accuracy=0.9))
    assert (cell.reached, cell.seconds, cell.range) == (1, None, (9.0, 9.0))
    most = [run("one", seed, best=1.0 if seed else 0.4) for seed in range(3)]
    (cell,) = target_cells(most, Target(accuracy=0.9))
    assert (cell.reached, cell.seconds) == (2, 9.0)


def test_ratios_are_of_pairs_of_one_seed() -> None:
    runs = [run("one", seed, pace=2.0**seed) for seed in range(4)]
    runs += [run("two", seed, pace=1.5 * 2.0**seed) for seed in range(4)]
    one, two = target_cells(runs, Target(accuracy=0.3))
    compared = compare_to(one, two, 0.01)
    assert compared is not None
    ratio, word = compared
    # The seeds differ eightfold, and yet the ratio is exact: it is that of every pair.
    assert math.isclose(ratio.ratio, 1.5) and math.isclose(ratio.low, 1.5) and word == "slower"


@pytest.mark.parametrize("seeds", [[0], [1, 2, 3], [5, 6]])
def test_no_ratio_of_too_few_or_of_lucky_seeds(seeds: list[int]) -> None:
    """One seed in common; one of three that did not get there; none in common."""
    runs = [run("one", seed) for seed in range(4)]
    runs += [run("two", seed, best=0.2 if seed == 3 else 1.0) for seed in seeds]
    one, two = target_cells(runs, Target(accuracy=0.3))
    assert compare_to(one, two, 0.01) is None
