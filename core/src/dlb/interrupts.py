"""Ignores or defers Ctrl-C and termination where they would leave work half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["SIGNALS", "deferred", "ignored"]

#: What ends a command: Ctrl-C, a polite kill, and the end of its terminal.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ignored() -> Iterator[None]:
    """Ignore interrupts, so that a second Ctrl-C does not stop the cleanup after the first."""
    with _handlers_set(signal.SIG_IGN):
        yield


@contextmanager
def deferred() -> Iterator[None]:
    """Handle an interrupt only after the block has ended: for short work that must be complete."""
    pending: list[tuple[int, FrameType | None]] = []
    with _handlers_set(lambda number, frame: pending.append((number, frame))):
        yield
    for number, frame in pending[:1]:
        handler = signal.getsignal(number)
        if callable(handler):
            handler(number, frame)
        elif handler == signal.SIG_DFL:
            signal.raise_signal(number)


@contextmanager
def _handlers_set(replacement: Any) -> Iterator[None]:
    """Replace the signal handlers during the block. Other threads than the main one cannot set any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, replacement)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
