"""Headings, lists and tables as Markdown and as LaTeX."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dlb.report.plain import plain
from dlb.report.table import Table

__all__ = ["FORMS", "joined"]

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
#: A number, perhaps with commas: its digits before and behind the point, and those of its power.
_NUMBER = re.compile(r"(-?\d[\d,]*)(?:\.(\d+))?(?:e[+-]?(\d+))?", re.ASCII)


class _Markdown:
    """GitHub's Markdown. Every text is escaped; each method returns lines."""

    def preamble(self) -> list[str]:
        """What stands before everything else."""
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
    """LaTeX with rules of the package booktabs, and columns of numbers of siunitx."""

    def preamble(self) -> list[str]:
        return [r"% \usepackage{booktabs}, \usepackage{siunitx}, \usepackage[T1]{fontenc}"]

    def heading(self, text: str, level: int = 1) -> list[str]:
        return []  # The tables stand in a document with headings of its own.

    def paragraph(self, text: str, title: str = "") -> list[str]:
        return [rf"\paragraph{{{_latex(title)}}} {_latex(text)}" if title else _latex(text), ""]

    def items(self, texts: Sequence[str]) -> list[str]:
        points = [rf"  \item {_latex(text)}" for text in texts]
        return [r"\begin{itemize}", *points, r"\end{itemize}", ""] if points else []

    def table(self, table: Table) -> list[str]:
        forms = [
            _column(cells) if name in table.right else "l"
            for name, cells in zip(table.columns, zip(*table.rows, strict=True))
        ] or ["l" for _ in table.columns]
        lines = [r"\begin{table}", r"  \centering"]
        if table.title:
            label = re.sub("[^a-z0-9]+", "-", table.title.lower()).strip("-")[:60]
            lines += [rf"  \caption{{{_latex(table.title)}}}", rf"  \label{{tab:{label}}}"]
        lines += [rf"  \begin{{tabular}}{{{' '.join(forms)}}}", r"    \toprule"]
        lines += [f"    {self._row(table.columns, forms)}", r"    \midrule"]
        lines += [f"    {self._row(row, forms)}" for row in table.rows]
        return [*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""]

    def _row(self, cells: Sequence[str], forms: Sequence[str]) -> str:
        return " & ".join(map(_latex_cell, cells, forms)) + r" \\"


def _column(cells: Sequence[str]) -> str:
    """A column of siunitx that aligns numbers at their points; ``r`` if texts are among them."""
    found = [_NUMBER.fullmatch(cell) for cell in cells if cell not in ("", "-")]
    numbers = [each for each in found if each is not None]
    if not numbers or len(numbers) < len(found):
        return "r"
    before = max(len(each[1].replace(",", "")) for each in numbers)
    after = max(len(each[2] or "") for each in numbers)
    power = max(len(each[3] or "") for each in numbers)
    return f"S[table-format={before}.{after}{f'e-{power}' if power else ''}]"


def _latex_cell(text: str, form: str) -> str:
    """A number as siunitx reads it; another text of such a column in braces."""
    if form.startswith("S"):
        number = _NUMBER.fullmatch(text)
        return text.replace(",", "") if number else f"{{{_latex(text)}}}"
    return _latex(text)


#: By the name on the command line.
FORMS: Mapping[str, _Markdown | _LaTeX] = {"markdown": _Markdown(), "latex": _LaTeX()}


def joined(lines: Iterable[str]) -> str:
    """The text of lines; of two labels of LaTeX that are the same, the later has a number."""
    seen: Counter[str] = Counter()
    numbered = []
    for line in lines:
        if line.startswith(r"  \label{"):
            seen[line] += 1
            line = line if seen[line] == 1 else f"{line[:-1]}-{seen[line]}}}"
        numbered.append(line)
    return "\n".join(numbered).rstrip() + "\n"


def _markdown(text: str) -> str:
    return "".join(_MARKDOWN.get(each, each) for each in plain(text, _MOST))


def _latex(text: str) -> str:
    return "".join(_LATEX.get(each, each) for each in plain(text, _MOST))
