"""Diagnoses an environment, and names the command that fixes it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import dlb_worker
from dlb.environments import inspection, provision, record, sources, uv_process
from dlb.environments.index_settings import from_environment
from dlb.environments.record import Environment
from dlb.errors import DlbError, EnvironmentMissing, ProvisionError, RecordError

__all__ = ["Finding", "doctor"]

_CHECK_SECONDS = 120.0

# Loads the entry points in group "dlb" of the distribution given as argument.
_LOAD = """
import re, sys
import importlib_metadata as metadata
plain = lambda name: re.sub("[-_.]+", "-", name or "").lower()
for distribution in metadata.distributions():
    try:
        name = distribution.metadata["Name"]
    except Exception:  # missing or damaged metadata
        continue
    if plain(name) == sys.argv[1]:
        for point in distribution.entry_points:
            if point.group == "dlb":
                point.load()
"""


@dataclass(frozen=True)
class Finding:
    """The result of one check as text, and the command that fixes it, if there is one."""

    severity: Literal["ok", "warning", "error"]
    what: str
    remedy: str = ""


def doctor(name: str) -> list[Finding]:
    """Examine environment ``name``; every finding that is not ``ok`` has a remedy.

    Raises:
        RequestError: the name cannot be an adapter's.
    """
    return list(_findings(name))


def _findings(name: str) -> Iterator[Finding]:
    folder = record.folder_of(name)
    try:
        environment = record.read(folder)
    except RecordError as error:
        if record.is_unfinished(folder):
            what = f"{folder} is unfinished: dlb was interrupted while making it"
        elif not (folder / record.RECORD).exists():
            what = f"there is no environment '{name}'"
        else:
            what = str(error)
        yield Finding("error", what, f"dlb env create {name}")
        return
    yield Finding("ok", f"the record {folder / record.RECORD} is readable")

    fix = _fix_command(environment)
    try:
        contents = inspection.contents(name, environment.python)
    except EnvironmentMissing:
        state = "does not run" if environment.python.exists() else "is gone"
        yield Finding("error", f"its interpreter {environment.python} {state}", fix)
        return
    yield Finding("ok", f"{environment.python} runs (Python {contents.python})")

    yield _worker(environment, contents.packages.get("dlb-worker"))
    yield from _adapter(environment, contents)
    yield from _dependencies(environment)
    if environment.managed:
        yield _source(environment)


def _fix_command(environment: Environment) -> str:
    """The command that makes or registers the environment again."""
    name = environment.name
    if not environment.managed:
        return f"dlb env add {name} PYTHON"
    words = ["dlb", "env", "create", name]
    if environment.source is not None and sources.holds(environment.source, name):
        words += ["--from", str(environment.source)]
    if environment.python_request:
        words += ["--python", environment.python_request]
    if environment.constraint is not None and environment.constraint.is_file():
        words += ["--constraint", str(environment.constraint)]
    return shlex.join(words)


def _install_command(environment: Environment, requirement: str) -> str:
    """The command that fixes a package. dlb changes only environments that it made."""
    if environment.managed:
        return _fix_command(environment)
    python = str(environment.python)
    return shlex.join([python, "-m", "pip", "install", requirement])


def _worker(environment: Environment, version: str | None) -> Finding:
    remedy = _install_command(environment, f"dlb-worker=={dlb_worker.__version__}")
    if version == dlb_worker.__version__:
        return Finding("ok", f"dlb-worker {version} is there")
    if version is not None:
        return Finding(
            "error", f"dlb-worker there is {version}, this dlb has {dlb_worker.__version__}", remedy
        )
    if environment.managed:
        return Finding("error", "dlb-worker is not installed there", remedy)
    return Finding(
        "warning",
        "dlb-worker is not installed there: only an adapter with its own implementation of the "
        "worker protocol can run",
        remedy,
    )


def _adapter(environment: Environment, contents: inspection.Contents) -> Iterator[Finding]:
    from packaging.utils import canonicalize_name

    distribution = environment.distribution
    key = canonicalize_name(distribution)
    remedy = _install_command(environment, distribution)
    version = contents.packages.get(key)
    if version is None:
        yield Finding("error", f"{distribution} is not installed there", remedy)
        return
    yield Finding("ok", f"{distribution} {version} is there")
    points = contents.entry_points.get(key, ())
    if not points:
        yield Finding("error", f"{distribution} has no entry point in group 'dlb'", remedy)
        return
    code, _, error = inspection.run_program(environment.python, _LOAD, key)
    if code != 0:
        yield Finding(
            "error", f"{distribution} does not load: {error or f'exit status {code}'}", remedy
        )
        return
    yield Finding("ok", f"{distribution} loads (entry points: {', '.join(points)})")


def _dependencies(environment: Environment) -> Iterator[Finding]:
    try:
        uv = uv_process.find_uv()
    except ProvisionError as error:
        yield Finding("error", str(error), f"{sys.executable} -m pip install uv")
        return
    command = [uv, "pip", "check", f"--python={environment.python}"]
    remedy = _fix_command(environment)
    if not environment.managed:
        remedy = f"{shlex.quote(str(environment.python))} -m pip check"
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=from_environment(os.environ).environ,
            timeout=_CHECK_SECONDS,
        )
    except subprocess.TimeoutExpired:
        yield Finding("warning", "uv did not check the dependencies in time", remedy)
        return
    lines = result.stderr.decode(errors="replace").splitlines()
    conflicts = [line for line in lines if line.startswith("The package ")]
    if result.returncode == 0:
        yield Finding("ok", "its packages are compatible")
    elif not conflicts:
        reason = lines[-1].strip() if lines else "uv gave no reason"
        yield Finding(
            "warning", f"whether its packages are compatible is unknown: {reason}", remedy
        )
    for line in conflicts:
        yield Finding("error", line, remedy)


def _source(environment: Environment) -> Finding:
    origin = environment.source or "a package index"
    remedy = _fix_command(environment)
    gone = provision.origin_missing(environment)
    if gone is not None:
        what = f"{gone}, from which it was made, is gone: whether it is up to date is unknown"
        return Finding("warning", what, f"dlb env create {environment.name}")
    try:
        plan = provision.current_plan(environment, environment.name)
    except DlbError as error:
        return Finding("warning", f"whether it is up to date is unknown: {error}", remedy)
    if plan.digest == environment.source_digest:
        return Finding("ok", f"it is up to date with {origin}")
    return Finding("warning", f"it is stale: its source ({origin}) has changed", remedy)
