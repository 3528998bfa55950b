"""The rounding errors of float32: of a built model's forward pass, and of gradients.

Each subject is compared with float64, and its error with the smallest error. Subjects are not compared with
each other, since two that round equally would prove each other. :mod:`dlb.proof.checks.float32_layers` has the
layers and gradients of built models.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import CheckResult
from dlb.proof.checks.built import given_weights
from dlb.proof.checks.layers import layer_values
from dlb.proof.engine import Check, Keep, judge, judged, run
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.workload import ConstantLogits, ErrorMultiple, Float32Baseline
from dlb.proof.reference import Reference
from dlb.proof.rounding import FLOAT32, Rounding
from dlb.proof.subject import Sides
from dlb.proof.update_batches import as_dtype
from dlb.supervision.remote import RemoteModel
from dlb_graph.comparing.distance import figure, figures, worst_first
from dlb_graph.comparing.tolerances import (
    FLOAT32_LEAST,
    FLOAT32_MULTIPLE,
    FLOAT32_SMALL,
    ROUNDED,
    Tensors,
    norm_floor,
)
from dlb_graph.workload import Model

__all__ = ["float32_logits", "gradient_errors", "judge_multiples", "prove_timed_model"]

Array = npt.NDArray[Any]


def prove_timed_model(
    model: RemoteModel, seeded: Reference, adapter: str, keep: Keep, rounding: Rounding = FLOAT32
) -> None:
    """Check the weights and the forward pass of the float32 model, before it is timed.

    Args:
        rounding: the type that it computes in.
    """
    last = seeded.model.nodes[-1].name
    inputs = as_dtype(seeded.inputs, "float32")

    def weights() -> Sides:
        return given_weights(model.weights()[0], seeded.weights, "float32")

    def forward(check: Check) -> CheckResult:
        values, truth = model.forward(inputs), {last: seeded.logits}
        if rounding is FLOAT32:
            tolerance, baseline = seeded.float32_tolerance, seeded.float32_baseline
            return judge(
                check,
                float32_logits(
                    seeded.model, values, truth, tolerance, baseline, model.native_layers
                ),
            )
        error = max(rounding.logits_error(seeded), rounding.least)
        compared = figures(values, truth)
        return judge_multiples(
            check, compared, {last: error}, rounding.of, allowed=rounding.multiple
        )

    keep(run(Check.of("weights float32", adapter), judged(weights)))
    keep(run(Check.of(f"forward {rounding.name}", adapter), forward))


def float32_logits(
    model: Model,
    values: Tensors,
    truth: Tensors,
    tolerance: float,
    float32_baseline: float,
    native: Mapping[str, str],
) -> Sides:
    """The logits of a float32 forward pass, and the canonical graph's in float64.

    Args:
        float32_baseline: relative L2 error of ONNX Runtime's logits of the canonical graph.
        native: the framework's description of each layer, by name.
    """
    finite = float32_baseline if np.isfinite(float32_baseline) else None
    facts = [Finding(cause=Float32Baseline(distance=finite))]
    if all(len(array) > 1 and (array == array[:1]).all() for array in truth.values()):
        facts.append(Finding(cause=ConstantLogits()))
    return layer_values(model, values, truth, native, tolerance, tuple(facts))


def gradient_errors(gradients: Tensors, truth: Tensors) -> tuple[Figure, ...]:
    """Errors of one batch's loss and gradients against those in float64, worst first.

    The error of a gradient that is zero is relative to the whole gradient.
    """
    whole = norm_floor(truth, 1.0)
    nothing = np.full(1, np.nan)
    return worst_first(
        figure(
            name,
            gradients.get(name, nothing),
            array,
            whole if np.linalg.norm(array) <= ROUNDED * whole else FLOAT32_SMALL * whole,
        )
        for name, array in truth.items()
    )


def judge_multiples(
    check: Check,
    compared: Iterable[Figure],
    errors: Mapping[str, float],
    of: Literal["best_adapter", "numpy_float32", "numpy_bfloat16"],
    *notes: Finding,
    allowed: float = FLOAT32_MULTIPLE,
) -> CheckResult:
    """Judge each figure as a multiple of its tensor's own error, the largest multiple first.

    Each tensor has its own tolerance, so the tolerance of the result is that of the first figure.

    Args:
        errors: by tensor.
        allowed: how many times as much passes.
        of: whose errors they are.
        notes: facts about the comparison.
    """

    def multiple(error: Figure) -> float:
        return error.distance / errors[error.tensor]

    ordered = tuple(sorted(compared, key=multiple, reverse=True))
    worst = ordered[0] if ordered else None
    largest = multiple(worst) if worst else 0.0
    tolerance = allowed * (errors[worst.tensor] if worst else FLOAT32_LEAST)
    cause = ErrorMultiple(
        of=of, multiple=largest if math.isfinite(largest) else None, allowed=allowed
    )
    findings = (Finding(cause=cause, figure=worst, tolerance=tolerance), *notes)
    passed = bool(ordered) and largest <= allowed
    return check.result(ordered, tolerance, findings, passed=passed)
