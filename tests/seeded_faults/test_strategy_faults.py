"""Every fault of a strategy is found in its case, with the parameters, the ranks and the shape of the fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from dlb_seeded_faults.strategies import STRATEGY_FAULTS
from dlb_seeded_faults.worker import started

from dlb.supervision.group import Group
from dlb_conformance.test_strategies import differences

Groups = tuple[Group, Group, Path]
Start = Callable[[str], Groups]
STRATEGIES = sorted({fault.strategy for fault in STRATEGY_FAULTS.values()})


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Three workers of a strategy, one worker without a fault, and the file that names the fault of the three.

    Workers of a strategy live until those of another are asked for.
    """
    with started() as (single, _), ExitStack() as running:
        held: dict[str, Groups] = {}

        def groups(strategy: str) -> Groups:
            if strategy not in held:
                running.close()
                held.clear()
                workers, fault = running.enter_context(started(strategy, 3))
                held[strategy] = workers.group, single.group, fault
            return held[strategy]

        yield groups


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        pytest.param(strategy, name, id=(name or f"nothing in {strategy}").replace(" ", "_"))
        for strategy in STRATEGIES
        for name in (
            "",
            *(name for name, fault in STRATEGY_FAULTS.items() if fault.strategy == strategy),
        )
    ],
)
def test_a_fault_of_a_strategy_is_named(strategy: str, name: str, start: Start) -> None:
    """And without one nothing is, in any case that has one."""
    workers, single, file = start(strategy)
    file.write_text(name, encoding="utf-8")
    if name:
        fault = STRATEGY_FAULTS[name]
        assert fault.says in differences(workers, single, fault.case)
        return
    own = {each.case for each in STRATEGY_FAULTS.values() if each.strategy == strategy}
    for case in sorted(own):
        assert differences(workers, single, case) == []
