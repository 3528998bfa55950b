"""What a subject gives for a check, and the verdict that follows; the table of checks."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from dlb.proof.certificate import BaselineKind, CheckGroup
from dlb.proof.check_table import BUILT, kind_named
from dlb.proof.engine import Check, judge, walk
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.common import BitsDiffer, Missing, StepsCompared
from dlb.proof.subject import Sides
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE
from dlb_port.check_tables import FILE, PORT

FAULT = Finding(cause=Missing(names=("a",)))
DOUBT = Finding(cause=Missing(names=("b",)))
FACT = Finding(cause=StepsCompared(steps=1))
ONES = {"a": np.ones(3)}
FAR = Figure(tensor="far", relative_l2=1.0, largest=1.0)


@pytest.mark.parametrize(
    ("sides", "verdict", "findings"),
    [
        (Sides(ONES, ONES, tolerance=FLOAT64_TOLERANCE, facts=(FACT,)), "passed", (FACT,)),
        (Sides(ONES, ONES, facts=(FACT,)), "passed", (FACT,)),
        (Sides(ONES, ONES, faults=(FAULT,), facts=(FACT,)), "failed", (FAULT, FACT)),
        (Sides(ONES, ONES, doubts=(DOUBT,), facts=(FACT,)), "not run", (DOUBT, FACT)),
        (Sides(ONES, ONES, faults=(FAULT,), doubts=(DOUBT,)), "failed", (FAULT, DOUBT)),
        (Sides(tolerance=FLOAT64_TOLERANCE), "failed", ()),
        (Sides({}, ONES, tolerance=FLOAT64_TOLERANCE), "failed", ()),
        (Sides(figures=(FAR,), tolerance=FLOAT64_TOLERANCE), "failed", ()),
        (Sides(figures=(FAR,), tolerance=FLOAT64_TOLERANCE, by_figures=False), "passed", ()),
        (
            Sides(figures=(FAR,), tolerance=FLOAT64_TOLERANCE, locate=lambda compared: (FAULT,)),
            "failed",
            (FAULT,),
        ),
        (Sides(ONES, ONES, tolerance=1.0, locate=lambda compared: (FAULT,)), "passed", ()),
    ],
)
def test_the_verdict_of_two_sides(
    sides: Sides, verdict: str, findings: tuple[Finding, ...]
) -> None:
    result = judge(Check.of("update", "torch"), sides)
    assert (result.verdict, result.findings) == (verdict, findings)


@pytest.mark.parametrize(
    "actual",
    [{"a": np.ones(3, np.float32)}, {"a": np.full(3, 1 + 1e-15)}, {}, {**ONES, "b": ONES["a"]}],
)
def test_every_bit_counts_without_a_tolerance(actual: dict[str, np.ndarray]) -> None:
    result = judge(Check.of("weights float64", "torch"), Sides(actual, ONES, doubts=(DOUBT,)))
    assert result.verdict == "failed"
    assert any(isinstance(finding.cause, BitsDiffer) for finding in result.findings)


def test_what_a_subject_lacks_is_not_walked() -> None:
    class Subject:
        name, references, abilities = "tf", ("torch",), frozenset({"float64"})
        compares = dict.fromkeys(PORT, lambda: Sides(ONES, ONES, tolerance=1.0))

    results = list(walk(PORT, Subject()))
    names = ["weights", "forward", "layers", "forward float32", "export"]
    assert [result.check for result in results] == names
    assert {result.baseline.names for result in results} == {("torch",)}
    assert [result.baseline.float64 for result in results] == [False, False, False, True, False]


def test_every_row_of_the_table_is_of_the_format() -> None:
    for table in (BUILT, PORT, FILE):
        for name, kind in table.items():
            assert name == kind.name and kind.group in get_args(CheckGroup)
            assert kind.baseline in get_args(BaselineKind)
            assert not kind.evaluation or kind.evaluation in table
    assert kind_named("layers") == PORT["layers"] and kind_named("of another version") is None
