"""``own steps``: what the training steps of two user programs change, each with its own optimizer and loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.errors import RequestError
from dlb.proof.divergence import observed_steps, perturbed
from dlb.proof.findings import Finding
from dlb.proof.findings.common import StepsCompared
from dlb.proof.subject import Sides
from dlb_graph.comparing.distance import figure, relative_l2
from dlb_graph.comparing.tolerances import (
    FLOAT32_MULTIPLE,
    FLOAT64_TOLERANCE,
    PERTURBED_UNITS,
    SMALL,
    norm_floor,
)
from dlb_graph.pairs.input_arrays import read_arrays
from dlb_port.comparison import PortComparison
from dlb_port.findings.port import RoundingDecides
from dlb_port.inputs import widened
from dlb_port.model import Model

__all__ = ["Program", "compare_own_steps", "read_batches"]

Array = npt.NDArray[Any]
#: The name of the losses among tensors.
_LOSS = "loss"


@dataclass(frozen=True)
class Program:
    """Users' own training programs.

    Attributes:
        trainers: ``package.module:function`` by model. The function takes the model, makes the optimizer, and
            returns a step: a function of a batch that trains the model and returns the loss.
        batches: for each name an array [steps, batch, ...] in canonical layout.
        folders: where their modules are searched first, by model.
    """

    trainers: Mapping[str, str]
    batches: Mapping[str, Array]
    folders: Mapping[str, Path]

    @property
    def steps(self) -> int:
        """How many steps there are batches for."""
        return min(len(array) for array in self.batches.values())


def read_batches(path: Path) -> dict[str, Array]:
    """The batches of a file, an array [steps, batch, ...] for each name, float64, int64 or bool.

    Raises:
        DataError: the file is no .npz file of plain numbers.
        RequestError: the arrays are no batches, or there are other numbers of steps.
    """
    arrays = read_arrays(path)
    if not arrays or any(array.ndim < 2 or array.size == 0 for array in arrays.values()):
        raise RequestError("batches are arrays [steps, batch, ...], one for each name", path=path)
    if len({len(array) for array in arrays.values()}) > 1:
        told = ", ".join(f"{name} {len(array)}" for name, array in arrays.items())
        raise RequestError(f"the arrays hold batches of other numbers of steps: {told}", path=path)
    return {name: widened(array) for name, array in arrays.items()}


def compare_own_steps(port: PortComparison, program: Program) -> Sides:
    """The losses, and what the steps changed of every matched parameter and state.

    Each is compared after the last observed step at which rounding alone does not decide it. That is measured
    in the reference, from weights that are perturbed by a few units in the last place of float64.
    """
    expected = _changes(port, port.truth.model, port.weights, program)
    moved = perturbed(port.weights, port.truth.seed, PERTURBED_UNITS)
    again = _changes(port, port.truth.model, moved, program)
    actual = _changes(port, port.model, port.carried_weights, program)
    figures, undecided, last = [], [], 0
    for tensor in expected[1]:
        near = [
            step
            for step in expected
            if FLOAT32_MULTIPLE * _distance(again, expected, step, tensor) <= FLOAT64_TOLERANCE
        ]
        if not near:
            undecided.append(tensor)
            continue
        step = max(near)
        last = max(last, step)
        for compared in sorted({1, step} & set(near)):
            name = tensor if compared == 1 else f"{tensor}, step {compared}"
            own, other = expected[compared][tensor], actual[compared][tensor]
            figures.append(figure(name, other, own, _floor(expected[compared], tensor)))
    facts = (Finding(cause=RoundingDecides(tensors=tuple(undecided))),) if undecided else ()
    if not figures:
        return Sides(tolerance=FLOAT64_TOLERANCE, doubts=facts)
    facts = (*facts, Finding(cause=StepsCompared(steps=last)))
    return Sides(figures=tuple(figures), tolerance=FLOAT64_TOLERANCE, facts=facts)


Changes = dict[int, dict[str, Array]]


def _distance(again: Changes, expected: Changes, step: int, tensor: str) -> float:
    floor = _floor(expected[step], tensor)
    return relative_l2(again[step][tensor], expected[step][tensor], floor)


def _floor(changes: Mapping[str, Array], tensor: str) -> float:
    return 0.0 if tensor == _LOSS else norm_floor(changes, SMALL)


def _changes(
    port: PortComparison, model: Model, weights: Mapping[str, Array], program: Program
) -> Changes:
    """Losses so far, and changes of matched parameters by the reference's names, by observed step."""
    observed = observed_steps(program.steps)
    model.remote.load_weights(dict(weights))
    start = model.remote.weights()
    try:
        trainer, folder = program.trainers[model.name], program.folders[model.name]
        losses, after = model.own_steps(trainer, folder, program.batches, observed)
    finally:
        own = port.weights if model is port.truth.model else port.carried_weights
        model.remote.load_weights({**start, **own})
    before = port.named(start, model)
    changes: Changes = {}
    for step in observed:
        now = port.named(after[step], model)
        changes[step] = {name: now[name] - before[name] for name in now}
        changes[step][_LOSS] = np.asarray(losses[:step], np.float64)
    return changes
