"""A report from results to bytes, for the command and for Python."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlb.api import checked
from dlb.documents import without_home, write_atomically
from dlb.errors import RequestError
from dlb.report.plain import plain
from dlb_report.chosen import Results
from dlb_report.sources import read_sources
from dlb_report.whole import Report, whole_report

__all__ = ["FORMATS", "Written", "make_report", "save", "write_report"]

FORMATS = ("html", "markdown", "latex")
#: Points of a line, and rows of the list of results, where they fit.
POINTS, ROWS = 2000, 500


@dataclass(frozen=True)
class Written:
    """A report.

    Attributes:
        content: of its file.
        skipped: a line for each file that could not be read.
        charts: files of charts.
    """

    content: bytes
    skipped: Sequence[str]
    charts: Sequence[Path]


@np.errstate(all="ignore")  # of odd numbers, some sums are infinite
def write_report(
    paths: Sequence[Path],
    form: str = "html",
    *,
    condition: str = "",
    baseline: str = "",
    title: str = "",
    limit: int = 10,
    plots: Path | None = None,
) -> Written:
    """Make a report.

    Args:
        paths: results folders, or documents; the first is what others are compared with.
        form: one of :data:`FORMATS`.
        condition: which results of folders, as ``dlb results --filter``.
        baseline: adapter that ratios are to; the first of each measurement if empty.
        limit: so many last measurements and runs of each folder are shown in detail.
        plots: folder for files of charts.

    Raises:
        RequestError: there are no such results, or nothing was chosen.
    """
    if form not in FORMATS:
        raise RequestError(f"no form '{form}' of a report; choose from {', '.join(FORMATS)}")
    if not paths:
        raise RequestError("no results; give a results folder")
    sources = read_sources(paths, condition, limit)
    if not any(each.rows or each.runs or each.measurements or each.skipped for each in sources):
        chosen = " that the filter chooses" if condition else ""
        raise RequestError(f"there are no results{chosen}; see: dlb results list", path=paths[0])

    def make(points: int, rows: int) -> Report:
        results = Results(sources, baseline, points, rows)
        report = whole_report(results, title)
        trouble.update(results.trouble)
        return report

    trouble: dict[str, str] = {}
    content = without_home(_content(form, make))
    charts = []
    if plots is not None:
        from dlb_report.images import write_charts

        charts = write_charts(make(POINTS, ROWS), plots)
    skipped = [
        f"{plain(source.path / file)} is skipped: {plain(reason)}"
        for source in sources
        for file, reason in source.skipped.items()
    ]
    skipped += [f"{plain(name)} is skipped: {plain(reason)}" for name, reason in trouble.items()][
        :3
    ]
    if len(trouble) > 3:
        skipped.append(f"and {len(trouble) - 3} more series are skipped")
    return Written(content, skipped, charts)


@checked
def make_report(
    results: str | Path | Sequence[str | Path],
    output: str | Path | None = None,
    *,
    form: str = "html",
    condition: str = "",
    baseline: str = "",
    title: str = "",
    limit: int = 10,
    plots: str | Path | None = None,
) -> str:
    """Write a report on results, as ``dlb report`` does.

    Args:
        results: a results folder, or the file of a measurement or a record; several are
            compared with the first.
        output: where to write it; nowhere if None.
        form: ``html``, ``markdown`` or ``latex``.
        condition: which results of folders, as ``dlb results --filter``.
        baseline: adapter that ratios are to; the first of each measurement if empty.
        title: title of the report.
        limit: so many last measurements and runs of each folder are shown in detail.
        plots: folder for the charts as SVG, and as PNG and PDF if ``dlb-report[plots]`` is installed.

    Returns:
        the report. A warning names each file that cannot be read.

    Raises:
        dlb.errors.RequestError: there are no such results, or the report cannot be written.
    """
    paths = [results] if isinstance(results, (str, Path)) else results
    written = write_report(
        [Path(path) for path in paths],
        form,
        condition=condition,
        baseline=baseline,
        title=title,
        limit=limit,
        plots=None if plots is None else Path(plots),
    )
    for line in written.skipped:
        warnings.warn(line, stacklevel=2)
    if output is not None:
        save(written, Path(output))
    return written.content.decode()


def save(written: Written, path: Path) -> None:
    """Write a report to its file, as a whole or not at all.

    Raises:
        RequestError: the file cannot be written.
    """
    try:
        write_atomically(path, written.content)
    except OSError as error:
        raise RequestError(f"cannot write: {error.strerror or error}", path=path) from None


def _content(form: str, make: Callable[[int, int], Report]) -> bytes:
    from dlb_report import html, texts

    if form == "html":
        return html.fitting_page(make, POINTS, ROWS).encode()
    return texts.text(make(POINTS, ROWS), form).encode()
