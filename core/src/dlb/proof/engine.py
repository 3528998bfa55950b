"""One engine for every proof: checks of a subject, each against its reference.

A subject is whatever has weights and computes outputs: a model that an adapter built, one that a user
wrote, an ONNX file. Its reference is the canonical graph, another subject, or its own float64 model. A
file of :mod:`dlb.proof.checks` holds what one group of checks asks of each kind of subject and how it
judges the answer. The groups that do not apply to a kind are in :data:`INAPPLICABLE`, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from dlb.errors import DlbError
from dlb.failure import failure_of
from dlb.proof.certificate import Baseline, CheckGroup, CheckResult, Inapplicable, Verdict
from dlb.proof.distance import passes
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.common import CannotRun

__all__ = ["INAPPLICABLE", "Check", "Keep", "run"]

#: Takes each result as it is made, so that none is lost to what comes after it.
Keep = Callable[[CheckResult], None]

#: Groups that do not apply, by kind of subject, and why.
INAPPLICABLE: Mapping[str, Mapping[CheckGroup, Inapplicable]] = {
    "port": {
        "file": "no_description",
        "update": "no_optimizer",
        "structure": "no_description",
        "export": "not_asked",
        "distributed": "one_worker",
    },
    "file": {
        "file": "no_description",
        "gradients": "evaluation_only",
        "update": "evaluation_only",
        "trajectory": "evaluation_only",
        "export": "is_exported",
        "distributed": "one_worker",
    },
}


@dataclass(frozen=True)
class Check:
    """One check of one subject.

    Attributes:
        name: the check's, in the certificate.
        group: its group.
        subject: name of what is checked: an adapter, or a file.
        baseline: what it is compared with.
    """

    name: str
    group: CheckGroup
    subject: str
    baseline: Baseline

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
            figures: worst first.
            findings: None among them says nothing.
            passed: whether every figure is within the tolerance, when left out.
        """
        if passed is None:
            assert tolerance is not None
            passed = passes(figures, tolerance)
        return self._result("passed" if passed else "failed", figures, tolerance, findings)

    def not_run(
        self,
        *findings: Finding,
        figures: tuple[Figure, ...] = (),
        tolerance: float | None = None,
    ) -> CheckResult:
        """The result of a check that could not be run, and why; it never counts as passed."""
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
) -> CheckResult:
    """Run a check, and note what it cost.

    Args:
        errors: those that cost this check alone: its result says that it was not run, and why.
    """
    began = time.perf_counter()
    try:
        result = compare(check)
    except errors as error:
        result = check.raised(error)
    seconds = result.seconds + time.perf_counter() - began
    return msgspec.structs.replace(result, seconds=seconds)
