"""Measurements in the terminal, and as documents for programs."""

from __future__ import annotations

from typing import Any

import msgspec

from dlb.cli.output import echo, print_answer, print_json, show_table
from dlb_measure.comparison import own_ratio
from dlb_measure.results.compared import compared_cells
from dlb_measure.results.measurement import Measurement
from dlb_measure.tables.measurements import measurement_lines, measurement_table, phases_table
from dlb_measure.tables.work import work_document, work_lines, work_table
from dlb_measure.verdict import verdict_line, verdict_of

__all__ = ["measurement_document", "print_measurement", "show_measurement"]


def measurement_document(measurement: Measurement, baseline: int = 0) -> dict[str, Any]:
    """The document of ``--json``: the measurement, and what follows from it."""
    document: dict[str, Any] = {"answer": verdict_line(verdict_of(measurement, baseline))}
    document.update(msgspec.to_builtins(measurement))
    own = own_ratio(measurement.trials, len(measurement.cells))
    document["compared"] = [
        msgspec.to_builtins(each) for each in compared_cells(measurement, baseline)
    ]
    document["own_ratio"] = None if own is None else msgspec.to_builtins(own)
    document["work"] = work_document(measurement)
    return document


def show_measurement(measurement: Measurement, as_json: bool, baseline: int = 0) -> None:
    """Print a measurement and its answer, or its document."""
    if as_json:
        print_json(measurement_document(measurement, baseline))
    else:
        print_measurement(measurement, baseline)
        print_answer(verdict_line(verdict_of(measurement, baseline)))


def print_measurement(measurement: Measurement, baseline: int = 0) -> None:
    """Print a table of cells with ratios, intervals and words, and what a reader must know of the trials."""
    if not measurement.trials:
        echo("Nothing was measured in rounds")
        return
    show_table(measurement_table(measurement, baseline))
    show_table(phases_table(measurement))
    work = work_table(measurement)
    if work is not None:
        show_table(work)
    for line in (*work_lines(measurement), *measurement_lines(measurement)):
        echo(line)
