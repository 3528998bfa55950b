"""The charts of a report as files: SVG, and PNG and PDF where what makes these is installed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from dlb.documents import write_atomically
from dlb.errors import RequestError
from dlb_report.blocks import Plot
from dlb_report.charts import Chart
from dlb_report.html import chart_markup
from dlb_report.whole import Report

__all__ = ["charts_of", "write_charts"]

#: Pixels of a file's width, and how much larger a PNG is.
WIDTH, ENLARGED = 760, 2


def charts_of(report: Report) -> Iterator[Chart]:
    """Every chart of a report."""
    for section in report.sections:
        for block in section.unfolded:
            if isinstance(block, Plot):
                yield from block.charts


def write_charts(report: Report, folder: Path) -> list[Path]:
    """Write every chart as SVG; as PNG and PDF if the packages resvg-py and typst are installed; the paths.

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
            for ending, made in (("png", _png(text)), ("pdf", _pdf(text))):
                if made is not None:
                    paths.append(folder / f"{chart.name}.{ending}")
                    write_atomically(paths[-1], made)
    except OSError as error:
        raise RequestError(f"cannot write charts: {error.strerror or error}", path=folder) from None
    return paths


def _png(text: str) -> bytes | None:
    try:
        import resvg_py
    except ImportError:
        return None
    return bytes(resvg_py.svg_to_bytes(svg_string=text, zoom=ENLARGED, background="#ffffff"))


def _pdf(text: str) -> bytes | None:
    """One page of the chart's size, with lines as lines and texts as texts."""
    try:
        import typst
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "chart.svg").write_text(text, encoding="utf-8")
        page = Path(folder) / "page.typ"
        page.write_text('#set page(width: auto, height: auto, margin: 0pt)\n#image("chart.svg")\n')
        made: bytes = typst.compile(page, None, root=Path(folder), format="pdf")
    return made
