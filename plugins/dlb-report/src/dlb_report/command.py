"""``dlb report``: what was run and measured, as one page, or as tables for a paper."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dlb.cli.output import echo, note
from dlb_measure.cli.results import FILTER

__all__ = ["report_command"]


@click.command("report")
@click.argument("results", nargs=-1, type=click.Path(path_type=Path), metavar="[RESULTS]...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write. Default: report.html; Markdown and LaTeX go to standard output.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "markdown", "latex"]),
    default="html",
    show_default=True,
)
@FILTER
@click.option(
    "--baseline", metavar="ADAPTER", help="What ratios are to. Default: the first adapter."
)
@click.option("--title", default="", metavar="TEXT", help="The title of the report.")
@click.option(
    "--limit",
    type=click.IntRange(1, 200),
    default=10,
    show_default=True,
    metavar="N",
    help="The last N measurements and runs of each folder are shown in detail.",
)
@click.option(
    "--plots",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write each chart as SVG, and as PNG and PDF if 'dlb-report[plots]' is installed.",
)
def report_command(
    results: tuple[Path, ...],
    output: Path | None,
    form: str,
    condition: str,
    baseline: str | None,
    title: str,
    limit: int,
    plots: Path | None,
) -> None:
    """Write a report on results: one HTML page that works without a network.

    RESULTS is a results folder, or the file of a measurement or a record. Several are compared with the first.
    Default: dlb-results.
    """
    from dlb_report.writing import save, write_report

    folders = results or (Path("dlb-results"),)
    if output is None and form == "html":
        output = Path("report.html")
    written = write_report(
        folders,
        form,
        condition=condition,
        baseline=baseline or "",
        title=title,
        limit=limit,
        plots=plots,
    )
    for line in written.skipped:
        note(f"dlb: {line}")
    if output is None:
        sys.stdout.buffer.write(written.content)
        return
    save(written, output)
    charts = f", {len(written.charts)} charts in {plots}" if plots else ""
    echo(f"Report: {output} ({len(written.content) / 1e3:,.0f} kB){charts}")
