"""Making, registering and removing environments.

A virtual environment cannot be moved once made, so it is made in its place, under a lock. Its
record is written last; a folder without one is what an interrupted ``create`` left, and the next
one clears it. The environment it replaces is kept aside until then, and put back on failure.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import dlb_worker
from dlb.environments import folders, inspection, record, sources
from dlb.environments.making import make
from dlb.environments.names import distribution_of
from dlb.environments.record import Environment
from dlb.errors import EnvironmentMissing, RequestError

__all__ = ["add", "create", "current_plan", "ensure", "remove", "time_limit"]

_SECONDS = 3600.0


def _silent(line: str) -> None:
    """Tell nobody."""


def time_limit() -> float:
    """Seconds that making an environment may take: ``DLB_PROVISION_TIMEOUT``, 3600 if not set.

    Raises:
        RequestError: it is not a number of seconds.
    """
    text = os.environ.get("DLB_PROVISION_TIMEOUT", "")
    if not text:
        return _SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise RequestError(f"DLB_PROVISION_TIMEOUT={text!r}: must be a positive number of seconds")
    return seconds


def create(
    name: str,
    *,
    source: Path | None = None,
    python: str | None = None,
    constraint: Path | None = None,
    report: Callable[[str], None] = _silent,
) -> Environment:
    """Make environment ``name`` anew. If another process is just making the same, wait and take it.

    Args:
        name: of the adapter; its distribution is ``dlb-NAME``.
        source: a checkout of dlb, a folder of wheels, or the adapter's own package. None: where
            this dlb was installed from, or else a package index.
        python: an interpreter or a version, in uv's words. None: what the packages ask for.
        constraint: a file of version constraints.
        report: called with one line at a time as it goes on.

    Raises:
        RequestError: the name, source or constraint cannot be used, or ``name`` is registered to
            run elsewhere.
        ProvisionError: it could not be made; nothing is left of it, and an earlier one is as it
            was.
    """
    plan = sources.plan(name, source=source, python=python, constraint=constraint)
    before = record.find(name)

    def reusable(now: Environment, waited: bool) -> bool:
        return waited and now != before and now.source_digest == plan.digest

    return _provision(plan, reusable, report)


def ensure(
    name: str,
    *,
    source: Path | None = None,
    python: str | None = None,
    constraint: Path | None = None,
    report: Callable[[str], None] = _silent,
) -> Environment:
    """Environment ``name``, made if there is none or if what it was made from has changed.

    What is not given is as it was when the environment was made.

    Raises:
        RequestError: as ``create``.
        EnvironmentMissing: it was registered by ``add`` and its interpreter is gone.
        ProvisionError: as ``create``.
    """
    existing = record.find(name)
    if existing is not None and not existing.managed:
        if not existing.python.exists():
            raise EnvironmentMissing(
                f"environment '{name}': its interpreter {existing.python} is gone; "
                f"run: dlb env add {name} PYTHON"
            )
        return existing
    if (
        existing is not None
        and (source, python, constraint) == (None, None, None)
        and origin_missing(existing)
        and existing.python.exists()
        and not outdated(existing)
    ):
        # What it was made from cannot be compared any more, and it is not for us to put something
        # else in its place.
        return existing
    plan = current_plan(existing, name, source=source, python=python, constraint=constraint)

    def fresh(now: Environment, waited: bool) -> bool:
        return now.source_digest == plan.digest and now.python.exists()

    if existing is not None and fresh(existing, False):
        return existing
    return _provision(plan, fresh, report)


def current_plan(
    existing: Environment | None,
    name: str,
    *,
    source: Path | None = None,
    python: str | None = None,
    constraint: Path | None = None,
) -> sources.Plan:
    """What ``ensure`` would make now, given an environment that is there already.

    Raises:
        RequestError: as ``create``.
    """
    if existing is not None:
        python = python or existing.python_request
        constraint = constraint or existing.constraint
        # A source of another version than this dlb is not held on to.
        kept = None if outdated(existing) else existing.source
        if source is None and kept is not None and sources.holds(kept, name):
            source = kept
    return sources.plan(name, source=source, python=python, constraint=constraint)


def outdated(environment: Environment) -> bool:
    """Whether dlb-worker in an environment that dlb made has another version than this dlb's."""
    return environment.worker_version != dlb_worker.__version__


