"""How often something is measured, and what of it counts."""

from __future__ import annotations

from typing import Literal

import msgspec

from dlb_graph.arguments import check_values
from dlb_graph.errors import FieldError
from dlb_measure.stopping import PILOT_ROUNDS

__all__ = ["TRIAL_STEPS", "Order", "Plan", "SteadyRule", "Until"]

#: A trial has so many steps at least, but no more than the run.
TRIAL_STEPS = 30

#: ``interleaved``: rounds of all cells. ``alternating``: rounds whose trials are alive side by side, and take
#: blocks of steps in turns. ``isolated``: all trials of a cell, then those of the next.
Order = Literal["interleaved", "alternating", "isolated"]
#: Which steps count: those of a steady state that is found, or all behind the warm-up that was asked for.
SteadyRule = Literal["found", "after-warmup"]
#: When rounds end: after all, or once each word is settled (:func:`dlb_measure.stopping.looks`).
Until = Literal["all", "settled"]
_LEAST: dict[str, float] = {"rounds": 1, "trial_steps": 2, "repeats": 0}
_LEAST |= dict.fromkeys(("precision", "budget_seconds", "margin"), 1e-6)


class Plan(msgspec.Struct, frozen=True):
    """How to measure in rounds of new processes. Options of commands and fields of studies are made of it.

    Attributes:
        rounds: how many rounds; those of the pilot, if a precision is asked for.
        precision: half of the interval's width that is asked for, relative; None for fixed rounds.
        budget_seconds: no round begins that would end after it; None for any time.
        order: see :data:`Order`; None for ``alternating`` where speed drifted before, else ``interleaved``.
        margin: cells that differ by less count as the same.
        trial_steps: steps of a trial; None for those of some seconds, but no more than the run's.
        steady: which steps of a trial count.
        repeats: how often a trial is repeated that was disturbed, or had no steady state; none is, once
            other work disturbed every trial of a round.
        until: when rounds end, apart from the budget.
        quick: a first answer: all trials are alive at once, no cell has a second one in a round, and
            what is not about the timed model is proven only if it was before.
    """

    rounds: int = PILOT_ROUNDS
    precision: float | None = None
    budget_seconds: float | None = None
    order: Order | None = None
    margin: float = 0.01
    trial_steps: int | None = None
    steady: SteadyRule = "found"
    repeats: int = 2
    until: Until = "all"
    quick: bool = False

    def __post_init__(self) -> None:
        check_values(Plan, msgspec.structs.asdict(self))
        for name, least in _LEAST.items():
            if (value := getattr(self, name)) is not None and not value >= least:
                raise FieldError(f"{name} is {value}; it must be {least} or more")

    def trials_a_round(self, cells: int) -> int:
        """One of each cell, and a second one of one cell."""
        return cells + (not self.quick)
