"""The progress of a run or a sweep on standard error, with the time that is left."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dlb.cli.output import Detail, detail, line_writer, note
from dlb.printable import printable
from dlb.progress import Lines as PhaseLines
from dlb.progress import Silent
from dlb.record import Record
from dlb.request import Reporter
from dlb_measure.estimate import AUDIT_SECONDS, Estimate
from dlb_measure.plan import Plan

__all__ = ["Counted", "duration", "sweep_reporter"]


class TimeLeft:
    """The time that a sweep still needs: estimates, corrected by what the parts before took.

    Args:
        groups: how many cells each group has that is measured by itself.
    """

    def __init__(
        self, estimates: Sequence[Estimate], plan: Plan | None, groups: Sequence[int]
    ) -> None:
        self.estimates = list(estimates)
        self.plan = plan
        self.budget = None if plan is None else plan.budget_seconds
        ends = list(itertools.accumulate(groups))
        self.groups = [range(end - size, end) for end, size in zip(ends, groups)]
        self.runs_left = dict(enumerate(estimates))
        self.began = time.monotonic()
        #: Seconds that were expected of what is done, and those that it took: of runs, and of trials.
        self.expected, self.taken = [0.0, 0.0], [0.0, 0.0]

    def begin(self) -> None:
        """A run or a trial begins."""
        self.began = time.monotonic()

    def run_ended(self, place: int, ended: Record | None) -> None:
        self._note(0, self.runs_left.pop(place).run_seconds)
        if ended is not None and ended.timing is not None:
            each, timing = self.estimates[place], ended.timing
            start = timing.start_seconds + timing.build_seconds
            seconds = start + each.trial_steps * timing.median + AUDIT_SECONDS
            self.estimates[place] = replace(each, trial_seconds=seconds)

    def skip(self, places: Sequence[int]) -> None:
        """Cells that had ended before."""
        for place in places:
            self.runs_left.pop(place, None)

    def trials_ended(self, place: int, count: int) -> None:
        self._note(1, count * self.estimates[place].trial_seconds)

    def seconds(self, place: int, done: int | None = None, count: int = 0) -> float:
        """What is left.

        Args:
            place: the cell that is run or measured now.
            done, count: how many of how many trials of its group are done; None before the first.
        """
        runs = math.fsum(each.run_seconds for each in self.runs_left.values())
        trials = 0.0
        for group in self.groups:
            if group.stop <= place:
                continue
            own = [self.estimates[each].trial_seconds for each in group]
            left = 0 if self.plan is None else self.plan.rounds * self.plan.trials_a_round(len(own))
            if place in group and done is not None:
                left = count - done
            seconds = left * math.fsum(own) / len(own) * self._factor(1)
            trials += seconds if self.budget is None else min(seconds, self.budget)
        return runs * self._factor(0) + trials

    def _note(self, kind: int, expected: float) -> None:
        self.expected[kind] += expected
        self.taken[kind] += time.monotonic() - self.began

    def _factor(self, kind: int) -> float:
        return self.taken[kind] / self.expected[kind] if self.expected[kind] else 1.0


@contextmanager
def sweep_reporter(
    titles: Sequence[str],
    estimates: Sequence[Estimate],
    plan: Plan | None,
    groups: Sequence[int] = (),
    kind: str = "cell",
    phases: bool = False,
) -> Iterator[Lines]:
    """The reporter for standard error: one live line on a terminal, else plain lines.

    Args:
        titles: of each cell, in words.
        groups: how many cells each group has; all are one if empty.
        kind: what a title names.
        phases: whether plain lines tell the phases of each proof, too, as with ``-v``.
    """
    left = TimeLeft(estimates, plan, groups or [len(titles)])
    if write := line_writer():
        phases = phases or detail() >= Detail.PHASES
        yield Lines(titles, left, kind, PhaseLines(write) if phases else Silent())
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        TextColumn("{task.fields[left]}", markup=False),
        TextColumn("{task.fields[state]}", markup=False, style="dim"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Live(titles, left, kind, progress)


class Lines(Silent):
    """A plain line when a cell or a trial begins."""

    def __init__(
        self,
        titles: Sequence[str],
        left: TimeLeft,
        kind: str = "cell",
        phases: Reporter = Silent(),  # noqa: B008 - it has no state
    ) -> None:
        self.titles, self.left, self.kind, self.phases = titles, left, kind, phases
        self.measured: int | None = None
        self.number = 0

    def cell(self, place: int) -> None:
        self.measured = None
        self.left.skip(range(place))
        self.left.begin()
        text = f"{self.kind} {place + 1} of {len(self.titles)}: {self.titles[place]}"
        self.show(text, self.left.seconds(place))

    def cell_ended(self, place: int, ended: Record | None) -> None:
        self.left.run_ended(place, ended)
        if ended is None or ended.failure is not None:
            self.say(f"{self.titles[place]}: failed")

    def trial(self, place: int, number: int, count: int) -> None:
        if self.measured is not None:
            # Several ended if they ran side by side, and none of another number if it is repeated.
            self.left.trials_ended(self.measured, max(1, number - self.number))
        self.left.skip(range(place + 1))
        self.measured, self.number = place, number
        self.left.begin()
        text = f"trial {number + 1} of {count}: {self.titles[place]}"
        self.show(text, self.left.seconds(place, number, count))

    def phase(self, adapter: str, text: str) -> None:
        if self.measured is None:
            self.phases.phase(adapter, text)

    def steps(self, adapter: str, done: int, total: int, loss: float) -> None:
        if self.measured is None:
            self.phases.steps(adapter, done, total, loss)

    @contextmanager
    def results(self) -> Iterator[None]:
        """While results are printed on standard output."""
        yield

    def show(self, text: str, seconds: float) -> None:
        self.say(f"{text}; about {duration(seconds)} left")

    def say(self, text: str) -> None:
        note(text)


class Counted(Silent):
    """A line when a cell has ended that ran somewhere else."""

    def __init__(self, titles: Sequence[str]) -> None:
        self.titles, self.waiting, self.done = titles, 0, 0

    def cell(self, place: int) -> None:
        self.waiting += 1

    def cell_ended(self, place: int, ended: Record | None) -> None:
        self.done += 1
        word = "done" if ended is not None and ended.failure is None else "failed"
        note(f"{self.done} of {self.waiting}: {self.titles[place]}: {word}")


class Live(Lines):
    """One live line: how far it is, the time that is left, and what is done now."""

    def __init__(self, titles: Sequence[str], left: TimeLeft, kind: str, progress: Any) -> None:
        super().__init__(titles, left, kind)
        self.progress = progress
        self.task = progress.add_task("starting", total=1.0, left="", state="")
        self.began = self.ends = time.monotonic()

    @contextmanager
    def results(self) -> Iterator[None]:
        self.progress.stop()
        try:
            yield
        finally:
            self.progress.start()

    def show(self, text: str, seconds: float) -> None:
        self.ends = time.monotonic() + seconds
        self.progress.update(self.task, description=text)
        self.tick("")

    def tick(self, state: str) -> None:
        """Show what is done now, and the time that is left now."""
        now = time.monotonic()
        left = max(self.ends - now, 1.0)
        self.progress.update(
            self.task,
            completed=now - self.began,
            total=now - self.began + left,
            left=f"about {duration(left)} left",
            state=state,
        )

    def say(self, text: str) -> None:
        self.progress.console.print(printable(text), markup=False, highlight=False)

    def phase(self, adapter: str, text: str) -> None:
        self.tick(printable(text))

    def steps(self, adapter: str, done: int, total: int, loss: float) -> None:
        self.tick(f"step {done} of {total}")


def duration(seconds: float) -> str:
    """A time in words, rounded."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
