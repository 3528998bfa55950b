"""Results as data frames of pandas (``pip install 'dlb-measure[pandas]'``); each column has one unit.

Columns that end in ``seconds`` are seconds, in ``bytes`` bytes, in ``joules`` joules.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dlb import contents
from dlb.api import checked
from dlb.errors import RequestError
from dlb_measure.results.compared import cell_names, compared_cells, find_cell
from dlb_measure.results.index import COLUMNS, open_index
from dlb_measure.results.measurement import Cell, Measurement, TrialResult

if TYPE_CHECKING:
    import pandas

__all__ = ["ratios", "results", "steps", "trials"]

#: Fields of a trial that are no figures of one column each.
_NESTED = ("observed", "phases", "checks", "failure", "series", "cell")


@checked
def results(folder: str | Path, condition: str = "") -> pandas.DataFrame:
    """A row for each run and measurement of a results folder, the last first.

    The columns are those of ``dlb results export``.

    Args:
        condition: such as ``workload=lenet5 and threads=2``; all if empty.

    Raises:
        dlb.errors.RequestError: there is no such folder, the condition is wrong, or pandas is not installed.
    """
    with open_index(Path(folder)) as index:
        rows = index.rows(condition)
    return _frame([{name: row[name] for name in COLUMNS} for row in rows], COLUMNS)


@checked
def ratios(measurement: Measurement, baseline: str = "") -> pandas.DataFrame:
    """A row for each cell, with its ratio to a baseline.

    ``seconds`` of a step, ``ratio``, ``low`` and ``high`` of its interval, ``rounds``, and ``word``; missing
    where there is none.

    Args:
        baseline: an adapter, or a cell's whole name; the first cell if empty.

    Raises:
        dlb.errors.UnknownNameError: no cell is called so.
        dlb.errors.RequestError: pandas is not installed.
    """
    names, rows = cell_names(measurement), []
    for each in compared_cells(measurement, find_cell(measurement, baseline)):
        ratio = each.ratio
        row = {"cell": names[each.cell], **_of_cell(measurement.cells[each.cell])}
        row |= {"seconds": each.seconds, "word": each.word}
        bounds = {name: getattr(ratio, name, None) for name in ("ratio", "low", "high", "rounds")}
        rows.append({**row, **bounds})
    return _frame(rows)


@checked
def trials(measurement: Measurement) -> pandas.DataFrame:
    """A row for each trial, in the order of their ends: its cell, round, figures, phases and resources.

    A phase is a column ``forward_seconds``; what observers recorded is ``resources.cpu_user_seconds``; a
    check that did not pass is named in ``not_passed``, a failure in ``failed``.

    Raises:
        dlb.errors.RequestError: pandas is not installed.
    """
    names = cell_names(measurement)
    return _frame(
        [
            {
                "cell": names[trial.cell],
                **_of_cell(measurement.cells[trial.cell]),
                **_of_trial(trial),
            }
            for trial in measurement.trials
        ]
    )


@checked
def steps(measurement: Measurement, folder: str | Path) -> pandas.DataFrame:
    """A row for each step of each trial.

    Cell, round, ``again`` (the second trial of its cell in the round), attempt, step, ``step_seconds``,
    ``data_seconds`` (waiting for the batch), and whether the step is ``steady``.

    Args:
        folder: the results folder.

    Raises:
        dlb.errors.RecordError: a file of series is missing or was altered.
        dlb.errors.RequestError: pandas is not installed.
    """
    import numpy as np

    names, rows = cell_names(measurement), []
    for trial in measurement.trials:
        if not trial.series:
            continue
        series = contents.read_arrays(Path(folder), trial.series)
        count = len(series["step_seconds"])
        # The trial has no steady step if it has no figure.
        first = count if trial.median is None else trial.first_steady
        columns = {"cell": names[trial.cell], "round": trial.round, "again": trial.again}
        columns |= {"attempt": trial.attempt, "step": np.arange(count)}
        columns |= {name: series[name] for name in ("step_seconds", "data_seconds")}
        rows.append(_frame({**columns, "steady": np.arange(count) >= first}))
    pandas = _pandas()
    return pandas.concat(rows, ignore_index=True) if rows else _frame([])


def _of_cell(cell: Cell) -> dict[str, Any]:
    options = cell.options
    return {
        "adapter": cell.adapter,
        "framework": cell.framework,
        "workload": cell.workload_name,
        "batch_size": options.batch_size,
        "threads": options.threads,
        "device": options.device,
        "dtype": options.dtype,
        "workers": options.workers,
        "proof": cell.proof,
    }


def _of_trial(trial: TrialResult) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.structs.asdict(trial)
    row = {name: value for name, value in row.items() if name not in _NESTED}
    row |= {f"{phase}_seconds": seconds for phase, seconds in trial.phases.items()}
    for plugin, recorded in trial.observed.items():
        row |= {
            f"{plugin}.{name}": value
            for name, value in recorded.items()
            if value is None or isinstance(value, (int, float, str))
        }
    not_passed = [check for check, verdict in trial.checks.items() if verdict != "passed"]
    row["not_passed"] = ", ".join(not_passed)
    row["failed"] = "" if trial.failure is None else trial.failure.line
    return row


def _frame(rows: Any, columns: Mapping[str, str] | None = None) -> pandas.DataFrame:
    return _pandas().DataFrame(rows, columns=None if columns is None else list(columns))


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise RequestError(
            "data frames need pandas; install it with: pip install 'dlb-measure[pandas]'"
        ) from None
    return pandas
