"""Reports the progress of a run on standard error: a live line per adapter on a terminal, plain
lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlb.record import Record
    from dlb.results.measurement import Measurement

from dlb.printable import printable

__all__ = ["Silent", "loss_text", "make_reporter"]

#: Time between two plain lines about training.
LINE_SECONDS = 10.0
#: A rate is measured over at least this time.
RATE_SECONDS = 0.5


def loss_text(loss: float) -> str:
    """A loss as text that fits a column, even if training diverged."""
    return f"{loss:.4f}" if abs(loss) < 1e4 else f"{loss:.2e}"


class Rate:
    """Steps per second since an adapter's training began to report. Time before it is not training."""

    def __init__(self) -> None:
        self._first_reports: dict[str, tuple[float, int]] = {}
        self._last: dict[str, int] = {}

    def update(self, adapter: str, done: int, now: float) -> float:
        """Steps per second after this report; 0 while it is not known."""
        if done < self._last.get(adapter, -1):  # a new process has begun to train
            del self._first_reports[adapter]
        self._last[adapter] = done
        began, first = self._first_reports.setdefault(adapter, (now, done))
        return (done - first) / (now - began) if now - began >= RATE_SECONDS else 0.0


@contextmanager
def make_reporter(adapters: Sequence[str]) -> Iterator[Any]:
    """The reporter for standard error: :class:`Live` on a terminal, else :class:`Lines`."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    width = max(map(len, adapters), default=0)
    columns = (
        TextColumn("{task.fields[adapter]:" + str(width) + "}", style="bold"),
        BarColumn(20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[state]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield Live(progress, adapters)


class Silent:
    """Reports nothing."""

    def phase(self, adapter: str, text: str) -> None:
        pass

    def steps(self, adapter: str, done: int, total: int, loss: float) -> None:
        pass

    def finished(self, adapter: str, text: str) -> None:
        pass

    def cell(self, place: int) -> None:
        pass

    def cell_ended(self, place: int, ended: Record | None) -> None:
        pass

    def trial(self, place: int, number: int, count: int) -> None:
        pass

    def recorded(self, ended: Record) -> None:
        pass

    def round_ended(self, measurement: Measurement) -> None:
        pass


class Live(Silent):
    """A live line for each adapter."""

    def __init__(self, progress: Any, adapters: Sequence[str]) -> None:
        self._progress = progress
        self._tasks = {
            name: progress.add_task(
                "", start=False, total=None, adapter=name, rate="", state="waiting"
            )
            for name in adapters
        }
        self._rate = Rate()

    def phase(self, adapter: str, text: str) -> None:
        self._progress.update(self._tasks[adapter], state=text)

    def steps(self, adapter: str, done: int, total: int, loss: float) -> None:
        task = self._tasks[adapter]
        self._progress.start_task(task)
        rate = self._rate.update(adapter, done, time.monotonic())
        self._progress.update(
            task,
            completed=done,
            total=total,
            rate=f"{rate:.1f} steps/s" if rate else "",
            state=f"training, loss {loss_text(loss)}",
        )

    def finished(self, adapter: str, text: str) -> None:
        self._progress.update(self._tasks[adapter], state=printable(text))
        self._progress.stop_task(self._tasks[adapter])

    def recorded(self, ended: Record) -> None:
        if ended.failure is None:
            self._progress.update(self._tasks[ended.adapter], state=ended.proof)


class Lines(Silent):
    """A plain line at each phase, and every ``LINE_SECONDS`` during training."""

    def __init__(self) -> None:
        self._last_line: dict[str, float] = {}
        self._rate = Rate()

    def phase(self, adapter: str, text: str) -> None:
        self._print(f"{adapter}: {text}")

    def steps(self, adapter: str, done: int, total: int, loss: float) -> None:
        now = time.monotonic()
        rate = self._rate.update(adapter, done, now)
        if now - self._last_line.setdefault(adapter, now) < LINE_SECONDS and done < total:
            return
        self._last_line[adapter] = now
        left = f", {(total - done) / rate:.0f} s left" if rate and done < total else ""
        speed = f", {rate:.1f} steps/s" if rate else ""
        self._print(f"{adapter}: step {done} of {total}, loss {loss_text(loss)}{speed}{left}")

    def finished(self, adapter: str, text: str) -> None:
        self._print(f"{adapter}: {text}")

    def recorded(self, ended: Record) -> None:
        if ended.failure is None:
            self._print(f"{ended.adapter}: {ended.proof}")

    @staticmethod
    def _print(text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)
