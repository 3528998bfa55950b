"""The work of a measurement's cells next to what the machine does at most, as a table and lines of text."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from dlb.report.table import Table
from dlb_measure.results.compared import cell_names
from dlb_measure.results.measurement import Measurement, Peak
from dlb_measure.results.work import work_of_cells

__all__ = ["work_document", "work_lines", "work_table"]

#: So many cores of other processes while a peak was measured make it too low.
OTHER_CORES = 0.1


def work_document(measurement: Measurement) -> list[dict[str, Any]]:
    """The rows of the table for ``--json``."""
    return [
        msgspec.to_builtins(asdict(each))
        | {"share_of_product": each.share_of_product, "share_of_copy": each.share_of_copy}
        for each in work_of_cells(measurement)
    ]


def work_table(measurement: Measurement) -> Table | None:
    """Operations and bytes a second of each cell, and their shares of both peaks; None if there are none."""
    found = work_of_cells(measurement)
    if not found or not measurement.peaks:
        return None
    columns = ["adapter", "Gop a step", "Gop/s", "of the peak", "MB a step", "GB/s", "of the copy"]
    rows, names = [], cell_names(measurement)
    for each in found:
        cell = measurement.cells[each.cell]
        rows.append(
            [
                names[each.cell],
                f"{cell.operations / 1e9:,.3g}",
                _giga(each.operations_per_second),
                _percent(each.share_of_product),
                f"{cell.bytes / 1e6:,.3g}",
                _giga(each.bytes_per_second),
                _percent(each.share_of_copy),
            ]
        )
    return Table(columns, rows, "Work of the description, by the second", right=columns[1:])


def work_lines(measurement: Measurement) -> list[str]:
    """The peaks, and what a reader must know of the shares."""
    names, found = cell_names(measurement), work_of_cells(measurement)
    if not measurement.peaks:
        return []
    lines = [
        f"Peak{_where(each)}: {_giga(each.operations_per_second)} Gop/s, matrix product of "
        f"{each.rows:,} rows by {each.adapter}, median {each.operations_spread or 0.0:.0%} below"
        for each in _once(work.product for work in found)
    ]
    lines += [
        f"Copy{_where(each)}: {_giga(each.bytes_per_second)} GB/s read and written by {each.adapter}, "
        f"median {each.bytes_spread or 0.0:.0%} below"
        for each in _once(work.copy for work in found)
    ]
    used = _once(peak for work in found for peak in (work.product, work.copy))
    lines += [
        f"Other processes used {each.other_cores:.1f} cores while {each.adapter} measured the peak"
        f"{_where(each)}, so it may be too low"
        for each in used
        if each.other_cores > OTHER_CORES
    ]
    for each in found:
        if (each.share_of_product or 0.0) > 1.0:
            lines.append(
                f"{names[each.cell]}: above the peak, so its kernels take fewer operations than the "
                "description has, or the peak was measured too low"
            )
        if (each.share_of_copy or 0.0) > 1.0:
            lines.append(
                f"{names[each.cell]}: more bytes than the copy, so values stay in caches between their uses, "
                "or the copy was measured too low"
            )
    lines += [
        f"Peak of {each.adapter}{_where(each)} is not known: {each.reason}"
        for each in measurement.peaks
        if each.reason
    ]
    return lines


def _once(peaks: Any) -> list[Peak]:
    """Each peak once, in order."""
    return list({id(each): each for each in peaks if each is not None}.values())


def _where(peak: Peak) -> str:
    threads = f"{peak.threads} thread{'' if peak.threads == 1 else 's'}"
    return f" in {peak.dtype} with {threads if peak.device == 'cpu' else peak.device}"


def _giga(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / 1e9:,.3g}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
