"""Files that are named by the SHA-256 of their content: ``KIND/SHA256.SUFFIX`` in a results folder.

Equal contents are one file, whoever writes them, and a file that was altered is noticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dlb import documents
from dlb.errors import RecordError
from dlb_graph.regular_files import read_regular

__all__ = ["Kind", "discard", "keep", "keep_arrays", "path_of", "read", "read_arrays"]

Array = npt.NDArray[Any]
Kind = Literal["models", "certificates", "series"]
_SUFFIXES: dict[Kind, str] = {
    "models": ".onnx",
    "certificates": ".json",
    "series": ".safetensors",
}


def path_of(folder: Path, kind: Kind, digest: str) -> Path:
    """The path of a content.

    Raises:
        RecordError: the digest is no SHA-256.
    """
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise RecordError(f"'{digest[:80]}' is no SHA-256")
    return folder / kind / f"{digest}{_SUFFIXES[kind]}"


def keep(folder: Path, kind: Kind, content: bytes) -> str:
    """Write a content unless it is there, and return its SHA-256.

    Raises:
        RecordError: it cannot be written.
    """
    digest = hashlib.sha256(content).hexdigest()
    path = path_of(folder, kind, digest)
    try:
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            documents.write_atomically(path, content)
    except OSError as error:
        raise documents.not_written(path, error) from None
    return digest


def discard(folder: Path, kind: Kind, digest: str) -> None:
    """Delete a content that nothing refers to any more."""
    path_of(folder, kind, digest).unlink(missing_ok=True)


def read(folder: Path, kind: Kind, digest: str) -> bytes:
    """A content.

    Raises:
        RecordError: there is none, or it was altered.
    """
    path = path_of(folder, kind, digest)
    try:
        content = read_regular(path, documents.LARGEST_BYTES)
    except OSError as error:
        raise RecordError(
            f"{error.strerror or error}; a results folder is moved as a whole", path=path
        ) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise RecordError("its content is not that of its name", path=path)
    return content


def keep_arrays(folder: Path, arrays: Mapping[str, Array]) -> str:
    """Write series, and return the SHA-256 of their file.

    Args:
        arrays: float64, by name.

    Raises:
        RecordError: the file cannot be written.
    """
    from safetensors.numpy import save

    return keep(
        folder,
        "series",
        save({name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}),
    )


def read_arrays(folder: Path, digest: str) -> dict[str, Array]:
    """Series by name.

    Raises:
        RecordError: there is no such file, or it was altered.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = path_of(folder, "series", digest)
    try:
        arrays = dict(load(read(folder, "series", digest)))
    except (SafetensorError, ValueError) as error:
        raise RecordError(f"not a file of series: {error}", path=path) from None
    for name, array in arrays.items():
        if array.dtype != np.float64 or array.ndim != 1:
            raise RecordError(f"its '{name}' is no series of float64 numbers", path=path)
    return arrays
