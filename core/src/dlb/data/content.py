"""The uncompressed content of a file that is plain or gzip-compressed, read within a bound.

Whether a file is compressed is told from its first two bytes, not from its name: IDX files start
with two zero bytes, gzip files with 1f 8b (RFC 1952).
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from dlb.errors import DataError

__all__ = ["check_content", "damaged", "open_content", "read_content", "read_upto", "sha256_of"]

_CHUNK = 1 << 20
#: Bytes that content of unknown size may have (1 GiB).
_LARGEST = 1 << 30
_GZIP_MAGIC = b"\x1f\x8b"


def damaged(path: Path, what: str) -> DataError:
    """The error for a file that is not what it should be."""
    return DataError(
        f"{path}: {what}; delete the file and fetch its data set again, "
        "or put the original file in its place"
    )


@contextmanager
def open_content(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading its content, decompressed where it is gzip.

    Raises:
        DataError: it cannot be opened or read.
    """
    try:
        with path.open("rb") as raw:
            compressed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            if compressed:
                with gzip.GzipFile(fileobj=raw) as stream:
                    yield cast("IO[bytes]", stream)
            else:
                yield raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(path, f"not a whole gzip file ({error})") from error
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); "
            "check that the file is there and readable"
        ) from error


def read_upto(stream: IO[bytes], limit: int) -> Iterator[bytes]:
    """Pieces of a stream until its end or until ``limit`` bytes, whichever is first.

    Read in pieces so that a stream that claims to be large costs only what it really holds.
    """
    left = limit
    while left > 0:
        piece = stream.read(min(_CHUNK, left))
        if not piece:
            return
        left -= len(piece)
        yield piece


def check_content(path: Path, size: int, sha256: str) -> None:
    """Check the size and SHA-256 of a file's uncompressed content.

    It reads ``size`` + 1 bytes at most, however much the file would decompress to.

    Raises:
        DataError: the file is missing, truncated, oversized or altered.
    """
    digest = hashlib.sha256()
    found = 0
    with open_content(path) as stream:
        for piece in read_upto(stream, size + 1):
            digest.update(piece)
            found += len(piece)
    if found != size:
        shown = f"more than {size:,}" if found > size else f"{found:,}"
        raise damaged(path, f"holds {shown} bytes (uncompressed) where {size:,} are expected")
    if digest.hexdigest() != sha256:
        raise damaged(
            path, f"altered: the SHA-256 of its content is {digest.hexdigest()}, not {sha256}"
        )


def read_content(path: Path, *, size: int | None = None, sha256: str | None = None) -> bytearray:
    """A file's uncompressed content, of ``size`` bytes and ``sha256`` where these are given.

    Raises:
        DataError: the file is missing, truncated, oversized or altered.
    """
    limit = _LARGEST if size is None else size
    digest, content = hashlib.sha256(), bytearray()
    with open_content(path) as stream:
        for piece in read_upto(stream, limit + 1):
            content += piece
            digest.update(piece)
    if size is None and len(content) > limit:
        raise DataError(f"{path}: holds more than {limit:,} bytes; give a smaller file")
    if len(content) > limit:
        raise damaged(path, f"oversized: it holds more than the {size:,} bytes expected")
    if size is not None and len(content) < size:
        raise damaged(path, f"truncated: {len(content):,} of {size:,} bytes are there")
    if sha256 is not None and digest.hexdigest() != sha256:
        raise damaged(
            path, f"altered: the SHA-256 of its content is {digest.hexdigest()}, not {sha256}"
        )
    return content


def sha256_of(path: Path) -> str:
    """SHA-256 (hex) of a file as it lies there, for the record of what was read.

    Raises:
        DataError: it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while piece := stream.read(_CHUNK):
                digest.update(piece)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); "
            "check that the file is there and readable"
        ) from error
    return digest.hexdigest()
