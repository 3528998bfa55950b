"""The progress of a sweep on standard error, with the time that is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dlb.execution.estimate import AUDIT_SECONDS, Estimate
from dlb.execution.measure import Plan
from dlb.execution.sweep import SilentSweep, SweepReporter
from dlb.record import Record

__all__ = ["duration", "sweep_reporter"]


class TimeLeft:
    """The time that a sweep still needs: estimates, corrected by what the parts before took."""

    def __init__(self, estimates: Sequence[Estimate], plan: Plan | None) -> None:
        self.estimates = list(estimates)
        self.rounds = 0 if plan is None else plan.rounds
        self.budget = None if plan is None else plan.budget_seconds
        self.runs_left = dict(enumerate(estimates))
        self.began = time.monotonic()
        #: Seconds that were expected of what is done, and those that it took: of runs, and of trials.
        self.expected, self.taken = [0.0, 0.0], [0.0, 0.0]

    def begin(self) -> None:
        """A part begins."""
        self.began = time.monotonic()

    def run_ended(self, place: int, ended: Record | None) -> None:
        expected = self.runs_left.pop(place).run_seconds
        self._note(0, expected)
        if ended is not None and ended.timing is not None:
            each, timing = self.estimates[place], ended.timing
            start = timing.start_seconds + timing.build_seconds
            seconds = start + each.trial_steps * timing.median + AUDIT_SECONDS
            self.estimates[place] = replace(each, trial_seconds=seconds)

    def skip(self, places: Sequence[int]) -> None:
        """Cells that had ended before."""
        for place in places:
            self.runs_left.pop(place, None)

    def trial_ended(self, place: int) -> None:
        self._note(1, self.estimates[place].trial_seconds)

    def seconds(self, trials_done: int, trials: int | None) -> float:
        """What is left, once so many trials of so many are done; None before the first."""
        runs = sum(each.run_seconds for each in self.runs_left.values())
        mean = sum(each.trial_seconds for each in self.estimates) / len(self.estimates)
        count = self.rounds * (len(self.estimates) + 1) if trials is None else trials
        rest = (count - trials_done) * mean * self._factor(1)
        if self.budget is not None:
            rest = min(rest, max(0.0, self.budget - self.taken[1]))
        return runs * self._factor(0) + rest

    def _note(self, kind: int, expected: float) -> None:
        self.expected[kind] += expected
        self.taken[kind] += time.monotonic() - self.began

    def _factor(self, kind: int) -> float:
        return self.taken[kind] / self.expected[kind] if self.expected[kind] else 1.0


@contextmanager
def sweep_reporter(
    titles: Sequence[str], estimates: Sequence[Estimate], plan: Plan | None
) -> Iterator[SweepReporter]:
    """The reporter for standard error: one live line on a terminal, else plain lines.

    Args:
        titles: of each cell, in words.
    """
    left = TimeLeft(estimates, plan)
    if sys.stderr is None or not sys.stderr.isatty():
        yield Lines(titles, left)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        TextColumn("{task.fields[left]}", markup=False),
        TextColumn("{task.fields[state]}", markup=False, style="dim"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield Live(titles, left, progress)


class Lines(SilentSweep):
    """A plain line when a cell or a trial begins."""

    def __init__(self, titles: Sequence[str], left: TimeLeft) -> None:
        self.titles, self.left = titles, left
        self.current: int | None = None
        self.first = True

    def cell(self, place: int) -> None:
        if self.first:
            self.left.skip(range(place))
            self.first = False
        self.left.begin()
        self.show(f"cell {place + 1} of {len(self.titles)}: {self.titles[place]}", 0, None)

    def cell_ended(self, place: int, ended: Record | None) -> None:
        self.left.run_ended(place, ended)
        if ended is None or ended.failure is not None:
            self.say(f"{self.titles[place]}: failed")

    def trial(self, place: int, number: int, count: int) -> None:
        if self.current is None:
            self.left.skip(range(len(self.titles)))
        else:
            self.left.trial_ended(self.current)
        self.current = place
        self.left.begin()
        self.show(f"trial {number + 1} of {count}: {self.titles[place]}", number, count)

    def show(self, text: str, trials_done: int, trials: int | None) -> None:
        self.say(f"{text}; about {duration(self.left.seconds(trials_done, trials))} left")

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Live(Lines):
    """One live line: how far it is, the time that is left, and what is done now."""

    def __init__(self, titles: Sequence[str], left: TimeLeft, progress: Any) -> None:
        super().__init__(titles, left)
        self.progress = progress
        self.task = progress.add_task("starting", total=1.0, left="", state="")

    def show(self, text: str, trials_done: int, trials: int | None) -> None:
        seconds = self.left.seconds(trials_done, trials)
        done = sum(self.left.taken)
        self.progress.update(
            self.task,
            description=text,
            completed=done,
            total=done + max(seconds, 0.1),
            left=f"{duration(seconds)} left",
        )

    def say(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False)

    def phase(self, adapter: str, text: str) -> None:
        self.progress.update(self.task, state=text)

    def steps(self, adapter: str, done: int, total: int, loss: float) -> None:
        self.progress.update(self.task, state=f"step {done} of {total}")


def duration(seconds: float) -> str:
    """A time in words, rounded."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
