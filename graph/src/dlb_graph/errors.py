"""Errors of describing, reading and comparing models. They have fields, of which ``str`` makes one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlb_worker.errors import DlbError, RequestError, UnknownNameError, UnsupportedError

__all__ = [
    "DataError",
    "DlbError",
    "FieldError",
    "RequestError",
    "Sentence",
    "SettingError",
    "ShapeError",
    "UnknownNameError",
    "UnsupportedError",
    "WorkloadError",
    "sentence_of",
]

#: A sentence about settings, by how its reader writes the name of one: ``--batch-size``, or ``batch_size``.
Sentence = Callable[[Callable[[str], str]], str]


class SettingError(RequestError):
    """Settings that are out of range, or do not go together.

    Its message has their names as Python has them; ``sentence`` makes it for other readers.
    """

    def __init__(self, sentence: Sentence, **fields: Any) -> None:
        super().__init__(sentence(str), **fields)
        self.sentence = sentence


def sentence_of(error: DlbError) -> Sentence:
    """What an error says, for any reader."""
    return error.sentence if isinstance(error, SettingError) else lambda name: error.message


class FieldError(RequestError):
    """A field of a document that people write is wrong.

    Attributes:
        place: the keys and indices that lead to it; empty if it is no single field.
        line: of the file, where it begins; 0 if that is not known.
    """

    def __init__(self, message: str, place: Sequence[str | int] = (), **fields: Any) -> None:
        super().__init__(message, **fields)
        self.place, self.line = place, 0

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.detail}" if self.line else super().__str__()


class WorkloadError(FieldError):
    """A workload that cannot be read or is not valid."""


class ShapeError(WorkloadError):
    """A layer that cannot take the shapes of its inputs."""


class DataError(RequestError):
    """A data file that is missing, truncated, oversized or altered."""
