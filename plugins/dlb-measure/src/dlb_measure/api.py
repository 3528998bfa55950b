"""Measuring from Python: rounds after a run, sweeps, and what follows from a measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlb.api import checked, run_command, takes_settings
from dlb.settings import Settings

if TYPE_CHECKING:
    from dlb.execution.run import Outcome
    from dlb_graph.options import Reading
    from dlb_measure.comparison import Compared
    from dlb_measure.plan import Plan
    from dlb_measure.results.measurement import Measurement
    from dlb_measure.sweeping import Swept

__all__ = ["compare", "read_measurement", "run", "sweep"]


@takes_settings("run")
def run(
    workload: str | Path,
    on: Sequence[str] = (),
    *,
    reading: Reading | None = None,
    out: str | Path = "dlb-results",
    plan: Plan | None = None,
    **settings: Any,
) -> Outcome:
    """Train a workload on adapters, time it, export it and prove it, as ``dlb run`` does.

    Args:
        workload: a name, or the path of a ``.toml`` or an ``.onnx`` file.
        on: adapters; all that are available if empty.
        reading: sizes, constants and output of an ONNX file, if it leaves a choice.
        out: folder for records.
        plan: how to measure afterwards, in rounds of new processes; as ``dlb run`` does,
            ``Plan(until="settled", budget_seconds=180)``; None for no rounds.
        settings: fields of :class:`dlb.settings.Settings` that ``dlb run`` has.

    Returns:
        a record for each adapter, their paths, the certificate, and the measurement, if there was a plan and an
        adapter did not fail. :func:`compare` has its ratios, :mod:`dlb_measure.frames` makes data frames of it.

    Raises:
        dlb.errors.RequestError: the request cannot be carried out; nothing was started.
        dlb.errors.RecordError: a record cannot be written; earlier records are kept.
        KeyboardInterrupt: the run was interrupted; finished records and trials are kept, every worker has
            ended. The same call goes on with the trials.
    """
    from dlb.progress import notebook_reporter
    from dlb_measure.measure import measure_cells, ready_cells

    trial_steps = None if plan is None else plan.trial_steps
    request, outcome = run_command(
        "run", workload, on, reading, settings, out=Path(out), trial_steps=trial_steps
    )
    cells = [] if plan is None else ready_cells(request, outcome)
    if plan is not None and cells:
        with notebook_reporter([each.adapter for each in request.environments]) as reporter:
            outcome.measurement = measure_cells(cells, plan, reporter)
        if outcome.measurement.ended == "interrupted":
            raise KeyboardInterrupt
    return outcome


@checked
def read_measurement(path: str | Path) -> Measurement:
    """The measurement in a file, or the last one of a results folder.

    Raises:
        dlb.errors.RecordError: there is none, or it cannot be read.
    """
    from dlb_measure.results.measurement import latest

    return latest(Path(path))


@checked
def compare(measurement: Measurement, baseline: str = "") -> list[Compared]:
    """Every cell of a measurement next to a baseline: ratios, intervals and words.

    Args:
        baseline: the adapter of a cell; the first cell if empty.

    Raises:
        dlb.errors.UnknownNameError: no cell has that adapter.
    """
    from dlb_measure.results.compared import compared_cells, find_cell

    return compared_cells(measurement, find_cell(measurement, baseline))


@takes_settings("sweep")
def sweep(
    workload: str | Path,
    on: Sequence[str] = (),
    *,
    vary: Mapping[str, Sequence[Any]],
    plan: Plan | None = None,
    skip_refused: bool = False,
    most_cells: int | None = None,
    reading: Reading | None = None,
    out: str | Path = "dlb-results",
    **settings: Any,
) -> Swept:
    """Prove and measure a workload in every combination of some settings, as ``dlb sweep`` does.

    A sweep that was interrupted or killed goes on where it was when it is called again in the same way.

    Args:
        workload: a name, or the path of a ``.toml`` or an ``.onnx`` file.
        on: adapters; all that are available if empty.
        vary: values by setting (those of :data:`dlb.settings.AXES`) or by field of the workload
            (``optimizer.learning_rate``).
        plan: how to measure, a :class:`Plan`; 5 rounds by default.
        skip_refused: leave out combinations that cannot be run.
        most_cells: a matrix of more cells is refused; 1000 by default.
        reading: sizes, constants and output of an ONNX file, if it leaves a choice.
        out: folder for results.
        settings: what all cells have in common: fields of :class:`dlb.settings.Settings` that ``dlb sweep``
            has.

    Returns:
        the cells and the measurement; its :meth:`~dlb_measure.sweeping.Swept.results` are typed rows.

    Raises:
        dlb.errors.RequestError: a name, a value or a combination is refused; nothing was started.
        dlb.errors.RecordError: a file cannot be written; what has ended is kept.
        KeyboardInterrupt: it was interrupted; what has ended is kept, every worker has ended.
    """
    from dlb.adapters import find_adapters
    from dlb.catalogue import load_with_file
    from dlb.progress import notebook_reporter
    from dlb.resolver import Resolver
    from dlb_measure.matrix import MOST_CELLS, axes_of, make_cells
    from dlb_measure.plan import Plan
    from dlb_measure.sweeping import sweep as run_sweep

    plan = Plan() if plan is None else plan
    chosen = Settings(**settings)
    described = load_with_file(str(workload), reading)
    environments = find_adapters(on)
    matrix = make_cells(
        Resolver(*described, out=Path(out), trial_steps=plan.trial_steps),
        environments,
        axes_of(vary),
        chosen,
        most=MOST_CELLS if most_cells is None else most_cells,
        skip_refused=skip_refused,
    )
    with notebook_reporter([each.adapter for each in environments]) as reporter:
        swept = run_sweep(matrix.cells, plan, reporter)
    if swept.interrupted:
        raise KeyboardInterrupt
    return swept
