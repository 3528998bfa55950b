"""Reading arrays of numbers from an .npz file of unknown origin."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.errors import DataError

__all__ = ["read_arrays"]

Array = npt.NDArray[Any]

#: Most bytes that the arrays of a file may have together.
LARGEST_BYTES = 1 << 30


def read_arrays(path: Path) -> dict[str, Array]:
    """Every array of an .npz file.

    Raises:
        DataError: there is no such file, it is no .npz file, it is too large, or it holds Python objects.
    """
    try:
        if not path.exists():
            raise DataError("no such file", path=path)
        if not path.is_file() or not zipfile.is_zipfile(path):
            raise DataError("not an .npz file; write one with numpy.savez", path=path)
        with zipfile.ZipFile(path) as archive:
            total = sum(member.file_size for member in archive.infolist())
        if total > LARGEST_BYTES:
            raise DataError(f"{total} bytes of arrays; at most {LARGEST_BYTES} are read", path=path)
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, KeyError, MemoryError, SyntaxError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"not an .npz file of plain numbers: {text}", path=path) from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise DataError(f"a damaged .npz file: {error}", path=path) from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
            raise DataError(f"'{name}' is no array of numbers", path=path)
    return arrays
