"""Trials that are alive side by side, of which one works at any time.

A machine that is shared changes its speed for seconds. Trials one after the other then differ by what the
machine did meanwhile; blocks of steps that alternate are all hit alike. Each pass goes through the trials in
the reverse order of the one before, so that a steady drift cancels.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Turns"]


class Turns:
    """Whose turn it is.

    Args:
        count: of trials, each known by its place from 0.
        together: whether all start at the same time, and wait for each other before their first block.
    """

    def __init__(self, count: int, *, together: bool = False) -> None:
        self._changed = threading.Condition()
        self._left = list(range(count))
        self._starting = set(range(count)) if together else set()
        #: Who is still to come in this pass; the first has the turn.
        self._pass = list(range(count))
        self._reversed = False
        self._stopped = False

    @contextmanager
    def taken(self, place: int) -> Iterator[None]:
        """Wait for the first turn, unless all start together; at the end, the trial leaves, and others go on.

        Raises:
            KeyboardInterrupt: all were stopped.
        """
        if place not in self._starting:
            self._wait(place)
        try:
            yield
        finally:
            with self._changed:
                self._starting.discard(place)
                self._left.remove(place)
                self._pass = [each for each in self._pass if each != place]
                self._begin_pass()

    def pause(self, place: int) -> None:
        """Let the others take their turns; errors as :meth:`taken`."""
        with self._changed:
            if place in self._starting:
                self._starting.remove(place)
                self._changed.notify_all()
            else:
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
            self._changed.wait_for(
                lambda: self._stopped or (not self._starting and self._pass[:1] == [place])
            )
            if self._stopped:
                raise KeyboardInterrupt
