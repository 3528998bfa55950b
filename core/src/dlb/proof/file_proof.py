"""The checks of two ONNX files, and their certificate.

In float64, files that compute the same agree to rounding; the tolerance is 1e-10. Equal values show
agreement only on the inputs that were run. Agreement on all inputs follows if both files have the same
operators with the same numbers, or if what differs is analytic (:mod:`dlb.proof.files.analytic`).
"""

from __future__ import annotations

import math
import time
from pathlib import Path

import msgspec
import numpy as np

from dlb.errors import DlbError
from dlb.graph.evaluate import Evaluator
from dlb.graph.held import array_of
from dlb.proof.certificate import Baseline, Certificate, CheckGroup, CheckResult
from dlb.proof.checks.float32 import check_file_float32
from dlb.proof.checks.forward import check_file_outputs
from dlb.proof.checks.layers import check_node_values
from dlb.proof.checks.structure import check_file_structure
from dlb.proof.checks.weights import check_file_weights
from dlb.proof.distance import relative_l2
from dlb.proof.engine import INAPPLICABLE, Check, run
from dlb.proof.files.half import narrow_side, with_rounded_weights
from dlb.proof.files.inputs import feed, pair_ports
from dlb.proof.files.narrow import narrow_values
from dlb.proof.files.quantised import quantised_side, without_rounding
from dlb.proof.files.read import read_model_file
from dlb.proof.files.rounded import with_shared_constants
from dlb.proof.files.runs import FilePair, Runs, run_both
from dlb.proof.files.structure import compare_structures
from dlb.proof.files.training_mode import training_facts
from dlb.proof.files.weights import MatchedWeights, match_weights
from dlb.proof.findings import Finding
from dlb.proof.findings.files import Float16Model, QuantisedModel, RoundedConstants
from dlb.proof.tolerances import FLOAT32_MULTIPLE, FLOAT64_TOLERANCE

__all__ = ["CHECKS", "verify_files"]

#: Every check, in order, with its group.
CHECKS: dict[str, CheckGroup] = {
    "structure": "structure",
    "weights": "weights",
    "forward float64": "forward",
    "layers": "layers",
    "forward float32": "float32",
}

#: Half a unit in the last place of float32: the largest relative error of a rounded weight.
_ROUNDING = 2.0**-24


def verify_files(
    first: Path, second: Path, inputs: Path | None = None, seed: int = 0
) -> Certificate:
    """Compare the second file with the first.

    Args:
        inputs: an .npz file with the inputs; seeded noise if left out.
        seed: seed of the noise.

    Returns:
        A certificate with one adapter, the second file. ``workload`` names both files, and
        ``workload_hash`` is the SHA-256 of the first file. ``adapters`` holds the producer and the
        operator set of each file.

    Raises:
        DataError: a file cannot be read.
        UnsupportedError: a file holds something that dlb cannot run.
        RequestError: the files have different inputs or outputs, or the given inputs do not fit.
    """
    labels = [path.name for path in (first, second)]
    if labels[0] == labels[1]:
        labels = [str(first), str(second)]
    first_file, second_file = (
        read_model_file(path, label) for path, label in zip((first, second), labels)
    )
    outputs, by_order = pair_ports("outputs", first_file, second_file)
    file_inputs = feed(first_file, second_file, inputs, seed)
    pair = FilePair(
        first_file,
        second_file,
        file_inputs,
        [(first_output.name, second_output.name) for first_output, second_output in outputs],
        (*training_facts(first_file, second_file), *file_inputs.facts, *by_order),
    )
    # An overflow is found as an infinity, so NumPy's warnings are not needed.
    with np.errstate(all="ignore"):
        results = tuple(_run(pair, np.random.default_rng(seed)))
        results = _explained(pair, results, seed)
        results = _with_narrow_values(pair, results)
    return Certificate(
        workload=f"{labels[0]} and {labels[1]}",
        workload_hash=first_file.sha256,
        seed=seed,
        adapters={file.label: file.description for file in (first_file, second_file)},
        checks=results,
        inapplicable=dict(INAPPLICABLE["file"]),
    )


