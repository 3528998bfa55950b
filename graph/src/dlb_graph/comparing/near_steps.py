"""Steps of an optimizer with one thing otherwise, as ports have it.

Where what steps changed is exactly what one of these changes, that is what is wrong. Some things are tried, and
numbers are solved for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from dlb_graph.comparing.distance import norm, relative_l2
from dlb_graph.comparing.near_misses import (
    Otherwise,
    factor_text,
    fields_otherwise,
    harmless,
    is_written,
    solved,
)
from dlb_graph.comparing.tolerances import CHANGE_LEAST, FLOAT64_TOLERANCE, Tensors, norm_floor
from dlb_graph.comparing.updates import Updates
from dlb_graph.layers.numbers import Array
from dlb_graph.optimizers import OPTIMIZERS, Optimizer

__all__ = ["MOST_NUMBERS", "steps_otherwise"]

#: The most numbers of all gradients that a search is worth, and its seconds.
MOST_NUMBERS = 2_000_000
_SECONDS = 5.0
#: What fits equally well is told, up to so many.
_MOST = 3
#: So many steps were taken before, of an optimizer that corrects no bias.
_MANY = 10**9

Steps = Callable[[], Tensors]


class _Steps:
    """Steps on given gradients, with one thing otherwise.

    Args:
        start: trained weights before the first step.
        gradients, rates: of each step.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start: Tensors,
        gradients: Sequence[Tensors],
        rates: Sequence[float],
    ) -> None:
        self.optimizer, self.start, self.gradients, self.rates = optimizer, start, gradients, rates

    def after(
        self,
        optimizer: Optimizer | None = None,
        *,
        rates: Sequence[float] = (),
        first: float = 1.0,
        later: float = 1.0,
        taken: int = 0,
        holds_rate: bool = False,
        decays_first: bool = False,
        matrices_alone: bool = False,
    ) -> dict[str, Array]:
        """Weights and state after the steps.

        Args:
            first, later: factors of the gradients of the first step, and of the others.
            taken: steps that were taken before.
            holds_rate: the velocity is that of steps, with their learning rates.
            decays_first: weights decay before gradients are clipped.
            matrices_alone: the norm that clips is that of tensors of more than one axis.
        """
        optimizer, rates = optimizer or self.optimizer, rates or self.rates
        decays = dict.fromkeys(self.start, 0.0)
        if decays_first:
            decay = optimizer.weight_decay
            decays = {name: decay * optimizer.decays(name) for name in decays}
            optimizer = msgspec.structs.replace(optimizer, weight_decay=0.0)
        updates = Updates(optimizer, self.start, steps=taken)
        with np.errstate(all="ignore"):
            for place, (gradients, rate) in enumerate(zip(self.gradients, rates)):
                factor = later if place else first
                given = {
                    name: factor * gradients[name] + decays[name] * weight
                    for name, weight in updates.weights.items()
                }
                if holds_rate and place:
                    for name in updates.state:
                        if name.endswith(".velocity"):
                            updates.state[name] *= rates[place - 1] / rate
                norms = {name: norm([each]) * (each.ndim > 1) for name, each in given.items()}
                updates.step(given, rate, norms if matrices_alone else None)
        return {**updates.weights, **updates.state}


@harmless
def steps_otherwise(
    optimizer: Optimizer,
    start: Tensors,
    gradients: Sequence[Tensors],
    after: Tensors,
    rates: Sequence[float],
    others: Mapping[str, Sequence[float]] | None = None,
    tolerance: float = FLOAT64_TOLERANCE,
) -> tuple[Otherwise, ...]:
    """What of an optimizer's steps was otherwise, such as ``{"nesterov": False}``; several if all fit.

    Empty if nothing fits, or if nothing is otherwise. What some parameters alone show is ``{"weight_decay of
    bias": 0.0}``.

    Args:
        start: trained weights before the first step, by ``layer.parameter``.
        gradients: of each step.
        after: weights and state (``layer.parameter.slot``) after the last step; others are ignored.
        rates: learning rates, of each step.
        others: learning rates that the steps may have had, by what they are.
        tolerance: of the relative distance of each tensor's change.
    """
    if sum(array.size for array in start.values()) * len(gradients) > MOST_NUMBERS:
        return ()
    run = _Steps(optimizer, start, gradients, rates)
    nominal = run.after()
    judge = _Judge(start, after, nominal, tolerance)
    if not judge.failing:
        return ()
    until = time.thread_time() + _SECONDS
    for search in (_tried(run, others or {}), _solved(run, judge)):
        fits: dict[str, Otherwise] = {}
        for otherwise, steps in search:
            if time.thread_time() > until:
                break
            try:
                part = judge.part(steps())
            except Exception:  # what nobody would write down fails in many ways
                continue
            if part is not None:
                ((name, value),) = otherwise.items()
                fits.setdefault(name, {f"{name}{part}": value})
        if fits:
            return (tuple(filter(is_written, fits.values())) or tuple(fits.values()))[:_MOST]
    return ()


