"""The charts of a report as files: SVG, and PNG where resvg is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dlb.documents import write_atomically
from dlb.errors import RequestError
from dlb.report.page.blocks import Plot
from dlb.report.page.charts import Chart
from dlb.report.page.html import chart_markup
from dlb.report.page.whole import Report

__all__ = ["charts_of", "write_charts"]

#: Pixels of a file's width, and how much larger a PNG is.
WIDTH, ENLARGED = 760, 2


def charts_of(report: Report) -> Iterator[Chart]:
    """Every chart of a report."""
    for section in report.sections:
        for block in section.blocks:
            if isinstance(block, Plot):
                yield from block.charts


def write_charts(report: Report, folder: Path) -> list[Path]:
    """Write every chart as SVG, and as PNG if the package resvg-py is installed; the paths.

    Raises:
        RequestError: the folder cannot be written to.
    """
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for chart in charts_of(report):
            text = str(chart_markup(chart, WIDTH))
            paths.append(folder / f"{chart.name}.svg")
            write_atomically(paths[-1], text.encode())
            if (image := _png(text)) is not None:
                paths.append(folder / f"{chart.name}.png")
                write_atomically(paths[-1], image)
    except OSError as error:
        raise RequestError(f"cannot write charts: {error.strerror or error}", path=folder) from None
    return paths


def _png(text: str) -> bytes | None:
    try:
        import resvg_py
    except ImportError:
        return None
    return bytes(resvg_py.svg_to_bytes(svg_string=text, zoom=ENLARGED, background="#ffffff"))
