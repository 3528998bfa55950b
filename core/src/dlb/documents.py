"""Versioned JSON documents: written atomically, validated when read, each with a schema."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dlb import interrupts
from dlb.errors import RecordError
from dlb.regular_files import FileRefused, read_regular

__all__ = [
    "decoder",
    "encode",
    "make_schema",
    "plain",
    "read",
    "replaceable",
    "shipped_schema",
    "temporary_file",
    "write_atomically",
]

#: A record of a million steps is smaller; a larger file cannot be a document of dlb.
LARGEST_BYTES = 200 * 1024 * 1024

#: Values may be nested so deep.
DEEPEST = 200

#: What an integer of more than 64 bits looks like; a text may look so, too.
_MANY_DIGITS = re.compile(rb"[0-9]{19}")

Form = TypeVar("Form", bound=msgspec.Struct)


class _Versioned(msgspec.Struct):
    """The one field that a document of any version has."""

    format: int


def encode(document: msgspec.Struct) -> bytes:
    """The document as indented JSON that ends with a newline."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely, or leave the old one unchanged; an interrupt waits until it is done.

    A device or a pipe is written to, and not replaced.

    Raises:
        OSError: the file cannot be written.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(content)
        return
    with interrupts.deferred(), temporary_file(path) as temporary:
        temporary.write_bytes(content)


def replaceable(path: Path) -> Path:
    """The file that a path leads to, which may be replaced by another, or made.

    Raises:
        FileRefused: it is a device, a pipe or a folder.
    """
    target = Path(os.path.realpath(path))
    # A pipe that a link of the system leads to has no path.
    if (path.exists() or os.path.lexists(target)) and not path.is_file():
        raise FileRefused("it exists and is not a file, so it is not replaced")
    return target


@contextlib.contextmanager
def temporary_file(path: Path) -> Iterator[Path]:
    """A new file beside ``path``, which takes its place if the block does not raise.

    Of a link, the file that it leads to is replaced.

    Raises:
        OSError: the file cannot be written, or the path is a device, a pipe or a folder, which is not replaced.
    """
    path = replaceable(path)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        # mkstemp lets only the owner read; whoever can read the folder can read documents.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def read(path: Path, noun: str, readers: Mapping[int, Callable[[bytes], Form]]) -> Form:
    """Read a document and validate it.

    Args:
        path: the document's file.
        noun: the document's name in messages, such as "record".
        readers: by format, what reads its content; it may raise :class:`msgspec.DecodeError`.

    Raises:
        RecordError: the file cannot be read, is not such a document, or has an unknown format.
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
        if found_version not in readers:
            readable = " and ".join(map(str, sorted(readers)))
            raise RecordError(
                f"a {noun} of format {found_version}; this dlb reads format {readable}; "
                "use the dlb-core that wrote it, or a later one",
                path=path,
            )
        return readers[found_version](content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"not a {noun}: {error}", path=path) from None


def decoder(form: type[Form]) -> Callable[[bytes], Form]:
    """What reads the content of a document of the current format."""

    def decode(content: bytes) -> Form:
        if _MANY_DIGITS.search(content):
            plain(msgspec.json.decode(content))
        return msgspec.json.decode(content, type=form)

    return decode


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


def shipped_schema(noun: str, version: int) -> bytes:
    """The shipped JSON Schema (2020-12) of a kind of document."""
    return (resources.files("dlb") / "schemas" / f"{noun}-{version}.json").read_bytes()


def make_schema(form: type[msgspec.Struct], title: str) -> bytes:
    """The JSON Schema of a type; the shipped schemas are generated with it."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **_dedent_descriptions(msgspec.json.schema(form)),
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
