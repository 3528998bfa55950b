"""The sources of an environment: a checkout, a folder of wheels, a package, or an index."""

from __future__ import annotations

import configparser
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import importlib_metadata

import dlb_worker
from dlb.environments.names import KNOWN, distribution_of
from dlb.errors import RequestError

__all__ = ["Plan", "default_source", "holds", "plan"]

_ANY_PYTHON = ">=3.6"
# Files of builds and runs, which digests leave out.
_LEFTOVERS = {"__pycache__", ".git", ".venv", "build", "dist", "tests"}


@dataclass(frozen=True)
class Plan:
    """Everything that determines the content of an environment.

    ``requirements`` are two requirements for uv: dlb-worker and the adapter. ``python`` is the
    interpreter or version for uv, ``python_range`` the range that the packages support, and
    ``python_request`` the user's request. ``digest`` changes when any of this changes.
    """

    name: str
    distribution: str
    source: Path | None
    requirements: tuple[str, str]
    constraints: tuple[Path, ...]
    build_constraints: tuple[Path, ...]
    find_links: tuple[Path, ...]
    python: str
    python_range: str
    python_request: str | None
    constraint: Path | None
    digest: str


@dataclass(frozen=True)
class _Part:
    """One of the two distributions: the requirement for uv, and the files that it is made from."""

    requirement: str
    requires_python: str | None
    files: tuple[tuple[str, Path], ...] = ()


def plan(name: str, *, source: Path | None, python: str | None, constraint: Path | None) -> Plan:
    """The plan of environment ``name``.

    Args:
        name: the adapter's name.
        source: a checkout of dlb, a folder of wheels that includes dlb-worker, or the folder of the
            adapter's own package. None: the source of this dlb, or a package index.
        python: an interpreter or version in uv's syntax; None for any that the packages support.
        constraint: a file of version constraints, besides ``constraints.txt`` in ``source``.

    Raises:
        RequestError: the name, source or constraint is not valid.
    """
    distribution = distribution_of(name)
    if constraint is not None:
        constraint = constraint.absolute()
        if not constraint.is_file():
            raise RequestError(f"{constraint}: there is no such constraints file; see --constraint")
    if source is None:
        source = default_source()
    else:
        source = source.absolute()
        if not holds(source, name):
            raise RequestError(_not_a_source(source, name))
    worker = _worker(source) or _worker(default_source())
    if worker is None:
        worker = _Part(f"dlb-worker=={dlb_worker.__version__}", None)
    adapter = _adapter(source, name)
    if adapter is None:
        framework = KNOWN.get(name)
        adapter = _Part(distribution, framework.python if framework else None)

    constraints = _optional_file(source, "constraints.txt")
    build_constraints = _optional_file(source, "build-constraints.txt")
    if constraint is not None:
        constraints.append(constraint)
    ranges = ",".join(part.requires_python or "" for part in (worker, adapter)).split(",")
    floors = {each for each in ranges if re.fullmatch(r">=3\.\d+", each)}
    lower = sorted(floors, key=lambda each: int(each[4:]))[:-1]  # the highest holds
    kept = dict.fromkeys(each for each in ranges if each and each not in lower)
    python_range = ",".join(kept) or _ANY_PYTHON
    digest = hashlib.sha256()
    for part in (worker, adapter):
        digest.update(f"{part.requirement if not part.files else ''}\0".encode())
        for label, path in part.files:
            _add_file(digest, label, path)
    for path in (*constraints, *build_constraints):
        _add_file(digest, path.name, path)
    digest.update(f"{python}\0".encode())
    return Plan(
        name=name,
        distribution=distribution,
        source=source,
        requirements=(worker.requirement, adapter.requirement),
        constraints=tuple(constraints),
        build_constraints=tuple(build_constraints),
        find_links=(source,) if source is not None and _wheels(source) else (),
        python=python or python_range,
        python_range=python_range,
        python_request=python,
        constraint=constraint,
        digest=digest.hexdigest(),
    )


def default_source() -> Path | None:
    """The checkout or folder of wheels that this dlb was installed from; None if from an index."""
    try:
        text = importlib_metadata.distribution("dlb-core").read_text("direct_url.json")
        url = urlsplit(json.loads(text or "{}").get("url", ""))
    except (importlib_metadata.PackageNotFoundError, ValueError):
        return None
    if url.scheme != "file":
        return None
    path = Path(unquote(url.path))
    folder = path.parent
    return folder if _is_checkout(folder) or (path.is_file() and _wheels(folder)) else None


def holds(source: Path, name: str) -> bool:
    """Whether adapter ``name`` can be made from this folder."""
    return _adapter(source, name) is not None


def _optional_file(source: Path | None, name: str) -> list[Path]:
    path = None if source is None else source / name
    return [path] if path is not None and path.is_file() else []


