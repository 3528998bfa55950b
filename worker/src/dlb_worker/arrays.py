"""Arrays on disk: .npz files without pickle, written member by member and read in place."""

import errno
import io
import os
import struct
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Dict, Iterable, Mapping, Tuple

import numpy as np

from dlb_worker.errors import PluginError, RequestError

__all__ = [
    "WEIGHTS_READ",
    "arrays_in",
    "digests",
    "map_arrays",
    "no_room",
    "product",
    "read_arrays",
    "read_or_map",
    "write_arrays",
]

Array = np.ndarray

#: Files above this many bytes (1 GiB) are read in place.
_READ_WHOLE = 1 << 30
#: The same for files of weights and gradients (1 MiB): there are many at a time, and each is read once.
WEIGHTS_READ = 1 << 20
#: Of a member's header in a zip archive: bytes before its name, and where the lengths of its name
#: and its extra field are (APPNOTE.TXT of PKWARE, 4.3.7).
_LOCAL_HEADER = struct.Struct("<26xHH")
#: How an array of format 1.0 begins; two bytes follow, the length of its header (numpy.lib.format).
_NPY = b"\x93NUMPY\x01\x00"


def read_arrays(path: str) -> Dict[str, Array]:
    """Arrays of an .npz file; pickled ones are refused."""
    with open(path, "rb") as file:
        return arrays_in(file, path, mapped=False)


def read_or_map(path: Path, largest: int = _READ_WHOLE) -> Dict[str, Array]:
    """Arrays of an .npz file; in place where it has more bytes than ``largest``."""
    return map_arrays(path) if path.stat().st_size > largest else read_arrays(str(path))


def map_arrays(path: Path) -> Dict[str, Array]:
    """As :func:`arrays_in`, mapped."""
    with path.open("rb") as file:
        return arrays_in(file, path, mapped=True)


def arrays_in(file: IO[bytes], path: object, mapped: bool) -> Dict[str, Array]:
    """Arrays of an uncompressed .npz file, in memory, or read from the disk where they are looked at.

    What is written to mapped ones stays in memory. All share one mapping: each mapping keeps a file open, a
    process may have 256 on macOS, and networks have more weights.

    Args:
        path: of the open file, for messages.

    Raises:
        ValueError: a member is compressed, cut short, holds objects, or is no array of format 1.0; or it is
            read into memory, and is not as its checksum says.
    """
    found, size = {}, file.seek(0, os.SEEK_END)
    whole = np.memmap(file, np.uint8, "c") if mapped else None
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
                raise ValueError(f"{path}: {member.filename} is compressed or encrypted")
            file.seek(member.header_offset)
            name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
            end = min(file.seek(name + extra, os.SEEK_CUR) + member.file_size, size)
            begin = file.read(len(_NPY) + 2)
            if begin[:-2] != _NPY:
                raise ValueError(f"{path}: {member.filename} has a header of another version")
            header = file.read(int.from_bytes(begin[-2:], "little"))
            shape, in_columns, dtype = _parsed(begin[-2:] + header)
            if dtype.hasobject:
                raise ValueError(f"{path}: {member.filename} holds objects")
            if file.tell() + product(shape) * dtype.itemsize > end:
                raise ValueError(f"{path}: {member.filename} is cut short")
            order: Any = "F" if in_columns else "C"
            # A plain array, which every framework knows.
            if whole is not None:
                array = np.ndarray(shape, dtype, whole, file.tell(), order=order)
            else:
                array = np.empty(shape, dtype, order)
                numbers = array.reshape(-1, order="A").view(np.uint8).data
                file.readinto(numbers)  # type: ignore[attr-defined]
                if zlib.crc32(numbers, zlib.crc32(begin + header)) != member.CRC:
                    raise ValueError(f"{path}: {member.filename} is damaged")
            found[_stem(member.filename)] = array
    return found


@lru_cache(maxsize=4096)
def _parsed(header: bytes) -> Tuple[Tuple[int, ...], bool, Any]:
    """Shape, whether it lies in columns, and dtype: of the same few arrays, many times."""
    return np.lib.format.read_array_header_1_0(io.BytesIO(header))


def write_arrays(path: Path, arrays: Iterable[Tuple[str, Any]]) -> None:
    """Write an .npz file as ``numpy.savez`` does, of arrays that come one by one.

    Raises:
        PluginError: an array holds objects.
        RequestError: there is no room for them.
    """
    try:
        with zipfile.ZipFile(str(path), "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays:
                if np.asarray(array).dtype.hasobject:
                    raise PluginError("an adapter returned an array of objects; only numbers cross")
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):  # raised by who makes the arrays
            raise
        raise no_room(path, error) from None


def digests(weights: Mapping[str, Any], state: Mapping[str, Any]) -> Dict[str, int]:
    """A checksum of the bits of each array, by name; of the optimizer's state by ``optimizer/NAME``."""
    named = dict(weights, **{f"optimizer/{name}": array for name, array in state.items()})
    return {
        name: zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        for name, array in named.items()
    }


def no_room(path: Path, error: OSError) -> RequestError:
    """The error for a file of a run that cannot be written; it says what to do."""
    return RequestError(
        f"cannot write to {path.parent}: {error.strerror or error}; set TMPDIR to a folder with space"
    )


def product(shape: Iterable[int]) -> int:
    found = 1
    for size in shape:
        found *= size
    return found


def _stem(name: str) -> str:
    return name[: -len(".npy")] if name.endswith(".npy") else name
