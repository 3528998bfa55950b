"""A difference as small as a constant that a framework keeps in float32, told apart from one in meaning.

Some frameworks compute in float64 with a constant of float32: the slope of a LeakyReLU, the square root in a
GELU, a resize that returns float32. A port that is right deviates then by about 1e-8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from dlb.proof.certificate import CheckGroup, CheckResult
from dlb.proof.checks.float32 import gradient_errors
from dlb.proof.checks.forward import name_outputs
from dlb.proof.distance import figures, worst_first
from dlb.proof.findings import Figure, Finding, LayerFacts
from dlb.proof.findings.port import (
    CodeSpan,
    ConstantBefore,
    Float32Constant,
    PortLayerDiffers,
    SpanDiffers,
)
from dlb.proof.port.comparison import PortComparison
from dlb.proof.tolerances import FLOAT32_CONSTANT, FLOAT64_TOLERANCE, PERTURBED_MULTIPLE
from dlb_worker.contract import Gradients

__all__ = ["with_constants_named"]

#: Factors whose relative difference is at most this are the same.
_SAME_SIZE = 0.05
#: How much further on a difference may grow, at least, before another is blamed.
_GROWTH = 64
#: Steps of a trajectory add up what one gradient is off by.
_STEPS = 5


def with_constants_named(
    results: Sequence[CheckResult], port: PortComparison, perturbed: Sequence[Gradients]
) -> list[CheckResult]:
    """Results of a port with a finding in those that failed, if a constant in float32 explains them all.

    That is so if the first values that differ do so by one rounding to float32, where their layers read the
    same; if all that follows is off by no more than what rounding the weights does; and if float32 agrees.
    A normalisation is left out, since its epsilon may move values as little.

    Args:
        results: of one model, in float64 and in float32.
        perturbed: the reference's gradients at weights perturbed by a few units of float32.
    """
    failed = [result for result in results if result.verdict == "failed"]
    if [result.check for result in failed] == ["own steps"]:
        return _with_rate_named(results)
    place = _place(failed)
    allowed = _allowed(port, perturbed)
    if place is None:
        return list(results)
    if not all(_explained(result, allowed) for result in failed):
        return [_with_place_beyond(result, port, allowed["layers"], place) for result in results]
    reference, other, distance = place
    named = []
    for result in results:
        if result.verdict == "failed":
            first = result is failed[0]
            cause = Float32Constant(
                distance=distance,
                allowed=allowed[result.group],
                reference=reference if first else None,
                other=other if first else None,
            )
            findings = (Finding(cause=cause), *result.findings)
            result = msgspec.structs.replace(result, findings=findings)
        named.append(result)
    return named


def _with_place_beyond(
    result: CheckResult,
    port: PortComparison,
    allowed: float,
    place: tuple[CodeSpan, CodeSpan, float],
) -> CheckResult:
    """A result whose place is the first value past what a constant in float32 can move.

    Something else differs, too, and further on.
    """
    reference, other, distance = place
    # What moves values by this much there moves those behind it by no more than its share of the bound.
    share = max(_GROWTH * distance, allowed * distance / FLOAT32_CONSTANT, FLOAT64_TOLERANCE)
    allowed = min(allowed, share)
    located = [isinstance(each.cause, (SpanDiffers, PortLayerDiffers)) for each in result.findings]
    if result.verdict != "failed" or not any(located):
        return result
    beyond = port.layers_beyond(allowed, training=result.check == "forward, training")
    if not beyond:
        return result
    before = ConstantBefore(reference=reference, other=other, distance=distance, allowed=allowed)
    others = [each for each, is_place in zip(result.findings, located) if not is_place]
    findings = (*beyond, Finding(cause=before), *others)
    return msgspec.structs.replace(result, findings=findings)


def _with_rate_named(results: Sequence[CheckResult]) -> list[CheckResult]:
    """Results of which own steps alone failed, named if a rate or a momentum in float32 explains that.

    Then every change of the first step is off by the same factor, or by none. Another epsilon moves each
    differently.
    """
    (steps,) = (result for result in results if result.verdict == "failed")
    first = [
        item.relative_l2
        for item in steps.figures
        if "," not in item.tensor and item.tensor != "loss"
    ]
    sizes = [math.inf if size is None else size for size in first]
    largest = [math.inf if each.relative_l2 is None else each.relative_l2 for each in steps.figures]
    spread = max(sizes) - min(sizes) if sizes else math.inf
    same = spread <= max(_SAME_SIZE * max(sizes, default=0.0), FLOAT64_TOLERANCE)
    if not same or max(sizes) > FLOAT32_CONSTANT or max(largest) > _STEPS * FLOAT32_CONSTANT:
        return list(results)
    cause = Float32Constant(distance=max(largest), allowed=_STEPS * FLOAT32_CONSTANT)
    named = msgspec.structs.replace(steps, findings=(Finding(cause=cause), *steps.findings))
    return [named if result is steps else result for result in results]


def _place(failed: Sequence[CheckResult]) -> tuple[CodeSpan, CodeSpan, float] | None:
    """What each model has where values differ first, and by how much; None if that is no constant."""
    causes = [
        (finding, finding.cause)
        for result in failed
        if result.check in ("layers", "forward, training")
        for finding in result.findings
    ]
    for finding, cause in causes:
        if isinstance(cause, SpanDiffers):
            reference, other, distance = cause.reference, cause.other, cause.distance
        elif isinstance(cause, PortLayerDiffers):
            reference = CodeSpan(model=cause.reference.owner, layers=(cause.reference,))
            other = CodeSpan(model=cause.other.owner, layers=(cause.other,))
            distance = finding.figure.relative_l2 if finding.figure else None
        else:
            continue
        layers = (*reference.layers, *other.layers)
        if distance is None or distance > FLOAT32_CONSTANT or any(map(_normalises, layers)):
            return None
        return reference, other, distance
    return None


def _normalises(layer: LayerFacts) -> bool:
    function = layer.name.rpartition(".")[2] if layer.name.endswith("()") else ""
    return "norm" in (layer.kind + layer.type + function).lower() or any(
        name in layer.attributes for name in ("eps", "epsilon")
    )


def _allowed(port: PortComparison, perturbed: Sequence[Gradients]) -> Mapping[CheckGroup, float]:
    """The largest distance that a constant can cause, by group of checks."""
    truth = name_outputs(port.truth.evaluation_pass)
    outputs = [figures(name_outputs(trace), truth) for trace in port.truth.perturbed_passes]
    gradients = []
    if perturbed:
        training = port.randomness is None
        own = port.by_reference_names(port.truth.gradients(training), port.truth.model)
        gradients = [
            gradient_errors(port.by_reference_names(each, port.truth.model), own)
            for each in perturbed
        ]
    of_outputs, of_gradients = _bound(outputs), _bound(gradients)
    return {
        "forward": of_outputs,
        "layers": of_outputs,
        "gradients": of_gradients,
        "trajectory": _STEPS * of_gradients,
    }


def _bound(runs: Sequence[Sequence[Figure]]) -> float:
    sizes = [worst_first(run)[0].relative_l2 or 0.0 for run in runs if run]
    return max(FLOAT32_CONSTANT, PERTURBED_MULTIPLE * max(sizes, default=0.0))


def _explained(result: CheckResult, allowed: Mapping[CheckGroup, float]) -> bool:
    """Whether every tensor of a result is off by no more than a constant can cause."""
    return (
        result.group in allowed
        and bool(result.figures)
        and all(
            item.relative_l2 is not None and item.relative_l2 <= allowed[result.group]
            for item in result.figures
        )
    )
