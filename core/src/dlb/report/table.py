"""A table as data, before it is printed or laid out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Table"]


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        columns: their titles; that of a column of words may be empty.
        rows: a text for each column.
        title: what the table shows; empty if that is plain.
        right: titles of the columns that are aligned right.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    right: Sequence[str] = ()
