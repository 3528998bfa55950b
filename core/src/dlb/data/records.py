"""Files of records as CIFAR has them: the bytes of the labels, then those of the image."""

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
        size: bytes that it must have, uncompressed.
        sha256: of these bytes.
        label_bytes: bytes before each image; the last of them is the label.
        shape: of an image, e.g. (3, 32, 32).

    Returns:
        Images uint8 [N, *shape] and labels uint8 [N].

    Raises:
        DataError: the file is missing, truncated, oversized or altered, or does not divide into
            records.
    """
    content = read_content(path, size=size, sha256=sha256)
    record = label_bytes + math.prod(shape)
    if size % record or not size:
        raise damaged(path, f"{size:,} bytes do not divide into records of {record:,}")
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, record)
    images = np.ascontiguousarray(records[:, label_bytes:]).reshape(-1, *shape)
    return images, records[:, label_bytes - 1].copy()
