"""Opening a file that somebody else wrote, or may have put something else in the place of; and replacing one.

A pipe never begins, a device never ends, a link leads anywhere, and an .npz file can hold anything: a path of a
stranger is opened here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "FileRefused",
    "open_regular",
    "read_end",
    "read_numbers",
    "read_regular",
    "remove_parts",
    "replaceable",
    "temporary_file",
    "write_atomically",
]


class FileRefused(OSError):
    """A file that is not what it should be; the text says why."""


def open_regular(path: Path, most_bytes: int | None = None, *, follow: bool = True) -> BinaryIO:
    """Open a regular file to read it.

    Args:
        most_bytes: how large it may be; None for any size.
        follow: whether the path may be a symbolic link.

    Raises:
        FileRefused: it is no regular file, or larger.
        OSError: it cannot be opened.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    if not follow and path.is_symlink():
        raise FileRefused("a link, not a file")
    # The path may become a link, or a pipe, only now: what is open is asked what it is.
    descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise FileRefused("not a file")
        if most_bytes is not None and about.st_size > most_bytes:
            raise FileRefused(f"larger than {most_bytes} bytes")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, most_bytes: int, *, follow: bool = True) -> bytes:
    """The content of a regular file; arguments and errors as for :func:`open_regular`."""
    with open_regular(path, most_bytes, follow=follow) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:  # it has grown
        raise FileRefused(f"larger than {most_bytes} bytes")
    return content


def read_end(path: Path, most_bytes: int, *, follow: bool = True) -> bytes:
    """The last bytes of a regular file; arguments and errors as for :func:`open_regular`."""
    with open_regular(path, follow=follow) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
        return file.read(most_bytes)


def read_numbers(
    path: Path, most_bytes: int, *, map_above: int | None = None, follow: bool = True
) -> dict[str, npt.NDArray[Any]]:
    """Every array of an .npz file: booleans, integers and real numbers.

    Args:
        most_bytes: how many bytes the arrays that are read, and not mapped, may have together.
        map_above: a file of more bytes is mapped; None maps none.
        follow: whether the path may be a symbolic link.

    Raises:
        FileRefused: it is no regular file, it is no whole .npz file, or it holds something else.
        OSError: it cannot be opened.
    """
    import numpy as np

    from dlb_worker.arrays import arrays_in

    with open_regular(path, follow=follow) as file:
        try:
            mapped = map_above is not None and os.fstat(file.fileno()).st_size > map_above
            arrays = arrays_in(file, path, mapped) if mapped else _read_open(file, most_bytes)
        except FileRefused:
            raise
        # NumPy and zipfile raise anything at a damaged file: EOFError, RuntimeError, zlib.error, TokenError.
        except Exception as error:
            text = " ".join(str(error).split())[:300] or type(error).__name__
            raise FileRefused(f"not a whole .npz file of plain numbers: {text}") from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
            kind = getattr(array, "dtype", type(array).__name__)
            raise FileRefused(f"'{name[:80]}' is no array of numbers, but of {str(kind)[:80]}")
    return arrays


def _read_open(file: BinaryIO, most_bytes: int) -> dict[str, npt.NDArray[Any]]:
    import numpy as np

    from dlb_worker.arrays import arrays_in

    with zipfile.ZipFile(file) as archive:
        total = sum(member.file_size for member in archive.infolist())
    if total > most_bytes:
        raise FileRefused(f"{total} bytes of arrays; at most {most_bytes} are read")
    with contextlib.suppress(Exception):  # of another form, or damaged, as NumPy says better
        return arrays_in(file, "", mapped=False)
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely, or leave the old one unchanged; never a part of it.

    A device or a pipe is written to, and not replaced.

    Raises:
        OSError: the file cannot be written.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(content)
        return
    with temporary_file(path) as temporary:
        temporary.write_bytes(content)


def replaceable(path: Path) -> Path:
    """The file that a path leads to, which may be replaced by another, or made.

    Raises:
        FileRefused: it is a device, a pipe or a folder.
    """
    target = Path(os.path.realpath(path))
    # A pipe that a link of the system leads to has no path.
    if (path.exists() or os.path.lexists(target)) and not path.is_file():
        raise FileRefused("it exists and is not a file, so it is not replaced")
    return target


@contextlib.contextmanager
def temporary_file(path: Path) -> Iterator[Path]:
    """A new file beside ``path``, which takes its place if the block does not raise.

    Of a link, the file that it leads to is replaced.

    Raises:
        OSError: the file cannot be written, or the path is a device, a pipe or a folder, which is not replaced.
    """
    path = replaceable(path)
    descriptor, temporary = _new_part(path.parent)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        # mkstemp lets only the owner read; whoever can read the folder can read documents.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)


def _new_part(folder: Path) -> tuple[int, Path]:
    """A new file that is locked as long as its descriptor is open."""
    while True:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=".part")
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if Path(name).exists():  # else it was removed before it was locked
            return descriptor, Path(name)
        os.close(descriptor)


def remove_parts(folder: Path) -> None:
    """Remove what writers that were killed have left in a folder and in those within it."""
    for part in (*folder.glob(".*.part"), *folder.glob("*/.*.part")):
        with contextlib.suppress(OSError), open_regular(part, follow=False) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()
