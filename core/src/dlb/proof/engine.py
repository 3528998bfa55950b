"""The engine of every proof: it runs checks that compare a subject with its reference.

:mod:`dlb.proof.check_table` has every check, and :mod:`dlb.proof.subject` what a subject gives for one.
:func:`walk` goes through the table, and :func:`judge` compares.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.errors import DlbError
from dlb.failure import failure_of
from dlb.proof.certificate import Baseline, CheckGroup, CheckResult, Verdict
from dlb.proof.check_table import BUILT, CheckKind
from dlb.proof.findings import AnyCause, Figure, Finding, shape_of
from dlb.proof.findings.common import BitsDiffer, CannotRun, Missing, NotFinite, ShapeMismatch
from dlb.proof.subject import Sides, Subject
from dlb_graph.comparing.distance import figures, passes, pieces, same_bits, worst_first

__all__ = ["Check", "Keep", "infinite_cause", "judge", "judged", "run", "walk"]

Array = npt.NDArray[Any]

#: Receives each result at once, so that a later error loses none.
Keep = Callable[[CheckResult], None]


@dataclass(frozen=True)
class Check:
    """One check of one subject.

    Attributes:
        name: name of the check in the certificate.
        group: group of the check.
        subject: the adapter or the file that is checked.
        baseline: what the subject is compared with.
    """

    name: str
    group: CheckGroup
    subject: str
    baseline: Baseline

    @classmethod
    def of(cls, kind: CheckKind | str, subject: str, *names: str) -> Check:
        """A check of a subject.

        Args:
            kind: its row of the table; a name is one of the checks of built models.
            names: other subjects that it compares with.
        """
        kind = BUILT[kind] if isinstance(kind, str) else kind
        return cls(kind.name, kind.group, subject, kind.against(*names))

    def result(
        self,
        figures: tuple[Figure, ...] = (),
        tolerance: float | None = None,
        findings: Iterable[Finding | None] = (),
        *,
        passed: bool | None = None,
    ) -> CheckResult:
        """The result of a comparison.

        Args:
            figures: distances, worst first.
            tolerance: the largest distance that passes; needed if ``passed`` is left out.
            findings: findings, worst first; None is ignored.
            passed: the verdict; if left out, whether every figure is within the tolerance.
        """
        if passed is None:
            assert tolerance is not None
            passed = passes(figures, tolerance)
        return self._result("passed" if passed else "failed", figures, tolerance, findings)

    def not_run(
        self, *findings: Finding, figures: tuple[Figure, ...] = (), tolerance: float | None = None
    ) -> CheckResult:
        """The result of a check that could not be run, with the reason; it never counts as passed."""
        return self._result("not run", figures, tolerance, findings)

    def raised(self, error: DlbError) -> CheckResult:
        """The result of a check that could not be run because of an error."""
        return self.not_run(Finding(cause=CannotRun(failure=failure_of(error))))

    def _result(
        self,
        verdict: Verdict,
        figures: tuple[Figure, ...],
        tolerance: float | None,
        findings: Iterable[Finding | None],
    ) -> CheckResult:
        return CheckResult(
            check=self.name,
            group=self.group,
            adapter=self.subject,
            baseline=self.baseline,
            verdict=verdict,
            tolerance=tolerance,
            figures=figures,
            findings=tuple(finding for finding in findings if finding is not None),
        )


def run(
    check: Check,
    compare: Callable[[Check], CheckResult],
    errors: tuple[type[DlbError], ...] = (),
    prepared_seconds: float = 0.0,
) -> CheckResult:
    """Run a check, and measure its time.

    Args:
        errors: types of errors that stop only this check; its result is then ``not run``.
        prepared_seconds: time already spent on what this check compares.
    """
    began = time.perf_counter()
    try:
        result = compare(check)
    except errors as error:
        result = check.raised(error)
    seconds = prepared_seconds + time.perf_counter() - began
    return msgspec.structs.replace(result, seconds=seconds)


def infinite_cause(tensor: str, actual: Array | None, expected: Array | None) -> AnyCause | None:
    """Why a tensor's distance is infinite: missing, another shape, or not finite. None if no such cause."""
    if actual is None and expected is not None:
        return Missing(names=(tensor,))
    if actual is None or expected is None or actual.shape != expected.shape:
        return ShapeMismatch(found=shape_of(actual), expected=shape_of(expected))
    if not all(np.isfinite(piece).all() for pair in pieces(actual, expected) for piece in pair):
        return NotFinite()
    return None


def walk(
    table: Mapping[str, CheckKind],
    subject: Subject,
    errors: tuple[type[DlbError], ...] = (),
    groups: Collection[CheckGroup] | None = None,
) -> Iterator[CheckResult]:
    """Run the checks of a table for which the subject gives something and has what they need, in order.

    Args:
        errors: as :func:`run`.
        groups: that are asked for; all if left out.
    """
    assert subject.compares.keys() <= table.keys()
    for name, kind in table.items():
        compare = subject.compares.get(name)
        if compare is None or not kind.needs <= subject.abilities:
            continue
        if groups is None or kind.group in groups:
            check = Check.of(kind, subject.name, *subject.references)
            yield run(check, judged(compare), errors)


def judged(compare: Callable[[], Sides]) -> Callable[[Check], CheckResult]:
    """What a subject gives for a check, as :func:`run` takes it."""
    return lambda check: judge(check, compare())


def judge(check: Check, sides: Sides) -> CheckResult:
    """Compare what a subject gives with what is expected of it."""
    tensors = figures(sides.actual, sides.expected)
    compared = worst_first((*sides.figures, *tensors))
    bits = tuple(_other_bits(sides, tensors)) if sides.tolerance is None else ()
    wrong = sides.faults or bits
    if sides.doubts and not wrong:
        return check.not_run(*sides.doubts, *sides.facts, figures=compared)
    by_figures = sides.by_figures and sides.tolerance is not None
    passed = not wrong and (not by_figures or passes(compared, sides.tolerance or 0.0))
    located = () if passed else sides.locate(compared)
    findings = (*sides.faults, *sides.doubts, *bits, *located, *sides.facts)
    return check.result(compared, sides.tolerance, findings, passed=passed)


def _other_bits(sides: Sides, compared: tuple[Figure, ...]) -> Iterator[Finding]:
    """Tensors of which a bit differs, and why the first of them cannot be compared at all."""
    actual, expected = sides.actual, sides.expected
    wrong = [
        name
        for name in {**expected, **actual}
        if name not in actual or name not in expected or not same_bits(actual[name], expected[name])
    ]
    if not wrong:
        return
    cause = BitsDiffer(tensors=tuple(wrong))
    yield Finding(cause=cause, figure=compared[0] if compared else None)
    first = next((name for name in wrong if name in expected), wrong[0])
    if infinite := infinite_cause(first, actual.get(first), expected.get(first)):
        yield Finding(cause=infinite)
