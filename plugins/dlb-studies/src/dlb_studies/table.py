"""The table of a study: published numbers, and ours beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlb_studies.figures import Figure
from dlb_studies.study import Quantity, Study, published_rows

__all__ = ["Entry", "StudyTable", "entries_of_published", "make_tables"]


@dataclass(frozen=True)
class Entry:
    """One number of the table.

    Attributes:
        labels: what it is of.
        quantity: its name.
        text: as it is shown; a published one as it was printed.
        doubt: what is doubtful about a published number; empty if nothing is.
        ours: our figure; None if it is published.
    """

    labels: Mapping[str, str]
    quantity: str
    text: str
    doubt: str = ""
    ours: Figure | None = None


@dataclass(frozen=True)
class StudyTable:
    """One table.

    Attributes:
        title: the values that it is cut by.
        columns: headings; those of labels first.
        labels: how many these are.
        rows: as many texts each; empty where there is no number.
        doubts: of the published numbers that are marked with ``?``.
    """

    title: str
    columns: Sequence[str]
    labels: int
    rows: Sequence[Sequence[str]]
    doubts: Sequence[str] = field(default_factory=tuple)


def entries_of_published(study: Study, path: Path) -> list[Entry]:
    """Every published number of a study.

    Args:
        path: the study's file.
    """
    entries = []
    for published in study.published:
        for row in published_rows(study, published, path):
            labels = {
                name: row.get(name, "") for name in (*study.split, *study.rows, *study.columns)
            }
            entries += [
                Entry(labels, each.name, row.get(each.name, ""), row["doubt"])
                for each in study.quantities
            ]
    return entries


def make_tables(
    study: Study, published: Iterable[Entry], ours: Iterable[Entry]
) -> list[StudyTable]:
    """The tables of a study: rows and columns in the order of the paper, ours behind."""
    entries = [*published, *ours]
    parts = list(dict.fromkeys(_key(each, study.split) for each in entries))
    return [
        _table(study, part, [each for each in entries if _key(each, study.split) == part])
        for part in parts
    ]


def _table(study: Study, part: tuple[str, ...], entries: Sequence[Entry]) -> StudyTable:
    rows = _grouped(dict.fromkeys(_key(each, study.rows) for each in entries))
    places = list(dict.fromkeys(_key(each, study.columns) for each in entries))
    shown = [
        (place, quantity)
        for place in places
        for quantity in study.quantities
        if any(
            each.text
            for each in entries
            if each.quantity == quantity.name and _key(each, study.columns) == place
        )
    ]
    found: dict[tuple[tuple[str, ...], tuple[str, ...], str], Entry] = {}
    for each in entries:
        key = (_key(each, study.rows), _key(each, study.columns), each.quantity)
        if each.text or key not in found:
            found[key] = each
    texts = []
    for row in rows:
        numbers = [found.get((row, place, quantity.name)) for place, quantity in shown]
        texts.append([*row, *(_text(each) for each in numbers)])
    doubts = dict.fromkeys(each.doubt for each in found.values() if each.doubt and each.text)
    several = len(study.quantities) > 1
    return StudyTable(
        title=", ".join(part),
        columns=[*study.rows, *(_heading(place, quantity, several) for place, quantity in shown)],
        labels=len(study.rows),
        rows=texts,
        doubts=tuple(doubts),
    )


def _grouped(keys: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Rows that begin with the same labels one after the other, each label in the order of its coming."""
    order: dict[tuple[str, ...], int] = {}
    rows = list(keys)
    for row in rows:
        for length in range(1, len(row) + 1):
            order.setdefault(row[:length], len(order))
    return sorted(rows, key=lambda row: [order[row[: n + 1]] for n in range(len(row))])


def _key(entry: Entry, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(entry.labels.get(name, "") for name in names)


def _text(entry: Entry | None) -> str:
    if entry is None:
        return ""
    return f"{entry.text} ?" if entry.doubt and entry.text else entry.text


def _heading(place: Sequence[str], quantity: Quantity, several: bool) -> str:
    words = [word for word in place if word]
    return "\n".join([*words, *([quantity.name] if several or not words else [])])
