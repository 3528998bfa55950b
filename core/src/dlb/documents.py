"""Versioned JSON documents: written atomically, validated when read, each with a schema."""

from __future__ import annotations

import inspect
import os
import re
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dlb import interrupts
from dlb.errors import RecordError
from dlb_graph import regular_files
from dlb_graph.regular_files import FileRefused, read_regular

__all__ = [
    "UNREADABLE",
    "decode",
    "encode",
    "make_schema",
    "not_written",
    "plain",
    "read",
    "shipped_schema",
    "without_home",
    "write_atomically",
]

#: A record of a million steps is smaller; a larger file cannot be a document of dlb.
LARGEST_BYTES = 200 * 1024 * 1024

#: Values may be nested so deep.
DEEPEST = 200

#: What an integer of more than 64 bits looks like; a text may look so, too.
_MANY_DIGITS = re.compile(rb"[0-9]{19}")

Form = TypeVar("Form", bound=msgspec.Struct)


#: What decoding raises on a content that is no such document.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Versioned(msgspec.Struct):
    """The one field that a document of any version has."""

    format: int


def encode(document: msgspec.Struct) -> bytes:
    """The document as indented JSON that ends with a newline, fit to be published: see :func:`without_home`."""
    return msgspec.json.format(without_home(msgspec.json.encode(document)), indent=1) + b"\n"


def without_home(content: bytes) -> bytes:
    """A text with ``~`` for the folder of the user, whose name it would tell."""
    home = os.environ.get("HOME", "").rstrip("/")
    names = {msgspec.json.encode(each)[1:-1] for each in (home, os.path.realpath(home))}
    # Not a part of a longer path; a compiler's -I and -L stand before one.
    rule = (
        rb"(?:(?<![\w.~-])|(?<=-[IL]))(?:" + b"|".join(map(re.escape, names)) + rb")(?![\w-]|\.\w)"
    )
    return re.sub(rule, b"~", content) if home.startswith("/") else content


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely, or leave the old one unchanged; an interrupt waits until it is done.

    Raises:
        OSError: the file cannot be written.
    """
    with interrupts.deferred():
        regular_files.write_atomically(path, content)


def not_written(path: Path, error: OSError) -> RecordError:
    """Why a file of a results folder could not be written, and what to do."""
    return RecordError(
        f"cannot write {path}: {error.strerror or error}; free some space or choose another folder with "
        "--out; finished records are unchanged"
    )


def read(path: Path, noun: str, version: int, form: type[Form]) -> Form:
    """Read a document and validate it.

    Args:
        path: the document's file.
        noun: the document's name in messages, such as "record".
        version: the format that it must have.
        form: what it becomes.

    Raises:
        RecordError: the file cannot be read, is not such a document, or has another format.
    """
    try:
        content = read_regular(path, LARGEST_BYTES)
    except FileRefused as error:
        raise RecordError(f"{error}, so not a {noun}", path=path) from None
    except OSError as error:
        raise RecordError(
            f"{error.strerror or error}; give the path of a {noun}", path=path
        ) from None
    try:
        found_version = msgspec.json.decode(content, type=_Versioned).format
        if found_version != version:
            raise RecordError(
                f"a {noun} of format {found_version}; this dlb reads format {version}; "
                "use the dlb-core that wrote it, or a later one",
                path=path,
            )
        return decode(content, form)
    except UNREADABLE as error:
        raise RecordError(f"not a {noun}: {error}", path=path) from None


def decode(content: bytes, form: type[Form]) -> Form:
    """A document of a content.

    Raises:
        Exception: one of :data:`UNREADABLE`; it is none.
    """
    if _MANY_DIGITS.search(content):
        plain(msgspec.json.decode(content))
    return msgspec.json.decode(content, type=form)


def plain(value: Any, depth: int = 0) -> Any:
    """A value of JSON as documents can keep it: in texts, lone surrogates are replaced.

    Raises:
        msgspec.ValidationError: an integer has more than 64 bits, of which no float can be made; or it is
            nested too deep.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise msgspec.ValidationError("an integer has more than 64 bits")
    if not isinstance(value, (dict, list)):
        return value
    if depth == DEEPEST:
        raise msgspec.ValidationError(f"nested more than {DEEPEST} deep")
    if isinstance(value, dict):
        return {plain(name): plain(inner, depth + 1) for name, inner in value.items()}
    return [plain(inner, depth + 1) for inner in value]


def shipped_schema(noun: str, version: int, package: str = "dlb") -> bytes:
    """The shipped JSON Schema (2020-12) of a kind of document."""
    return (resources.files(package) / "schemas" / f"{noun}-{version}.json").read_bytes()


def make_schema(form: type[msgspec.Struct], title: str, **parts: Any) -> bytes:
    """The JSON Schema of a type; the shipped schemas are generated with it.

    Args:
        parts: by the name that the type refers to it by, types that are made only when a document is read.
    """
    types = [form, *parts.values()]
    (own, *others), definitions = msgspec.json.schema_components(
        types, ref_template="#/$defs/{name}"
    )
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **own,
        "$defs": _dedent_descriptions({**definitions, **dict(zip(parts, others))}),
    }
    return msgspec.json.format(msgspec.json.encode(schema), indent=1) + b"\n"


def _dedent_descriptions(part: Any) -> Any:
    """Remove the indentation of descriptions, which are docstrings, as Python 3.13 does itself."""
    if isinstance(part, dict):
        return {
            name: inspect.cleandoc(value)
            if name == "description" and isinstance(value, str)
            else _dedent_descriptions(value)
            for name, value in part.items()
        }
    if isinstance(part, (list, tuple)):
        return [_dedent_descriptions(value) for value in part]
    return part
