"""The record of an environment: ``dlb-environment.json`` in its folder.

Format 2 is an object with ``format`` (2), ``name``, ``distribution``, ``python``, ``managed``, ``created``.
It also has ``source``, ``source_digest``, ``worker_version``, ``python_request`` and ``constraint``, each of
which may be null. Format 1 had ``core_version``; such an environment has no dlb-worker and is made again.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dlb import places
from dlb.environments.names import check_name, distribution_of
from dlb.errors import RecordError

__all__ = [
    "RECORD",
    "UNFINISHED",
    "Environment",
    "find",
    "folder_of",
    "is_unfinished",
    "now",
    "read",
    "write",
]

RECORD = "dlb-environment.json"
# It is the first file in a folder that dlb makes, so that an unfinished folder is recognised.
UNFINISHED = "dlb-unfinished"
FORMAT = 2


@dataclass(frozen=True)
class Environment:
    """One adapter's environment.

    Attributes:
        name: the adapter's name.
        folder: the environment's folder.
        python: its interpreter, with links not resolved: the path of the link identifies a virtual
            environment.
        distribution: the adapter's distribution.
        managed: whether dlb made the environment; false if it was added.
        created: the time, ISO 8601, UTC.
        source: the checkout, folder of wheels or package that it was made from; None for a package
            index.
        source_digest: the digest of everything that determined its content.
        worker_version: the version of dlb-worker that was installed.
        python_request, constraint: the interpreter and the constraints file that the user requested.
    """

    name: str
    folder: Path
    python: Path
    distribution: str
    managed: bool
    created: str
    source: Path | None = None
    source_digest: str | None = None
    worker_version: str | None = None
    python_request: str | None = None
    constraint: Path | None = None


def now() -> str:
    """The current time in UTC, ISO 8601."""
    return datetime.now(timezone.utc).isoformat()


def folder_of(name: str) -> Path:
    """The folder of environment ``name``, which need not exist.

    Raises:
        RequestError: the name cannot be an adapter's.
    """
    return places.environments_home() / check_name(name)


def is_unfinished(folder: Path) -> bool:
    """Whether dlb began to make this folder and did not finish."""
    return (folder / UNFINISHED).is_file() and not (folder / RECORD).is_file()


def write(environment: Environment) -> None:
    """Write the record atomically.

    Raises:
        OSError: the record cannot be written.
    """
    document = {
        "format": FORMAT,
        "name": environment.name,
        "distribution": environment.distribution,
        "python": str(environment.python),
        "managed": environment.managed,
        "created": environment.created,
        "source": _text(environment.source),
        "source_digest": environment.source_digest,
        "worker_version": environment.worker_version,
        "python_request": environment.python_request,
        "constraint": _text(environment.constraint),
    }
    folder = environment.folder
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=".record-")
    try:
        with open(descriptor, "w", encoding="utf-8") as stream:
            json.dump(document, stream, indent=2)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(name, folder / RECORD)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def read(folder: Path) -> Environment:
    """The environment whose record is in ``folder``.

    Raises:
        RecordError: there is no record, or it is not valid.
    """
    path = folder / RECORD
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: not readable as an environment's record: {error}") from error
    if not isinstance(document, dict) or document.get("format") not in (1, FORMAT):
        raise RecordError(f"{path}: not an environment's record of format 1 or {FORMAT}")
    if document.get("name") != folder.name:
        raise RecordError(f"{path}: is the record of {document.get('name')!r}, not {folder.name!r}")
    managed = document.get("managed")
    if not isinstance(managed, bool):
        raise RecordError(f"{path}: 'managed' must be true or false")
    source = _optional(document, "source", path)
    constraint = _optional(document, "constraint", path)
    return Environment(
        name=folder.name,
        folder=folder,
        # Relative to the present folder, so that a moved DLB_HOME does not lead to the old one.
        python=folder / "bin" / "python" if managed else Path(_required(document, "python", path)),
        distribution=distribution_of(folder.name),
        managed=managed,
        created=_required(document, "created", path),
        source=Path(source) if source else None,
        source_digest=_optional(document, "source_digest", path),
        worker_version=_optional(document, "worker_version", path),
        python_request=_optional(document, "python_request", path),
        constraint=Path(constraint) if constraint else None,
    )


def find(name: str) -> Environment | None:
    """The environment of adapter ``name``, or None.

    An environment with a missing or unreadable record counts as none; ``doctor`` says why.

    Raises:
        RequestError: the name cannot be an adapter's.
    """
    try:
        return read(folder_of(name))
    except RecordError:
        return None


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _optional(document: dict[str, Any], key: str, path: Path) -> str | None:
    value = document.get(key)
    if value is not None and not isinstance(value, str):
        raise RecordError(f"{path}: '{key}' must be text or null")
    return value


def _required(document: dict[str, Any], key: str, path: Path) -> str:
    value = _optional(document, key, path)
    if not value:
        raise RecordError(f"{path}: '{key}' is missing")
    return value
