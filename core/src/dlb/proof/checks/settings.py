"""``settings``: what the models of a port hold besides their parameters, and no output shows.

Dropout by kind and rate, and what layers add to the loss or do to their parameters after a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import numpy as np

from dlb.proof.certificate import CheckResult
from dlb.proof.distance import figure, passes, worst_first
from dlb.proof.engine import Check
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.port import DropoutDiffers, DropoutSame, DroppedPart, PenaltyDiffers
from dlb.proof.port.comparison import PortComparison
from dlb.proof.port.model import Model
from dlb.proof.tolerances import FLOAT64_TOLERANCE

__all__ = ["check_settings", "have_settings"]


def have_settings(port: PortComparison) -> bool:
    """Whether there is anything to compare."""
    models = (port.truth.model, port.model)
    return any(
        model.dropouts or any(layer.penalties for layer in model.remote.layers.values())
        for model in models
    )


def check_settings(check: Check, port: PortComparison) -> CheckResult:
    """Compare dropout and penalties, both in the order of the reference's calls."""
    own, other = _dropped(port.truth.model), _dropped(port.model)
    rates: list[Figure] = []
    findings: list[Finding] = []
    for mine, its in zip_longest(own, other):
        if mine is not None and its is not None and mine.of == its.of:
            rate = figure(mine.layer, np.array([its.rate]), np.array([mine.rate]))
            rates.append(rate)
            if passes((rate,), FLOAT64_TOLERANCE):
                continue
        cause = DropoutDiffers(reference=mine, other=its)
        findings.append(Finding(cause=cause, tolerance=FLOAT64_TOLERANCE))
    findings += [Finding(cause=cause) for cause in _penalties(port)]
    passed = not findings
    if own and passed:
        findings.append(Finding(cause=DropoutSame(places=len(own))))
    return check.result(worst_first(rates), FLOAT64_TOLERANCE, findings, passed=passed)


def _dropped(model: Model) -> list[DroppedPart]:
    return [
        DroppedPart(model=model.name, layer=layer, rate=dropout.rate, of=dropout.of)
        for layer, dropout in model.dropouts
    ]


def _penalties(port: PortComparison) -> Iterator[PenaltyDiffers]:
    """Penalties that only one model has, or that differ, by the reference's parameters."""
    counterparts = {pair.target.name: pair.source.name for pair in port.pairs}
    own = _by_parameter(port.truth.model)
    other = {
        counterparts.get(name, f"{port.model.name}: {name}"): penalty
        for name, penalty in _by_parameter(port.model).items()
    }
    for name in dict.fromkeys((*own, *other)):
        if own.get(name, "") != other.get(name, ""):
            yield PenaltyDiffers(
                parameter=name,
                model=port.truth.model.name,
                penalty=own.get(name, ""),
                other_model=port.model.name,
                other_penalty=other.get(name, ""),
            )


def _by_parameter(model: Model) -> dict[str, str]:
    """Penalties by the name of the parameter, or of the layer and ``output``."""
    return {
        f"{layer.name}.{name}".lstrip("."): penalty
        for layer in model.remote.layers.values()
        for name, penalty in layer.penalties.items()
    }
