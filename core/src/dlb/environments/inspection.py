"""What is in an environment, asked of its own interpreter."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dlb.environments.record import Environment
from dlb.errors import EnvironmentMissing

__all__ = ["Contents", "ask", "contents", "packages"]

# A framework's import can take a minute from a cold disk.
SECONDS = 300.0

# Runs in interpreters as old as 3.6, which have no importlib.metadata; dlb-worker brings it there.
_LIST = """
import json, sys
found, points = {}, []
try:
    from importlib import metadata
except ImportError:
    try:
        import importlib_metadata as metadata
    except ImportError:
        metadata = None
for one in metadata.distributions() if metadata else ():
    name = one.metadata["Name"]
    if name:
        found.setdefault(name, one.version)
        points += [[name, e.name] for e in one.entry_points if e.group == "dlb"]
print(json.dumps({"python": sys.version.split()[0], "packages": found, "points": points}))
"""


@dataclass(frozen=True)
class Contents:
    """An interpreter's version, its packages' versions by canonical name, and adapters' entry
    points (group ``dlb``) by the canonical name of their distribution."""

    python: str
    packages: dict[str, str]
    entry_points: dict[str, tuple[str, ...]]


def packages(environment: Environment) -> dict[str, str]:
    """The version of every package in the environment, by canonical name.

    Raises:
        EnvironmentMissing: its interpreter does not run.
    """
    return contents(environment.name, environment.python).packages


def contents(name: str, python: Path) -> Contents:
    """What the environment with this interpreter holds.

    Raises:
        EnvironmentMissing: the interpreter does not run.
    """
    from packaging.utils import canonicalize_name

    code, output, error = ask(python, _LIST)
    try:
        document = json.loads(output.strip().splitlines()[-1]) if code == 0 else None
    except (ValueError, IndexError):
        document = None
    if document is None:
        raise EnvironmentMissing(
            f"environment '{name}': {python} does not run: {error or 'it printed nothing'}; "
            f"run: dlb env doctor {name}"
        )
    points: dict[str, tuple[str, ...]] = {}
    for distribution, point in document["points"]:
        key = canonicalize_name(distribution)
        points[key] = (*points.get(key, ()), point)
    found = {canonicalize_name(key): version for key, version in document["packages"].items()}
    return Contents(document["python"], dict(sorted(found.items())), points)


def ask(
    python: Path, program: str, *arguments: str, seconds: float = SECONDS
) -> tuple[int, str, str]:
    """Run a short program in an interpreter.

    The interpreter is isolated: nothing of this process's Python settings reaches it.

    Returns:
        The exit status (-1: it did not start or did not end in time), what it printed, and the last
        line of its errors.
    """
    try:
        result = subprocess.run(
            [python, "-I", "-c", program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            # Not the user's folder: a module there must not pass for one of the environment's.
            cwd=os.sep,
        )
    except subprocess.TimeoutExpired:
        return -1, "", f"it did not end in {seconds:g} s"
    except OSError as error:
        return -1, "", error.strerror or str(error)
    lines = result.stderr.decode(errors="replace").strip().splitlines()
    return result.returncode, result.stdout.decode(errors="replace"), lines[-1] if lines else ""