def _tried(run: _Steps, others: Mapping[str, Sequence[float]]) -> Iterator[tuple[Otherwise, Steps]]:
    """What is otherwise in some port, and the steps with it."""
    for what, rates in others.items():
        yield {"learning_rate": what}, partial(run.after, rates=rates)
    kinds: Any = OPTIMIZERS.values()
    for otherwise, other in fields_otherwise(run.optimizer, kinds):
        yield otherwise, partial(run.after, other)
    for by in (2.0, 0.5):
        yield {"gradients": f"times {by:g}"}, partial(run.after, first=by, later=by)
    yield {"bias correction": "left out"}, partial(run.after, taken=_MANY)
    yield {"velocity": "that holds the learning rate"}, partial(run.after, holds_rate=True)
    yield {"weight_decay": "before gradients are clipped"}, partial(run.after, decays_first=True)
    if run.optimizer.clip_norm:
        alone = {"clip_norm": "by the norm of matrices alone, without biases"}
        yield alone, partial(run.after, matrices_alone=True)


def _solved(run: _Steps, judge: _Judge) -> Iterator[tuple[Otherwise, Steps]]:
    """Numbers of the steps, each solved for, and the steps with it."""

    def search(steps: Callable[[Any], Tensors], begin: float) -> float:
        return solved(lambda point: judge.residuals(steps(point[0])), (begin,))[0]

    whole = max(math.hypot(*(norm([each[name]]) for name in run.start)) for each in run.gradients)
    for name, value in msgspec.structs.asdict(run.optimizer).items():
        if not isinstance(value, float) or name == "learning_rate":
            continue

        def with_number(number: float, name: str = name) -> Tensors:
            return run.after(msgspec.structs.replace(run.optimizer, **{name: float(number)}))

        found = search(with_number, value or (0.5 * whole if "clip" in name else 1e-3))
        yield {name: found}, partial(with_number, found)

    def with_rate(factor: float) -> Tensors:
        return run.after(rates=[factor * rate for rate in run.rates])

    factor = search(with_rate, 1.0)
    yield {"learning_rate": factor * run.rates[0]}, partial(with_rate, factor)
    factors = {
        "gradients": lambda by: run.after(first=by, later=by),
        "dampening": lambda by: run.after(later=1 - by),
    }
    for name, steps in factors.items():
        found = search(steps, 0.5)
        text: Any = f"times {factor_text(found)}" if name == "gradients" else found
        if name == "gradients" or len(run.rates) > 1:
            yield {name: text}, partial(steps, found)
    if len(run.rates) > 1:
        rates = solved(lambda point: judge.residuals(run.after(rates=list(point))), run.rates)
        for place, (found, meant) in enumerate(zip(rates, run.rates)):
            if abs(found - meant) > judge.tolerance * max(map(abs, run.rates)):
                text = f"{found:.6g} for {meant:.6g} in step {place + 1}"
                yield {"learning_rate": text}, partial(run.after, rates=rates)
                return


class _Judge:
    """Compares what steps changed with what a framework's changed.

    Attributes:
        failing: the tensors that the right steps do not explain.
    """

    def __init__(self, start: Tensors, after: Tensors, nominal: Tensors, tolerance: float) -> None:
        self.start, self.tolerance = start, tolerance
        self.after = {name: after[name] for name in nominal if name in after}
        slots: dict[str, dict[str, Array]] = {}
        for name in self.after.keys() - start.keys():
            slots.setdefault(name.rpartition(".")[2], {})[name] = nominal[name]
        floors = {slot: norm_floor(tensors) for slot, tensors in slots.items()}
        self._floors = {
            name: CHANGE_LEAST * norm([start[name]])
            if name in start
            else floors[name.rpartition(".")[2]]
            for name in self.after
        }
        self.failing = self._beyond(nominal)

    def _beyond(self, computed: Tensors) -> set[str]:
        """The tensors that are not as computed."""
        return {
            name
            for name, array in self.after.items()
            if name not in computed
            or not relative_l2(array, computed[name], self._floors[name], self.start.get(name))
            <= self.tolerance
        }

    def residuals(self, computed: Tensors) -> Array:
        """How far the failing tensors are from what was computed, each relative to its change."""
        parts = [np.zeros(1)]
        for name in sorted(self.failing):
            array, before = self.after[name], self.start.get(name, 0.0)
            size = max(norm([array - before]), self._floors[name]) or 1.0
            parts.append(((computed[name] - array) / size).ravel())
        return np.concatenate(parts)

    def part(self, computed: Tensors) -> str | None:
        """Nothing if all is as computed, `` of bias`` if what is wrong of these is, else None."""
        beyond = self._beyond(computed)
        if not beyond:
            return ""
        wrong = {name for name in self.start if self._of(name) & self.failing}
        if any(self._of(name) & beyond for name in wrong):
            return None
        roles = {name.rpartition(".")[2] for name in wrong}
        whole = len(wrong) > 1 and all(
            name in wrong for name in self.start if name.rpartition(".")[2] in roles
        )
        return f" of {' and '.join(sorted(roles if whole else wrong)[:_MOST])}"

    def _of(self, parameter: str) -> set[str]:
        """A parameter and its state."""
        return {name for name in self.after if f"{name}.".startswith(f"{parameter}.")}
