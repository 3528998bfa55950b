"""Makes, registers and removes environments.

A virtual environment cannot be moved, so it is made in its final folder, under a lock. Its record is
written last. A folder without a record comes from an interrupted ``create``; the next one deletes it. The
environment that is replaced is kept until then, and restored after a failure.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import dlb_worker
from dlb.environments import folders, inspection, record, sources, uv_process
from dlb.environments.making import make
from dlb.environments.names import distribution_of
from dlb.environments.record import Environment
from dlb.errors import EnvironmentMissing, RequestError

__all__ = ["add", "create", "current_plan", "ensure", "make_each", "remove", "time_limit"]

_SECONDS = 3600.0


def _silent(line: str) -> None:
    """Report nothing."""


def time_limit() -> float:
    """The time limit for making an environment in seconds: ``DLB_PROVISION_TIMEOUT``, or 3600.

    Raises:
        RequestError: the variable is not a number of seconds.
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
    """Make environment ``name`` again. If another process is making the same one, wait and use it.

    Args:
        name: the adapter's name; its distribution is ``dlb-NAME``.
        source: a checkout of dlb, a folder of wheels, or the adapter's own package. None: the source
            of this dlb, or a package index.
        python: an interpreter or a version, in uv's syntax. None: any that the packages support.
        constraint: a file of version constraints.
        report: receives a line of text for each step.

    Raises:
        RequestError: the name, source or constraint cannot be used, or ``name`` is registered with
            another interpreter.
        ProvisionError: the environment could not be made. Nothing of it is left, and an earlier one
            is unchanged.
    """
    plan = sources.plan(name, source=source, python=python, constraint=constraint)
    before = record.find(name)

    def reusable(current: Environment, waited: bool) -> bool:
        return waited and current != before and current.source_digest == plan.digest

    return _provision(plan, reusable, report)


def ensure(
    name: str,
    *,
    source: Path | None = None,
    python: str | None = None,
    constraint: Path | None = None,
    report: Callable[[str], None] = _silent,
) -> Environment:
    """Environment ``name``; it is made if it is missing or if its source has changed.

    Arguments that are None keep the values with which the environment was made.

    Raises:
        RequestError: as ``create``.
        EnvironmentMissing: ``add`` registered it, and its interpreter is gone.
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
        # Its source is gone, so it cannot be compared. dlb does not replace it with another source.
        return existing
    plan = current_plan(existing, name, source=source, python=python, constraint=constraint)

    def up_to_date(current: Environment, waited: bool) -> bool:
        return current.source_digest == plan.digest and current.python.exists()

    if existing is not None and up_to_date(existing, False):
        return existing
    return _provision(plan, up_to_date, report)


def make_each(
    make: Callable[..., Environment],
    names: Sequence[str],
    report: Callable[[str], None] = _silent,
    **arguments: Any,
) -> list[Environment]:
    """Call :func:`create` or :func:`ensure` for several adapters at once, since most of it is waiting.

    An error of one does not end the others. An interrupt ends all.

    Args:
        report: receives lines of text, each with the adapter's name if there are several.
        arguments: for ``make``.

    Raises:
        DlbError: as ``make``; that of the first adapter which failed, after all have ended.
    """
    if len(names) == 1:
        return [make(names[0], report=report, **arguments)]

    uv_process.find_uv()  # once before the threads do: sysconfig's first use must be one thread's

    def named(name: str) -> Callable[[str], None]:
        return lambda line: report(f"{name}: {line}")

    with ThreadPoolExecutor(max(1, len(names))) as pool, uv_process.ending_together():
        made = [pool.submit(make, name, report=named(name), **arguments) for name in names]
        wait(made)
    return [future.result() for future in made]


def current_plan(
    existing: Environment | None,
    name: str,
    *,
    source: Path | None = None,
    python: str | None = None,
    constraint: Path | None = None,
) -> sources.Plan:
    """The plan that ``ensure`` would use now, with the settings of an existing environment.

    Raises:
        RequestError: as ``create``.
    """
    if existing is not None:
        python = python or existing.python_request
        constraint = constraint or existing.constraint
        # A source of another version than this dlb is not used again.
        previous = None if outdated(existing) else existing.source
        if source is None and previous is not None and sources.holds(previous, name):
            source = previous
    return sources.plan(name, source=source, python=python, constraint=constraint)


def outdated(environment: Environment) -> bool:
    """Whether dlb-worker in an environment that dlb made has another version than this dlb's."""
    return environment.worker_version != dlb_worker.__version__


def origin_missing(environment: Environment) -> Path | None:
    """The source or the constraints file of an environment, if it no longer exists."""
    for path in (environment.source, environment.constraint):
        if path is not None and not path.exists():
            return path
    return None


def add(name: str, python: Path) -> Environment:
    """Register an interpreter that already has the adapter; dlb does not change its environment.

    Raises:
        RequestError: the interpreter does not run, or dlb made an environment of that name.
        ProvisionError: the registration cannot be written.
    """
    folder = record.folder_of(name)
    # Links are not resolved: the path of the link identifies a virtual environment.
    python = python.expanduser().absolute()
    code, _, error = inspection.run_program(python, "import sys")
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
    """Delete an environment that dlb made, or unregister one that was added.

    Raises:
        EnvironmentMissing: there is no such environment.
        RequestError: dlb did not make the folder.
        ProvisionError: the folder cannot be deleted.
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
            # dlb did not write any other file in the folder.
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
            # After an interrupt too. If a second interrupt stops this, the next call cleans up.
            if folders.is_ours(folder):
                folders.delete(folder)
            if aside.exists():
                aside.rename(folder)
            raise
        if aside.exists():
            folders.delete(aside)
    return environment
