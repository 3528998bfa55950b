"""Reads TOML that people write: whatever a file holds, the answer comes in seconds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dlb_graph.errors import FieldError, RequestError
from dlb_graph.regular_files import FileRefused, read_regular

__all__ = ["read_toml"]

Form = TypeVar("Form")
#: Bytes that are parsed to find the line of a field.
_MOST_PARSED = 1 << 20
#: Parts of a dotted key. The parser takes the square of their number as time.
_MOST_KEY_PARTS = 100
#: What cannot be between the parts of a key, apart from quotes and spaces.
_NO_KEY = re.compile(rb"[^A-Za-z0-9_.-]+")


def read_toml(
    path: Path,
    noun: str,
    largest_bytes: int,
    error_type: type[RequestError],
    convert: Callable[[dict[str, Any]], Form],
) -> Form:
    """The content of a TOML file.

    Args:
        noun: what the file is, in messages.
        largest_bytes: people write such a file by hand; a larger one is something else.
        error_type: of the error.
        convert: makes it of the plain content.

    Raises:
        RequestError: of the given type; the file cannot be read, is too large, or is not TOML.
        FieldError: as ``convert`` raised it, with the file and the line of the field.
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
    try:
        return convert(document)
    except FieldError as error:
        error.path = str(path)
        error.line = _line_of(content, [*error.place])
        raise


def _line_of(content: bytes, place: list[str | int]) -> int:
    """The line where a value begins, or what should hold it; 0 if it is not found in time.

    It is the first without which the parser does not find it: the lines before any statement are TOML, and so
    are those before any item of an array, once that is closed.
    """
    while place and not _holds(content, place):
        place.pop()
    lines, left = content.splitlines(keepends=True), _MOST_PARSED
    before, after = 0, len(lines) if place else 0
    while after - before > 1:
        middle = end = (before + after) // 2
        there = None
        # Lines that end within a value of several lines are no TOML: with the rest of it they are.
        while there is None and end < after:
            content = b"".join(lines[:end])
            left -= len(content)
            if left < 0:
                return 0
            there, end = _holds(content, place), end + 1
        before, after = (end - 1, after) if there is False else (before, middle)
    return after


def _holds(content: bytes, place: Sequence[str | int]) -> bool | None:
    """Whether a document has a value at a place; None if it is no document, whatever array it ends in."""
    for rest in (b"", b"]", b"]}", b"]}]"):
        try:
            document = msgspec.toml.decode(content + rest)
        except (msgspec.DecodeError, RecursionError, ValueError):
            continue
        try:
            for step in place:
                document = document[step]
        except (LookupError, TypeError):
            return False
        return True
    return None


def _key_parts(content: bytes) -> int:
    """At least as many parts as any dotted key has."""
    joined = content.translate(None, b" \t\"'")
    return 1 + max(part.count(b".") for part in _NO_KEY.split(joined))
