"""The cells of a measurement next to each other, with their names."""

from __future__ import annotations

from dlb.errors import UnknownNameError
from dlb.measure.comparison import Compared, compare
from dlb.proof.certificate import with_variant
from dlb.results.measurement import Measurement

__all__ = ["cell_names", "compared_cells", "find_cell"]


def compared_cells(measurement: Measurement, baseline: int = 0) -> list[Compared]:
    """Every cell next to the baseline, a cell's place."""
    return compare(
        measurement.trials,
        len(measurement.cells),
        baseline=baseline,
        margin=measurement.margin,
        pilot=measurement.pilot,
    )


def find_cell(measurement: Measurement, name: str) -> int:
    """The place of a cell, by its adapter or its whole name; the first if empty.

    Raises:
        UnknownNameError: no cell is called so.
    """
    if not name:
        return 0
    for known in (cell_names(measurement), [cell.adapter for cell in measurement.cells]):
        if name in known:
            return known.index(name)
    raise UnknownNameError("adapter of the measurement:", name, cell_names(measurement), "")


def cell_names(measurement: Measurement) -> list[str]:
    """The adapters of the cells, with what else differs between them."""
    threads = {cell.options.threads for cell in measurement.cells}
    names = []
    for cell in measurement.cells:
        differs = dict(cell.options.variant)
        if len(threads) > 1:
            differs["threads"] = str(cell.options.threads)
        if cell.options.variables:
            differs["environment"] = ", ".join(sorted(cell.options.variables))
        names.append(with_variant(cell.adapter, differs))
    return names
