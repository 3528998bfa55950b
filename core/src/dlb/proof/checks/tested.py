"""``audit, test``: the logits of a test of the timed model, against the truth at the weights of that moment.

A test computes in another way than a step: it may be left in training mode, or take another batch's logits.
In evaluation mode no sample depends on another, so single samples of many batches are compared.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import CheckResult
from dlb.proof.engine import Check
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.audit import LogitsAudited, LogitsDiffer
from dlb.proof.findings.workload import TrainedNotFinite
from dlb.proof.rounding import FLOAT32, Rounding, to_bfloat16
from dlb_graph.comparing.distance import figure, norm, passes, worst_first
from dlb_graph.comparing.tolerances import EXPORT_TOLERANCES, FLOAT32_MOST

if TYPE_CHECKING:
    from onnx import ModelProto

    from dlb_graph.truth.evaluate import Evaluator

__all__ = ["TESTED_SAMPLES", "DrawnTest", "check_tests", "draw_samples"]

Array = npt.NDArray[Any]
#: Samples of a test that are compared, if NumPy computes so many in some seconds.
TESTED_SAMPLES = 64


@dataclass(frozen=True)
class DrawnTest:
    """A test of the timed model.

    Attributes:
        step: how many steps the model had taken.
        weights: its weights and states then, by ``layer.parameter``.
        logits: of every sample, as the adapter told them.
        batch_size: samples that it computed at once, in their order.
    """

    step: int
    weights: Mapping[str, Array]
    logits: Array
    batch_size: int


def draw_samples(count: int, batch_size: int, most: int, generator: random.Random) -> list[int]:
    """Samples of a test, of as many batches as there can be, the last one among them."""
    batches = range(0, count, batch_size)
    starts = {batches[-1], *generator.sample(batches, min(most - 1, len(batches)))}
    drawn = {generator.randrange(start, min(start + batch_size, count)) for start in starts}
    others = [sample for sample in range(count) if sample not in drawn]
    return sorted(drawn | {*generator.sample(others, min(most, count) - len(drawn))})


def check_tests(
    check: Check,
    canonical: ModelProto,
    inputs: Array,
    tests: Iterable[DrawnTest],
    most: int,
    generator: random.Random,
    rounding: Rounding = FLOAT32,
) -> CheckResult:
    """Compare logits of drawn samples with the canonical graph's in float64.

    Args:
        canonical: the canonical graph. It holds other weights.
        inputs: of every sample, in canonical layout and in the dtype of the model.
        tests: of which samples are compared.
        most: how many samples of each, at most.
        rounding: the type that a model in float32 computes in.
    """
    findings: list[Finding] = []
    compared: list[tuple[Figure, float]] = []
    samples = batches = count = 0
    for test in tests:
        rows = draw_samples(len(inputs), test.batch_size, most, generator)
        own = test.logits[rows]
        exact, allowed = _truth(canonical, inputs[rows], test.weights, own, rounding)
        if not np.isfinite(exact).all():
            return check.not_run(Finding(cause=TrainedNotFinite()))
        errors = _errors(own, exact)
        worst = worst_first(errors)[0]
        compared.append((worst, allowed))
        wrong = [
            row // test.batch_size for row, error in zip(rows, errors) if error.distance > allowed
        ]
        if wrong:
            cause = LogitsDiffer(
                step=test.step,
                batch=wrong[0],
                batches=len({*wrong}),
                samples=len(wrong),
                compared=len(rows),
            )
            findings.append(Finding(cause=cause, figure=worst, tolerance=allowed))
        count += 1
        samples += len(rows)
        batches += len({row // test.batch_size for row in rows})
    audited = LogitsAudited(tests=count, samples=samples, batches=batches)
    ordered = sorted(
        compared,
        key=lambda pair: pair[0].distance / pair[1],
        reverse=True,
    )
    figures = tuple(worst for worst, _ in ordered)
    passed = bool(compared) and not findings
    tolerance = ordered[0][1] if ordered else None
    return check.result(figures, tolerance, (*findings, Finding(cause=audited)), passed=passed)


def _errors(own: Array, exact: Array) -> list[Figure]:
    """The distance of each sample's logits; small ones are relative to those of a typical sample."""
    typical = norm([exact]) / max(len(exact), 1) ** 0.5
    return [figure("logits", *pair, typical) for pair in zip(own, exact)]


def _truth(
    canonical: ModelProto,
    inputs: Array,
    weights: Mapping[str, Array],
    own: Array,
    rounding: Rounding,
) -> tuple[Array, float]:
    """Logits in float64, and how far each sample's may be from them.

    Where they are further than two right computations of most networks, rounding decides: that of the canonical
    graph in the type of the model, by NumPy.
    """
    from onnx import TensorProto

    from dlb.proof.checks.export_rounding import input_names
    from dlb_graph.truth.evaluate import Evaluator
    from dlb_graph.truth.precision import in_precision

    feeds = {input_names(canonical)[0]: inputs, **weights}
    output = canonical.graph.output[0].name

    def evaluate(evaluator: Evaluator, given: Mapping[str, Array]) -> Array:
        return evaluator.run(dict(given))[output]

    double = Evaluator(in_precision(canonical, TensorProto.DOUBLE))
    exact = evaluate(double, feeds)
    if own.dtype == np.float64:
        return exact, EXPORT_TOLERANCES["float64"]
    least = EXPORT_TOLERANCES["float32"] if rounding is FLOAT32 else 0.0
    if passes(tuple(_errors(own, exact)), least):
        return exact, least
    if rounding is FLOAT32:
        rounded = evaluate(Evaluator(canonical), feeds)
    else:
        rounded = evaluate(double, {name: to_bfloat16(array) for name, array in feeds.items()})
    errors = [error.relative_l2 or 0.0 for error in _errors(rounded, exact)]
    allowed = rounding.multiple * max(*errors, rounding.least)
    return exact, max(least, min(allowed, FLOAT32_MOST) if rounding is FLOAT32 else allowed)
