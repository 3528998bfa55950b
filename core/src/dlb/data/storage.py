"""Putting fetched files in their folder so that two fetches at once, or a crash, do no harm."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from dlb.errors import DataError

__all__ = ["SourceFailed", "alone_in", "cannot_write", "install", "prepare"]

_LOCK_WAIT_SECONDS = 1800.0
_LOCK_PAUSE_SECONDS = 0.1


class SourceFailed(Exception):
    """One way of getting a file failed; another may be tried. Never leaves ``fetch``."""


def cannot_write(place: Path, error: OSError) -> DataError:
    """The error for a folder that cannot be written to. No other source would mend it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataError(
            f"{place}: the disk is full ({error.strerror}); free some space, "
            "or set DLB_HOME to a folder on another disk"
        )
    return DataError(
        f"{place}: cannot be written ({error.strerror or error}); "
        "set DLB_HOME to a folder that you can write to"
    )


def prepare(folder: Path) -> None:
    """Make a folder.

    Raises:
        DataError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error


def install(finished: Path, target: Path) -> None:
    """Move a finished file to its name in one step, so that nobody sees half of it.

    Raises:
        DataError: the folder cannot be written to.
    """
    try:
        os.replace(finished, target)
    except OSError as error:
        raise cannot_write(target, error) from error


@contextmanager
def alone_in(folder: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Hold a folder's lock; the system drops it when the process ends, however it ends.

    Raises:
        DataError: the folder cannot be written to, or another fetch holds it for half an hour.
    """
    path = folder / ".lock"
    try:
        lock = path.open("ab")
    except OSError as error:
        raise cannot_write(path, error) from error
    with lock:
        deadline = time.monotonic() + _LOCK_WAIT_SECONDS
        waiting = False
        while not _try_lock(lock):
            if not waiting:
                report(f"waiting for another fetch into {folder}")
                waiting = True
            if time.monotonic() > deadline:
                raise DataError(
                    f"{folder}: another fetch has held it for "
                    f"{_LOCK_WAIT_SECONDS / 60:.0f} minutes; end that one and try again"
                )
            time.sleep(_LOCK_PAUSE_SECONDS)
        try:
            yield
        finally:
            with suppress(OSError):  # closing the file drops the lock as well
                _unlock(lock)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(lock: IO[bytes]) -> bool:
        lock.seek(0)
        try:
            msvcrt.locking(lock.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(lock: IO[bytes]) -> None:
        lock.seek(0)
        msvcrt.locking(lock.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(lock: IO[bytes]) -> bool:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            # A file system without locks, as some network ones are. The renames alone still keep
            # every finished file whole; the worst is that two fetches spoil each other's part.
            return True
        return True

    def _unlock(lock: IO[bytes]) -> None:
        fcntl.flock(lock, fcntl.LOCK_UN)
