"""Arrays of the user: an .npz file, or a pair of IDX files."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.data.content import sha256_of
from dlb.data.idx import read_idx
from dlb.data.source import Source, of_arrays
from dlb.errors import DataError

__all__ = ["read_idx_pair", "read_npz"]

Array = npt.NDArray[Any]
#: What NumPy and zipfile raise on files that are cut, encrypted, packed strangely, or lie about sizes.
_NOT_ONE = (
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
    """The arrays ``inputs`` and ``labels`` of an .npz file; see :func:`of_user_arrays`.

    Raises:
        DataError: the file is missing, is no .npz file, lacks an array, holds objects, or the
            arrays do not go together.
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
    except _NOT_ONE as error:
        raise DataError(
            f"{path}: not a whole .npz file of numbers ({error}); write it with numpy.savez"
        ) from None
    return of_user_arrays(inputs, labels, where, str(path))


def read_idx_pair(inputs: Path, labels: Path) -> Source:
    """A pair of IDX files, plain or gzip-compressed; see :func:`of_user_arrays`.

    Images without an axis for channels, uint8 [N, H, W], are taken as [N, 1, H, W].

    Raises:
        DataError: a file is missing or is no IDX file, or the arrays do not go together.
    """
    where = f"{inputs} (SHA-256 {sha256_of(inputs)}), {labels} (SHA-256 {sha256_of(labels)})"
    images = read_idx(inputs)
    if images.dtype == np.uint8 and images.ndim == 3:
        images = images[:, None]
    return of_user_arrays(images, read_idx(labels), where, str(inputs))


def of_user_arrays(inputs: Array, labels: Array, where: str, named: str) -> Source:
    """A split of arrays that the user has made.

    uint8 [N, C, H, W] are images, to be normalised; other floating inputs are taken as they are;
    other integers are indices. Labels are integers, [N] or [N, T].

    Raises:
        DataError: the arrays are none of this, differ in N, are empty, or hold NaN or infinity.
    """
    shapes = (
        f"inputs {inputs.dtype} {list(inputs.shape)}, labels {labels.dtype} {list(labels.shape)}"
    )
    if (
        inputs.ndim < 2
        or labels.ndim not in (1, 2)
        or len(inputs) != len(labels)
        or not labels.size
    ):
        raise DataError(
            f"{named}: has {shapes}; inputs [N, ...] and labels [N] or [N, T] are needed, of one N, "
            "1 or more"
        )
    if labels.dtype.kind not in "iu":
        raise DataError(f"{named}: has {shapes}; labels must be integers")
    given = labels.astype(np.int64)
    if inputs.dtype == np.uint8 and inputs.ndim == 4:
        return of_arrays("pixels", inputs, given, where)
    if inputs.dtype.kind == "f":
        if not np.isfinite(inputs).all():
            raise DataError(f"{named}: inputs hold NaN or infinity")
        return of_arrays("real", inputs, given, where)
    if inputs.dtype.kind in "iu":
        return of_arrays("index", inputs.astype(np.int64), given, where)
    raise DataError(f"{named}: has {shapes}; inputs must be numbers, real or whole")
