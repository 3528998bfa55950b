"""The file of tests that an adapter is known to fail, each with the reason.

::

    [[expected_failures]]
    test = "test_layers.py::*[lstm-*-float32-*]"
    reason = "the framework's LSTM computes in half precision"

``test`` is the end of the id that pytest shows, from the file's name on; ``*`` stands for any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dlb.errors import RequestError

__all__ = ["Entry", "first_match", "read", "refuse_stale", "toml_of"]

TABLE = "expected_failures"
#: It is text written by people; anything larger is not one.
_LARGEST_BYTES = 1024 * 1024


class _Fields(msgspec.Struct, forbid_unknown_fields=True):
    test: str
    reason: str


@dataclass(frozen=True)
class Entry:
    """Tests that are known to fail.

    Attributes:
        place: the file and the entry in it, for messages.
        test: pattern of the tests' ids.
        reason: why they fail.
    """

    place: str
    test: str
    reason: str

    def matches(self, test: str) -> bool:
        # Not fnmatch: to it the brackets in ids are sets of characters.
        pieces = map(re.escape, self.test.split("*"))
        return re.fullmatch(".*".join(pieces), test, flags=re.S) is not None


def read(path: Path) -> tuple[Entry, ...]:
    """The entries of a file, in its order.

    Raises:
        RequestError: unreadable, not TOML, or an entry with a field that is unknown, missing,
            empty or no text; the message names the file and the entry.
    """
    document = toml_of(path, "expected failures")
    entries = document.pop(TABLE, [])
    if document:
        raise RequestError(
            f"{path}: unknown key '{next(iter(document))}'; it holds [[{TABLE}]] entries only"
        )
    if not isinstance(entries, list):
        raise RequestError(f"{path}: '{TABLE}' is no list; begin each entry with [[{TABLE}]]")
    return tuple(_entry(given, f"{path}: entry {n}") for n, given in enumerate(entries, 1))


def toml_of(path: Path, what: str) -> dict[str, Any]:
    """A file of TOML that somebody wrote.

    Raises:
        RequestError: unreadable, too large, or not TOML; the message says ``what`` was wanted.
    """
    try:
        # A device or a pipe has no end, or never begins.
        if path.exists() and not path.is_file():
            raise RequestError(f"{path}: not a file, so no list of {what}")
        if path.stat().st_size > _LARGEST_BYTES:
            raise RequestError(f"{path}: larger than {_LARGEST_BYTES} bytes")
        text = path.read_bytes()
    except OSError as error:
        raise RequestError(
            f"{path}: {error.strerror or error}; give the path of a file of {what}"
        ) from None
    try:
        return msgspec.toml.decode(text, type=dict[str, Any])
    # The reader recurses into nested values, and refuses numbers of thousands of digits.
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RequestError(f"{path}: not TOML: {error}") from None


def _entry(given: Any, place: str) -> Entry:
    if isinstance(given, dict) and isinstance(given.get("test"), str):
        place = f"{place} ('{given['test']}')"
    try:
        fields = msgspec.convert(given, _Fields)
    except msgspec.ValidationError as error:
        raise RequestError(f"{place}: {error}") from None
    for name in ("test", "reason"):
        if not getattr(fields, name).strip():
            raise RequestError(f"{place}: '{name}' is empty")
    return Entry(place, fields.test, fields.reason)


def first_match(entries: Iterable[Entry], test: str) -> Entry | None:
    """The first entry that names a test."""
    return next((entry for entry in entries if entry.matches(test)), None)


def refuse_stale(entries: Iterable[Entry], tests: Sequence[str]) -> None:
    """Hold the entries against the ids of all tests.

    Raises:
        RequestError: one matches none of them.
    """
    for entry in entries:
        if not any(map(entry.matches, tests)):
            raise RequestError(
                f"{entry.place} matches no test; correct or remove it "
                f"(--collect-only -q lists the tests)"
            )
