"""What a section of a page is made of, whatever form it is written in."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from dlb.documents import without_home
from dlb.printable import cell
from dlb.report.plain import plain
from dlb.report.table import Table
from dlb_report.charts import Chart, Legend

__all__ = [
    "Block",
    "Data",
    "Folded",
    "Heading",
    "Lines",
    "Part",
    "Plot",
    "Section",
    "Shown",
    "Statement",
    "Strip",
    "data_of",
]

#: Longest text of a cell of a CSV file.
MOST_CELL = 1000


@dataclass(frozen=True)
class Data:
    """A CSV file for downloading: its name, without ``.csv``, and its content."""

    name: str
    content: bytes


def data_of(name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Data:
    """A CSV file. Numbers are exact; of texts from strangers none is a formula of a spreadsheet."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    for row in rows:
        table.writerow([_cell(each) for each in row])
    return Data(name, without_home(text.getvalue().encode("utf-8", "replace")))


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, (int, float)):
        return plain(value, MOST_CELL)
    return cell(plain(value, MOST_CELL))


@dataclass(frozen=True)
class Statement:
    """A sentence of the summary.

    Attributes:
        figure: what is read first, such as ``1.31 times faster``; empty if there is no figure.
        label: ``proven``, ``unproven`` or another status; empty if the sentence is about none.
        about: what stands below the figure, without repeating it; the text if empty.
        tone: ``good``, ``bad`` or ``neutral``, of the label.
    """

    text: str
    figure: str = ""
    detail: str = ""
    label: str = ""
    about: str = ""

    @property
    def tone(self) -> str:
        if self.label in ("proven", "within rounding"):
            return "good"
        return "bad" if self.label.startswith(("deviates", "failed")) else "neutral"

    @property
    def sentence(self) -> str:
        """All of it in one line."""
        more = f": {self.detail}" if self.detail else ""
        return f"{self.text}{more}" + (f" ({self.label})" if self.label else "")


@dataclass(frozen=True)
class Heading:
    """The title of a part of a section."""

    text: str
    note: str = ""


@dataclass(frozen=True)
class Lines:
    """Sentences, each a line of its own; ``warning`` for what limits the figures."""

    lines: Sequence[str]
    warning: bool = False


@dataclass(frozen=True)
class Shown:
    """A table.

    Attributes:
        data: the same as a file, with exact figures.
        folded: whether a page shows it only when asked to.
        main: whether it is among the tables of a summary.
    """

    table: Table
    data: Data | None = None
    folded: bool = False
    main: bool = True


@dataclass(frozen=True)
class Plot:
    """Charts next to each other, with the table of what they show, and their data."""

    charts: Sequence[Chart]
    table: Table | None = None
    data: Data | None = None
    folded: bool = True

    @property
    def common_legend(self) -> Sequence[Legend]:
        """The legend of all charts, if it is the same and no chart has lines of several names to hide."""
        legends = [list(chart.legend) for chart in self.charts]
        same = len(legends) > 1 and all(each == legends[0] for each in legends)
        bands = same and not any(isinstance(entry.style, int) for entry in legends[0])
        return legends[0] if bands else []


@dataclass(frozen=True)
class Strip:
    """Statements in one row."""

    statements: Sequence[Statement]


@dataclass(frozen=True)
class Folded:
    """Blocks that a page shows only when asked to."""

    title: str
    blocks: Sequence[Lines | Shown | Plot]


Block = Union[Heading, Lines, Shown, Plot, Strip, Folded]


@dataclass(frozen=True)
class Part:
    """A heading, and the blocks below it."""

    heading: Heading | None
    blocks: list[Block]


@dataclass(frozen=True)
class Section:
    """A section of the page; ``name`` is that of its anchor."""

    name: str
    title: str
    lead: str = ""
    blocks: Sequence[Block] = field(default=())

    @property
    def unfolded(self) -> list[Block]:
        """Every block, with those that a page folds."""
        return [
            own
            for block in self.blocks
            for own in (block.blocks if isinstance(block, Folded) else [block])
        ]

    @property
    def parts(self) -> list[Part]:
        """The blocks below each heading; those before the first have none."""
        parts: list[Part] = []
        for block in self.blocks:
            if isinstance(block, Heading):
                parts.append(Part(block, []))
            elif not parts:
                parts.append(Part(None, [block]))
            else:
                parts[-1].blocks.append(block)
        return parts
