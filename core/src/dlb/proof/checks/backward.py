"""Every gradient of a built model, next to the truth's backward pass, and to finite differences.

The backward pass of the truth starts from the values of layers that the subject computed. So both are on the
same side of every kink, and rounding in the forward pass is no error of the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.errors import PluginError
from dlb.proof.checks.layers import layer_facts, missing_layers
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.workload import DifferenceSteps, GradientsDiffer, Otherwise
from dlb.proof.reference import Reference, Slope
from dlb.proof.subject import Sides
from dlb.proof.update_batches import as_dtype
from dlb.supervision.remote import RemoteModel
from dlb_graph.comparing.distance import figure, passes, worst_first
from dlb_graph.comparing.near_gradients import gradients_otherwise, loss_otherwise
from dlb_graph.comparing.tolerances import (
    FLOAT64_TOLERANCE,
    SLOPE_TOLERANCE,
    SMALL,
    Tensors,
    norm_floor,
)
from dlb_graph.truth.backward import Altered
from dlb_graph.workload import Model, infer_shapes, parameter_shapes
from dlb_graph.workload.shapes import trained_names

__all__ = [
    "backward_otherwise",
    "check_gradient_shapes",
    "gradient_figures",
    "loss_gradients",
    "missing_values",
    "nearest_the_loss",
    "own_gradients",
    "slope_sides",
    "step_gradients",
]

Array = npt.NDArray[Any]


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


def loss_gradients(
    model: RemoteModel,
    reference: Reference,
    values: Tensors,
    gradients: Tensors,
    *notes: Finding,
) -> Sides:
    """The loss and every gradient in float64, and the truth's.

    Args:
        values: every layer's value in training mode, as the adapter computed it.
        gradients: ``loss``, ``input`` and parameters, by name.
        notes: facts about the comparison.
    """
    if missing := missing_values(values, reference):
        return Sides(tolerance=FLOAT64_TOLERANCE, doubts=(missing,))

    def locate(compared: tuple[Figure, ...]) -> tuple[Finding, ...]:
        native = model.native_layers
        finding = nearest_the_loss(reference.model, compared, FLOAT64_TOLERANCE, native)
        if finding is None:
            return ()
        return (finding, *backward_otherwise(reference, values, gradients))

    compared = gradient_figures(gradients, reference.gradients(values))
    return Sides(figures=compared, tolerance=FLOAT64_TOLERANCE, facts=notes, locate=locate)


def backward_otherwise(
    reference: Reference,
    values: Tensors,
    gradients: Tensors,
    tolerance: float = FLOAT64_TOLERANCE,
    weights: Tensors | None = None,
) -> tuple[Finding, ...]:
    """What of the loss or of the backward pass was otherwise, if one thing explains all gradients.

    Args:
        values, gradients: as :func:`loss_gradients`.
        tolerance: what is nearer is what was computed.
        weights: by ``layer.parameter``; the reference's if left out.
    """
    model, loss, labels = reference.model, reference.loss, reference.labels
    outputs, own = values[model.nodes[-1].name].astype(np.float64), float(gradients["loss"])
    meant = loss.value_and_gradient(outputs, labels)[0]
    if not abs(own - meant) <= tolerance * abs(meant):
        fields = loss_otherwise(loss, outputs, labels, own, tolerance)
    else:
        compute = partial(_altered, reference, values, weights)
        fields = gradients_otherwise(model, gradients, compute, tolerance)
    return (Finding(cause=Otherwise(fields=fields)),) if fields else ()


def _altered(
    reference: Reference, values: Tensors, weights: Tensors | None, altered: Altered | None
) -> Tensors:
    return reference.gradients(values, weights, altered=altered)


def slope_sides(slopes: Mapping[str, Slope]) -> Sides:
    """Directional derivatives by the adapter's gradient, and those by finite differences."""
    compared = (
        figure(name, np.array([slope.gradient]), np.array([slope.difference]), slope.typical)
        for name, slope in slopes.items()
    )
    steps = DifferenceSteps(steps={name: slope.step for name, slope in slopes.items()})
    return Sides(figures=tuple(compared), tolerance=SLOPE_TOLERANCE, facts=(Finding(cause=steps),))


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


def check_gradient_shapes(gradients: Mapping[str, Array], model: Model) -> None:
    """Check that every gradient is there and has the right shape.

    Raises:
        PluginError: the adapter returned other gradients than the contract requires.
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
