"""Sweeps: every cell is proven and trained once, then all are measured in rounds.

What has ended is written down at once, and in the sweep first. So a sweep can be killed at any moment, and goes
on where it was when it is asked for again. A cell that fails costs that cell.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from dlb import interrupts, record
from dlb.errors import DlbError, RecordError
from dlb.execution import kept_proofs
from dlb.execution.run import run
from dlb.failure import Failure, failure_of
from dlb.proof.certificate import ProofStatus
from dlb.record import Record
from dlb.request import Reporter, Request
from dlb_measure.comparison import Compared, figures_by_round
from dlb_measure.matrix import SweepCell
from dlb_measure.measure import measure_cells
from dlb_measure.plan import Plan
from dlb_measure.ratios import Ratio, Word, ratio_unpaired
from dlb_measure.results import sweep as results
from dlb_measure.results.between import word_between
from dlb_measure.results.compared import compared_cells
from dlb_measure.results.measurement import Measurement, TrialResult
from dlb_measure.results.sweep import CellState, Sweep

__all__ = [
    "CellResult",
    "Swept",
    "begin_sweep",
    "recorded",
    "sweep",
    "sweep_groups",
]


@dataclass(frozen=True)
class CellResult:
    """What came of one cell.

    Attributes:
        adapter, workload, varied: the cell.
        record: its record; None if it failed before it had one, or was not run.
        proof: the status of its proof; ``unproven`` too if a trial was not sound.
        failure: what ended it; None if nothing did.
        seconds: of a step: geometric mean of the medians of its trials, or of its run if there are none.
        samples_per_second: mean of its trials, or of its run.
        accuracy: share of test samples, after its run.
        ratio: its time next to the baseline's, of a step, or of a sample where batch sizes differ. None of
            the baseline itself, and without a common round.
        word: what may be said; None without a ratio.
    """

    adapter: str
    workload: str
    varied: Mapping[str, Any]
    record: Record | None
    proof: ProofStatus
    failure: Failure | None
    seconds: float | None = None
    samples_per_second: float | None = None
    accuracy: float | None = None
    ratio: Ratio | None = None
    word: Word | None = None


@dataclass(frozen=True)
class Swept:
    """What came of a sweep.

    Attributes:
        sweep: the cells and their states.
        records: of each cell, its record; None if it failed before it had one, or was not run.
        measurement: that of the cells that did not fail; None if there are none, or it was not begun.
        places: of each cell, its place in the measurement; None if it failed.
        interrupted: whether the user interrupted it.
        alone: of each cell, its own measurement, if cells were measured by themselves; else empty.
    """

    sweep: Sweep
    records: Sequence[Record | None]
    measurement: Measurement | None = None
    places: Sequence[int | None] = ()
    interrupted: bool = False
    alone: Sequence[Measurement | None] = ()

    @property
    def passed(self) -> bool:
        """Whether every cell was proven and measured, and every trial was sound."""
        return (
            not self.interrupted
            and all(each is not None and each.proof == "proven" for each in self.records)
            and all(cell.failure is None for cell in self.sweep.cells)
            and all(
                trial.sound
                for each in (self.measurement, *self.alone)
                if each is not None
                for trial in each.trials
            )
        )

    def results(self, baseline: int = 0) -> list[CellResult]:
        """What came of each cell, next to the baseline.

        Args:
            baseline: the number of a cell, from 0; if it failed, the first that did not is the baseline.
        """
        if any(self.alone):
            return self._results_alone(baseline)
        compared: Sequence[Compared] = ()
        first = self.baseline_place(baseline)
        if self.measurement is not None and first is not None:
            compared = compared_cells(self.measurement, first)
        return [self._result(place, compared) for place in range(len(self.sweep.cells))]

    def _results_alone(self, baseline: int) -> list[CellResult]:
        """Of cells that were measured by themselves: ratios are not of rounds, so intervals are wider."""
        results: list[CellResult] = []
        times: list[list[float]] = []
        for place, own in enumerate(self.alone):
            plain = self._result(place, ())
            if own is None:
                results.append(plain)
                times.append([])
                continue
            batch = own.cells[0].options.batch_size
            times.append([each / batch for each in figures_by_round(own.trials, 0).values()])
            results.append(_with_trials(plain, own.trials, compared_cells(own)[0]))
        if not times[baseline]:
            baseline = next((place for place, own in enumerate(times) if own), baseline)
        of_baseline = self.alone[baseline]
        for place, (measured, own_times) in enumerate(zip(self.alone, times)):
            if place != baseline and measured and of_baseline and own_times and times[baseline]:
                ratio = ratio_unpaired(own_times, times[baseline])
                word = word_between(ratio, (of_baseline, 0), (measured, 0))
                results[place] = replace(results[place], ratio=ratio, word=word)
        return results

    def baseline_place(self, baseline: int = 0) -> int | None:
        """The baseline's place in the measurement; None if there is none."""
        own = self.places[baseline] if self.places else None
        return own if own is not None else next(iter(self._measured), None)

    @property
    def _measured(self) -> list[int]:
        return [place for place in self.places if place is not None]

    def _result(self, place: int, compared: Sequence[Compared]) -> CellResult:
        cell, found = self.sweep.cells[place], self.records[place]
        timing = None if found is None else found.timing
        result = CellResult(
            adapter=cell.adapter,
            workload=cell.workload_name,
            varied=cell.varied,
            record=found,
            proof="unproven" if found is None else found.proof,
            failure=cell.failure,
            seconds=None if timing is None else timing.median,
            samples_per_second=None if timing is None else timing.samples_per_second,
            accuracy=found.quality.test_accuracy if found is not None and found.quality else None,
        )
        own = self.places[place] if self.places else None
        if own is None or self.measurement is None:
            return result
        trials = [each for each in self.measurement.trials if each.cell == own]
        return _with_trials(result, trials, compared[own])