def origin_missing(environment: Environment) -> Path | None:
    """The source or constraints file that an environment was made with, if it is gone."""
    for path in (environment.source, environment.constraint):
        if path is not None and not path.exists():
            return path
    return None


def add(name: str, python: Path) -> Environment:
    """Register an interpreter that has the adapter already; dlb changes nothing of it.

    Raises:
        RequestError: it does not run, or dlb made an environment of that name.
        ProvisionError: the registration cannot be written.
    """
    folder = record.folder_of(name)
    # Not resolved: a virtual environment is known by its interpreter's own place, a link.
    python = python.expanduser().absolute()
    code, _, error = inspection.ask(python, "import sys")
    if code != 0:
        raise RequestError(f"{python}: not a Python interpreter that runs: {error}")
    with folders.locked(name, time.monotonic() + time_limit()):
        folders.clear(folder)
        existing = record.find(name)
        if existing is not None and existing.managed:
            raise RequestError(
                f"'{name}' has an environment that dlb made; first run: dlb env remove {name}"
            )
        if existing is None and folder.exists() and any(folder.iterdir()):
            raise folders.foreign(folder)
        environment = Environment(
            name, folder, python, distribution_of(name), managed=False, created=record.now()
        )
        folder.mkdir(exist_ok=True)
        record.write(environment)
    return environment


def remove(name: str) -> None:
    """Delete the environment that dlb made, or only the registration of one it was told of.

    Raises:
        EnvironmentMissing: there is none.
        RequestError: the folder is not one that dlb made.
        ProvisionError: it cannot be deleted.
    """
    folder = record.folder_of(name)
    aside = folders.aside(folder)
    if not any(path.exists() or path.is_symlink() for path in (folder, aside)):
        raise EnvironmentMissing(f"there is no environment '{name}' to remove")
    with folders.locked(name, time.monotonic() + time_limit()):
        folders.clear(folder)
        existing = record.find(name)
        if existing is not None and not existing.managed:
            (folder / record.RECORD).unlink()
            # Anything else in there is not ours.
            with contextlib.suppress(OSError):
                folder.rmdir()
        elif folder.exists() or folder.is_symlink():
            folders.delete(folder)
        folder.with_name(f"{name}.log").unlink(missing_ok=True)


def _provision(
    plan: sources.Plan,
    reusable: Callable[[Environment, bool], bool],
    report: Callable[[str], None],
) -> Environment:
    folder = record.folder_of(plan.name)
    deadline = time.monotonic() + time_limit()
    with folders.locked(plan.name, deadline, report) as hold:
        folders.clear(folder, report)
        existing = record.find(plan.name)
        if existing is not None and not existing.managed:
            raise RequestError(
                f"'{plan.name}' is registered to run in {existing.python}; to have dlb make its "
                f"environment, first run: dlb env remove {plan.name}"
            )
        if existing is not None and reusable(existing, hold.waited):
            return existing
        aside = folders.aside(folder)
        if folders.is_ours(folder):
            folder.rename(aside)
        elif folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        elif folder.exists() or folder.is_symlink():
            raise folders.foreign(folder)
        try:
            environment = make(plan, folder, hold.descriptor, deadline, report)
        except BaseException:
            # Also when interrupted; a second interruption leaves what the next call clears.
            if folders.is_ours(folder):
                folders.delete(folder)
            if aside.exists():
                aside.rename(folder)
            raise
        if aside.exists():
            folders.delete(aside)
    return environment
