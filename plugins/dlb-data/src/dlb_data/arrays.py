"""Reads arrays of the user: an .npz file, or a pair of IDX files."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.data.content import sha256_of
from dlb.data.idx import read_idx
from dlb.data.source import Source, array_source
from dlb.errors import DataError

__all__ = ["read_idx_pair", "read_npz"]

Array = npt.NDArray[Any]
#: What NumPy and zipfile raise on files that are truncated, encrypted, or state wrong sizes.
_INVALID_NPZ = (
    OSError,
    ValueError,
    EOFError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_npz(path: Path) -> Source:
    """The arrays ``inputs`` and ``labels`` of an .npz file; see :func:`user_array_source`.

    Raises:
        DataError: the file is missing, is not an .npz file, lacks an array, or holds objects, or the
            arrays do not fit together.
    """
    where = f"{path} (SHA-256 {sha256_of(path)})"
    try:
        if not zipfile.is_zipfile(path):
            raise DataError(f"{path}: not a whole .npz file; write it with numpy.savez")
        with np.load(path, allow_pickle=False) as stored:
            lacking = {"inputs", "labels"} - set(stored.files)
            if lacking:
                raise DataError(
                    f"{path}: lacks {' and '.join(sorted(lacking))}; it has "
                    f"{', '.join(stored.files) or 'nothing'}; write it with numpy.savez(path, "
                    "inputs=..., labels=...)"
                )
            inputs, labels = stored["inputs"], stored["labels"]
    except _INVALID_NPZ as error:
        raise DataError(
            f"{path}: not a whole .npz file of numbers ({error}); write it with numpy.savez"
        ) from None
    return user_array_source(inputs, labels, where, str(path))


def read_idx_pair(inputs: Path, labels: Path) -> Source:
    """A pair of IDX files, plain or gzip-compressed; see :func:`user_array_source`.

    Images without an axis for channels, uint8 [N, H, W], become [N, 1, H, W].

    Raises:
        DataError: a file is missing or is not an IDX file, or the arrays do not fit together.
    """
    where = f"{inputs} (SHA-256 {sha256_of(inputs)}), {labels} (SHA-256 {sha256_of(labels)})"
    images = read_idx(inputs)
    if images.dtype == np.uint8 and images.ndim == 3:
        images = images[:, None]
    return user_array_source(images, read_idx(labels), where, str(inputs))


def user_array_source(inputs: Array, labels: Array, where: str, name: str) -> Source:
    """A split of arrays from the user.

    uint8 [N, C, H, W] are images and are normalised. Floating inputs are not normalised. Other
    integers are indices. Labels are integers, [N] or [N, T], or
    targets, [N, ...], which are not normalised either.

    Raises:
        DataError: the arrays have other dtypes or shapes, differ in N, are empty, or hold NaN or
            infinity.
    """
    shapes = (
        f"inputs {inputs.dtype} {list(inputs.shape)}, labels {labels.dtype} {list(labels.shape)}"
    )
    if inputs.ndim < 2 or labels.ndim < 1 or len(inputs) != len(labels) or not labels.size:
        raise DataError(
            f"{name}: has {shapes}; inputs [N, ...] and labels [N], [N, T] or as the outputs are needed, of "
            "one N, 1 or more"
        )
    if labels.dtype.kind not in "iuf":
        raise DataError(f"{name}: has {shapes}; labels must be numbers")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise DataError(f"{name}: labels hold NaN or infinity")
    labels = labels.astype(np.float64 if labels.dtype.kind == "f" else np.int64)
    if inputs.dtype == np.uint8 and inputs.ndim == 4:
        return array_source("pixels", inputs, labels, where)
    if inputs.dtype.kind == "f":
        if not np.isfinite(inputs).all():
            raise DataError(f"{name}: inputs hold NaN or infinity")
        return array_source("real", inputs, labels, where)
    if inputs.dtype.kind in "iu":
        return array_source("index", inputs.astype(np.int64), labels, where)
    raise DataError(f"{name}: has {shapes}; inputs must be numbers, real or whole")
