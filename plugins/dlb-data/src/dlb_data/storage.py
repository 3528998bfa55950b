"""Stores downloaded files safely against a second fetch at the same time and against crashes."""

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

__all__ = ["SourceFailed", "cannot_write", "install", "lock_folder", "prepare"]

_LOCK_WAIT_SECONDS = 1800.0
_LOCK_PAUSE_SECONDS = 0.1


class SourceFailed(Exception):
    """One source of a file failed; another may work. Never leaves ``fetch``."""


def cannot_write(path: Path, error: OSError) -> DataError:
    """The error for a path that cannot be written to. No other source would fix it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataError(
            f"{path}: the disk is full ({error.strerror}); free some space, "
            "or set DLB_HOME to a folder on another disk"
        )
    return DataError(
        f"{path}: cannot be written ({error.strerror or error}); "
        "set DLB_HOME to a folder that you can write to"
    )


def prepare(folder: Path) -> None:
    """Make a folder.

    Raises:
        DataError: the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error


def install(finished: Path, target: Path) -> None:
    """Move a complete file to its name atomically, so that no reader sees half of it.

    Raises:
        DataError: the folder cannot be written to.
    """
    try:
        os.replace(finished, target)
    except OSError as error:
        raise cannot_write(target, error) from error


@contextmanager
def lock_folder(folder: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Hold a folder's lock; the system releases it when the process ends, for any reason.

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
            with suppress(OSError):  # closing the file releases the lock too
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
            # Some network file systems have no locks. Renames still keep every finished file complete;
            # at worst, two fetches damage each other's part.
            return True
        return True

    def _unlock(lock: IO[bytes]) -> None:
        fcntl.flock(lock, fcntl.LOCK_UN)