def _with_trials(
    result: CellResult, trials: Sequence[TrialResult], compared: Compared
) -> CellResult:
    speeds = [each.samples_per_second for each in trials if each.samples_per_second is not None]
    return replace(
        result,
        proof="unproven" if any(each.unproven for each in trials) else result.proof,
        seconds=compared.seconds,
        samples_per_second=math.fsum(speeds) / len(speeds) if speeds else None,
        ratio=compared.ratio,
        word=compared.word,
    )


def sweep(cells: Sequence[SweepCell], plan: Plan | None, reporter: Reporter) -> Swept:
    """Prove, train and record every cell; then measure all that did not fail, in rounds.

    Args:
        cells: one or more, with one folder for results.
        plan: how to measure; None for no rounds.

    Raises:
        RequestError: another sweep runs in the folder, or it cannot be written to.
        RecordError: a file cannot be written; what has ended is kept.
    """
    (swept,) = sweep_groups([cells], plan, reporter)
    return swept


def sweep_groups(
    groups: Sequence[Sequence[SweepCell]], plan: Plan | None, reporter: Reporter
) -> list[Swept]:
    """Sweeps that go on as one: each group of cells is proven, then measured in rounds of its own.

    Args:
        groups: one or more, each of one cell or more; arguments and errors as :func:`sweep`.

    Returns:
        what came of each group; of an interrupted sweep, of those that were begun.
    """
    cells = [cell for group in groups for cell in group]
    out = cells[0].request.out
    assert out is not None
    record.check_folder(out)
    with results.alone(out):
        state, records = recorded(begin_sweep(groups, plan, out), out)
        swept: list[Swept] = []
        first = 0
        for group in groups:
            places = range(first, first + len(group))
            first += len(group)
            try:
                for place in places:
                    if state.cells[place].ended:
                        continue
                    reporter.cell(place)
                    records[place], failure = _run(cells[place].request, reporter)
                    state = _with_end(state, place, records[place], failure, out)
                    reporter.cell_ended(place, records[place])
                part = _measured(state, group, records, places, plan, reporter, out)
            except KeyboardInterrupt:
                part = _part(state, records, places, interrupted=True)
            swept.append(part)
            if part.interrupted:
                return swept
            if part.measurement is not None:
                names = (*state.measurements, part.measurement.name)
                state = msgspec.structs.replace(state, measurements=names)
        state = msgspec.structs.replace(state, ended=True)
        results.write(state, out)
        return swept


def _part(state: Sweep, records: Sequence[Record | None], group: range, **fields: Any) -> Swept:
    """What came of the cells at some places."""
    own = msgspec.structs.replace(state, cells=state.cells[group.start : group.stop])
    return Swept(own, records[group.start : group.stop], **fields)


