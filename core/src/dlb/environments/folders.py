"""Locks, sets aside and deletes the folders of environments, and checks who made them."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from dlb import places
from dlb.environments import locks, record
from dlb.environments.record import Environment
from dlb.errors import DlbError, ProvisionError, RecordError, RequestError

__all__ = ["aside", "clear", "delete", "foreign", "is_ours", "list_all", "locked"]


@contextlib.contextmanager
def locked(
    name: str, deadline: float, report: Callable[[str], None] | None = None
) -> Iterator[locks.Hold]:
    """Hold the lock of environment ``name``, and wait for it until ``deadline``.

    Raises:
        ProvisionError: the lock was not free in time, or the system reported an error within the
            block (no permission, no space).
    """

    def waiting() -> None:
        if report is not None:
            report(f"waiting for another dlb process that is using '{name}'")

    home = places.environments_home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with locks.hold(home / f".{name}.lock", deadline=deadline, waiting=waiting) as hold:
            yield hold
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            remedy = "free some space, or set DLB_HOME to a folder with more"
        else:
            remedy = "set DLB_HOME to a folder that you may write to"
        raise ProvisionError(
            f"environment '{name}': {error.filename or home}: {error.strerror or error}; {remedy}"
        ) from error


def aside(folder: Path) -> Path:
    """The folder that keeps an environment while its replacement is made."""
    return folder.with_name(f".{folder.name}.replaced")


def is_ours(folder: Path) -> bool:
    """Whether dlb made this folder, complete or not."""
    marks = (folder / record.RECORD, folder / record.UNFINISHED)
    return not folder.is_symlink() and any(mark.is_file() for mark in marks)


def foreign(folder: Path) -> RequestError:
    """The error for a folder that dlb did not make."""
    return RequestError(f"{folder}: dlb did not make this folder; move it away and try again")


def delete(folder: Path) -> None:
    """Delete a folder that dlb made. If interrupted, no part keeps the folder's name.

    Raises:
        RequestError: dlb did not make the folder.
        OSError: the folder cannot be deleted.
    """
    if not is_ours(folder):
        raise foreign(folder)
    doomed = folder.with_name(f".{folder.name}.deleted")
    if doomed.is_dir():
        shutil.rmtree(doomed)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def clear(folder: Path, report: Callable[[str], None] | None = None) -> None:
    """Clean up after an interrupted dlb process, under the lock.

    An unfinished environment is deleted, and the one that it should replace is restored.

    Raises:
        OSError: a folder cannot be deleted or renamed.
    """
    if record.is_unfinished(folder):
        if report is not None:
            report(f"deleting an unfinished environment in {folder}")
        delete(folder)
    if aside(folder).is_dir():
        if folder.exists():
            delete(aside(folder))
        else:
            aside(folder).rename(folder)


def list_all() -> list[Environment]:
    """All environments, ordered by name. One whose replacement was killed is put back first."""
    home = places.environments_home()
    for kept in home.glob(".*.replaced"):
        name = kept.name[1 : -len(".replaced")]
        # Another dlb may be making it now.
        with contextlib.suppress(DlbError, OSError), locked(name, 0.0):
            clear(record.folder_of(name))
    environments = []
    for path in sorted(home.glob(f"[!.]*/{record.RECORD}")):
        with contextlib.suppress(RecordError):
            environments.append(record.read(path.parent))
    return environments
