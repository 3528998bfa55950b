"""Files taken out of a tar archive: those that are wanted, by name, once each has been checked.

Nothing else of an archive reaches the disk, and no path in it decides where anything is written.
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
from dlb.data.download import download
from dlb.data.storage import SourceFailed, cannot_write, install
from dlb.errors import DataError

__all__ = ["fetch_archive", "take_files", "unpack"]

_CHUNK = 1 << 20
#: Bytes that an archive may hold, so that a hostile one cannot keep us decompressing for ever.
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

    The archive is removed once it is unpacked; a part of it stays for the next time.

    Raises:
        SourceFailed: no address gave it, or it does not hold the files.
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
    """Put files of an archive on this machine into ``folder``.

    Raises:
        SourceFailed: it does not hold them, or others.
        DataError: the folder cannot be written to.
    """
    report(f"unpacking {path}")
    try:
        with tempfile.TemporaryDirectory(prefix=".archive-", dir=folder) as name:
            take_files(archive.name, path, archive.folder, files, folder, Path(name), _LARGEST)
    except OSError as error:
        raise cannot_write(folder, error) from error


def take_files(
    what: str,
    archive: Path,
    inside: str,
    files: Sequence[DataFile],
    folder: Path,
    scratch: Path,
    limit: int,
) -> None:
    """Put files of an archive, each there as NAME or NAME.gz, into ``folder``.

    Args:
        what: what the archive is called in messages.
        inside: the folder in the archive that has the files.
        scratch: an existing folder on the disk of ``folder``.
        limit: bytes of the archive, uncompressed, that are read at most.

    Raises:
        SourceFailed: it is no archive, is larger, or does not hold the files.
    """
    wanted: dict[str, tuple[DataFile, str]] = {}
    for file in files:
        for name in (file.name, f"{file.name}.gz"):
            wanted[f"{inside}/{name}"] = (file, name)
    left = {file.name for file in files}
    try:
        with tarfile.open(archive, "r|*") as members:
            for member in members:
                if member.offset_data + member.size > limit:
                    raise SourceFailed(f"{what}: its archive is larger than expected")
                match = wanted.get(member.name.removeprefix("./"))
                stream = members.extractfile(member) if match and member.isreg() else None
                if match is None or stream is None or match[0].name not in left:
                    continue
                file, name = match
                taken = scratch / name
                with taken.open("wb") as output:
                    shutil.copyfileobj(stream, output, _CHUNK)
                _check_taken(what, taken, file)
                install(taken, folder / name)
                left.discard(file.name)
                if not left:
                    return
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise SourceFailed(f"{what}: not a whole archive ({error})") from error
    raise SourceFailed(f"{what}: does not hold {', '.join(sorted(left))}")


def _check_taken(what: str, taken: Path, file: DataFile) -> None:
    try:
        check_content(taken, file.size, file.sha256)
    except DataError as error:
        raise SourceFailed(
            f"{what}: its {taken.name} is truncated, oversized or altered"
        ) from error
