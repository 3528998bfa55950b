"""Reading arrays of numbers from an .npz file of unknown origin."""

from __future__ import annotations

import zipfile
from pathlib import Path

from dlb_graph.errors import DataError
from dlb_graph.layers.numbers import Array
from dlb_graph.regular_files import read_numbers

__all__ = ["read_arrays"]


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
        return read_numbers(path, LARGEST_BYTES)
    except OSError as error:
        raise DataError(str(error.strerror or error), path=path) from None
