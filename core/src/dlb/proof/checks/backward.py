"""``gradients float64`` and ``gradients float32``: every gradient, compared with the truth's backward pass.

The backward pass of the truth starts from the values of layers that the subject computed. So both are on the
same side of every kink, and rounding in the forward pass is no error of the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.checks.gradients import check_gradient_shapes
from dlb.proof.checks.layers import layer_facts, missing_layers
from dlb.proof.distance import figure, passes, worst_first
from dlb.proof.engine import Check
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.workload import GradientsDiffer
from dlb.proof.reference import Reference
from dlb.proof.tolerances import FLOAT64_TOLERANCE, SMALL, Tensors, norm_floor
from dlb.proof.update_batches import as_dtype
from dlb.supervision.remote import RemoteModel
from dlb.workload import Model, infer_shapes

__all__ = [
    "BACKWARD",
    "check_gradients",
    "gradient_figures",
    "missing_values",
    "nearest_the_loss",
    "own_gradients",
    "step_gradients",
]

Array = npt.NDArray[Any]
BACKWARD = Baseline(kind="canonical_backward")


def own_gradients(model: RemoteModel, reference: Reference) -> dict[str, Array]:
    """The adapter's loss and gradients on the reference's batch.

    Raises:
        PluginError: the adapter returned other gradients than the contract requires.
    """
    return _checked(model, reference, model.gradients)


def step_gradients(model: RemoteModel, reference: Reference) -> dict[str, Array]:
    """As :func:`own_gradients`, of a step, which may take the batch in parts."""
    return _checked(model, reference, model.step_gradients)


def _checked(
    model: RemoteModel,
    reference: Reference,
    gradients_of: Callable[[Array, Array], dict[str, Array]],
) -> dict[str, Array]:
    inputs, labels = (as_dtype(each, model.dtype) for each in (reference.inputs, reference.labels))
    gradients = gradients_of(inputs, labels)
    check_gradient_shapes(gradients, reference.model)
    return gradients


def check_gradients(
    check: Check,
    model: RemoteModel,
    reference: Reference,
    values: Tensors,
    gradients: Tensors,
    *notes: Finding,
) -> CheckResult:
    """Compare the loss and every gradient in float64 with the truth's.

    Args:
        values: every layer's value in training mode, as the adapter computed it.
        gradients: ``loss``, ``input`` and parameters, by name.
        notes: facts about the comparison.
    """
    if missing := missing_values(values, reference):
        return check.not_run(missing)
    compared = gradient_figures(gradients, reference.gradients(values))
    finding = nearest_the_loss(reference.model, compared, FLOAT64_TOLERANCE, model.native_layers)
    return check.result(compared, FLOAT64_TOLERANCE, (finding, *notes))


def missing_values(values: Tensors, reference: Reference) -> Finding | None:
    """Values without which the truth has no backward pass; None if none is missing."""
    shapes = infer_shapes(reference.model)
    expected = {
        node.name: np.empty((len(reference.inputs), *shapes[node.name]), np.bool_)
        for node in reference.model.nodes
    }
    return missing_layers(values, expected)


def gradient_figures(
    gradients: Tensors, truth: Tensors, share: float = SMALL
) -> tuple[Figure, ...]:
    """Distances of the loss and of every gradient, worst first.

    Args:
        share: of the norm of all gradients together; a smaller gradient is relative to that.
    """
    least = norm_floor(truth, share)
    nothing = np.full(1, np.nan)
    return worst_first(
        figure(name, gradients.get(name, nothing), array, 0.0 if name == "loss" else least)
        for name, array in truth.items()
    )


def nearest_the_loss(
    model: Model, compared: Iterable[Figure], tolerance: float, native: Mapping[str, str]
) -> Finding | None:
    """The failing gradient that is nearest the loss: what is wrong lies in its layer or behind it.

    Args:
        compared: figures by tensor.
        tolerance: the largest distance that passes.
        native: the framework's description of each layer, by name.
    """
    failing = {item.tensor: item for item in compared if not passes((item,), tolerance)}
    if not failing:
        return None
    order = {node.name: place for place, node in enumerate(model.nodes)}
    places = {name: order.get(name.split(".")[0], -1) for name in failing}
    tensor = "loss" if "loss" in failing else max(places, key=lambda name: places[name])
    layer = tensor.split(".")[0]
    return Finding(
        cause=GradientsDiffer(tensor=tensor),
        layer=layer_facts(model, layer, native) if layer in order else None,
        figure=failing[tensor],
        tolerance=tolerance,
    )
