"""The summary and its tables as Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Iterator

from dlb.report.table import Table
from dlb_measure.tables.typeset import FORMS, joined
from dlb_report.blocks import Shown
from dlb_report.whole import Report

__all__ = ["text"]


def text(report: Report, form: str) -> str:
    """The summary as lists, and the tables.

    Args:
        form: of :data:`dlb_measure.tables.typeset.FORMS`.
    """
    write = FORMS[form]
    lines = [*write.preamble(), *write.heading(report.title)]
    for alert in report.alerts:
        lines += write.paragraph(alert, "Caution")
    lines += write.paragraph(report.answer) if report.answer else []
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
        for block in section.unfolded:
            if isinstance(block, Shown) and block.main and block.table.rows:
                yield title, block.table
                title = ""
