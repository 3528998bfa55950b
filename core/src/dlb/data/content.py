"""Reads the uncompressed content of a plain or gzip-compressed file, up to a limit.

The first two bytes say whether a file is compressed, not its name. IDX files start with two zero bytes,
gzip files with 1f 8b (RFC 1952).
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
from dlb_graph.regular_files import open_regular

__all__ = ["check_content", "damaged", "open_content", "read_content", "read_upto", "sha256_of"]

_CHUNK = 1 << 20
#: Largest size of content whose size is not stated (1 GiB).
_LARGEST = 1 << 30
_GZIP_MAGIC = b"\x1f\x8b"


def damaged(path: Path, what: str) -> DataError:
    """The error for a truncated, oversized or altered file."""
    return DataError(
        f"{path}: {what}; delete the file and fetch its data set again, "
        "or put the original file in its place"
    )


@contextmanager
def open_content(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to read its content; a gzip file is decompressed.

    Raises:
        DataError: the file cannot be opened or read.
    """
    try:
        with open_regular(path) as raw:
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
    """Chunks of a stream until its end or until ``limit`` bytes, whichever comes first.

    A stream that states a large size thus costs only the memory of its real content.
    """
    remaining = limit
    while remaining > 0:
        chunk = stream.read(min(_CHUNK, remaining))
        if not chunk:
            return
        remaining -= len(chunk)
        yield chunk


def check_content(path: Path, size: int, sha256: str) -> None:
    """Check the size and SHA-256 of a file's uncompressed content.

    It reads at most ``size`` + 1 bytes, even if the file decompresses to more.

    Raises:
        DataError: the file is missing, truncated, oversized or altered.
    """
    digest = hashlib.sha256()
    read_size = 0
    with open_content(path) as stream:
        for chunk in read_upto(stream, size + 1):
            digest.update(chunk)
            read_size += len(chunk)
    if read_size != size:
        shown = f"more than {size:,}" if read_size > size else f"{read_size:,}"
        raise damaged(path, f"holds {shown} bytes (uncompressed) where {size:,} are expected")
    if digest.hexdigest() != sha256:
        raise damaged(
            path, f"altered: the SHA-256 of its content is {digest.hexdigest()}, not {sha256}"
        )


def read_content(path: Path, *, size: int | None = None, sha256: str | None = None) -> bytearray:
    """A file's uncompressed content, checked against ``size`` and ``sha256`` if these are given.

    Raises:
        DataError: the file is missing, truncated, oversized or altered.
    """
    limit = _LARGEST if size is None else size
    digest, content = hashlib.sha256(), bytearray()
    with open_content(path) as stream:
        for chunk in read_upto(stream, limit + 1):
            content += chunk
            digest.update(chunk)
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
    """SHA-256 (hex) of a file's bytes, not decompressed, for the record.

    Raises:
        DataError: the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with open_regular(path) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); "
            "check that the file is there and readable"
        ) from error
    return digest.hexdigest()
