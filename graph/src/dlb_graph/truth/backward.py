"""The backward pass of a model in NumPy: the gradients of its loss, without a framework.

With :mod:`dlb_graph.truth.evaluate` this is the truth of training. The backward pass starts from values
of layers that are given: the truth's own, or those that an adapter computed. In the second case, a value
that rounding took across the kink of a ReLU is on the same side in both, so gradients can be compared at
kinks, at ties, and in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from dlb_graph.layers import Pass
from dlb_graph.layers.base import Gradients
from dlb_graph.layers.numbers import Array
from dlb_graph.losses import Loss
from dlb_graph.workload.model import Model, Node
from dlb_graph.workload.shapes import parameter_shapes, tied_to, trained_names

__all__ = ["Altered", "model_gradients"]

Altered = Callable[[Node, Pass, Array], Gradients]


def model_gradients(
    model: Model,
    weights: Mapping[str, Array],
    inputs: Array,
    values: Mapping[str, Array],
    labels: Array,
    loss: Loss,
    masks: Mapping[str, Array],
    dtype: str = "float64",
    rounded: Callable[[Array], Array] | None = None,
    altered: Altered | None = None,
) -> dict[str, Array]:
    """``loss``, the gradient of ``input`` (if real), and the gradient of every trained parameter.

    Args:
        weights: parameters by ``layer.parameter``.
        inputs: [batch, ...].
        values: the value of every layer in training mode, [batch, ...], by name.
        labels: what the loss compares the last layer's value with: int64 [batch] or [batch, T], or targets of
            the value's shape.
        masks: by layer name, what dropout multiplies by before it scales; without one it is the identity.
        dtype: dtype of all computations, ``float64`` or ``float32``.
        rounded: rounds what passes from one layer to the one below it; None to leave it.
        altered: the backward pass of a layer, in place of its own.
    """
    real = model.input.kind == "real"
    last = model.nodes[-1].name

    def read(name: str) -> Array:
        if name == model.input.name:
            return inputs.astype(dtype, copy=False) if real else inputs
        return values[name].astype(dtype, copy=False)

    names = parameter_shapes(model)
    with np.errstate(all="ignore"):  # values that are not finite are compared, not reported
        mean_loss, cotangent = loss.value_and_gradient(read(last), labels)
        cotangents = {last: cotangent if rounded is None else rounded(cotangent)}
        gradients: dict[str, Array] = {"loss": np.asarray(mean_loss)}
        for node in reversed(model.wired()):
            if node.name not in cotangents:  # nothing reads this layer
                continue
            cotangent = cotangents.pop(node.name)
            own = {
                name.split(".")[1]: weights[name].astype(dtype, copy=False)
                for name in names
                if name.split(".")[0] == node.owner
            }
            owner = tied_to(node)
            if owner:
                own["weight"] = weights[f"{owner}.weight"].astype(dtype, copy=False)
            mask = masks.get(node.name)
            layer_read = Pass(tuple(map(read, node.inputs)), own, mask)
            backward = partial(altered, node) if altered else node.layer.gradients
            of_inputs, of_parameters = backward(layer_read, cotangent)
            for parameter, gradient in of_parameters.items():
                shared = owner if owner and parameter == "weight" else node.owner
                _add(gradients, f"{shared}.{parameter}", gradient)
            for name, of_input in zip(node.inputs, of_inputs):
                if of_input is not None:
                    _add(cotangents, name, of_input if rounded is None else rounded(of_input))
    if real:
        gradients["input"] = cotangents.get(model.input.name, np.zeros_like(read(model.input.name)))
    for name in trained_names(model):
        gradients.setdefault(name, np.zeros(names[name], dtype))
    return gradients


def _add(sums: dict[str, Array], name: str, gradient: Array) -> None:
    sums[name] = sums[name] + gradient if name in sums else gradient
