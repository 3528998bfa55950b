"""Lists the content of an environment with its own interpreter."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dlb.environments.record import Environment
from dlb.errors import EnvironmentMissing

__all__ = ["Contents", "contents", "fingerprint", "packages", "run_program"]

# From a cold disk, the import of a framework can take a minute.
SECONDS = 300.0

# Runs in interpreters from 3.6 on. Old ones have no importlib.metadata; dlb-worker installs a backport.
_LIST = """
import json, sys
packages, points = {}, []
try:
    from importlib import metadata
except ImportError:
    try:
        import importlib_metadata as metadata
    except ImportError:
        metadata = None
for distribution in metadata.distributions() if metadata else ():
    try:
        name, version = distribution.metadata["Name"], distribution.version
        own = [[name, point.name] for point in distribution.entry_points if point.group == "dlb"]
    except Exception:  # missing or damaged metadata
        continue
    if name:
        packages.setdefault(name, version)
        points += own
print(json.dumps({"python": sys.version.split()[0], "packages": packages, "points": points}))
"""

#: Hashes name, size and time of change of every file that can be imported; the interpreter's own library
#: is known by its version. Metadata in a source tree are hashed by their contents, since setuptools writes
#: them again whenever it builds from that tree.
_FINGERPRINT = """
import hashlib, os, sys
library = os.path.dirname(os.__file__)
digest = hashlib.sha256(sys.version.encode())
for folder in sorted(set(filter(os.path.isdir, sys.path))):
    if folder == library or os.path.dirname(folder) == library and folder.endswith("dynload"):
        continue
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and name[0] != ".")
        for name in sorted(files):
            if name.endswith(".pyc") or name == "SOURCES.txt":  # what setuptools saw, not what it made
                continue
            try:
                if root.endswith(".egg-info"):
                    with open(os.path.join(root, name), "rb") as file:
                        seen = file.read()
                else:
                    status = os.stat(os.path.join(root, name))
                    seen = status.st_size, status.st_mtime_ns
            except OSError:
                continue
            digest.update(repr((root, name, seen)).encode("utf-8", "replace"))
print(digest.hexdigest())
"""


@dataclass(frozen=True)
class Contents:
    """The content of an environment.

    Attributes:
        python: the interpreter's version.
        packages: the packages' versions by canonical name.
        entry_points: entry points in group ``dlb`` by the canonical name of their distribution.
    """

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
    """The content of the environment with this interpreter.

    Raises:
        EnvironmentMissing: the interpreter does not run.
    """
    from packaging.utils import canonicalize_name

    code, output, error = run_program(python, _LIST)
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
    versions = {canonicalize_name(key): version for key, version in document["packages"].items()}
    return Contents(document["python"], dict(sorted(versions.items())), points)


def fingerprint(python: Path) -> str:
    """A hash of every file that an interpreter can import; empty if it does not run."""
    code, output, _ = run_program(python, _FINGERPRINT)
    return output.strip() if code == 0 else ""


def run_program(
    python: Path, program: str, *arguments: str, seconds: float = SECONDS
) -> tuple[int, str, str]:
    """Run a short program in an interpreter.

    The interpreter is isolated from the Python settings of this process.

    Returns:
        the exit status (-1: it did not start or did not end in time), the standard output, and the
        last line of standard error.
    """
    try:
        result = subprocess.run(
            [python, "-I", "-c", program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            # In the user's folder, a module could hide one of the environment's.
            cwd=os.sep,
        )
    except subprocess.TimeoutExpired:
        return -1, "", f"it did not end in {seconds:g} s"
    except OSError as error:
        return -1, "", error.strerror or str(error)
    lines = result.stderr.decode(errors="replace").strip().splitlines()
    return result.returncode, result.stdout.decode(errors="replace"), lines[-1] if lines else ""