def _run(pair: FilePair, draw: np.random.Generator) -> list[CheckResult]:
    """Every check, in order. The verdicts on structure and weights depend on the outputs."""
    began = time.perf_counter()
    try:
        runs = run_both(pair)
    except DlbError as error:
        return [_check(pair, name).raised(error) for name in CHECKS if name != "layers"]
    run_seconds, began = time.perf_counter() - began, time.perf_counter()
    structure = compare_structures(pair, runs)
    structure_seconds, began = time.perf_counter() - began, time.perf_counter()
    labels = pair.first.label, pair.second.label
    matched = match_weights(*runs.traces, labels, folding=structure.equal and structure.hidden)
    weights_seconds = time.perf_counter() - began
    tolerance = _folded_tolerance(pair, runs, matched, draw)

    def outputs(check: Check) -> CheckResult:
        return check_file_outputs(check, pair, runs, tolerance)

    forward = run(_check(pair, "forward float64"), outputs, prepared_seconds=run_seconds)
    agree = forward.verdict == "passed"
    results = [
        run(
            _check(pair, "structure"),
            lambda check: check_file_structure(check, runs, structure, agree),
            prepared_seconds=structure_seconds,
        )
    ]
    if matched.figures:
        results.append(
            run(
                _check(pair, "weights"),
                lambda check: check_file_weights(check, matched, structure, agree),
                prepared_seconds=weights_seconds,
            )
        )
    results.append(forward)
    if not agree:
        layers = _check(pair, "layers")
        results.append(run(layers, lambda check: check_node_values(check, pair, runs, tolerance)))
    float32 = _check(pair, "forward float32")
    results.append(
        run(
            float32,
            lambda check: check_file_float32(check, pair, runs, agree),
            errors=(DlbError,),
        )
    )
    return results


def _with_narrow_values(
    pair: FilePair, results: tuple[CheckResult, ...]
) -> tuple[CheckResult, ...]:
    """Results with a finding about the outputs, if one file rounds values that the other does not.

    It explains why ONNX Runtime's outputs differ, where they do by no more than twice what it moves them by.
    """
    sides = (pair.first, pair.inputs.first), (pair.second, pair.inputs.second)
    try:
        causes = [narrow_values(file.model, inputs[0], file.label) for file, inputs in sides]
    except DlbError:  # a file that cannot be run fails its checks
        return results
    counts = [cause.count if cause else 0 for cause in causes]
    cause = causes[counts.index(max(counts))]
    if cause is None or counts[0] == counts[1]:
        return results
    most = 2 * (cause.distance or 0.0)

    def is_about_it(result: CheckResult) -> bool:
        if result.check != "forward float32":
            return result.check == "forward float64" and result.verdict == "passed"
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
    outputs = next((result for result in results if result.check == "forward float64"), None)
    if outputs is None or outputs.worst is None or outputs.verdict != "failed":
        return results
    distance = outputs.worst.relative_l2
    cause = _rounding(pair, distance, seed) if distance is not None else None
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
    if (narrow := narrow_side(pair)) is not None:
        same, count = _are_same(with_rounded_weights(pair, narrow), seed)
        if same:
            return Float16Model(file=files[narrow].label, weights=count, distance=distance)
    if (side := quantised_side(pair)) is not None:
        try:
            unrounded = without_rounding(pair, side)
        except DlbError:  # what is left of the graph cannot be run
            return None
        if unrounded and _are_same(unrounded[0], seed)[0]:
            return QuantisedModel(file=files[side].label, weights=unrounded[1], distance=distance)
    shared = with_shared_constants(pair, run_both(pair).traces)
    if shared is not None and _are_same(shared[0], seed)[0]:
        return RoundedConstants(constants=shared[1], furthest=shared[2], distance=distance)
    return None


def _are_same(pair: FilePair, seed: int) -> tuple[bool, int]:
    """Whether both files have the same operators, weights and outputs, and how many weights."""
    found = {result.check: result for result in _run(pair, np.random.default_rng(seed))}
    exact = ("structure", "weights", "forward float64")
    same = all(name in found and found[name].verdict == "passed" for name in exact)
    return same, len(found["weights"].figures) if same else 0


def _check(pair: FilePair, name: str) -> Check:
    float64 = name == "forward float32"
    baseline = Baseline(kind="onnx_file", names=(pair.first.label,), float64=float64)
    return Check(name, CHECKS[name], pair.second.label, baseline)


def _folded_tolerance(
    pair: FilePair, runs: Runs, matched: MatchedWeights, draw: np.random.Generator
) -> float:
    """1e-10, or 20 times the effect of rounding the folded weights on the outputs.

    Folding a batch normalisation rounds the folded weights to float32. The effect is measured by rounding
    these weights once more at random.
    """
    worst = 0.0
    sides = (pair.first, pair.inputs.first), (pair.second, pair.inputs.second)
    for side, (file, batches) in enumerate(sides):
        initialisers = {tensor.name: tensor for tensor in file.float64.graph.initializer}
        names = {weight.initialiser for weight in matched.folded[side]} & set(initialisers)
        if not names:
            continue
        rounded = {}
        for name in sorted(names):
            array = array_of(initialisers[name])
            rounded[name] = array * (1 + _ROUNDING * draw.choice((-1.0, 1.0), array.shape))
        outputs = Evaluator(file.float64).run({**batches[0], **rounded})
        for output_names in pair.outputs:
            expected = runs.values[side][0][output_names[0]]
            worst = max(worst, relative_l2(outputs[output_names[side]], expected))
    if not math.isfinite(worst):
        return FLOAT64_TOLERANCE
    return max(FLOAT64_TOLERANCE, FLOAT32_MULTIPLE * worst)
