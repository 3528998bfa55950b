"""The engine of every proof: it runs checks that compare a subject with its reference.

A subject has weights and computes outputs: a model that an adapter built, a model that a user wrote, or an
ONNX file. Its reference is the canonical graph, another subject, or its own float64 model. Each module of
:mod:`dlb.proof.checks` runs one group of checks for every kind of subject. :data:`INAPPLICABLE` lists the
groups that do not apply to a kind, with the reason.
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

__all__ = ["EVALUATION_ONLY", "INAPPLICABLE", "Check", "Keep", "run"]

#: Receives each result at once, so that a later error loses none.
Keep = Callable[[CheckResult], None]

#: Groups that do not apply to a file, which holds no training, nor to a port of which a model is a file.
EVALUATION_ONLY: Mapping[CheckGroup, Inapplicable] = {
    "gradients": "evaluation_only",
    "trajectory": "evaluation_only",
}
#: What is not compared of a port that runs in float32 only.
FLOAT32_ONLY: Mapping[CheckGroup, Inapplicable] = {
    "forward": "float32_only",
    "layers": "float32_only",
    "gradients": "float32_only",
    "trajectory": "float32_only",
}
#: Groups that do not apply, by kind of subject, with the reason.
INAPPLICABLE: Mapping[str, Mapping[CheckGroup, Inapplicable]] = {
    "port": {
        "file": "no_description",
        "update": "no_optimizer",
        "audit": "not_timed",
        "structure": "no_description",
        "export": "not_asked",
        "distributed": "one_worker",
    },
    "file": {
        "file": "no_description",
        **EVALUATION_ONLY,
        "update": "evaluation_only",
        "audit": "not_timed",
        "export": "is_exported",
        "distributed": "one_worker",
    },
}


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
        self,
        *findings: Finding,
        figures: tuple[Figure, ...] = (),
        tolerance: float | None = None,
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
