"""Every fault of a strategy is found in its case, with the parameters, the ranks and the shape of the fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dlb_seeded_faults.strategies import STRATEGY_FAULTS
from dlb_seeded_faults.worker import started

from dlb.supervision.group import Group
from dlb_conformance.test_strategies import differences

Groups = tuple[Group, Group, Path]
STRATEGIES = sorted({fault.strategy for fault in STRATEGY_FAULTS.values()})


@pytest.fixture(scope="module")
def single() -> Iterator[Group]:
    """One worker without a fault."""
    with started() as (single, _):
        yield single.group


@pytest.fixture(scope="module", params=STRATEGIES)
def groups(request: pytest.FixtureRequest, single: Group) -> Iterator[Groups]:
    """Three workers of a strategy, one worker, and the file that names the fault of the three."""
    with started(request.param, 3) as (workers, fault):
        yield workers.group, single, fault


@pytest.mark.parametrize(
    ("groups", "name"),
    [
        pytest.param(fault.strategy, name, id=name.replace(" ", "_"))
        for name, fault in STRATEGY_FAULTS.items()
    ],
    indirect=["groups"],
)
def test_a_fault_of_a_strategy_is_named(name: str, groups: Groups) -> None:
    workers, single, file = groups
    file.write_text(name, encoding="utf-8")
    assert STRATEGY_FAULTS[name].says in differences(workers, single, STRATEGY_FAULTS[name].case)


def test_without_a_fault_nothing_is_named(groups: Groups) -> None:
    workers, single, file = groups
    file.write_text("", encoding="utf-8")
    own = [each for each in STRATEGY_FAULTS.values() if each.strategy == workers.launch.strategy]
    for case in sorted({fault.case for fault in own}):
        assert differences(workers, single, case) == []
