"""Extracts files from a tar archive by name, and checks each of them.

Nothing else of the archive is written to the disk. No path in the archive decides where a file goes.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from dlb.data.content import check_content
from dlb.data.description import Archive, DataFile
from dlb.errors import DataError
from dlb_data.download import download
from dlb_data.storage import SourceFailed, cannot_write, install

__all__ = ["fetch_archive", "take_files", "unpack"]

_CHUNK = 1 << 20
#: Largest uncompressed size of an archive, so that a hostile one cannot decompress without end.
_LARGEST = 1 << 31


def fetch_archive(
    archive: Archive,
    files: Sequence[DataFile],
    folder: Path,
    *,
    timeout: float,
    attempts: int,
    report: Callable[[str], None],
) -> None:
    """Download an archive from its addresses in turn and put the files into ``folder``.

    The archive is deleted after it was unpacked. A partial download stays for the next time.

    Raises:
        SourceFailed: no address had the archive, or it lacks the files.
        DataError: the folder cannot be written to.
    """
    part = folder / f"{archive.name}.part"
    failures = []
    for url in archive.urls:
        report(f"downloading {url} ({archive.size / 1e6:.1f} MB)")
        try:
            download(
                url,
                part,
                size=archive.size,
                sha256=archive.sha256,
                timeout=timeout,
                attempts=attempts,
                report=report,
            )
        except SourceFailed as failure:
            failures.append(str(failure))
            report(str(failure))
            continue
        try:
            unpack(archive, part, files, folder, report)
        except SourceFailed as failure:
            part.unlink(missing_ok=True)
            raise SourceFailed(f"{url}: {failure}") from failure
        part.unlink(missing_ok=True)
        return
    raise SourceFailed("\n  - ".join(failures))


def unpack(
    archive: Archive,
    path: Path,
    files: Sequence[DataFile],
    folder: Path,
    report: Callable[[str], None],
) -> None:
    """Extract files from an archive on this machine to ``folder``.

    Raises:
        SourceFailed: the archive lacks a file, or has another content.
        DataError: the folder cannot be written to.
    """
    report(f"unpacking {path}")
    try:
        with tempfile.TemporaryDirectory(prefix=".archive-", dir=folder) as name:
            take_files(archive.name, path, archive.folder, files, folder, Path(name), _LARGEST)
    except OSError as error:
        raise cannot_write(folder, error) from error


def take_files(
    title: str,
    archive: Path,
    archive_folder: str,
    files: Sequence[DataFile],
    folder: Path,
    scratch: Path,
    limit: int,
) -> None:
    """Extract files from an archive, in which each is NAME or NAME.gz, to ``folder``.

    Args:
        title: the archive's name in messages.
        archive: the archive.
        archive_folder: the folder in the archive that has the files.
        files: the files to extract.
        folder: the folder to put them into.
        scratch: an existing folder on the disk of ``folder``.
        limit: the largest uncompressed size of the archive, in bytes.

    Raises:
        SourceFailed: it is not an archive, is larger than ``limit``, or lacks a file.
    """
    members_by_path: dict[str, tuple[DataFile, str]] = {}
    for file in files:
        for name in (file.name, f"{file.name}.gz"):
            members_by_path[f"{archive_folder}/{name}"] = (file, name)
    remaining = {file.name for file in files}
    try:
        with tarfile.open(archive, "r|*") as members:
            for member in members:
                if member.offset_data + member.size > limit:
                    raise SourceFailed(f"{title}: its archive is larger than expected")
                match = members_by_path.get(member.name.removeprefix("./"))
                stream = members.extractfile(member) if match and member.isreg() else None
                if match is None or stream is None or match[0].name not in remaining:
                    continue
                file, name = match
                extracted = scratch / name
                with extracted.open("wb") as output:
                    shutil.copyfileobj(stream, output, _CHUNK)
                _check_extracted(title, extracted, file)
                install(extracted, folder / name)
                remaining.discard(file.name)
                if not remaining:
                    return
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise SourceFailed(f"{title}: not a whole archive ({error})") from error
    raise SourceFailed(f"{title}: does not hold {', '.join(sorted(remaining))}")


def _check_extracted(title: str, extracted: Path, file: DataFile) -> None:
    try:
        check_content(extracted, file.size, file.sha256)
    except DataError as error:
        raise SourceFailed(
            f"{title}: its {extracted.name} is truncated, oversized or altered"
        ) from error
