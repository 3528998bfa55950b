"""Versioned JSON documents: written whole or not at all, read against their form, with a schema."""

from __future__ import annotations

import contextlib
import inspect
import os
import tempfile
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dlb import interrupts
from dlb.errors import RecordError

__all__ = ["encode", "make_schema", "read", "shipped_schema", "write_atomically"]

#: A record of a million steps is below this; anything above is none of ours.
LARGEST_BYTES = 200 * 1024 * 1024

Form = TypeVar("Form", bound=msgspec.Struct)


class _Versioned(msgspec.Struct):
    """Any version of a document."""

    format: int


def encode(document: msgspec.Struct) -> bytes:
    """Indented JSON with a line's end."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file, or leave what is there as it is; an interruption waits for it.

    Raises:
        OSError: it cannot be written.
    """
    with interrupts.deferred():
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            # mkstemp's mode is for the owner alone; documents are for whoever may read the folder.
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def read(
    path: Path,
    form: type[Form],
    noun: str,
    version: int,
    converters: Mapping[int, Callable[[bytes], Form]] | None = None,
) -> Form:
    """Read a document and check it against its form.

    Args:
        form: what it must be; noun: what to call it ("record").
        version: the format that is read as it is.
        converters: make a document of an older format one of this; by format.

    Raises:
        RecordError: it cannot be read, is of another form, or of a later format.
    """
    converters = converters or {}
    try:
        # A device or a pipe has no end, or never begins.
        if path.exists() and not path.is_file():
            raise RecordError(f"not a file, so not a {noun}", path=path)
        if path.stat().st_size > LARGEST_BYTES:
            raise RecordError(f"larger than {LARGEST_BYTES} bytes, so not a {noun}", path=path)
        content = path.read_bytes()
    except OSError as error:
        raise RecordError(
            f"{error.strerror or error}; give the path of a {noun}", path=path
        ) from None
    try:
        written = msgspec.json.decode(content, type=_Versioned).format
        if written in converters:
            return converters[written](content)
        if written != version:
            readable = " and ".join(map(str, sorted((*converters, version))))
            raise RecordError(
                f"a {noun} of format {written}; this dlb reads format {readable}; "
                "use the dlb-core that wrote it, or a later one",
                path=path,
            )
        return msgspec.json.decode(content, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"not a {noun}: {error}", path=path) from None


def shipped_schema(noun: str, version: int) -> bytes:
    """JSON Schema (2020-12) of a kind of document, as shipped."""
    return (resources.files("dlb") / "schemas" / f"{noun}-{version}.json").read_bytes()


def make_schema(form: type[msgspec.Struct], title: str) -> bytes:
    """The schema that follows from a form; the shipped one is made from it."""
    made = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **_dedented(msgspec.json.schema(form)),
    }
    return msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"


def _dedented(part: Any) -> Any:
    """A schema with its descriptions, which are docstrings, less their indentation; Python 3.13
    takes it away itself."""
    if isinstance(part, dict):
        return {
            name: inspect.cleandoc(value)
            if name == "description" and isinstance(value, str)
            else _dedented(value)
            for name, value in part.items()
        }
    return [_dedented(value) for value in part] if isinstance(part, (list, tuple)) else part
