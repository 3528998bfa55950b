"""Models built in float32: the forward pass of the timed model, gradients, and a few updates."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import CheckResult
from dlb.proof.checks.layers import check_forward_float32, check_weights
from dlb.proof.checks.tolerances import FLOAT32_SMALL, norm_floor
from dlb.proof.checks.updates import check_update_float32
from dlb.proof.distance import norm, pieces
from dlb.proof.reference import Reference
from dlb.proof.run_float64 import Keep, check_gradient_shapes, stopwatch
from dlb.proof.update_batches import UpdateBatches, as_dtype
from dlb.proof.updates import Updates
from dlb.supervision.remote import RemoteModel
from dlb.workload import learning_rate, state_names
from dlb.workload.shapes import trained_names

__all__ = ["batch_gradients", "perturbed_gradient", "prove_float32_updates", "prove_timed_model"]

Array = npt.NDArray[Any]
#: Batches that float32 gradients are compared on: of one sample, so that most meet no kink; or of as
#: many as a step has, where something is normalised over them.
SINGLE_BATCHES, FEW_BATCHES = 8, 3
#: Steps that float32 updates are compared after: the second is the first that momentum shows in.
FEW_STEPS = 2
#: What the same gradient may differ by in float32, in units of its norm, where a step computes it once
#: more in other code.
GRADIENT_NOISE = 1e-6


def batch_gradients(model: RemoteModel, batches: UpdateBatches) -> Iterator[dict[str, Array]]:
    """Loss and gradients of a few small batches, in the model's own dtype."""
    inputs = as_dtype(batches.inputs, model.dtype)
    normalised = state_names(model.workload.model)
    size, count = (batches.batch_size, FEW_BATCHES) if normalised else (1, SINGLE_BATCHES)
    for start in range(0, count * size, size):
        few = slice(start, start + size)
        gradients = model.gradients(inputs[few], batches.labels[few])
        check_gradient_shapes(gradients, model.workload.model)
        yield gradients


def prove_float32_updates(
    model: RemoteModel,
    weights: Mapping[str, Array],
    batches: UpdateBatches,
    adapter: str,
    seed: int,
) -> CheckResult:
    """What a few steps change in a float32 model that has not trained.

    NumPy steps with the adapter's own gradients in float64; and in float32, with gradients moved
    as far as rounding may move them, for what float32 may make of it.
    """
    began = time.perf_counter()
    workload, generator = model.workload, np.random.default_rng(seed)
    start = {name: weights[name] for name in trained_names(workload.model)}
    truth = Updates(workload.optimizer, start)
    float32_baseline = Updates(workload.optimizer, start, "float32")
    inputs = as_dtype(batches.inputs, model.dtype)
    order = batches.order[:FEW_STEPS]
    for step, rows in enumerate(order):
        given_gradients = model.gradients(inputs[rows], batches.labels[rows])
        check_gradient_shapes(given_gradients, workload.model)
        gradients = {name: given_gradients[name] for name in start}
        rate = learning_rate(workload.optimizer, workload.schedule, step)
        truth.step(gradients, rate)
        whole = norm_floor(gradients, FLOAT32_SMALL)
        noisy = {
            name: perturbed_gradient(gradient, whole, generator)
            for name, gradient in gradients.items()
        }
        float32_baseline.step(noisy, rate)
        model.train(batches.path(model.dtype), rows[None], via="memory", first_step=step)
    after = model.weights()[0]
    result = check_update_float32(
        adapter,
        len(order),
        start,
        {name: after[name] for name in start if name in after} | model.optimizer_state(),
        truth.weights | truth.state,
        float32_baseline.weights | float32_baseline.state,
    )
    return msgspec.structs.replace(result, seconds=time.perf_counter() - began)


def perturbed_gradient(gradient: Array, least: float, generator: np.random.Generator) -> Array:
    """A gradient with noise of GRADIENT_NOISE of its norm; zeros stay what they are.

    Args:
        least: of a smaller norm it is noise of GRADIENT_NOISE of this, since what is summed up and
            cancels leaves the rounding of what is summed up.
    """
    size = GRADIENT_NOISE * max(norm([gradient]), least) / math.sqrt(max(gradient.size, 1))
    noisy = np.empty(gradient.size, gradient.dtype)
    done = 0
    for (piece,) in pieces(gradient):
        noise = generator.standard_normal(piece.size)
        noisy[done : done + piece.size] = piece + np.where(piece == 0, 0.0, size * noise)
        done += piece.size
    return noisy.reshape(gradient.shape)


def prove_timed_model(model: RemoteModel, seeded: Reference, adapter: str, keep: Keep) -> None:
    """Weights and the forward pass of the float32 object that is about to be timed."""
    last = seeded.model.nodes[-1].name
    inputs = as_dtype(seeded.inputs, "float32")
    keep(stopwatch(lambda: check_weights(adapter, "float32", model.weights()[0], seeded.weights)))
    keep(
        stopwatch(
            lambda: check_forward_float32(
                adapter,
                seeded.model,
                model.forward(inputs),
                {last: seeded.logits},
                seeded.float32_tolerance,
                seeded.float32_baseline,
                model.native_layers,
            )
        )
    )
