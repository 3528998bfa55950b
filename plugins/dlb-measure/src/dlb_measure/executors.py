"""Sweeps by an executor: every cell is a job of its own, on whatever machine the executor has.

The cells are measured at other times and perhaps on other machines, so that their ratios are not of rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future, as_completed
from pathlib import Path

import msgspec

from dlb import record
from dlb.errors import DlbError, PluginError, RecordError, RequestError, UnknownNameError
from dlb.failure import Failure
from dlb.request import Reporter
from dlb_measure.matrix import SweepCell
from dlb_measure.plan import Plan
from dlb_measure.remote_cell import Returned, job_of, returned_of, run_cell, unpack
from dlb_measure.results import measurement as measurements
from dlb_measure.results import sweep as results
from dlb_measure.results.sweep import CellState, Sweep
from dlb_measure.sweeping import Swept, begin_sweep, recorded
from dlb_worker.plugins import guarded, load_plugins

__all__ = ["make_executor", "sweep_on"]

#: The failure of a cell that an executor lost: the same command runs it again.
LOST = "CellLost"
#: Letters of an executor's own error that are kept: some have a whole log.
_LONGEST = 300


def make_executor(word: str) -> Executor:
    """The executor of ``NAME`` or ``NAME://ADDRESS``.

    Raises:
        UnknownNameError: no plugin has an executor of that name.
        RequestError: it cannot be had; the message has the reason.
    """
    name, _, address = word.partition("://")
    makers = load_plugins().named("dlb_executors")
    if name not in makers:
        raise UnknownNameError(
            "executor", name, makers, "packages bring them: pip install dlb-dask, or dlb-submitit"
        )
    try:
        executor = makers[name](address)
    except DlbError:
        raise
    except Exception as error:  # of a library that is not dlb's
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise RequestError(f"--executor {word}: {reason}") from None
    if not isinstance(executor, Executor):
        raise RequestError(f"--executor {word}: its plugin made a {type(executor).__name__}")
    return executor


def sweep_on(
    executor: Executor, cells: Sequence[SweepCell], plan: Plan | None, reporter: Reporter
) -> Swept:
    """Run every cell as a job of its own; arguments and errors as :func:`dlb_measure.sweeping.sweep`.

    Cells that had ended before are not run again; those that the executor lost are. The executor is shut down.
    """
    out = cells[0].request.out
    assert out is not None
    record.check_folder(out)
    with results.alone(out):
        state, _ = recorded(_without_lost(begin_sweep([cells], plan, out, alone=True)), out)
        waiting: dict[Future[bytes], int] = {}
        interrupted = False
        try:
            for place, cell in enumerate(cells):
                if not state.cells[place].ended:
                    waiting[_submitted(executor, cell, plan)] = place
                    reporter.cell(place)
            for future in as_completed(waiting):
                place = waiting[future]
                state = _with_end(state, place, _returned(future), out)
                name = state.cells[place].record
                reporter.cell_ended(place, record.read(out / f"{name}.json") if name else None)
            lost = any(each.failure and each.failure.kind == LOST for each in state.cells)
            state = msgspec.structs.replace(state, ended=not lost)
            results.write(state, out)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            for future in waiting:
                future.cancel()
            with guarded("ending the executor", "the executor cannot be ended"):
                executor.shutdown(wait=False)
    records = [
        record.read(out / f"{each.record}.json") if each.record else None for each in state.cells
    ]
    alone = [_measurement(each, out) for each in state.cells]
    return Swept(state, records, interrupted=interrupted, alone=alone)


def _submitted(executor: Executor, cell: SweepCell, plan: Plan | None) -> Future[bytes]:
    """The job of a cell; that of an executor that does not take it has failed."""
    try:
        with guarded("waiting for the executor"):
            job = executor.submit(run_cell, job_of(cell, plan))
            if not isinstance(job, Future):
                raise PluginError(f"it returned a {type(job).__name__}, not a future")
            return job
    except PluginError as error:
        refused: Future[bytes] = Future()
        refused.set_exception(error)
        return refused


def _without_lost(state: Sweep) -> Sweep:
    """The sweep in which what was lost is still to be run."""
    cells = [
        msgspec.structs.replace(each, failure=None)
        if each.failure is not None and each.failure.kind == LOST
        else each
        for each in state.cells
    ]
    return msgspec.structs.replace(state, cells=tuple(cells))


def _returned(future: Future[bytes]) -> Returned:
    try:
        return returned_of(future.result())
    except RecordError:
        raise
    except Exception as error:  # of the executor: a node that was lost, for example
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
        return Returned(
            failure=Failure(
                kind=LOST,
                message=f"the executor lost the cell: {reason}; the same command runs it again",
            )
        )


def _with_end(state: Sweep, place: int, returned: Returned, out: Path) -> Sweep:
    cells = list(state.cells)
    cells[place] = msgspec.structs.replace(
        cells[place],
        record=returned.record,
        failure=returned.failure,
        measurement=returned.measurement,
    )
    state = msgspec.structs.replace(state, cells=tuple(cells))
    results.write(state, out)  # first, as of a sweep on this machine
    unpack(returned, out)
    return state


def _measurement(cell: CellState, out: Path) -> measurements.Measurement | None:
    if not cell.measurement:
        return None
    return measurements.read(out / "measurements" / f"{cell.measurement}.json")
