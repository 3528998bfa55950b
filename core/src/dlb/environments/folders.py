"""The folder of an environment: whose it is, and how one is locked, put aside and deleted."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from dlb import places
from dlb.environments import locks, record
from dlb.errors import ProvisionError, RequestError

__all__ = ["aside", "clear", "delete", "foreign", "is_ours", "locked"]


@contextlib.contextmanager
def locked(
    name: str, deadline: float, report: Callable[[str], None] | None = None
) -> Iterator[locks.Hold]:
    """Hold the lock of environment ``name``, waiting for it until ``deadline``.

    Raises:
        ProvisionError: it was not had in time, or the system refused something meanwhile (no
            permission, no space): the one line that says so.
    """

    def waiting() -> None:
        if report is not None:
            report(f"waiting for another dlb that is at work on '{name}'")

    home = places.environments_home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with locks.hold(home / f".{name}.lock", deadline=deadline, waiting=waiting) as hold:
            yield hold
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            remedy = "free some space, or set DLB_HOME to a place with more"
        else:
            remedy = "set DLB_HOME to a folder that you may write to"
        raise ProvisionError(
            f"environment '{name}': {error.filename or home}: {error.strerror or error}; {remedy}"
        ) from error


def aside(folder: Path) -> Path:
    """Where the environment that is being replaced waits."""
    return folder.with_name(f".{folder.name}.replaced")


def is_ours(folder: Path) -> bool:
    """Whether dlb made this folder, whole or not."""
    marks = (folder / record.RECORD, folder / record.UNFINISHED)
    return not folder.is_symlink() and any(mark.is_file() for mark in marks)


def foreign(folder: Path) -> RequestError:
    """The error for a folder that dlb did not make."""
    return RequestError(f"{folder}: dlb did not make this folder; move it away and try again")


def delete(folder: Path) -> None:
    """Delete a folder that dlb made. Cut short, it leaves nothing under the folder's name.

    Raises:
        RequestError: dlb did not make it.
        OSError: it cannot be deleted.
    """
    if not is_ours(folder):
        raise foreign(folder)
    doomed = folder.with_name(f".{folder.name}.deleted")
    if doomed.is_dir():
        shutil.rmtree(doomed)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def clear(folder: Path, report: Callable[[str], None] | None = None) -> None:
    """Set right what an interrupted dlb left, under the lock.

    An unfinished environment is deleted, and one that it was to replace is put back.

    Raises:
        OSError: it cannot be.
    """
    if record.is_unfinished(folder):
        if report is not None:
            report(f"clearing what an interrupted dlb left in {folder}")
        delete(folder)
    if aside(folder).is_dir():
        if folder.exists():
            delete(aside(folder))
        else:
            aside(folder).rename(folder)
