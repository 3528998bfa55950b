"""``update float32``: the changes of a few steps in a model built in float32."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import CheckResult
from dlb.proof.checks.backward import check_gradient_shapes
from dlb.proof.checks.float32 import judge_multiples
from dlb.proof.checks.updates import Steps, change_figures, shows_change
from dlb.proof.engine import Check, Keep, run
from dlb.proof.findings import Finding
from dlb.proof.findings.common import StepsCompared
from dlb.proof.findings.workload import NoWeightMoves
from dlb.proof.reference import Reference
from dlb.proof.update_batches import UpdateBatches, as_dtype
from dlb.supervision.remote import RemoteModel
from dlb_graph.comparing.distance import norm, pieces
from dlb_graph.comparing.tolerances import FLOAT32_LEAST, FLOAT32_SMALL, Tensors, norm_floor
from dlb_graph.comparing.updates import Updates
from dlb_graph.workload import learning_rate, state_names
from dlb_graph.workload.shapes import trained_names

__all__ = ["GRADIENT_NOISE", "check_update_float32", "perturbed_gradient", "prove_float32_updates"]

Array = npt.NDArray[Any]
#: Steps of the float32 trajectory. Momentum has its first effect in the second step.
FEW_STEPS = 2
_DTYPES: tuple[Literal["float64", "float32"], ...] = ("float64", "float32")
#: Relative difference of the same float32 gradient, if a training step computes it with other code.
GRADIENT_NOISE = 1e-6


def prove_float32_updates(
    model: RemoteModel,
    reference: Reference,
    batches: UpdateBatches,
    adapter: str,
    seed: int,
    keep: Keep,
    *notes: Finding,
) -> None:
    """Compare the changes of a few steps in a new float32 model with NumPy's.

    NumPy takes the same steps with the adapter's own gradients twice. In float64 they give the reference. In
    float32, with gradients perturbed as far as rounding does, they give the unavoidable error.

    Args:
        notes: facts about the comparison.
    """
    check = Check.of("update float32", adapter)
    result = run(check, lambda check: _step(check, model, reference, batches, seed))
    keep(msgspec.structs.replace(result, findings=(*result.findings, *notes)))


def _step(
    check: Check, model: RemoteModel, reference: Reference, batches: UpdateBatches, seed: int
) -> CheckResult:
    workload, generator = model.workload, np.random.default_rng(seed)
    weights, states = reference.weights, state_names(workload.model)
    start = {name: weights[name] for name in trained_names(workload.model)}
    truth, taken = Updates(workload.optimizer, start), Steps(workload, start)
    float32_baseline = Updates(workload.optimizer, start, "float32")
    inputs, labels = (as_dtype(each, model.dtype) for each in (batches.inputs, batches.labels))
    order = batches.order[:FEW_STEPS]
    before: Mapping[str, Array] = weights
    for step, rows in enumerate(order):
        if states and step == len(order) - 1:
            before = model.weights()[0]
        given_gradients = model.step_gradients(inputs[rows], labels[rows])
        check_gradient_shapes(given_gradients, workload.model)
        gradients = {name: given_gradients[name] for name in start}
        number = batches.numbers[step]
        rate = learning_rate(workload.optimizer, workload.schedule, number)
        truth.step(gradients, rate)
        taken.add(number, gradients)
        whole = norm_floor(gradients, FLOAT32_SMALL)
        noisy = {
            name: perturbed_gradient(gradient, whole, generator)
            for name, gradient in gradients.items()
        }
        float32_baseline.step(noisy, rate)
        model.train(
            batches.path(model.dtype),
            rows[None],
            input_mode="memory",
            first_step=step,
            numbers=(number,),
        )
    held, compared = model.weights_and_slots(), {*start, *states}
    # Neither what is not trained nor statistics that do not move.
    after = {name: held[name] for name in held if name in compared or name not in weights}
    running: list[dict[str, Array]] = [{}, {}]
    if states:  # those of the last step, from the values before it
        rows = order[-1]
        parts = workload.optimizer.accumulate
        running = [reference.running(before, inputs[rows], dtype, parts) for dtype in _DTYPES]
    result = check_update_float32(
        check,
        len(order),
        start | {name: before[name] for name in states},
        after,
        truth.weights | truth.state | running[0],
        float32_baseline.weights | float32_baseline.state | running[1],
    )
    return taken.explained(result, after)


def check_update_float32(
    check: Check, steps: int, start: Tensors, after: Tensors, truth: Tensors, baseline: Tensors
) -> CheckResult:
    """Compare the changes of a few float32 steps with the definition of the optimizer.

    Args:
        start: float64 weights before the first step.
        after: float32 weights and state (``layer.parameter.slot``) after the last step.
        truth: the same in float64, from NumPy with the adapter's own gradients.
        baseline: the same in float32, from NumPy.
    """
    if not shows_change(start, truth):
        return check.not_run(Finding(cause=NoWeightMoves(steps=steps)))
    rounding = {
        change.tensor: change.relative_l2 for change in change_figures(start, baseline, truth)
    }
    compared = change_figures(start, after, truth)
    allowed = {
        change.tensor: max(rounding.get(change.tensor) or 0.0, FLOAT32_LEAST) for change in compared
    }
    note = Finding(cause=StepsCompared(steps=steps))
    return judge_multiples(check, compared, allowed, "numpy_float32", note)


def perturbed_gradient(gradient: Array, least: float, generator: np.random.Generator) -> Array:
    """A gradient with noise, relative to its norm by :data:`GRADIENT_NOISE`; zeros stay zeros.

    Args:
        least: the least norm that noise is relative to. Sums that cancel have the rounding error of their
            terms.
    """
    size = GRADIENT_NOISE * max(norm([gradient]), least) / math.sqrt(max(gradient.size, 1))
    noisy = np.empty(gradient.size, gradient.dtype)
    done = 0
    for (piece,) in pieces(gradient):
        noise = generator.standard_normal(piece.size)
        noisy[done : done + piece.size] = piece + np.where(piece == 0, 0.0, size * noise)
        done += piece.size
    return noisy.reshape(gradient.shape)
