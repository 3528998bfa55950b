"""One maker of an environment at a time, across processes."""

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
    """A lock that is held. ``waited``: another held it first. ``descriptor`` may be inherited."""

    descriptor: int
    waited: bool


@contextlib.contextmanager
def hold(path: Path, *, deadline: float, waiting: Callable[[], None]) -> Iterator[Hold]:
    """Hold the lock of file ``path``, waiting for it until ``deadline`` (``time.monotonic``).

    The system frees it however its holder ends, once every process that inherited the descriptor
    has ended too. The file is left: deleting it would let two processes each lock a file of that
    name.

    Raises:
        ProvisionError: another process still held it at the deadline.
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
                        f"{path}: another dlb has been making this environment all this time; "
                        "let it end, or end it, and try again (DLB_PROVISION_TIMEOUT, in seconds, "
                        "sets how long to wait)"
                    ) from None
                # flock cannot wait for a bounded time, so it is asked again.
                time.sleep(0.1)
        yield Hold(descriptor, waited)
    finally:
        os.close(descriptor)
