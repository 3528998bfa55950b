"""Folders for what a process needs while it runs.

A process that is killed removes nothing. So each folder has a lock, which the system releases with the process,
and whoever makes the next folder removes those whose lock is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dlb import interrupts

__all__ = ["scratch_folder"]

_PREFIX = "dlb-"
_LOCK = ".dlb-lock"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder in the folder for temporary files; it is removed at the end.

    Raises:
        OSError: it cannot be made.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    # The lock is closed last: until the folder is gone, nobody else removes it.
    with contextlib.ExitStack() as held:
        folder: Path | None = None
        try:
            # An interrupt between both would leave a folder without a lock, which nobody removes.
            with interrupts.deferred():
                folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
                new = folder / f"{_LOCK}-new"
                lock = held.enter_context(new.open("wb"))
                # On a file system without locks, the folder is removed at the end only.
                with contextlib.suppress(OSError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # Nobody sees the lock before it is held.
                    new.rename(folder / _LOCK)
            yield folder
        finally:
            if folder is not None:
                with interrupts.deferred():
                    shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """Remove this user's folders whose process has ended."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            # Of a folder without a lock, nobody knows whether it is in use.
            with open(os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW), "wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
