"""The catalogue of framework differences, measured again in the frameworks."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from conftest import ROOT


@pytest.fixture(scope="module")
def catalogue() -> Iterator[ModuleType]:
    """``tests/framework_differences/catalogue.py``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests" / "framework_differences"))
        import catalogue

        yield catalogue
        del sys.modules["catalogue"]


@pytest.fixture(scope="module")
def measured(catalogue: ModuleType, home: Path) -> Any:
    """Every entry, in one process for each framework."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLB_HOME", str(home))
        return catalogue.measure(catalogue.read_entries())


def test_the_frameworks_do_what_is_recorded(catalogue: ModuleType, measured: Any) -> None:
    assert list(catalogue.changes(catalogue.read_measured(), measured)) == []


def test_some_framework_differs_in_every_entry(catalogue: ModuleType, measured: Any) -> None:
    assert list(catalogue.without_difference(measured)) == []


def test_what_is_written_instead_agrees(catalogue: ModuleType, measured: Any) -> None:
    assert list(catalogue.wrong_instead(measured)) == []
    right = {
        name: set(entry.right) for name, entry in catalogue.read_entries().items() if entry.right
    }
    assert {name: set(own) for name, own in measured.right.items()} == right and len(right) >= 15
    spoilt = copy.deepcopy(measured)
    spoilt.right["same-padding"]["tf"] = measured.distances["same-padding"]["tf"]
    (line,) = catalogue.wrong_instead(spoilt)
    assert line == "same-padding, tf: what is right is 1.7e+00 apart"


def larger(recorded: Any) -> None:
    apart = recorded.distances["same-padding"]["tf"]
    recorded.distances["same-padding"]["tf"] = type(apart)(1.4, apart.largest)


def agreed(recorded: Any) -> None:
    recorded.distances["same-padding"]["tf"] = None


def not_measured(recorded: Any) -> None:
    del recorded.distances["same-padding"]["tf"]


def renamed(recorded: Any) -> None:
    recorded.distances["gone"] = recorded.distances.pop("same-padding")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (larger, "same-padding, tf: recorded '1.4e+00', measured '1.7e+00'"),
        (agreed, "same-padding, tf: recorded 'agrees', measured '1.7e+00'"),
        (not_measured, "same-padding, tf: recorded '', measured '1.7e+00'"),
        (renamed, "gone: in measured.json or in entries/, and not in both"),
    ],
)
def test_what_is_recorded_wrongly_is_reported(
    catalogue: ModuleType, measured: Any, change: Callable[[Any], None], message: str
) -> None:
    recorded = copy.deepcopy(catalogue.read_measured())
    change(recorded)
    assert message in list(catalogue.changes(recorded, measured))
