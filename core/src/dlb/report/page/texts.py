"""The summary and its tables as Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dlb.report.page.blocks import Shown
from dlb.report.page.whole import Report
from dlb.report.plain import plain
from dlb.report.table import Table

__all__ = ["latex", "markdown"]

_MOST = 2000
#: Everything that Markdown, or HTML within it, may give a meaning.
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~&$])")
_LATEX = {
    "[": "{[}", "]": "{]}",
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%",
    "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}", "\ufffd": "?", "…": r"\ldots{}",
    "“": "``", "”": "''", "±": r"$\pm$",
}  # fmt: skip


def _tables(report: Report) -> Iterator[tuple[str, Table]]:
    """The tables of a summary, with the title of their section where a new one begins."""
    for section in report.sections:
        title = section.title
        for block in section.blocks:
            if isinstance(block, Shown) and block.main and block.table.rows:
                yield title, block.table
                title = ""


def markdown(report: Report) -> str:
    """The summary as a list, and the tables, as GitHub's Markdown."""
    lines = [f"# {_escape(report.title)}", ""]
    for part in report.summary:
        lines += [f"**{_escape(part.title)}**: {_escape(part.note)}", ""]
        lines += [f"- {_escape(each.sentence)}" for each in part.statements]
        lines.append("")
    for title, table in _tables(report):
        lines += [f"## {_escape(title)}", ""] if title else []
        lines += [_escape(table.title), ""] if table.title else []
        lines += [_row(table.columns)]
        lines += [
            "|" + "|".join("--:" if name in table.right else "---" for name in table.columns) + "|"
        ]
        lines += [*map(_row, table.rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |"


def _escape(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", plain(text, _MOST))


def latex(report: Report) -> str:
    """The tables with rules of the package booktabs, and the summary as a list."""
    lines = [r"% \usepackage{booktabs}, \usepackage[T1]{fontenc}"]
    for part in report.summary:
        lines += [rf"\paragraph{{{_tex(part.title)}}} {_tex(part.note)}", r"\begin{itemize}"]
        lines += [rf"  \item {_tex(each.sentence)}" for each in part.statements]
        lines += [r"\end{itemize}" if part.statements else r"  \item[] \end{itemize}", ""]
    for _, table in _tables(report):
        form = "".join("r" if name in table.right else "l" for name in table.columns)
        lines += [r"\begin{table}", r"  \centering"]
        lines += [rf"  \caption{{{_tex(table.title)}}}"] if table.title else []
        lines += [rf"  \begin{{tabular}}{{{form}}}", r"    \toprule"]
        lines += [f"    {_tex_row(table.columns)}", r"    \midrule"]
        lines += [f"    {_tex_row(row)}" for row in table.rows]
        lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""]
    return "\n".join(lines).rstrip() + "\n"


def _tex_row(cells: Sequence[str]) -> str:
    return " & ".join(_tex(cell) for cell in cells) + r" \\"


def _tex(text: str) -> str:
    return "".join(_LATEX.get(each, each) for each in plain(text, _MOST))
