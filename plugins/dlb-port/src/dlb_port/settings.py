"""``settings``: what the models of a port hold besides their parameters, and no output shows.

Dropout by kind and rate, and what layers add to the loss or do to their parameters after a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest

import numpy as np

from dlb.proof.findings import Figure, Finding
from dlb.proof.subject import Sides
from dlb_graph.comparing.distance import figure, passes
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE
from dlb_port.findings import port as causes
from dlb_port.model import Model
from dlb_port.stochastic_depth import UNSEEN
from dlb_port.weight_map import Pair

__all__ = ["compare_settings", "have_settings"]


def have_settings(*models: Model) -> bool:
    """Whether there is anything to compare."""
    layers = (each for model in models for each in model.remote.layers.values())
    return any(model.dropouts for model in models) or any(each.penalties for each in layers)


def compare_settings(
    reference: Model, model: Model, pairs: Iterable[Pair], draws: Iterable[Finding]
) -> Sides:
    """Dropout and penalties, both in the order of the reference's calls.

    Args:
        draws: where models draw random numbers, though what they are known to drop is off. There may be
            what the other drops.
    """
    drawing = {each.cause.model for each in draws if isinstance(each.cause, causes.DrawsRandom)}
    own, other = _dropped(reference), _dropped(model)
    rates: list[Figure] = []
    findings: list[Finding] = []
    doubts: list[Finding] = []
    for mine, its in zip_longest(own, other):
        if mine is not None and its is not None and mine.of == its.of:
            rate = figure(mine.layer, np.array([its.rate]), np.array([mine.rate]))
            rates.append(rate)
            if passes((rate,), FLOAT64_TOLERANCE) or mine.of == UNSEEN[0]:
                continue
        cause = causes.DropoutDiffers(reference=mine, other=its)
        lacks = reference.name if mine is None else model.name if its is None else ""
        (doubts if lacks in drawing else findings).append(
            Finding(cause=cause, tolerance=FLOAT64_TOLERANCE)
        )
    findings += [Finding(cause=cause) for cause in _penalties(reference, model, pairs)]
    same = (
        (Finding(cause=causes.DropoutSame(places=len(own))),)
        if own and not findings + doubts
        else ()
    )
    return Sides(
        figures=tuple(rates),
        tolerance=FLOAT64_TOLERANCE,
        faults=tuple(findings),
        doubts=tuple(doubts),
        facts=same,
        by_figures=False,
    )


def _dropped(model: Model) -> list[causes.DroppedPart]:
    return [
        causes.DroppedPart(model=model.name, layer=layer, rate=dropout.rate, of=dropout.of)
        for layer, dropout in model.dropouts
    ]


def _penalties(
    reference: Model, model: Model, pairs: Iterable[Pair]
) -> Iterator[causes.PenaltyDiffers]:
    """Penalties that only one model has, or that differ, by the reference's parameters."""
    counterparts = {pair.target.name: pair.source.name for pair in pairs}
    own = _by_parameter(reference)
    other = {
        counterparts.get(name, f"{model.name}: {name}"): penalty
        for name, penalty in _by_parameter(model).items()
    }
    for name in dict.fromkeys((*own, *other)):
        if own.get(name, "") != other.get(name, ""):
            yield causes.PenaltyDiffers(
                parameter=name,
                model=reference.name,
                penalty=own.get(name, ""),
                other_model=model.name,
                other_penalty=other.get(name, ""),
            )


def _by_parameter(model: Model) -> dict[str, str]:
    """Penalties by the name of the parameter, or of the layer and ``output``."""
    return {
        f"{layer.name}.{name}".lstrip("."): penalty
        for layer in model.remote.layers.values()
        for name, penalty in layer.penalties.items()
    }
