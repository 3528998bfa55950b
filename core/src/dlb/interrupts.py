"""Ctrl-C and termination, held back where they would leave something half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["deferred", "ignored"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def ignored() -> Iterator[None]:
    """Keep a second Ctrl-C from stopping what the first one set going."""
    with _handled(signal.SIG_IGN):
        yield


@contextmanager
def deferred() -> Iterator[None]:
    """Let a Ctrl-C act only when the block has ended: for what is short, and must be whole."""
    came: list[tuple[int, FrameType | None]] = []
    with _handled(lambda number, frame: came.append((number, frame))):
        yield
    for number, frame in came[:1]:
        handler = signal.getsignal(number)
        if callable(handler):
            handler(number, frame)
        elif handler == signal.SIG_DFL:
            signal.raise_signal(number)


@contextmanager
def _handled(by: Any) -> Iterator[None]:
    """Python runs handlers in the main thread, and only there can they be set."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        signal.signal(number, by)
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
