"""The summary and its tables as Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Iterator

from dlb.report.page.blocks import Shown
from dlb.report.page.whole import Report
from dlb.report.table import Table
from dlb.report.typeset import FORMS, joined

__all__ = ["text"]


def text(report: Report, form: str) -> str:
    """The summary as lists, and the tables.

    Args:
        form: of :data:`dlb.report.typeset.FORMS`.
    """
    write = FORMS[form]
    lines = [*write.preamble(), *write.heading(report.title)]
    for part in report.summary:
        lines += write.paragraph(part.note, part.title)
        lines += write.items([each.sentence for each in part.statements])
    for title, table in _tables(report):
        lines += write.heading(title, 2) if title else []
        lines += write.table(table)
    return joined(lines)


def _tables(report: Report) -> Iterator[tuple[str, Table]]:
    """The tables of a summary, with the title of their section where a new one begins."""
    for section in report.sections:
        title = section.title
        for block in section.blocks:
            if isinstance(block, Shown) and block.main and block.table.rows:
                yield title, block.table
                title = ""
