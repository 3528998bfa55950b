"""A lock so that only one process at a time makes an environment."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dlb.errors import ProvisionError

__all__ = ["Hold", "hold"]


@dataclass(frozen=True)
class Hold:
    """A held lock. ``waited``: another process held it before. ``descriptor`` may be inherited."""

    descriptor: int
    waited: bool


@contextlib.contextmanager
def hold(path: Path, *, deadline: float, waiting: Callable[[], None]) -> Iterator[Hold]:
    """Hold the lock of file ``path``, and wait for it until ``deadline`` (``time.monotonic``).

    The system releases the lock when the holder and every process that inherited the descriptor have
    ended, for any reason. The file is kept: after a deletion, two processes could lock two files of
    the same name.

    Args:
        path: the lock file.
        deadline: the end of waiting.
        waiting: called once if another process holds the lock.

    Raises:
        ProvisionError: another process still held the lock at the deadline.
        OSError: the file cannot be made.
    """
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        waited = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waited:
                    waiting()
                waited = True
                if time.monotonic() > deadline:
                    raise ProvisionError(
                        f"{path}: another dlb process is still making this environment; "
                        "wait for it, or end it, and try again (DLB_PROVISION_TIMEOUT, in seconds, "
                        "sets how long to wait)"
                    ) from None
                # flock has no timeout, so it is polled.
                time.sleep(0.1)
        yield Hold(descriptor, waited)
    finally:
        os.close(descriptor)
