"""``weights``: the weights of a subject after loading; for two files, the numbers that both hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.distance import figures, infinite_cause, same_bits, worst_first
from dlb.proof.engine import Check
from dlb.proof.findings import Finding
from dlb.proof.findings.common import BitsDiffer
from dlb.proof.findings.files import BothFolded, FoldedWeights, WeightsNotComparable
from dlb.proof.findings.port import WeightsLeft
from dlb.proof.port.comparison import PortComparison
from dlb.proof.tolerances import FOLDED_TOLERANCE, Tensors
from dlb.proof.update_batches import as_dtype

if TYPE_CHECKING:
    from dlb.proof.files.structure import Structure
    from dlb.proof.files.weights import MatchedWeights

__all__ = ["GIVEN", "check_carried_weights", "check_file_weights", "check_weights"]

Array = npt.NDArray[Any]
GIVEN = Baseline(kind="given_weights")


def check_weights(adapter: str, dtype: str, loaded: Tensors, weights: Tensors) -> CheckResult:
    """Compare every parameter of a built model after loading, bit for bit.

    Args:
        loaded: parameters that the model holds.
        weights: parameters that were loaded, by ``layer.parameter``.
    """
    expected = {name: array.astype(dtype) for name, array in weights.items()}
    check = Check(f"weights {dtype}", "weights", adapter, GIVEN)
    return _same_bits(check, loaded, expected, {**expected, **loaded})


def check_carried_weights(check: Check, port: PortComparison) -> CheckResult:
    """Load the reference's weights into a user's model, and compare them bit for bit.

    States that both factories compute are compared as they were made.
    """
    dtype = port.model.remote.dtype
    expected = {name: as_dtype(array, dtype) for name, array in port.carried_weights.items()}
    port.model.remote.load_weights(expected)
    held = port.model.remote.weights()
    states = port.states
    apart = [side.name for pair in states.left for side in (pair.source, pair.target)]
    left = tuple(dict.fromkeys((*port.truth.model.leave, *port.model.leave, *apart)))
    note = Finding(cause=WeightsLeft(parameters=left)) if left else None
    result = _same_bits(
        check, {name: held[name] for name in expected}, expected, expected, *states.facts, note
    )
    compared = worst_first((*states.figures, *result.figures))
    findings = (*states.faults, *states.doubts, *result.findings)
    if result.verdict == "passed" and states.doubts and not states.faults:
        return check.not_run(*findings, figures=compared)
    passed = result.verdict == "passed" and not states.faults
    return check.result(compared, findings=findings, passed=passed)


def _same_bits(
    check: Check,
    actual: Tensors,
    expected: Tensors,
    names: Mapping[str, Any],
    *notes: Finding | None,
) -> CheckResult:
    compared = figures(actual, expected)
    wrong = [
        name
        for name in names
        if name not in actual or name not in expected or not same_bits(actual[name], expected[name])
    ]

    def faults() -> Iterator[Finding]:
        yield Finding(
            cause=BitsDiffer(tensors=tuple(wrong)), figure=compared[0] if compared else None
        )
        first = next((name for name in wrong if name in expected), wrong[0])
        if infinite := infinite_cause(first, actual.get(first), expected.get(first)):
            yield Finding(cause=infinite)

    findings = [*(faults() if wrong else ()), *notes]
    return check.result(compared, findings=findings, passed=not wrong)


def check_file_weights(
    check: Check, matched: MatchedWeights, structure: Structure, agree: bool
) -> CheckResult:
    """Compare the numbers that both files hold.

    Args:
        agree: whether the outputs of both files agree.
    """
    findings = [Finding(cause=cause) for cause in matched.unmatched]
    if findings and agree and not structure.equal:
        return check.not_run(Finding(cause=WeightsNotComparable()), *findings)
    if findings and all(
        item.relative_l2 is not None and item.relative_l2 <= FOLDED_TOLERANCE
        for item in matched.figures
    ):
        findings.insert(0, Finding(cause=BothFolded()))
    folded = tuple(weight.name for side in matched.folded for weight in side)
    if folded and not findings:
        findings = [Finding(cause=FoldedWeights(weights=folded))]
    tolerance = FOLDED_TOLERANCE if folded else None
    return check.result(matched.figures, tolerance, findings, passed=not matched.unmatched)
