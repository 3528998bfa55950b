"""Headings, lists and tables as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from dlb.report.plain import plain
from dlb.report.table import Table

__all__ = ["FORMS", "Form", "joined"]

_MOST = 2000
#: Everything that Markdown, or HTML within it, may give a meaning. Not all readers of Markdown take a backslash
#: before each: those of the last line are entities.
_MARKDOWN = {
    **{each: "\\" + each for each in "\\`*_{}[]|#"},
    **{each: f"&#{ord(each)};" for each in "<>~&$"},
}
_LATEX = {
    "[": "{[}", "]": "{]}",
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%",
    "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}", "\ufffd": "?", "…": r"\ldots{}",
    "“": "``", "”": "''", "±": r"$\pm$",
}  # fmt: skip


class Form(Protocol):
    """What a document is made of. Every text is escaped; each method returns lines."""

    def preamble(self) -> list[str]:
        """What stands before everything else."""

    def heading(self, text: str, level: int = 1) -> list[str]:
        """A heading; ``level`` counts from 1."""

    def paragraph(self, text: str, title: str = "") -> list[str]:
        """A paragraph, with a title in bold before it."""

    def items(self, texts: Sequence[str]) -> list[str]:
        """A list with a point for each text."""

    def table(self, table: Table) -> list[str]:
        """A table with its title, if it has one."""


class _Markdown:
    """GitHub's Markdown."""

    def preamble(self) -> list[str]:
        return []

    def heading(self, text: str, level: int = 1) -> list[str]:
        return [f"{'#' * level} {_markdown(text)}", ""]

    def paragraph(self, text: str, title: str = "") -> list[str]:
        return [f"**{_markdown(title)}**: {_markdown(text)}" if title else _markdown(text), ""]

    def items(self, texts: Sequence[str]) -> list[str]:
        return [*(f"- {_markdown(text)}" for text in texts), ""]

    def table(self, table: Table) -> list[str]:
        lines = [_markdown(table.title), ""] if table.title else []
        sides = ("--:" if name in table.right else "---" for name in table.columns)
        lines += [self._row(table.columns), "|" + "|".join(sides) + "|"]
        return [*lines, *map(self._row, table.rows), ""]

    def _row(self, cells: Sequence[str]) -> str:
        return "| " + " | ".join(map(_markdown, cells)) + " |"


class _LaTeX:
    """LaTeX with rules of the package booktabs."""

    def preamble(self) -> list[str]:
        return [r"% \usepackage{booktabs}, \usepackage[T1]{fontenc}"]

    def heading(self, text: str, level: int = 1) -> list[str]:
        return []  # The tables stand in a document with headings of its own.

    def paragraph(self, text: str, title: str = "") -> list[str]:
        return [rf"\paragraph{{{_latex(title)}}} {_latex(text)}" if title else _latex(text), ""]

    def items(self, texts: Sequence[str]) -> list[str]:
        points = [rf"  \item {_latex(text)}" for text in texts]
        return [r"\begin{itemize}", *points, r"\end{itemize}", ""] if points else []

    def table(self, table: Table) -> list[str]:
        form = "".join("r" if name in table.right else "l" for name in table.columns)
        lines = [r"\begin{table}", r"  \centering"]
        lines += [rf"  \caption{{{_latex(table.title)}}}"] if table.title else []
        lines += [rf"  \begin{{tabular}}{{{form}}}", r"    \toprule"]
        lines += [f"    {self._row(table.columns)}", r"    \midrule"]
        lines += [f"    {self._row(row)}" for row in table.rows]
        return [*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""]

    def _row(self, cells: Sequence[str]) -> str:
        return " & ".join(map(_latex, cells)) + r" \\"


#: By the name on the command line.
FORMS: Mapping[str, Form] = {"markdown": _Markdown(), "latex": _LaTeX()}


def joined(lines: Iterable[str]) -> str:
    """The text of lines."""
    return "\n".join(lines).rstrip() + "\n"


def _markdown(text: str) -> str:
    return "".join(_MARKDOWN.get(each, each) for each in plain(text, _MOST))


def _latex(text: str) -> str:
    return "".join(_LATEX.get(each, each) for each in plain(text, _MOST))
