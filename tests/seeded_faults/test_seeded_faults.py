"""Every seeded fault is found, by its check and at its layer; without one, nothing is."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import pytest
from _pytest.mark import ParameterSet
from dlb_seeded_faults.__main__ import find, is_right, prove
from dlb_seeded_faults.catalogue import FAULTS
from dlb_seeded_faults.not_found import NOT_FOUND
from dlb_seeded_faults.reasons import Grade, grade
from dlb_seeded_faults.worker import started

import dlb
from dlb.execution.workers import Workers
from dlb.proof.explain import Explanation, LayerKind, OfGroup, OnlyClipping
from dlb.proof.findings import Cause
from dlb.proof.findings.workload import Otherwise
from dlb.report.explanations import place_text

WORKLOADS = Path(__file__).parent / "workloads"
PROOF = Path(__file__).parents[2] / "docs" / "explanation" / "proof.md"
TABLE = Path(__file__).parents[2] / "docs" / "explanation" / "seeded-faults.csv"


Started = tuple[Workers, Path]


@pytest.fixture(scope="module")
def worker() -> Iterator[Started]:
    with started() as worker:
        yield worker


def chosen() -> Iterator[ParameterSet]:
    """Every fault; of those that a check finds, all but the first are long."""
    met = set()
    for name, fault in FAULTS.items():
        long = [pytest.mark.long] if fault.check in met else []
        yield pytest.param(name, id=name.replace(" ", "_"), marks=long)
        met.add(fault.check)


@pytest.mark.parametrize("name", chosen())
def test_a_seeded_fault_is_found(name: str, worker: Started) -> None:
    found = find(FAULTS[name], WORKLOADS, worker)
    assert is_right(FAULTS[name], found), found


def first_alone(names: Iterable[str]) -> list[str | ParameterSet]:
    """All names; those behind the first are long."""
    first, *others = names
    return [first, *(pytest.param(each, marks=pytest.mark.long) for each in others)]


@pytest.mark.parametrize(
    "workload",
    first_alone(
        ["pictures", "words", "sequences", "parts", "deep", "bounds", "rmsprop", "adamw"]
        + ["huber", "shares", "shared", "accumulated", "quantised"]
    ),
)
def test_without_a_fault_nothing_is_found(workload: str) -> None:
    certificate = dlb.assert_proven(WORKLOADS / f"{workload}.toml", ["seeded-faults"], threads=1)
    assert certificate.status("seeded-faults") == "proven"


@pytest.mark.parametrize("name", first_alone(NOT_FOUND), ids=lambda name: name.replace(" ", "_"))
def test_the_limits_of_the_proof(name: str, worker: Started) -> None:
    """Faults that the documentation says are not found: if one is, it belongs to the others."""
    certificate = prove(WORKLOADS / "bounds.toml", name, worker)
    assert certificate.status("seeded-faults") == "proven"


def test_the_documentation_lists_the_limits() -> None:
    text = PROOF.read_text(encoding="utf-8")
    listed = text[text.index("## What is not checked") : text.index("## When a check fails")]
    assert all(f"`{name}`" in listed for name in NOT_FOUND)


def test_the_culprit_is_named_as_described_and_as_built(worker: Started) -> None:
    found = find(FAULTS["batch norm's epsilon 1e-3 for 1e-5"], WORKLOADS, worker)
    assert found is not None
    assert place_text(found) == "layer norm, batch_norm(epsilon=1e-05, momentum=0.9)"
    assert found.finding is not None and found.finding.layer is not None
    layer = found.finding.layer
    assert layer.attributes == {"epsilon": 1e-05, "momentum": 0.9}
    assert layer.built.startswith("BatchNorm2d(8, eps=0.001, momentum=")


def test_the_table_in_the_documentation_has_every_fault_where_it_must_be_found() -> None:
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = {row["fault"]: row for row in csv.DictReader(file)}
    assert rows.keys() == FAULTS.keys()
    graded = Counter(row["says_why"] for row in rows.values())
    page = " ".join(TABLE.with_suffix(".md").read_text(encoding="utf-8").split())
    for word in get_args(Grade):
        assert f"| `{word}` | {graded[word]} |" in page
    named = graded["exactly"] + graded["yes"]
    assert f"names what was seeded for {named} of {len(rows)}." in page
    for name, fault in FAULTS.items():
        assert rows[name]["check"] == fault.check
        assert fault.where in rows[name]["where"]


#: Reasons, and how much of an explanation of a bias that is left out they are.
GRADED: list[tuple[tuple[Cause, ...], Grade]] = [
    ((Otherwise(fields=({"bias": False},)),), "exactly"),
    ((Otherwise(fields=({"bias": False}, {"weight": "left out"})),), "yes"),
    ((Otherwise(fields=({"weight": "turned"},)),), "no"),
    ((LayerKind(kind="conv"),), "no"),
    ((OfGroup(group="weights"),), "no"),
]


@pytest.mark.parametrize(("reasons", "expected"), GRADED)
def test_how_an_explanation_is_graded(reasons: tuple[Cause, ...], expected: Grade) -> None:
    found = explanation(reasons)
    assert grade("a bias left out", found) == expected


def test_a_long_list_and_what_a_group_is_told_are_generic() -> None:
    assert grade("LSTM's gates", explanation((LayerKind(kind="lstm"),))) == "generic"
    assert grade("clip", explanation((OnlyClipping(),))) == "generic"


def explanation(reasons: tuple[Cause, ...]) -> Explanation:
    return Explanation(
        adapter="torch",
        group="layers",
        check="isolated layers",
        finding=None,
        figure=None,
        reasons=reasons,
    )
