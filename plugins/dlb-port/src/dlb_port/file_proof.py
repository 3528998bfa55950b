"""The checks of two ONNX files, and their certificate.

In float64, files that compute the same agree to rounding; the tolerance is 1e-10. Equal values show
agreement only on the inputs that were run. Agreement on all inputs follows if both files have the same
operators with the same numbers, or if what differs is analytic (:mod:`dlb_graph.comparing.analytic`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dlb.api import checked
from dlb.errors import DlbError
from dlb.proof.certificate import Certificate, CheckGroup, CheckResult
from dlb.proof.check_table import CheckKind
from dlb.proof.engine import Check, run, walk
from dlb.proof.findings import Finding
from dlb.report.answers import NotProven
from dlb_graph.comparing.narrow import narrow_values
from dlb_graph.comparing.read_facts import TurnedAxes
from dlb_graph.pairs.runs import FilePair, make_pair, run_both
from dlb_port.check_tables import FILE, NOT_OF_FILES
from dlb_port.files.half import narrowed
from dlb_port.files.quantised import quantised_side, without_rounding
from dlb_port.files.rounded import with_shared_constants
from dlb_port.files.structure import check_file_structure
from dlb_port.files.subject import FileSubject
from dlb_port.findings.files import Float16Model, QuantisedModel, RoundedConstants

__all__ = ["assert_same_file", "compare_files"]


@checked
def compare_files(
    first: str | Path,
    second: str | Path,
    *,
    inputs: str | Path | None = None,
    seed: int = 0,
    layouts: Mapping[str, str] | None = None,
) -> Certificate:
    """Compare two ONNX files, as ``dlb diff`` does.

    Args:
        inputs: an ``.npz`` file with the inputs; by default, seeded noise of the right shapes.
        seed: seeds the noise.
        layouts: the order of the axes of inputs, by a file's name, such as ``NHWC``; found if left out.

    Returns:
        a certificate of the second file, compared with the first. ``workload`` names both files, and
        ``workload_hash`` is the SHA-256 of the first file. ``adapters`` holds the producer and the operator
        set of each file.

    Raises:
        dlb.errors.DataError: a file cannot be read.
        dlb.errors.UnsupportedError: a file holds something that dlb cannot run.
        dlb.errors.RequestError: the files have different inputs or outputs, or the given inputs do not fit.
    """
    pair = make_pair(first, second, inputs, seed, layouts or {})
    # An overflow is found as an infinity, so NumPy's warnings are not needed.
    with np.errstate(all="ignore"):
        results = tuple(_run(pair, np.random.default_rng(seed)))
        results = _explained(pair, results, seed)
        results = _with_narrow_values(pair, results)
    return Certificate(
        workload=f"{pair.first.label} and {pair.second.label}",
        workload_hash=pair.first.sha256,
        seed=seed,
        adapters={file.label: file.description for file in (pair.first, pair.second)},
        checks=results,
        inapplicable=dict(NOT_OF_FILES),
    )


def assert_same_file(first: str | Path, second: str | Path, **options: Any) -> Certificate:
    """As :func:`compare_files`, for tests.

    Raises:
        dlb.report.answers.NotProven: an AssertionError: they are neither proven nor within rounding.
    """
    __tracebackhide__ = True
    certificate = compare_files(first, second, **options)
    if not certificate.agrees:
        raise NotProven(certificate)
    return certificate


def _run(pair: FilePair, draw: np.random.Generator) -> list[CheckResult]:
    """Every check, in order. The verdicts on structure and weights depend on the outputs."""
    try:
        runs = run_both(pair)
    except DlbError as error:
        return [
            _check(pair, kind).raised(error) for kind in FILE.values() if kind.group != "layers"
        ]
    subject = FileSubject(pair, runs, draw)

    def structure(check: Check) -> CheckResult:
        return check_file_structure(check, runs, subject.structure, subject.agree)

    return [run(_check(pair, FILE["structure"]), structure), *walk(FILE, subject, (DlbError,))]


def _with_narrow_values(
    pair: FilePair, results: tuple[CheckResult, ...]
) -> tuple[CheckResult, ...]:
    """Results with a finding about the outputs, if one file rounds values that the other does not.

    It explains why ONNX Runtime's outputs differ, where they do by no more than twice what it moves them by.
    """
    try:
        causes = [narrow_values(file.model, inputs[0], file.label) for file, inputs in pair.sides]
    except DlbError:  # a file that cannot be run fails its checks
        return results
    counts = [cause.count if cause else 0 for cause in causes]
    cause = causes[counts.index(max(counts))]
    if cause is None or counts[0] == counts[1]:
        return results
    most = 2 * (cause.distance or 0.0)

    def is_about_it(result: CheckResult) -> bool:
        if result.group != "float32":
            return result.group == "forward" and result.verdict == "passed"
        apart = result.worst.relative_l2 if result.worst and result.verdict == "failed" else None
        return apart is not None and apart <= most

    return tuple(
        msgspec.structs.replace(result, findings=(*result.findings, Finding(cause=cause)))
        if is_about_it(result)
        else result
        for result in results
    )


def _explained(
    pair: FilePair, results: tuple[CheckResult, ...], seed: int
) -> tuple[CheckResult, ...]:
    """Results with a finding in those that failed, if a rounding is all that both files differ by."""
    outputs = next((result for result in results if result.group == "forward"), None)
    if outputs is None or outputs.worst is None or outputs.verdict != "failed":
        return results
    distance = outputs.worst.relative_l2
    proposed = (
        each for each in pair.facts if isinstance(each, TurnedAxes) and each.source == "none"
    )
    cause = (
        next(proposed, None) or (distance is not None and _rounding(pair, distance, seed)) or None
    )
    if cause is None:
        return results
    return tuple(
        msgspec.structs.replace(result, findings=(Finding(cause=cause), *result.findings))
        if result.verdict == "failed"
        else result
        for result in results
    )


def _rounding(
    pair: FilePair, distance: float, seed: int
) -> Float16Model | QuantisedModel | RoundedConstants | None:
    """The rounding without which both files are the same, or None.

    Args:
        distance: of the outputs.
    """
    files = pair.first, pair.second
    for each in narrowed(pair):
        if _are_same(each.pair, seed):
            return each.kind(
                file=files[each.side].label,
                other=files[1 - each.side].label,
                weights=each.weights,
                stored=each.stored,
                distance=distance,
            )
    if (side := quantised_side(pair)) is not None:
        try:
            unrounded = without_rounding(pair, side)
        except DlbError:  # what is left of the graph cannot be run
            return None
        if unrounded and _are_same(unrounded[0], seed):
            return QuantisedModel(file=files[side].label, weights=unrounded[1], distance=distance)
    shared = with_shared_constants(pair, run_both(pair).traces)
    if shared is not None and _are_same(shared[0], seed):
        return RoundedConstants(constants=shared[1], furthest=shared[2], distance=distance)
    return None


def _are_same(pair: FilePair, seed: int) -> bool:
    """Whether both files have the same operators, weights and outputs."""
    verdicts = {each.group: each.verdict for each in _run(pair, np.random.default_rng(seed))}
    exact: tuple[CheckGroup, ...] = ("structure", "weights", "forward")
    return all(verdicts.get(group) == "passed" for group in exact)


def _check(pair: FilePair, kind: CheckKind) -> Check:
    return Check.of(kind, pair.second.label, pair.first.label)
