"""Reads files of records in CIFAR's format: the bytes of the labels, then those of the image."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlb.data.content import damaged, read_content

__all__ = ["read_records"]


def read_records(
    path: Path, *, size: int, sha256: str, label_bytes: int, shape: tuple[int, ...]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Read a file of records, plain or gzip-compressed.

    Args:
        path: the file.
        size: the expected size in bytes, uncompressed.
        sha256: the expected SHA-256 of these bytes.
        label_bytes: bytes before each image; the last of them is the label.
        shape: the shape of an image, such as (3, 32, 32).

    Returns:
        images uint8 [N, *shape] and labels uint8 [N].

    Raises:
        DataError: the file is missing, truncated, oversized or altered, or does not divide into
            records.
    """
    content = read_content(path, size=size, sha256=sha256)
    record_bytes = label_bytes + math.prod(shape)
    if size % record_bytes or not size:
        raise damaged(path, f"{size:,} bytes do not divide into records of {record_bytes:,}")
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, record_bytes)
    images = np.ascontiguousarray(records[:, label_bytes:]).reshape(-1, *shape)
    return images, records[:, label_bytes - 1].copy()
