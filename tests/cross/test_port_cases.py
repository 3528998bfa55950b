"""Ports that people write, rebuilt: what dlb says of each is what its page says."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from conftest import ROOT, Dlb
from port_cases import COLUMNS, PORTS, Case, outcome, run

TABLE = ROOT / "docs" / "explanation" / "ports.csv"
STATUS = {"proven": 0, "within rounding": 0, "refused": 2}


def name(case: Case) -> str:
    return "-".join((case.folder, *case.models)).replace(":", "-")


def chosen() -> Iterator[ParameterSet]:
    """Every case; those of a verdict by a check, and of two adapters, after the first are long."""
    met = set()
    for case in PORTS:
        adapters = tuple(model.partition("=")[0].partition(":")[0] for model in case.models)
        kind = (case.proof, case.check, *adapters)
        yield pytest.param(case, id=name(case), marks=[pytest.mark.long] if kind in met else [])
        met.add(kind)


@pytest.mark.parametrize("case", chosen())
def test_a_port_is_judged_and_the_fault_named(
    case: Case, dlb: Dlb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def there(*words: str, cwd: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(cwd)
        done = dlb(*words)
        assert "Traceback" not in done.stderr
        return done

    status, result = run(case, tmp_path, there)
    proof, check, text = outcome(case, result)
    assert proof == case.proof, text
    assert status == STATUS.get(proof, 1)
    assert check == case.check
    assert case.says in text
    if case.proof == "refused":
        assert "--layout" not in text


def test_the_page_shows_these_cases() -> None:
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [tuple(row) for row in rows] == [COLUMNS] * len(PORTS)
    shown = [tuple(row[column] for column in COLUMNS[:5]) for row in rows]
    assert shown == [
        (case.folder, " and ".join(case.models), case.what, case.proof, case.check)
        for case in PORTS
    ]
