"""Reports the progress of a run on standard error: a live line per adapter on a terminal, plain
lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlb.record import Record

from dlb.printable import printable

__all__ = ["Lines", "Silent", "loss_text", "make_reporter", "notebook_reporter"]

#: Time between two plain lines about training.
LINE_SECONDS = 10.0
#: A rate is measured over at least this time.
RATE_SECONDS = 0.5
#: A notebook's lines are drawn at most once in this time.
DRAW_SECONDS = 0.2


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
def make_reporter(
    adapters: Sequence[str], write: Callable[[str], None] | None
) -> Iterator[Live | Lines]:
    """For commands: lines that ``write`` prints; without it, a live line for each adapter on a terminal."""
    if write is not None:
        yield Lines(write)
        return
    from rich.console import Console

    with _bars(adapters, Console(stderr=True)) as progress:
        yield Live(progress, adapters)


@contextmanager
def notebook_reporter(adapters: Sequence[str]) -> Iterator[Any]:
    """For functions: a live line for each adapter below the cell of a notebook, elsewhere nothing."""
    if "ipykernel" not in sys.modules:
        yield Silent()
        return
    from IPython.display import display
    from rich.console import Console

    progress = _bars(adapters, Console())
    shown = display(progress, display_id=True)
    try:
        yield Live(progress, adapters, lambda: shown.update(progress))
    finally:
        shown.update(progress)


def _bars(adapters: Sequence[str], console: Any) -> Any:
    from rich import progress as bars

    width = max(map(len, adapters), default=0)
    columns = (
        bars.TextColumn("{task.fields[adapter]:" + str(width) + "}", style="bold"),
        bars.BarColumn(20),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.fields[rate]}"),
        bars.TimeRemainingColumn(compact=True),
        bars.TextColumn("{task.fields[state]}", markup=False),
    )
    return bars.Progress(*columns, console=console)


class Silent:
    """Reports nothing."""

    def phase(self, adapter: str, text: str) -> None: ...
    def steps(self, adapter: str, done: int, total: int, loss: float) -> None: ...
    def finished(self, adapter: str, text: str) -> None: ...
    def cell(self, place: int) -> None: ...
    def cell_ended(self, place: int, ended: Record | None) -> None: ...
    def trial(self, place: int, number: int, count: int) -> None: ...
    def recorded(self, ended: Record) -> None: ...
    def round_ended(self, measurement: Any) -> None: ...


class Live(Silent):
    """A live line for each adapter.

    Args:
        draw: draws the lines again; a terminal's are drawn by a thread of rich's own.
    """

    def __init__(
        self, progress: Any, adapters: Sequence[str], draw: Callable[[], Any] = lambda: None
    ) -> None:
        self._progress, self._draw, self._drawn = progress, draw, 0.0
        self._tasks = {
            name: progress.add_task(
                "", start=False, total=None, adapter=name, rate="", state="waiting"
            )
            for name in adapters
        }
        self._rate = Rate()

    def phase(self, adapter: str, text: str) -> None:
        self._update(adapter, state=text)

    def steps(self, adapter: str, done: int, total: int, loss: float) -> None:
        self._progress.start_task(self._tasks[adapter])
        rate = self._rate.update(adapter, done, time.monotonic())
        text = f"{rate:.1f} steps/s" if rate else ""
        state = f"training, loss {loss_text(loss)}"
        self._update(adapter, completed=done, total=total, rate=text, state=state)

    def finished(self, adapter: str, text: str) -> None:
        self._update(adapter, state=printable(text))
        self._progress.stop_task(self._tasks[adapter])

    def recorded(self, ended: Record) -> None:
        if ended.failure is None:
            self._update(ended.adapter, state=ended.proof)

    def _update(self, adapter: str, **changes: Any) -> None:
        self._progress.update(self._tasks[adapter], **changes)
        if time.monotonic() - self._drawn >= DRAW_SECONDS:
            self._draw()
            self._drawn = time.monotonic()


class Lines(Silent):
    """A plain line at each phase, and every ``LINE_SECONDS`` during training.

    Args:
        write: prints a line.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._last_line: dict[str, float] = {}
        self._rate = Rate()

    def phase(self, adapter: str, text: str) -> None:
        self._write(f"{adapter}: {text}")

    def steps(self, adapter: str, done: int, total: int, loss: float) -> None:
        now = time.monotonic()
        rate = self._rate.update(adapter, done, now)
        if now - self._last_line.setdefault(adapter, now) < LINE_SECONDS and done < total:
            return
        self._last_line[adapter] = now
        left = f", {(total - done) / rate:.0f} s left" if rate and done < total else ""
        speed = f", {rate:.1f} steps/s" if rate else ""
        self._write(f"{adapter}: step {done} of {total}, loss {loss_text(loss)}{speed}{left}")

    def finished(self, adapter: str, text: str) -> None:
        self._write(f"{adapter}: {text}")

    def recorded(self, ended: Record) -> None:
        if ended.failure is None:
            self._write(f"{ended.adapter}: {ended.proof}")