def begin_sweep(
    groups: Sequence[Sequence[SweepCell]], plan: Plan | None, out: Path, *, alone: bool = False
) -> Sweep:
    """An unfinished sweep of the same cells with what has ended, or a new one.

    Args:
        alone: each cell is measured by itself.
    """
    cells = [cell for group in groups for cell in group]
    requests = [cell.request for cell in cells]
    proofs = kept_proofs.proof_keys(requests)
    identities = [[dict(cell.varied), *cell.request.identity] for cell in cells]
    sizes = [len(group) for group in groups]
    settings = [proofs, identities, sizes, alone, msgspec.to_builtins(plan)]
    key = hashlib.sha256(msgspec.json.encode(settings)).hexdigest() if all(proofs) else ""
    unfinished = results.find_unfinished(out, key)
    if unfinished is not None:
        return unfinished
    began = record.now()
    name = record.safe_name(requests[0].workload.name)
    begun = Sweep(
        format=results.FORMAT,
        name=f"{began:%Y%m%dT%H%M%SZ}-{name}-{secrets.token_hex(3)}",
        key=key,
        started=began.isoformat(timespec="seconds"),
        cells=tuple(
            CellState(
                adapter=cell.adapter,
                workload_name=cell.request.workload.name,
                varied=dict(cell.varied),
            )
            for cell in cells
        ),
    )
    results.write(begun, out)
    return begun


def recorded(state: Sweep, out: Path) -> tuple[Sweep, list[Record | None]]:
    """The sweep with the records of what had ended. A cell whose record was named and not written is open."""
    cells = [
        msgspec.structs.replace(each, record="", failure=None, measurement="")
        if each.record and not (out / f"{each.record}.json").exists()
        else each
        for each in state.cells
    ]
    records = [record.read(out / f"{each.record}.json") if each.record else None for each in cells]
    return msgspec.structs.replace(state, cells=tuple(cells)), records


def _run(request: Request, reporter: Reporter) -> tuple[Record | None, Failure | None]:
    """Prove and train one cell; an error ends that cell alone.

    Raises:
        KeyboardInterrupt: it was interrupted.
        RecordError: a file cannot be written.
    """
    try:
        outcome = run(request, reporter, recorded=False)
    except RecordError:
        raise
    except DlbError as error:
        return None, failure_of(error)
    except MemoryError as error:  # a cell that is too large for this machine; others may fit
        return None, Failure(kind="MemoryError", message=f"out of memory: {error}".rstrip(": "))
    if outcome.interrupted:
        raise KeyboardInterrupt
    (ended,) = outcome.records
    return ended, ended.failure


def _with_end(
    state: Sweep, place: int, ended: Record | None, failure: Failure | None, out: Path
) -> Sweep:
    """The sweep with a cell that has ended. It names the record before that is written, so all are known."""
    cells = list(state.cells)
    name = "" if ended is None else ended.name
    cells[place] = msgspec.structs.replace(cells[place], record=name, failure=failure)
    state = msgspec.structs.replace(state, cells=tuple(cells))
    with interrupts.deferred():
        results.write(state, out)
        if ended is not None:
            record.write(ended, out)
    return state


def _measured(
    state: Sweep,
    cells: Sequence[SweepCell],
    records: Sequence[Record | None],
    places: range,
    plan: Plan | None,
    reporter: Reporter,
    out: Path,
) -> Swept:
    """A group of cells with its measurement.

    Args:
        cells: of the group.
        records: of all cells.
        places: of the group's among all.
    """
    chosen = [
        (place, own, each)
        for place, own in enumerate(places)
        if (each := records[own]) is not None and each.failure is None and each.timing is not None
    ]
    measured_places: list[int | None] = [None] * len(cells)
    for number, (place, _, _) in enumerate(chosen):
        measured_places[place] = number
    measurement = None
    if chosen and plan is not None:
        # Killed between its end and the note of it, a measurement is not made again.
        measurement = results.find_measurement(out, [each.name for _, _, each in chosen])
        measurement = measurement or measure_cells(
            [(cells[place].request, each) for place, _, each in chosen],
            plan,
            reporter,
            varied=[cells[place].varied for place, _, _ in chosen],
            places=[own for _, own, _ in chosen],
        )
    interrupted = measurement is not None and measurement.ended == "interrupted"
    return _part(
        state,
        records,
        places,
        measurement=measurement,
        places=measured_places,
        interrupted=interrupted,
    )
