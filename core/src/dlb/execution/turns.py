"""Trials that are alive side by side, of which one works at any time.

A machine that is shared changes its speed for seconds. Trials one after the other then differ by what the
machine did meanwhile; blocks of steps that alternate are all hit alike. Each pass goes through the trials in
the reverse order of the one before, so that a steady drift cancels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["ALL_AT_ONCE", "Blocks", "Turns"]


@dataclass(frozen=True)
class Blocks:
    """The blocks of steps that one trial takes.

    Attributes:
        ends: after how many steps each ends; the last is all steps.
        pause: is called after each block, and before the first; returns when it is the trial's turn again.
    """

    ends: tuple[int, ...] = ()
    pause: Callable[[], None] = lambda: None

    def next(self, done: int) -> int | None:
        """After how many steps the block ends in which a step is the next; None without blocks."""
        return next((end for end in self.ends if end > done), None)


#: Of a trial that is alone.
ALL_AT_ONCE = Blocks()


class Turns:
    """Whose turn it is.

    Args:
        count: of trials, each known by its place from 0.
    """

    def __init__(self, count: int) -> None:
        self._changed = threading.Condition()
        self._left = list(range(count))
        #: Who is still to come in this pass; the first has the turn.
        self._pass = list(range(count))
        self._reversed = False
        self._stopped = False

    @contextmanager
    def taken(self, place: int) -> Iterator[None]:
        """Wait for the first turn; at the end, the trial leaves, and the others go on.

        Raises:
            KeyboardInterrupt: all were stopped.
        """
        self._wait(place)
        try:
            yield
        finally:
            with self._changed:
                self._left.remove(place)
                self._pass = [each for each in self._pass if each != place]
                self._begin_pass()

    def pause(self, place: int) -> None:
        """Let the others take their turns; errors as :meth:`taken`."""
        with self._changed:
            self._pass.remove(place)
            self._begin_pass()
        self._wait(place)

    def stop(self) -> None:
        """Wake all that wait; they raise KeyboardInterrupt."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _begin_pass(self) -> None:
        if not self._pass:
            self._reversed = not self._reversed
            self._pass = self._left[::-1] if self._reversed else list(self._left)
        self._changed.notify_all()

    def _wait(self, place: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._pass[:1] == [place])
            if self._stopped:
                raise KeyboardInterrupt
