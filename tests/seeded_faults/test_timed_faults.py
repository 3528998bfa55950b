"""Every fault that is seeded in a timed run alone is found by its audit; without one, nothing is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from dlb_seeded_faults.audit import audit, find
from dlb_seeded_faults.plugin import NAME, TIMED_NAMES
from dlb_seeded_faults.timed import TIMED
from dlb_seeded_faults.worker import started

from dlb.execution.workers import Workers

WORKLOADS = Path(__file__).parent / "workloads"


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with started() as (workers, _):
        yield workers


def chosen() -> Iterator[ParameterSet]:
    """Every fault; of those that a check finds in one way, all but the first two are long."""
    met: Counter[tuple[str, str, int, bool, bool, int | None]] = Counter()
    for name, fault in TIMED.items():
        kind = (
            fault.check,
            fault.workload,
            fault.workers,
            fault.rare,
            fault.alone,
            fault.test_steps,
        )
        long = [pytest.mark.long] if met[kind] > 1 else []
        yield pytest.param(name, id=name.replace(" ", "_"), marks=long)
        met[kind] += 1


@pytest.mark.parametrize("name", chosen())
def test_a_fault_of_a_timed_run_is_found(workers: Workers, name: str) -> None:
    found = find(TIMED[name], WORKLOADS, workers)
    checks = [result.check for result in found]
    assert TIMED[name].check in checks if TIMED[name].check else checks, found


@pytest.mark.parametrize("workload", ["timed", "dropped", "pictures", "words", "sequences"])
def test_a_right_run_passes_its_audit(workers: Workers, workload: str) -> None:
    certificate = audit(WORKLOADS / f"{workload}.toml", workers=workers, test_steps=24)
    assert certificate.passed(NAME), certificate.checks
    checks = ["audit, test", "audit, batches", "audit, clock", "audit, steps", "audit, losses"]
    assert [result.check for result in certificate.checks] == checks


def test_the_adapter_names_every_fault() -> None:
    assert list(TIMED_NAMES) == list(TIMED)
