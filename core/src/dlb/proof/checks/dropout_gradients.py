"""``dropout gradients``: the backward pass of a dropout uses the mask that its forward pass drew.

Masks that a framework draws are not seen from outside, but they leave a trace. Between a layer that is linear
in its parameters p and one that is linear in its weights w, with only layers f between for which
f(c x) = c f(x), such as ReLU, pooling and dropout, the gradients of a loss satisfy::

    sum(p * gradient of p) = sum(w * gradient of w)

since both are the sum of values times their gradients, and no f changes that sum (Euler's theorem). It holds
in every pass, whatever mask is drawn, unless the backward pass uses another one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlb.proof.certificate import CheckResult
from dlb.proof.checks.layers import layer_facts
from dlb.proof.engine import Check, Keep, run
from dlb.proof.findings import Finding
from dlb.proof.findings.workload import DropoutBackward, DropoutsCovered
from dlb.supervision.remote import RemoteModel
from dlb_graph.comparing.distance import figure, inner_product, norm, passes, pieces, worst_first
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE, Tensors
from dlb_graph.layers import Dropout
from dlb_graph.workload import Model, Node
from dlb_graph.workload.shapes import tied_to

__all__ = ["Between", "between", "prove_dropout_gradients"]

#: In float32 sums have a rounding of 1e-7; another mask changes them by more than 1e-3.
TOLERANCES = {"float64": FLOAT64_TOLERANCE, "float32": 1e-5}


@dataclass(frozen=True)
class Between:
    """A dropout between two layers whose gradients show its masks.

    Attributes:
        dropout: name of the layer.
        before, after: names of the parameters before and after it.
    """

    dropout: str
    before: tuple[str, ...]
    after: tuple[str, ...]


def between(model: Model, parameters: Tensors) -> tuple[Between, ...]:
    """Every dropout with a rate above 0 that lies between two such layers.

    Args:
        parameters: every parameter, by ``layer.parameter``.
    """
    wired = model.wired()
    nodes = {node.name: node for node in wired}
    readers: dict[str, list[Node]] = {}
    for node in wired:
        for source in node.inputs:
            readers.setdefault(source, []).append(node)
    shared = {tied_to(node) for node in wired}
    shared |= {name for node in wired if node.weights_of for name in (node.name, node.weights_of)}

    def names(node: Node, roles: tuple[str, ...]) -> tuple[str, ...]:
        if tied_to(node) or node.name in shared:
            return ()
        return tuple(name for role in roles if (name := f"{node.name}.{role}") in parameters)

    found = []
    for node in wired:
        if not isinstance(node.layer, Dropout) or not node.layer.rate:
            continue
        first: Node | None = nodes.get(node.inputs[0])
        while first is not None and len(readers[first.name]) == 1:
            if not first.layer.homogeneous:
                break
            first = nodes.get(first.inputs[0])
        last = node
        while len(readers.get(last.name, ())) == 1 and last.layer.homogeneous:
            last = readers[last.name][0]
        if first is None or len(readers[first.name]) != 1:
            continue
        before, after = names(first, first.layer.linear_roles), names(last, last.layer.input_roles)
        if before and after:
            found.append(Between(node.name, before, after))
    return tuple(found)


def prove_dropout_gradients(
    model: RemoteModel, inputs: np.ndarray, labels: np.ndarray, adapter: str, keep: Keep
) -> None:
    """Check every dropout of a model without given masks whose gradients show them.

    Args:
        inputs, labels: a batch, in the model's dtype.
    """
    described = model.workload.model
    name = "dropout gradients" if model.dtype == "float64" else "dropout gradients float32"
    weights = model.weights()[0]
    covered = between(described, weights)
    if not covered:
        return

    def compare(check: Check) -> CheckResult:
        gradients = model.gradients(inputs, labels)
        tolerance = TOLERANCES[model.dtype]
        compared = worst_first(
            figure(
                one.dropout,
                np.array([_dot(weights, gradients, one.before)]),
                np.array([_dot(weights, gradients, one.after)]),
                max(_scale(weights, gradients, names) for names in (one.before, one.after)),
            )
            for one in covered
        )
        findings = [
            Finding(
                cause=DropoutBackward(),
                layer=layer_facts(described, item.tensor, model.native_layers),
                figure=item,
                tolerance=tolerance,
            )
            for item in compared
            if not passes((item,), tolerance)
        ]
        names = tuple(one.dropout for one in covered)
        left = tuple(
            node.name
            for node in described.nodes
            if isinstance(node.layer, Dropout) and node.layer.rate and node.name not in names
        )
        note = Finding(cause=DropoutsCovered(layers=names, left=left))
        return check.result(compared, tolerance, (*findings, note))

    keep(run(Check.of(name, adapter), compare))


def _dot(weights: Tensors, gradients: Tensors, names: tuple[str, ...]) -> float:
    """The sum of all products of a parameter and its gradient."""
    return sum(
        inner_product(weight, gradient)
        for name in names
        for weight, gradient in pieces(weights[name], gradients[name])
    )


def _scale(weights: Tensors, gradients: Tensors, names: tuple[str, ...]) -> float:
    return norm(weights[name] for name in names) * norm(gradients[name] for name in names)
