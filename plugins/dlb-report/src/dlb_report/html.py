"""The page: one HTML file without a request to anywhere.

Every value passes through Jinja's escaping and :func:`dlb.report.plain.plain`. A policy in the page lets the
browser run the one script and apply the one style sheet that are in it, by their hashes, and load nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import dlb
from dlb.report.plain import plain
from dlb_report.blocks import Data, Section
from dlb_report.charts import Chart
from dlb_report.whole import Report

__all__ = ["MOST_BYTES", "chart_markup", "environment", "fitting_page", "page"]

#: A page is not larger.
MOST_BYTES = 5_000_000
#: Larger files of data are compressed.
_COMPRESSED_FROM = 20_000
#: A sentence of a finding may be long; a cell of a table, too.
_MOST_SHOWN = 2000


def _shown(value: Any) -> Any:
    """What a template writes: text that is safe to see. Markup is of our own making."""
    return value if isinstance(value, Markup) else plain(value, _MOST_SHOWN)


@cache
def environment() -> Environment:
    """The templates, with escaping."""
    made = Environment(
        loader=PackageLoader("dlb_report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters |= {"percent": _percent, "pixels": _pixels, "link": _link, "own": Markup}
    return made


def _percent(share: float) -> str:
    return f"{share * 100:.2f}%"


def _pixels(share: float, height: float) -> str:
    return f"{share * height:.1f}"


def _link(data: Data) -> Markup:
    """A ``data:`` address of a file, which needs no script and no other file."""
    kind, content = "text/csv;charset=utf-8", data.content
    if _is_compressed(data):
        kind, content = "application/gzip", gzip.compress(content, mtime=0)
    return Markup(f"data:{kind};base64,{base64.b64encode(content).decode()}")


def _is_compressed(data: Data) -> bool:
    return len(data.content) > _COMPRESSED_FROM


def file_name(data: Data) -> str:
    """The name under which a file is downloaded."""
    return f"{data.name}.csv.gz" if _is_compressed(data) else f"{data.name}.csv"


def chart_markup(chart: Chart, width: int | None = None) -> Markup:
    """A chart as SVG: as wide as its place in a page, or by itself with a width in pixels."""
    template = environment().get_template("chart.svg.jinja")
    return Markup(template.render(chart=chart, width=width, style=_file_style()))


@cache
def _file_style() -> Markup:
    """The style of a chart that is a file: that of a page in the light, with no variables."""
    light = re.search(r":root\{(.*?)\}", _asset("page.css"), re.S)
    assert light is not None
    colours = dict(re.findall(r"--([\w-]+):([^;}]+)", light[1]))
    return Markup(
        re.sub(r"var\(--([\w-]+)\)", lambda found: colours[found[1]], _asset("chart.css"))
    )


def _asset(name: str) -> Markup:
    return Markup((resources.files(__package__) / "templates" / name).read_text(encoding="utf-8"))


def _hash(text: str) -> Markup:
    digest = hashlib.sha256(text.encode()).digest()
    return Markup(f"'sha256-{base64.b64encode(digest).decode()}'")


def page(report: Report, made: datetime | None = None, rows: int = 1000) -> str:
    """The page of a report.

    Args:
        rows: rows of a table at most; how many more there are is said.
        made: the moment that it names; now if None.
    """
    style = _asset("page.css") + _asset("chart.css")
    script = _asset("page.js")
    moment = made or datetime.now(timezone.utc)
    return (
        environment()
        .get_template("page.html.jinja")
        .render(
            report=report,
            version=dlb.__version__,
            made=f"{moment:%Y-%m-%d %H:%M} UTC",
            style=style,
            script=script,
            style_hash=_hash(style),
            script_hash=_hash(script),
            chart=chart_markup,
            file_name=file_name,
            kind=lambda block: type(block).__name__,
            most_rows=rows,
        )
    )


_LEFT_OUT = Section(
    "left-out",
    "Left out",
    "With all sections the page would be too large. Choose fewer results with --filter, or details of "
    "fewer with --limit.",
)


def fitting_page(make: Callable[[int, int], Report], points: int, rows: int) -> str:
    """The page with as many points and rows as fit into :data:`MOST_BYTES`.

    Args:
        make: makes the report with so many points of a line, and rows of the list of results.
        points, rows: to begin with.
    """
    while True:
        report = make(points, rows)
        text = page(report, rows=2 * rows)
        if len(text.encode()) <= MOST_BYTES:
            return text
        if points <= 50:
            # What remains is text of strangers.
            shorter = replace(report, sections=[_LEFT_OUT], summary=report.summary[:100])
            return page(shorter)
        points, rows = max(50, points // 2), max(20, rows // 2)