def _worker(source: Path | None) -> _Part | None:
    if source is None:
        return None
    if _is_checkout(source):
        return _package(source / "worker", "worker")
    return _wheel(source, "dlb-worker")


def _adapter(source: Path | None, name: str) -> _Part | None:
    """The adapter's distribution in a source; None if the source does not have it."""
    if source is None:
        return None
    distribution = distribution_of(name)
    if _is_checkout(source):
        folder = source / "plugins" / distribution
        return _package(folder, distribution) if (folder / "pyproject.toml").is_file() else None
    if _wheels(source):
        return _wheel(source, distribution)
    if (source / "pyproject.toml").is_file():
        from packaging.utils import canonicalize_name

        project = str(_project(source).get("name") or _setup(source).get("metadata", "name"))
        if canonicalize_name(project) == canonicalize_name(distribution):
            return _package(source, distribution)
    return None


def _is_checkout(folder: Path) -> bool:
    return (
        all((folder / name / "pyproject.toml").is_file() for name in ("core", "worker"))
        and (folder / "plugins").is_dir()
    )


def _wheels(folder: Path) -> list[Path]:
    """The wheels in a folder; none if dlb-worker's is not among them."""
    wheels = sorted(folder.glob("*.whl"))
    return wheels if any(path.name.startswith("dlb_worker-") for path in wheels) else []


def _package(folder: Path, label: str) -> _Part:
    requires = _requires_python(folder)
    files = tuple((f"{label}/{path.relative_to(folder)}", path) for path in _package_files(folder))
    return _Part(str(folder), requires, files)


def _package_files(folder: Path) -> Iterator[Path]:
    """The files that determine the content of a package's wheel, in a stable order."""
    for name in ("pyproject.toml", "setup.cfg"):
        if (folder / name).is_file():
            yield folder / name
    root = folder / "src" if (folder / "src").is_dir() else folder
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if path.is_file() and not any(
            part in _LEFTOVERS or part.endswith((".egg-info", ".pyc")) for part in parts
        ):
            yield path


def _project(folder: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    path = folder / "pyproject.toml"
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError) as error:
        raise RequestError(f"{path}: cannot be read: {error}") from error
    return project if isinstance(project, dict) else {}


def _requires_python(folder: Path) -> str | None:
    """The range of Python versions that a package supports; None if it does not state one."""
    requirement = _project(folder).get("requires-python")
    return (
        str(requirement)
        if requirement
        else _setup(folder).get("options", "python_requires") or None
    )


def _setup(folder: Path) -> configparser.ConfigParser:
    """A package's setup.cfg, which packages for Python 3.6 use; empty without one."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read_dict({"metadata": {"name": ""}, "options": {"python_requires": ""}})
    try:
        setup.read(folder / "setup.cfg", encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise RequestError(f"{folder / 'setup.cfg'}: cannot be read: {error}") from error
    return setup


def _wheel(folder: Path, distribution: str) -> _Part | None:
    """The newest wheel of a distribution in a folder."""
    from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

    candidates = []
    for path in _wheels(folder):
        try:
            project, version, *_ = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        if project == canonicalize_name(distribution):
            candidates.append((version, path))
    if not candidates:
        return None
    path = max(candidates)[1]
    return _Part(str(path), _wheel_requires_python(path), ((path.name, path),))


def _wheel_requires_python(path: Path) -> str | None:
    import email.parser
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            metadata = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
            text = archive.read(metadata[0]).decode("utf-8") if metadata else ""
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise RequestError(f"{path}: not a readable wheel: {error}") from error
    return email.parser.HeaderParser().parsestr(text).get("Requires-Python")


def _add_file(digest: hashlib._Hash, label: str, path: Path) -> None:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror}") from error
    # Lengths come first, so that two lists of files never give the same bytes.
    digest.update(f"{len(label)} {label} {len(content)} ".encode())
    digest.update(content)


def _not_a_source(source: Path, name: str) -> str:
    distribution = distribution_of(name)
    if not source.is_dir():
        return f"{source}: there is no such folder to make '{name}' from"
    if _is_checkout(source):
        plugins = sorted(path.parent.name for path in source.glob("plugins/dlb-*/pyproject.toml"))
        adapters = ", ".join(plugin.removeprefix("dlb-") for plugin in plugins) or "none"
        return f"{source}: this checkout has no plugins/{distribution}; adapters there: {adapters}"
    if _wheels(source):
        return f"{source}: no wheel of {distribution} among the wheels there; build it first"
    return (
        f"{source}: '{name}' cannot be made from this folder: it is neither a checkout of dlb "
        f"(worker/ and plugins/{distribution}/), nor a folder of wheels (dlb_worker-*.whl), nor the "
        f"package {distribution} (pyproject.toml)"
    )
