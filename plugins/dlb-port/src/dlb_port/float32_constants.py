"""A difference as small as a constant that a framework keeps in float32, told apart from one in meaning.

Some frameworks compute in float64 with a constant of float32: the slope of a LeakyReLU, the square root in a
GELU, a resize that returns float32. A port that is right deviates then by about 1e-8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec
import numpy as np

from dlb.errors import DlbError
from dlb.proof.certificate import CheckGroup, CheckResult
from dlb.proof.checks.float32 import gradient_errors
from dlb.proof.findings import Figure, Finding, LayerFacts
from dlb_graph.comparing.distance import figures, worst_first
from dlb_graph.comparing.tolerances import FLOAT32_CONSTANT, FLOAT64_TOLERANCE, PERTURBED_MULTIPLE
from dlb_port.check_tables import PORT
from dlb_port.comparison import PortComparison
from dlb_port.culprit import name_outputs
from dlb_port.findings import port as port_causes
from dlb_worker.contract import LayerCall

__all__ = ["narrow_layers", "with_constants_named"]

#: Factors whose relative difference is at most this are the same.
_SAME_SIZE = 0.05
#: How much further on a difference may grow, at least, before another is blamed.
_GROWTH = 64
#: A relative change that float64 holds and float32 does not.
_NUDGE = 1e-12
#: Steps of a trajectory add up what one gradient is off by.
_STEPS = 5


def with_constants_named(results: Sequence[CheckResult], port: PortComparison) -> list[CheckResult]:
    """Results of a port with a finding in those that failed, if a constant in float32 explains them all.

    That is so if the first values that differ do so by one rounding to float32, where their layers read the
    same; if all that follows is off by no more than what rounding the weights does; and if float32 agrees.
    A normalisation is left out, since its epsilon may move values as little, unless it computes in float32
    itself.

    Args:
        results: of one model, in float64 and in float32.
    """
    failed = [result for result in results if result.verdict == "failed"]
    if {result.group for result in failed} == {"update"}:
        return _with_rate_named(results)
    place = _place(failed)
    allowed = _allowed(port)
    if place is not None and not port.narrow and any(map(_normalises, _layers(*place[:2]))):
        return list(results)
    if place is None:
        return list(results)
    if not all(_explained(result, allowed) for result in failed):
        return [_with_place_beyond(result, port, allowed["layers"], place) for result in results]
    reference, other, distance = place
    named = []
    for result in results:
        if result.verdict == "failed":
            first = result is failed[0]
            kind = port_causes.ComputesInFloat32 if port.narrow else port_causes.Float32Constant
            cause = kind(
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
    place: tuple[port_causes.CodeSpan, port_causes.CodeSpan, float],
) -> CheckResult:
    """A result whose place is the first value past what a constant in float32 can move.

    Something else differs, too, and further on.
    """
    reference, other, distance = place
    # What moves values by this much there moves those behind it by no more than its share of the bound.
    share = max(_GROWTH * distance, allowed * distance / FLOAT32_CONSTANT, FLOAT64_TOLERANCE)
    allowed = min(allowed, share)
    places = (port_causes.SpanDiffers, port_causes.PortLayerDiffers)
    located = [isinstance(each.cause, places) for each in result.findings]
    if result.verdict != "failed" or not any(located):
        return result
    beyond = port.layers_beyond(allowed, training=bool(PORT[result.check].evaluation))
    if not beyond:
        return result
    before = port_causes.ConstantBefore(
        reference=reference, other=other, distance=distance, allowed=allowed
    )
    others = [each for each, is_place in zip(result.findings, located) if not is_place]
    findings = (*beyond, Finding(cause=before), *others)
    return msgspec.structs.replace(result, findings=findings)


def _with_rate_named(results: Sequence[CheckResult]) -> list[CheckResult]:
    """Results of which own steps alone failed, named if a rate or a momentum in float32 explains that.

    Then every change of the first step is off by the same factor, or by none. Another epsilon moves each
    differently.
    """
    (steps,) = (result for result in results if result.verdict == "failed")
    sizes = [
        item.distance for item in steps.figures if "," not in item.tensor and item.tensor != "loss"
    ]
    largest = [each.distance for each in steps.figures]
    spread = max(sizes) - min(sizes) if sizes else math.inf
    same = spread <= max(_SAME_SIZE * max(sizes, default=0.0), FLOAT64_TOLERANCE)
    if not same or max(sizes) > FLOAT32_CONSTANT or max(largest) > _STEPS * FLOAT32_CONSTANT:
        return list(results)
    cause = port_causes.Float32Constant(distance=max(largest), allowed=_STEPS * FLOAT32_CONSTANT)
    named = msgspec.structs.replace(steps, findings=(Finding(cause=cause), *steps.findings))
    return [named if result is steps else result for result in results]


def _place(
    failed: Sequence[CheckResult],
) -> tuple[port_causes.CodeSpan, port_causes.CodeSpan, float] | None:
    """What each model has where values differ first, and by how much; None if that is no constant."""
    causes = [
        (finding, finding.cause)
        for result in failed
        if result.group == "layers" or PORT[result.check].evaluation
        for finding in result.findings
    ]
    for finding, cause in causes:
        if isinstance(cause, port_causes.SpanDiffers):
            reference, other, distance = cause.reference, cause.other, cause.distance
        elif isinstance(cause, port_causes.PortLayerDiffers):
            reference = port_causes.CodeSpan(model=cause.reference.owner, layers=(cause.reference,))
            other = port_causes.CodeSpan(model=cause.other.owner, layers=(cause.other,))
            distance = finding.figure.relative_l2 if finding.figure else None
        else:
            continue
        if distance is None or distance > FLOAT32_CONSTANT:
            return None
        return reference, other, distance
    return None


def narrow_layers(port: PortComparison, results: Sequence[CheckResult]) -> bool:
    """Whether the normalisations where values differ first compute in float32, in either model.

    Then they do not notice what float32 does not hold: their inputs are moved by less than that, and nearly all
    of their outputs keep every bit.

    Args:
        results: of one model in float64, whose workers are asked.
    """
    place = _place([result for result in results if result.verdict == "failed"])
    if place is None or not any(map(_normalises, _layers(*place[:2]))):
        return False
    nudged = {
        name: array * (1 + _NUDGE) if array.dtype.kind == "f" else array
        for name, array in port.truth.inputs.items()
    }
    for model, span in zip((port.truth.model, port.model), place[:2]):
        names = [layer.name for layer in span.layers if layer.name in model.remote.layers]
        with suppress(DlbError):
            passes = [model.forward(inputs, layers=names) for inputs in (port.truth.inputs, nudged)]
            if any(map(_notices_nothing, *(each.calls for each in passes))):
                return True
    return False


def _notices_nothing(before: LayerCall, after: LayerCall) -> bool:
    arrays = (before.inputs, after.inputs, before.output, after.output)
    if not before.layer or any(array is None for array in arrays):
        return False
    read, read_again, made, made_again = map(np.asarray, arrays)
    return bool(np.mean(read != read_again) > 0.5 and np.mean(made != made_again) < 0.1)


def _layers(*spans: port_causes.CodeSpan) -> tuple[LayerFacts, ...]:
    return tuple(layer for span in spans for layer in span.layers)


def _normalises(layer: LayerFacts) -> bool:
    function = layer.name.rpartition(".")[2] if layer.name.endswith("()") else ""
    return "norm" in (layer.kind + layer.type + function).lower() or any(
        name in layer.attributes for name in ("eps", "epsilon")
    )


def _allowed(port: PortComparison) -> Mapping[CheckGroup, float]:
    """The largest distance that a constant can cause, by group of checks."""
    truth = name_outputs(port.truth.evaluation_pass)
    outputs = [figures(name_outputs(trace), truth) for trace in port.truth.perturbed_passes]
    gradients = [
        gradient_errors(perturbed, port.exact_gradients) for perturbed in port.perturbed_gradients
    ]
    of_outputs, of_gradients = _bound(outputs), _bound(gradients)
    of_steps = _STEPS * of_gradients
    own = (of_outputs, of_outputs, of_gradients, of_steps)
    return dict(zip(("forward", "layers", "gradients", "trajectory"), own))


def _bound(runs: Sequence[Sequence[Figure]]) -> float:
    sizes = [worst_first(run)[0].relative_l2 or 0.0 for run in runs if run]
    return max(FLOAT32_CONSTANT, PERTURBED_MULTIPLE * max(sizes, default=0.0))


def _explained(result: CheckResult, allowed: Mapping[CheckGroup, float]) -> bool:
    """Whether every tensor of a result is off by no more than a constant can cause."""
    return (
        result.group in allowed
        and bool(result.figures)
        and all(item.distance <= allowed[result.group] for item in result.figures)
    )
