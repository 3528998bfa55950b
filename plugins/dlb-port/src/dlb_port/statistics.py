"""``running statistics``: those of a port's batch normalisations after one training step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.findings import Finding
from dlb.proof.subject import Sides
from dlb_graph.comparing.distance import figures, passes
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE
from dlb_port.comparison import PortComparison
from dlb_port.findings.port import KeptPart, OnlyKeptPart, VarianceDivisor
from dlb_port.reference_model import ReferenceModel
from dlb_worker.contract import UserLayer

__all__ = ["compare_statistics"]

Array = npt.NDArray[Any]


def compare_statistics(port: PortComparison) -> Sides:
    """The running statistics after a training step, and the momentum that both models keep."""
    layers, truth, model = port.normalisations, port.truth, port.model
    expected = {own.name: np.array([own.momentum], np.float64) for own, _ in layers}
    actual = {own.name: np.array([other.momentum], np.float64) for own, other in layers}
    facts = [
        Finding(
            cause=KeptPart(
                layer=own.name,
                model=truth.model.name,
                momentum=own.momentum,
                other=other.name,
                other_model=model.name,
                other_momentum=other.momentum,
            )
        )
        for own, other in layers
        if not passes(figures({"": actual[own.name]}, {"": expected[own.name]}), FLOAT64_TOLERANCE)
    ]
    updated = _updated(port)
    return Sides(
        {**actual, **updated.actual},
        {**expected, **updated.expected},
        tolerance=port.tolerance,
        faults=tuple(facts),
        facts=updated.facts,
    )


def _updated(port: PortComparison) -> Sides:
    """Running means and variances after a step."""
    if port.randomness is not None:
        return Sides(facts=(Finding(cause=OnlyKeptPart(because="draws_random")),))
    truth, model, layers = port.truth, port.model, {own.name: own for own, _ in port.normalisations}
    ours, theirs = truth.gradients(True).states, port.gradients.states
    for name, states in ((truth.model.name, ours), (model.name, theirs)):
        if not states:
            only = OnlyKeptPart(because="states_not_reported", model=name)
            return Sides(facts=(Finding(cause=only),))
    actual: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    divisors: dict[str, tuple[str, str]] = {}
    for pair in port.pairs:
        own = layers.get(pair.source.layer)
        name, other = pair.source.name, pair.target.name
        if own is None or pair.source.role not in ("mean", "variance"):
            continue
        if name not in ours or other not in theirs:  # of several calls of a layer
            continue
        expected[name], actual[name] = ours[name], pair.bring_back(theirs[other])
        if pair.source.role == "variance":
            for over, changed in _with_other_divisor(
                truth, own, port.weights[name], expected[name]
            ):
                if passes(figures({"": actual[name]}, {"": changed}), port.tolerance):
                    expected[name], divisors[name] = changed, over
                    break
    if not divisors:
        return Sides(actual, expected)
    divisor, other_divisor = next(iter(divisors.values()))
    cause = VarianceDivisor(
        tensors=tuple(divisors),
        model=truth.model.name,
        divisor=divisor,
        other_model=model.name,
        other_divisor=other_divisor,
    )
    return Sides(actual, expected, facts=(Finding(cause=cause),))


def _with_other_divisor(
    truth: ReferenceModel, own: UserLayer, before: Array, updated: Array
) -> Iterator[tuple[tuple[str, str], Array]]:
    """The reference's running variance, as if it used the other divisor for the batch's variance.

    The divisor is n - 1 in torch and Chainer, and n in Keras and MXNet. No framework lets users choose.
    """
    calls = [call for call in truth.training_pass.calls if call.layer == own.name]
    if own.momentum in (None, 1.0) or len(calls) != 1:
        return
    inputs = calls[0].inputs
    if inputs is None or inputs.size == before.size:
        return
    count, kept = inputs.size // before.size, own.momentum * before
    batch = updated - kept
    yield ("n - 1", "n"), kept + (count - 1) / count * batch
    yield ("n", "n - 1"), kept + count / (count - 1) * batch
