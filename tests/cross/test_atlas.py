"""The atlas of divergences, measured again in the frameworks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from conftest import ROOT


@pytest.fixture(scope="module")
def make() -> Iterator[ModuleType]:
    """``tests/atlas/make.py``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests" / "atlas"))
        import make

        yield make
        del sys.modules["make"]


@pytest.fixture(scope="module")
def sizes(make: ModuleType, home: Path) -> Any:
    """Every divergence, in one process a framework."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLB_HOME", str(home))
        return make.measure(make.read())[0]


def test_the_page_says_what_the_frameworks_do(make: ModuleType, sizes: Any) -> None:
    text = make.PAGE.read_text(encoding="utf-8")
    assert list(make.differences(make.read(), sizes, text)) == []


def test_every_entry_diverges_in_some_framework(make: ModuleType, sizes: Any) -> None:
    assert list(make.none_diverges(make.read(), sizes)) == []
    agree = {pair: make.Size(0.0, 0.0) for pair in sizes}
    assert len(list(make.none_diverges(make.read(), agree))) == len(make.read())


@pytest.mark.parametrize(
    ("said", "instead", "told"),
    [
        (
            "| agrees | 1.7e+00 |",
            "| agrees | 1.4e+00 |",
            "same-padding, tf: the page says '1.4e+00'",
        ),
        ("| agrees | 1.7e+00 |", "| agrees | agrees |", "same-padding, tf: the page says 'agrees'"),
        ("| [same-padding](#same-padding)", "| [gone](#gone)", "gone: on the page or in"),
        ("norm = torch.nn.BatchNorm1d(3, momentum=0.5)", "norm = None", "a script on the page"),
    ],
)
def test_a_page_that_is_not_so_is_told(
    make: ModuleType, sizes: Any, said: str, instead: str, told: str
) -> None:
    text = make.PAGE.read_text(encoding="utf-8")
    assert said in text
    found = list(make.differences(make.read(), sizes, text.replace(said, instead)))
    assert any(told in each for each in found)
