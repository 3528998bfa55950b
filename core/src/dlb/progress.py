"""How a run is getting on, on standard error: a live line an adapter on a terminal, plain lines
elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["Silent", "loss_text", "make_reporter"]

#: Between two plain lines about training.
LINE_SECONDS = 10.0
#: A speed is of so many seconds at least.
RATE_SECONDS = 0.5


def loss_text(loss: float) -> str:
    """A loss in a column's width, were it of a training that diverged."""
    return f"{loss:.4f}" if abs(loss) < 1e4 else f"{loss:.2e}"


class Rate:
    """Steps a second since an adapter was first heard of: what came before may have been long."""

    def __init__(self) -> None:
        self._began: dict[str, tuple[float, int]] = {}

    def of(self, adapter: str, done: int, now: float) -> float:
        """0 as long as it is not known."""
        began, first = self._began.setdefault(adapter, (now, done))
        return (done - first) / (now - began) if now - began >= RATE_SECONDS else 0.0


@contextmanager
def make_reporter(adapters: Sequence[str]) -> Iterator[Any]:
    """The reporter that fits standard error."""
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
    """Says nothing."""

    def phase(self, adapter: str, text: str) -> None:
        pass

    def steps(self, adapter: str, done: int, total: int, loss: float) -> None:
        pass

    def finished(self, adapter: str, text: str) -> None:
        pass


class Live:
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
        rate = self._rate.of(adapter, done, time.monotonic())
        self._progress.update(
            task,
            completed=done,
            total=total,
            rate=f"{rate:.1f} steps/s" if rate else "",
            state=f"training, loss {loss_text(loss)}",
        )

    def finished(self, adapter: str, text: str) -> None:
        self._progress.update(self._tasks[adapter], state=text)
        self._progress.stop_task(self._tasks[adapter])


class Lines:
    """A plain line at each phase, and now and then while training."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}
        self._rate = Rate()

    def phase(self, adapter: str, text: str) -> None:
        self._say(f"{adapter}: {text}")

    def steps(self, adapter: str, done: int, total: int, loss: float) -> None:
        now = time.monotonic()
        rate = self._rate.of(adapter, done, now)
        if now - self._said.setdefault(adapter, now) < LINE_SECONDS and done < total:
            return
        self._said[adapter] = now
        left = f", {(total - done) / rate:.0f} s left" if rate and done < total else ""
        speed = f", {rate:.1f} steps/s" if rate else ""
        self._say(f"{adapter}: step {done} of {total}, loss {loss_text(loss)}{speed}{left}")

    def finished(self, adapter: str, text: str) -> None:
        self._say(f"{adapter}: {text}")

    @staticmethod
    def _say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)
