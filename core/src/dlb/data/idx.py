"""Reads and writes the IDX file format, with strict checks.

An IDX file is two zero bytes, a byte for the data type, a byte for the number of dimensions, each
dimension as a big-endian uint32, then the values in C order, big-endian. Source: the description
on the MNIST home page, http://yann.lecun.com/exdb/mnist/.
"""

from __future__ import annotations

import hashlib
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.data.content import damaged, open_content, read_upto
from dlb.errors import DataError

__all__ = ["MAX_BYTES", "encode_idx", "read_idx"]

MAX_BYTES = 1 << 30
"""The default limit of an array's size (1 GiB)."""

# More than any data set needs; NumPy itself allows at least 32.
_MAX_DIMENSIONS = 8

_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(
    path: Path, *, sha256: str | None = None, max_bytes: int = MAX_BYTES
) -> npt.NDArray[Any]:
    """Read an IDX file, plain or gzip-compressed.

    Args:
        path: the file.
        sha256: the expected SHA-256 of the uncompressed file; None for no check.
        max_bytes: largest array, in bytes; it is checked before memory is allocated.

    Returns:
        the array in the header's shape, C-contiguous and writable, in the machine's byte order:
        uint8, int8, int16, int32, float32 or float64.

    Raises:
        DataError: the file is missing, not IDX, truncated, oversized (bytes after the last
            value), empty, larger than ``max_bytes``, or altered.
    """
    digest = hashlib.sha256()
    with open_content(path) as stream:
        magic = b"".join(read_upto(stream, 4))
        dtype, n_dims = _read_magic(path, magic)
        header = b"".join(read_upto(stream, 4 * n_dims))
        if len(header) < 4 * n_dims:
            raise damaged(path, f"truncated: ends inside the header of {n_dims} dimensions")
        shape = struct.unpack(f">{n_dims}I", header)
        # math.prod is exact; NumPy's product would wrap around on hostile dimensions.
        expected = math.prod(shape) * dtype.itemsize
        if expected == 0:
            raise damaged(path, f"empty: the header states the shape {list(shape)}")
        if expected > max_bytes:
            raise DataError(
                f"{path}: the header states the shape {list(shape)}, {expected:,} bytes, above "
                f"the limit of {max_bytes:,}; check that this is the data file you mean"
            )
        body = bytearray()
        digest.update(magic + header)
        for chunk in read_upto(stream, expected + 1):
            body += chunk
            digest.update(chunk)
    if len(body) < expected:
        raise damaged(
            path,
            f"truncated: the shape {list(shape)} needs {expected:,} bytes, {len(body):,} are there",
        )
    if len(body) > expected:
        raise damaged(
            path,
            f"oversized: there are bytes after the {expected:,} that the shape {list(shape)} needs",
        )
    if sha256 is not None and digest.hexdigest() != sha256:
        raise damaged(
            path, f"altered: the SHA-256 of its content is {digest.hexdigest()}, not {sha256}"
        )
    values: npt.NDArray[Any] = np.frombuffer(body, dtype=dtype).reshape(shape)
    return values.astype(dtype.newbyteorder("="), copy=False)


def encode_idx(array: npt.NDArray[Any]) -> bytes:
    """An array as the bytes of an uncompressed IDX file.

    Raises:
        DataError: IDX does not support the data type or the number of dimensions.
    """
    big_endian = array.dtype.newbyteorder(">")
    code = next((code for code, name in _DTYPES.items() if np.dtype(name) == big_endian), None)
    if code is None:
        raise DataError(f"IDX cannot hold an array of {array.dtype}; convert it, e.g. to uint8")
    if not 1 <= array.ndim <= _MAX_DIMENSIONS:
        raise DataError(f"IDX cannot hold an array of shape {list(array.shape)}; reshape it")
    header = bytes((0, 0, code, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(big_endian).tobytes()


def _read_magic(path: Path, magic: bytes) -> tuple[np.dtype[Any], int]:
    if len(magic) < 4:
        raise damaged(path, f"truncated: {len(magic)} bytes, too short for an IDX file")
    name = _DTYPES.get(magic[2])
    if magic[:2] != b"\0\0" or name is None or not 1 <= magic[3] <= _MAX_DIMENSIONS:
        raise damaged(path, f"not an IDX file: it starts with {magic.hex(' ')}")
    return np.dtype(name), magic[3]
