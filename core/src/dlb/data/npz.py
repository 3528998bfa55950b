"""Arrays on disk as .npz files that need not fit into memory: written in pieces, read in place."""

from __future__ import annotations

import math
import shutil
import struct
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from rich.filesize import decimal

from dlb.errors import RequestError

__all__ = ["WEIGHTS_READ", "Pieces", "map_arrays", "no_room", "read_or_map", "write_pieces"]

Array = npt.NDArray[Any]

#: Files above this many bytes (1 GiB) are read in place.
_READ_WHOLE = 1 << 30
#: The same of files of weights and gradients (64 MiB), of which there are many at a time, each looked
#: at once.
WEIGHTS_READ = 1 << 26
#: Of a member's header in a zip archive: bytes before its name, and where the lengths of its name
#: and its extra field are (APPNOTE.TXT of PKWARE, 4.3.7).
_LOCAL_HEADER = struct.Struct("<26xHH")


@dataclass(frozen=True)
class Pieces:
    """An array that comes in pieces along its first axis."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: Iterable[Array]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


def write_pieces(path: Path, arrays: dict[str, Pieces]) -> None:
    """Write an .npz file as ``numpy.savez`` does, uncompressed.

    Raises:
        RequestError: there is no room for it.
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


def no_room(path: Path, error: OSError) -> RequestError:
    """That a file of a run cannot be written, and what to do."""
    return RequestError(
        f"cannot write to {path.parent}: {error.strerror or error}; set TMPDIR to a folder with space"
    )


def _write(member: Any, array: Pieces) -> None:
    header = {
        "descr": np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": False,
        "shape": array.shape,
    }
    np.lib.format.write_array_header_1_0(member, header)
    written = 0
    for piece in array.pieces:
        assert piece.dtype == array.dtype and piece.shape[1:] == array.shape[1:]
        member.write(piece.tobytes())
        written += len(piece)
    assert written == array.shape[0]


def read_or_map(path: Path, largest: int = _READ_WHOLE) -> dict[str, Array]:
    """Arrays of an .npz file; of one of more than so many bytes, in place. Pickled ones are refused."""
    if path.stat().st_size > largest:
        return map_arrays(path)
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def map_arrays(path: Path) -> dict[str, Array]:
    """Arrays of an uncompressed .npz file, read from the disk where they are looked at.

    What is written to them stays in memory, and is not written to the file. All are of one mapping:
    each keeps a file open, of which a process may have 256 on macOS, and networks have more weights.

    Raises:
        ValueError: a member is compressed, cut short, holds objects, or is no array of format 1.0.
    """
    mapped: dict[str, Array] = {}
    whole = np.memmap(path, np.uint8, "c")
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{path}: {member.filename} is compressed")
            file.seek(member.header_offset)
            name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
            file.seek(name + extra, 1)
            end = min(file.tell() + member.file_size, whole.size)
            if np.lib.format.read_magic(file) != (1, 0):
                raise ValueError(f"{path}: {member.filename} has a header of another version")
            shape, in_columns, dtype = np.lib.format.read_array_header_1_0(file)
            if dtype.hasobject:
                raise ValueError(f"{path}: {member.filename} holds objects")
            order: Literal["F", "C"] = "F" if in_columns else "C"
            where = file.tell()
            if where + math.prod(shape) * dtype.itemsize > end:
                raise ValueError(f"{path}: {member.filename} is cut short")
            # A plain array, which every framework knows.
            array: Array = np.ndarray(shape, dtype, whole, where, order=order)
            mapped[member.filename.removesuffix(".npy")] = array
    return mapped
