"""Reads TOML that people write: whatever a file holds, the answer comes in seconds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from dlb_graph.errors import RequestError
from dlb_graph.regular_files import FileRefused, read_regular

__all__ = ["read_toml"]

#: Parts of a dotted key. The parser takes the square of their number as time.
_MOST_KEY_PARTS = 100
#: What cannot be between the parts of a key, apart from quotes and spaces.
_NO_KEY = re.compile(rb"[^A-Za-z0-9_.-]+")


def read_toml(
    path: Path, noun: str, largest_bytes: int, error_type: type[RequestError]
) -> dict[str, Any]:
    """The content of a TOML file.

    Args:
        noun: what the file is, in messages.
        largest_bytes: people write such a file by hand; a larger one is something else.
        error_type: of the error.

    Raises:
        RequestError: of the given type; the file cannot be read, is too large, or is not TOML.
    """
    try:
        content = read_regular(path, largest_bytes)
    except FileRefused as error:
        raise error_type(f"{error}, so not a {noun}", path=path) from None
    except OSError as error:
        raise error_type(
            f"{error.strerror or error}; give the path of a {noun} file", path=path
        ) from None
    if _key_parts(content) > _MOST_KEY_PARTS:
        raise error_type(f"a key has more than {_MOST_KEY_PARTS} parts, so not a {noun}", path=path)
    try:
        document: dict[str, Any] = msgspec.toml.decode(content)
    # The parser recurses into nested values, and refuses numbers of thousands of digits.
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        if reason.startswith("Invalid value"):
            reason += "; text needs quotation marks"
        raise error_type(f"not a {noun}: {reason}", path=path) from None
    return document


def _key_parts(content: bytes) -> int:
    """At least as many parts as any dotted key has."""
    joined = content.translate(None, b" \t\"'")
    return 1 + max(part.count(b".") for part in _NO_KEY.split(joined))
