"""Writes arrays to .npz files in chunks, so that they need not fit into memory."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.filesize import decimal

from dlb.errors import RequestError
from dlb_worker.arrays import no_room

__all__ = ["ChunkedArray", "write_npz"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ChunkedArray:
    """An array whose ``chunks`` follow one another along its first axis."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: Iterable[Array]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


def write_npz(path: Path, arrays: dict[str, ChunkedArray]) -> None:
    """Write an .npz file as ``numpy.savez`` does, uncompressed.

    Raises:
        RequestError: the disk has no room for it.
    """
    needed = sum(array.nbytes for array in arrays.values())
    try:
        free = shutil.disk_usage(path.parent).free
        if needed > free:
            raise RequestError(
                f"the samples of this run take {decimal(needed)} in {path.parent}, where "
                f"{decimal(free)} are free; ask for fewer --steps, or set TMPDIR to a folder with space"
            )
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    _write(member, array)
    except OSError as error:
        raise no_room(path, error) from None


def _write(member: Any, array: ChunkedArray) -> None:
    header = {
        "descr": np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": False,
        "shape": array.shape,
    }
    np.lib.format.write_array_header_1_0(member, header)
    written = 0
    for chunk in array.chunks:
        assert chunk.dtype == array.dtype and chunk.shape[1:] == array.shape[1:]
        member.write(chunk.tobytes())
        written += len(chunk)
    assert written == array.shape[0]
