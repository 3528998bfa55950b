"""Models built in float64 for the proof: weights, layers, gradients and native dropout."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
import numpy.typing as npt

from dlb.errors import PluginError
from dlb.proof.certificate import CheckGroup, CheckResult, not_run
from dlb.proof.checks.dropout import check_dropout
from dlb.proof.checks.gradients import check_slopes
from dlb.proof.checks.layers import (
    ISOLATED,
    check_forward,
    check_isolated_layers,
    check_weights,
    missing_layers,
)
from dlb.proof.reference import Reference
from dlb.proof.update_batches import as_dtype
from dlb.samples import noise
from dlb.supervision.remote import RemoteModel
from dlb.workload import Dropout, Model, infer_shapes, parameter_shapes
from dlb.workload.shapes import trained_names

__all__ = ["Keep", "check_gradient_shapes", "prove_dropout", "prove_float64", "stopwatch"]

Array = npt.NDArray[Any]
#: Takes each result as it is made, so that none is lost to what comes after it.
Keep = Callable[[CheckResult], None]
#: Elements that a native dropout should drop, so that their number tells its rate to about a tenth of
#: it; and the least and the most samples that are taken for that.
DROPPED, LEAST_SAMPLES, MOST_SAMPLES = 2048, 16, 256


def stopwatch(check: Callable[[], CheckResult]) -> CheckResult:
    """A result with what it cost."""
    began = time.perf_counter()
    result = check()
    return msgspec.structs.replace(result, seconds=time.perf_counter() - began)


def prove_float64(
    model: RemoteModel,
    reference: Reference,
    adapter: str,
    seed: int,
    groups: Collection[CheckGroup],
    keep: Keep,
    *,
    training: bool = True,
) -> dict[str, Array]:
    """Weights, forward in both modes, isolated layers, and gradients of a model built in float64.

    Args:
        training: whether what training mode does can be compared.

    Returns:
        its gradients, for the comparison with other adapters; none where no group asks for them.
    """
    if "weights" in groups:
        keep(
            stopwatch(
                lambda: check_weights(adapter, "float64", model.weights()[0], reference.weights)
            )
        )
    if {"forward", "layers"} & set(groups):
        for mode in (False, True) if training else (False,):
            _prove_layers(model, reference, adapter, mode, keep)
    if "gradients" not in groups or not training:
        return {}
    gradients = model.gradients(as_dtype(reference.inputs, "float64"), reference.labels)
    check_gradient_shapes(gradients, reference.model)
    parameters = {name: own for name, own in gradients.items() if name not in ("loss", "input")}
    inputs = gradients.get("input")
    keep(stopwatch(lambda: check_slopes(adapter, reference.slopes(parameters, inputs, seed))))
    return gradients


def _prove_layers(
    model: RemoteModel, reference: Reference, adapter: str, training: bool, keep: Keep
) -> None:
    """Every layer's value in one mode: as errors accumulate, and each layer isolated."""
    mode = ", training" if training else ""
    truth = reference.training_layers if training else reference.layers
    values: dict[str, Array] = {}

    def forward() -> CheckResult:
        inputs = as_dtype(reference.inputs, "float64")
        values.update(model.forward(inputs, training=training, layers=list(truth)))
        name = f"forward float64{mode}"
        return check_forward(adapter, name, reference.model, values, truth, model.native_layers)

    def isolated() -> CheckResult:
        name = f"isolated layers{mode}"
        if missing := missing_layers(values, truth):
            return not_run(name, "layers", adapter, ISOLATED, missing)
        canonical = reference.isolated_layers(values, training=training)
        return check_isolated_layers(
            adapter, name, reference.model, values, canonical, model.native_layers
        )

    keep(stopwatch(forward))
    keep(stopwatch(isolated))


def prove_dropout(
    model: RemoteModel, described: Model, adapter: str, seed: int, keep: Keep
) -> None:
    """What dropouts draw by themselves, of a model built in float64 that was given no masks."""
    shapes, source = infer_shapes(described), described.input.name
    drops = [
        (node, math.prod(shapes[node.name]) * node.layer.rate)
        for node in described.wired()
        if isinstance(node.layer, Dropout) and node.layer.rate > 0
    ]
    # As many samples as it takes for the least of them to drop enough.
    needed = math.ceil(DROPPED / min(dropped for _, dropped in drops))
    samples = max(LEAST_SAMPLES, min(needed, MOST_SAMPLES))
    layers = {name for node, _ in drops for name in (node.name, *node.inputs)} - {source}

    def draw() -> CheckResult:
        inputs = as_dtype(noise(described, seed, samples), "float64")
        first, second, evaluated = (
            {source: inputs, **model.forward(inputs, training=training, layers=sorted(layers))}
            for training in (True, True, False)
        )
        return check_dropout(adapter, described, first, second, evaluated, model.native_layers)

    keep(stopwatch(draw))


def check_gradient_shapes(gradients: Mapping[str, Array], model: Model) -> None:
    """See that no gradient is left out, which nothing that is there could tell.

    Raises:
        PluginError: the adapter gave others than the contract asks for.
    """
    shapes = parameter_shapes(model)
    expected = {name: shapes[name] for name in trained_names(model)}
    if model.input.kind == "real":
        expected["input"] = model.input.shape
    for name in {**expected, **gradients}:
        if name == "loss":
            continue
        if name not in gradients or name not in expected:
            kind = "no" if name in expected else "a needless"
            raise PluginError(f"its adapter gave {kind} gradient of '{name}'")
        array = gradients[name]
        shape = array.shape[1:] if name == "input" else array.shape
        if shape != expected[name]:
            raise PluginError(
                f"its adapter gave a gradient of shape {list(shape)} of '{name}', which has shape "
                f"{list(expected[name])}"
            )
