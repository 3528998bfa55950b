"""Results as Python shows them: the answer in one line, the reasons, the tables; as text and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING

from dlb.printable import printable
from dlb.proof.certificate import Certificate
from dlb.report.explanations import explanation_lines
from dlb.report.records import certificate_table, results_table
from dlb.report.sentences import describe
from dlb.report.table import Table

if TYPE_CHECKING:
    from dlb.execution.run import Outcome

__all__ = ["COLOURS", "Answer", "NotProven", "certificate_answer", "outcome_answer"]

#: Of the bar beside an answer, by whether it is good. Each is seen on white and on black.
COLOURS = {True: "#2c9c58", None: "#b0801f", False: "#dc4a40"}


@dataclass(frozen=True)
class Answer:
    """What a result says.

    Attributes:
        line: the answer in one line.
        reasons: lines that say why.
        tables: what it follows from.
        good: whether it is what one hopes for; None if that is not known.
    """

    line: str
    reasons: Sequence[str] = ()
    tables: Sequence[Table] = ()
    good: bool | None = None

    def text(self) -> str:
        """All of it as plain text."""
        lines = printable("\n".join([self.line, *self.reasons]))
        return "\n\n".join([lines, *map(_table_text, self.tables)])

    def html(self) -> str:
        """All of it as HTML in the page's own colours, without a style sheet or a script."""
        style = f"border-left: 4px solid {COLOURS[self.good]}; padding-left: 0.8em"
        parts = [f'<div style="{style}"><p><strong>{_escaped(self.line)}</strong></p>']
        parts += [f'<p style="white-space: pre-wrap">{_escaped(each)}</p>' for each in self.reasons]
        return "\n".join([*parts, *map(_table_html, self.tables), "</div>"])


def certificate_answer(certificate: Certificate) -> Answer:
    """The status of each adapter; what differs, and the checks."""
    lines = [line.lstrip("\n") for line in explanation_lines(certificate)]
    lines += [f"{name} failed: {each.line}" for name, each in certificate.failures.items()]
    lines += [
        f"{certificate.title(result.adapter)}, {result.check}: not run: {describe(result)}"
        for result in certificate.checks
        if result.verdict == "not run"
    ]
    tables = [certificate_table(certificate)] if certificate.checks else []
    words = {each: certificate.status(each) for each in certificate.judged_adapters}
    good = "deviates" not in words.values() and (certificate.agrees or None)
    said = ", ".join(f"{certificate.title(each)} {word}" for each, word in words.items())
    return Answer(f"{certificate.workload}: {said or 'nothing was checked'}", lines, tables, good)


def outcome_answer(outcome: Outcome) -> Answer:
    """What was measured in rounds, behind what failed before; of a run without rounds, what the proof says."""
    proof = certificate_answer(outcome.certificate)
    tables = [results_table(outcome.records)] if outcome.paths else []
    if outcome.measurement is None:
        line = f"{proof.line}; not measured in rounds" if outcome.paths else proof.line
        return replace(proof, line=line, tables=[*tables, *proof.tables])
    measured, failed = outcome.measurement.answer(), outcome.certificate.failures
    line = "".join(f"{name} failed: {each.line}. " for name, each in failed.items()) + measured.line
    return replace(proof, line=line, tables=[*measured.tables, *tables, *proof.tables])


class NotProven(AssertionError):
    """A failed assertion: what its certificate says, the reasons, and the table of all checks."""

    def __init__(self, certificate: Certificate) -> None:
        self.certificate = certificate
        super().__init__(certificate_answer(certificate).text())


def _table_text(table: Table) -> str:
    """A table as plain text, a line for each row."""
    rows = [[printable(cell) for cell in row] for row in (table.columns, *table.rows)]
    widths = [max(map(len, cells)) for cells in zip(*rows)]
    rows.insert(1, ["-" * width for width in widths])
    sides = [">" if name in table.right else "<" for name in table.columns]
    lines = ["  ".join(map("{:{}{}}".format, row, sides, widths)).rstrip() for row in rows]
    return "\n".join([printable(table.title), *lines] if table.title else lines)


def _table_html(table: Table) -> str:
    sides = ["right" if name in table.right else "left" for name in table.columns]

    def row(cells: Sequence[str], tag: str, scope: str = "") -> str:
        styles = (f'{scope} style="text-align: {side}"' for side in sides)
        made = (f"<{tag}{x}>{_escaped(each)}</{tag}>" for x, each in zip(styles, cells))
        return f"<tr>{''.join(made)}</tr>"

    lines = [row(table.columns, "th", ' scope="col"'), *(row(each, "td") for each in table.rows)]
    caption = f'<caption style="text-align: left">{_escaped(table.title)}</caption>'
    return "\n".join([f"<table>{caption}", *lines, "</table>"])


def _escaped(text: str) -> str:
    return escape(printable(text))
