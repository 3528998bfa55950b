"""The checks of two ONNX files, and the certificate that they make.

In float64, files that compute the same agree to rounding, and one that does not stands out: the
second file is held to 1e-10 of the first. Values show agreement where they were tried. What shows
it elsewhere is that both are made of the same operators with the same numbers, or that what is
written differently is analytic (:mod:`dlb.proof.files.analytic`).
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import numpy as np

from dlb.errors import DlbError
from dlb.failure import failure_of
from dlb.proof.certificate import Certificate, CheckResult
from dlb.proof.files import checks
from dlb.proof.files.inputs import feed, paired
from dlb.proof.files.read import read_model_file
from dlb.proof.files.runs import Pair, run_both
from dlb.proof.files.structure import compare
from dlb.proof.files.weights import match_weights
from dlb.proof.findings import Finding
from dlb.proof.findings.common import CannotRun

__all__ = ["verify_files"]


def verify_files(
    first: Path, second: Path, given: Path | None = None, seed: int = 0
) -> Certificate:
    """Compare the second file with the first.

    Args:
        given: an .npz file with the inputs; seeded noise that fits when left out.
        seed: of the noise.

    Returns:
        A certificate whose results are those of one adapter, the second file. ``workload`` names both
        files, ``workload_hash`` is the SHA-256 of the first file's bytes, ``seed`` is that of the
        inputs, and ``adapters`` has the producer and the operator set of each file.

    Raises:
        DataError, UnsupportedError, RequestError: a file cannot be read, the two read different
            things, or the inputs do not fit.
    """
    labels = [path.name for path in (first, second)]
    if labels[0] == labels[1]:
        labels = [str(first), str(second)]
    ours, theirs = (read_model_file(path, label) for path, label in zip((first, second), labels))
    outputs, by_order = paired("outputs", ours, theirs)
    fed = feed(ours, theirs, given, seed)
    pair = Pair(
        ours,
        theirs,
        fed,
        [(a.name, b.name) for a, b in outputs],
        (*fed.facts, *by_order),
    )
    # What overflows is found as an infinity; NumPy need not warn of it as well.
    with np.errstate(all="ignore"):
        results = tuple(_run(pair, np.random.default_rng(seed)))
    return Certificate(
        workload=f"{labels[0]} and {labels[1]}",
        workload_hash=ours.sha256,
        seed=seed,
        adapters={each.label: each.described for each in (ours, theirs)},
        checks=results,
    )


def _run(pair: Pair, draw: np.random.Generator) -> list[CheckResult]:
    """Every check, in order; what structure and weights amount to depends on the values."""
    clock = _Clock()
    try:
        runs = run_both(pair)
    except DlbError as error:
        reason = Finding(cause=CannotRun(failure=failure_of(error)))
        return [checks.unrun(pair, name, reason) for name in checks.CHECKS if name != "layers"]
    run_seconds = clock.lap()
    structure = compare(pair, runs)
    structure_seconds = clock.lap()
    labels = pair.first.label, pair.second.label
    folding = structure.equal and structure.hidden
    matched = match_weights(*runs.traces, labels, folding=folding)
    weights_seconds = clock.lap()
    tolerance = checks.float64_tolerance(pair, runs, matched, draw)
    forward = clock.stamp(checks.check_forward(pair, runs, tolerance), run_seconds)
    agree = forward.verdict == "passed"
    compared = checks.check_structure(pair, runs, structure, agree)
    results = [clock.stamp(compared, structure_seconds)]
    if matched.figures:
        weights = checks.check_weights(pair, matched, structure, agree)
        results.append(clock.stamp(weights, weights_seconds))
    results.append(forward)
    if not agree:
        results.append(clock.stamp(checks.check_layers(pair, runs, tolerance)))
    results.append(clock.stamp(checks.check_float32(pair, runs, agree)))
    return results


class _Clock:
    """What each check cost."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last call."""
        before, self._began = self._began, time.perf_counter()
        return self._began - before

    def stamp(self, result: CheckResult, more: float = 0.0) -> CheckResult:
        """The result with the seconds since the last call, and those before."""
        return msgspec.structs.replace(result, seconds=self.lap() + more)
