"""The blocks of steps that a trial takes, where trials are alive side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["ALL_AT_ONCE", "Blocks"]


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
