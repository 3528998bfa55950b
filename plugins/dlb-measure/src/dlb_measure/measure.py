"""Trials in rounds: a measurement that can be ended at any moment and goes on where it was."""

from __future__ import annotations

import hashlib
import itertools
import math
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dlb import __version__, contents, record
from dlb.execution import kept_proofs
from dlb.execution.adapter import run_adapter
from dlb.execution.run import Outcome
from dlb.execution.turns import ALL_AT_ONCE, Blocks
from dlb.machine_state import machine_state
from dlb.prepared import Prepared, prepare
from dlb.proof.certificate import CheckGroup, CheckResult
from dlb.proof.checks.audit import steps_needed
from dlb.proof.findings.audit import StepsAudited
from dlb.provenance import available_cores, git_state, machine_facts
from dlb.record import Record, Timing
from dlb.request import Reporter, Request
from dlb.scratch import scratch_folder
from dlb_graph.workload import workload_hash
from dlb_graph.workload.work import step_work
from dlb_measure.comparison import pilot_ratios
from dlb_measure.peaks import measure_peaks
from dlb_measure.plan import TRIAL_STEPS, Order, Plan, SteadyRule
from dlb_measure.results import measurement as results
from dlb_measure.results.compared import compared_cells
from dlb_measure.results.measurement import Cell, Ended, Measurement, TrialResult
from dlb_measure.schedule import Trial, rounds
from dlb_measure.steady import (
    WARMUP_SECONDS,
    WARMUP_SHARE,
    Steady,
    find_steady,
    warmup_steps,
)
from dlb_measure.stopping import affordable_rounds, looks, rounds_needed
from dlb_measure.turns import Turns
from dlb_worker.contract import PRECISION

__all__ = ["measure_cells", "quick_request", "ready_cells"]

#: Groups of checks that are about a trial's own model.
TRIAL_GROUPS: frozenset[CheckGroup] = frozenset(("weights", "float32", "audit"))
#: A trial has the steps of so many seconds, but no more than the run.
TRIAL_SECONDS = 2.0
#: Trials that alternate take blocks of so many seconds, of the fastest; but so many blocks at least.
BLOCK_SECONDS, FEWEST_BLOCKS = 0.05, 30
#: But of so many steps at least, of which the first, whose caches are cold, does not count.
BLOCK_STEPS = 5
#: Cells of which trials alternate without being asked to.
MOST_ALTERNATING = 6
#: Steps of a quick run, and how many of them its audit draws.
QUICK_STEPS, QUICK_DRAWS = 60, 4
#: What is computed for the trials of several cells is kept up to so many bytes.
PREPARED_BYTES = 1 << 30
#: Bytes of a number, and of a layer's value in mixed precision.
REAL_BYTES, MIXED_BYTES = {"float32": 4, "float64": 8}, 2
#: Fewest steps that the audit of a trial draws; all trials of the fewest rounds draw what a rare fault needs.
FEWEST_DRAWS = 2


def quick_request(request: Request, kept: bool) -> Request:
    """A run of few steps, of which what is about the timed model is checked; all is, if its proof is kept."""
    steps = min(request.steps, QUICK_STEPS)
    short = replace(request, steps=steps, warmup=min(request.warmup, steps // 6), command="quick")
    short = replace(short, trial_draws=QUICK_DRAWS)
    return short if kept else replace(short, groups=TRIAL_GROUPS, proven=True)


def ready_cells(request: Request, outcome: Outcome) -> list[tuple[Request, Record]]:
    """The cells of a request that was run: one of each adapter that did not fail.

    Args:
        request: what was run and proven, with a folder for results.
        outcome: what came of it.
    """
    done = {each.adapter: each for each in outcome.records if each.failure is None}
    return [
        (replace(request, environments=[each]), done[each.adapter])
        for each in request.environments
        if each.adapter in done
    ]


def measure_cells(
    measured: Sequence[tuple[Request, Record]],
    plan: Plan,
    reporter: Reporter,
    varied: Sequence[Mapping[str, Any]] = (),
    places: Sequence[int] | None = None,
) -> Measurement:
    """Time cells, in rounds of fresh processes.

    Args:
        measured: of each cell, the request of one adapter, and the record that has its proof. All have the
            same folder for results.
        varied: of each cell, the settings that tell it from the others; empty if that is its adapter.
        places: of each cell, its number for the reporter; None for those in order.

    Returns:
        the measurement; its file is written after every trial.

    Raises:
        RecordError: a file cannot be written; finished trials are kept.
    """
    out = measured[0][0].out
    assert out is not None
    measurement = _begun(
        [request for request, _ in measured],
        [proven for _, proven in measured],
        plan,
        [
            msgspec.structs.replace(_cell(request, proven, plan), varied=dict(own))
            for (request, proven), own in zip(measured, varied or [{}] * len(measured))
        ],
    )
    cell_requests = [
        replace(
            request,
            groups=TRIAL_GROUPS,
            proven=True,
            out=None,
            steps=cell.options.steps,
            warmup=min(request.warmup, cell.options.steps - 1),
            test_steps=None,
            test_seconds=None,
            trial_draws=QUICK_DRAWS
            if plan.quick
            else max(FEWEST_DRAWS, math.ceil(steps_needed() / plan.rounds)),
        )
        for (request, _), cell in zip(measured, measurement.cells)
    ]
    blocks = _count_blocks([record for _, record in measured], measurement.cells)
    plan = msgspec.structs.replace(plan, order=measurement.order)
    places = range(len(measured)) if places is None else places
    busy = False  # whether repetitions would be disturbed as well
    began = time.monotonic()
    used = sum(_seconds(trial) for trial in measurement.trials)
    with scratch_folder() as folder:
        at_once = plan.order == "alternating"
        prepared = _PreparedCells(cell_requests, folder, math.inf if at_once else PREPARED_BYTES)
        try:
            if not measurement.peaks and not plan.quick:
                cells = list(zip(measurement.cells, cell_requests))
                peaks = measure_peaks(cells, folder, reporter)
                measurement = msgspec.structs.replace(measurement, peaks=peaks)
            while not measurement.ended:
                left = list(_left(measurement))
                count = measurement.rounds * measurement.trials_a_round
                started, round_began = count - len(left), time.monotonic()
                for group in _groups(left, measurement):
                    attempts = [
                        _Attempt(
                            trial, cell_requests[trial.cell], prepared[trial.cell], reporter, out
                        )
                        for trial in group
                    ]
                    numbers = range(started, started + len(group))
                    started += len(group)
                    if plan.order == "alternating":
                        # They begin and end together.
                        reporter.trial(places[group[0].cell], numbers[0], count)
                        measurement = _run_side_by_side(measurement, attempts, blocks)
                        results.write(measurement, out)
                    for repeat in range(1 + plan.repeats if plan.order != "alternating" else 0):
                        for number, attempt in zip(numbers, attempts):
                            if _needs(measurement, attempt.trial, repeat):
                                reporter.trial(places[attempt.trial.cell], number, count)
                                ended = _run_attempt(
                                    measurement, attempt, repeat, threading.Event()
                                )
                                measurement = _with_trials(measurement, [ended])
                                results.write(measurement, out)
                        busy = busy or _all_disturbed(measurement, group)
                        if busy:
                            break
                    now = time.monotonic()
                    if _round_is_over(measurement):
                        if _is_settled(measurement) or _ends_here(
                            plan, now - round_began, used + now - began
                        ):
                            break
                        round_began = now
                        if started < count:
                            reporter.round_ended(measurement)
                measurement = _after_rounds(measurement, plan, used + time.monotonic() - began)
                if not measurement.ended:
                    reporter.round_ended(measurement)
        except KeyboardInterrupt:
            measurement = msgspec.structs.replace(measurement, ended="interrupted")
    results.write(measurement, out)
    return measurement


class _PreparedCells:
    """What the trials of each cell receive; what is the same for several is computed once.

    Of many cells not all are kept in memory: those that were not used for longest are computed again.
    """

    def __init__(self, requests: Sequence[Request], folder: Path, most_bytes: float) -> None:
        self._requests, self._folder, self._most_bytes = requests, folder, most_bytes
        self._keys = [
            (workload_hash(each.workload), each.batch_size, each.workers, each.dtype, each.seed)
            for each in requests
        ]
        self._made: dict[object, Prepared] = {}
        self._count = 0

    def __getitem__(self, cell: int) -> Prepared:
        key = self._keys[cell]
        prepared = self._made.pop(key, None) or self._prepare(key)
        self._made[key] = prepared  # the last one used is the last one
        while len(self._made) > 1 and sum(map(_bytes, self._made.values())) > self._most_bytes:
            dropped = self._made.pop(next(iter(self._made)))
            shutil.rmtree(dropped.scratch, ignore_errors=True)
        return prepared

    def _prepare(self, key: object) -> Prepared:
        alike = [request for request, other in zip(self._requests, self._keys) if other == key]
        longest = max(alike, key=lambda each: (bool(each.choices), each.steps))
        own = self._folder / f"cells-{self._count}"
        self._count += 1
        own.mkdir()
        return prepare(replace(longest, steps=max(each.steps for each in alike)), own)


def _bytes(prepared: Prepared) -> int:
    """Roughly: the weights of the run, and in float64 those of the references and of the graph."""
    return (
        6 * sum(array.nbytes for array in prepared.weights.values())
        + prepared.data.train.stat().st_size
    )


def _begun(
    requests: Sequence[Request], proven: Sequence[Record], plan: Plan, cells: Sequence[Cell]
) -> Measurement:
    """An unfinished measurement of the same, or a new one."""
    out = requests[0].out
    assert out is not None
    proofs = kept_proofs.proof_keys(requests)
    identities = [request.identity for request in requests]
    settings = [proofs, identities, msgspec.to_builtins(plan)]
    key = hashlib.sha256(msgspec.json.encode(settings)).hexdigest() if all(proofs) else ""
    # Trials name cells by their places: the key has all cells in their order.
    unfinished = results.find_unfinished(out, key)
    if unfinished is not None:
        # How many steps a trial has follows from the first run: now as then.
        kept = [
            msgspec.structs.replace(each, options=before.options)
            for each, before in zip(cells, unfinished.cells)
        ]
        return msgspec.structs.replace(unfinished, cells=tuple(kept), ended="")
    began = record.now()
    name = record.safe_name(requests[0].workload.name)
    return Measurement(
        format=results.FORMAT,
        name=f"{began:%Y%m%dT%H%M%SZ}-{name}-{secrets.token_hex(3)}",
        key=key,
        started=began.isoformat(timespec="seconds"),
        seed=secrets.randbits(32),
        order=plan.order or _order_for(requests, proven),
        rounds=_fitting_rounds(plan, proven),
        pilot=plan.rounds if plan.precision is not None else None,
        precision=plan.precision,
        budget_seconds=plan.budget_seconds,
        margin=plan.margin,
        steady=plan.steady,
        until=plan.until,
        quick=plan.quick,
        cells=tuple(cells),
        machine={**machine_facts(), "state": machine_state()},
        core={"version": __version__, "git": git_state(Path(__file__).parent)},
    )


def _order_for(requests: Sequence[Request], proven: Sequence[Record]) -> Order:
    """Trials that alternate, if the speed changed as the cells were run, they are few that do the same, and
    half of the memory has room for all."""
    timings = [each.timing for each in proven if each.timing is not None]
    needed = _memory(proven) + max((each.memory_bytes or 0 for each in timings), default=0)
    alike = len({(workload_hash(each.workload), each.batch_size) for each in requests}) == 1
    alike = alike and not any(each.strategy for each in requests)
    fits = requests[0].device == "cpu" and needed < (machine_facts()["memory_bytes"] or 0) / 2
    changed = 1 < len(requests) <= MOST_ALTERNATING and any(map(_speed_changed, timings))
    return "alternating" if alike and fits and changed else "interleaved"


def _fitting_rounds(plan: Plan, proven: Sequence[Record]) -> int:
    """The rounds of a plan; of a quick one, as many as half of the memory has room for at once."""
    if not plan.quick:
        return plan.rounds
    room = (machine_facts()["memory_bytes"] or 0) / 2
    return max(1, min(plan.rounds, int(room / max(1, _memory(proven)))))


def _memory(proven: Sequence[Record]) -> int:
    """Bytes that processes of all cells have together."""
    timings = [each.timing for each in proven if each.timing is not None]
    return sum(each.memory_bytes or 0 for each in timings)


def _speed_changed(timing: Timing) -> bool:
    """Whether steps of a run became slower, had no steady state, or were disturbed by other work."""
    seconds = np.array(timing.step_seconds)
    steady = find_steady(seconds[warmup_steps(seconds) :])
    return steady.kind in ("no steady state", "slow-down") or record.is_disturbed(
        timing, available_cores()
    )


def _cell(request: Request, proven: Record, plan: Plan) -> Cell:
    assert proven.timing is not None
    steps = plan.trial_steps
    if not steps:
        enough = math.ceil((WARMUP_SECONDS + TRIAL_SECONDS) / proven.timing.median)
        steps = min(proven.options.steps, max(TRIAL_STEPS, enough))
    # Peers do equal shares of a step at the same time.
    work = step_work(
        request.workload,
        request.batch_size // request.workers,
        REAL_BYTES[request.dtype],
        MIXED_BYTES if PRECISION in proven.options.variant else None,
    )
    return Cell(
        adapter=proven.adapter,
        framework=f"{proven.framework} {proven.framework_version}".strip(),
        workload_name=proven.workload_name,
        workload_hash=proven.workload_hash,
        options=msgspec.structs.replace(
            proven.options, steps=steps, variables=dict(request.variables)
        ),
        proof=proven.proof,
        record=proven.name,
        operations=work.operations,
        bytes=work.bytes,
    )


def _left(measurement: Measurement) -> Iterator[Trial]:
    """The trials that have not ended."""
    ended = {(trial.round, trial.cell, trial.again) for trial in measurement.trials}
    for trial in rounds(
        len(measurement.cells),
        measurement.seed,
        measurement.rounds,
        order=measurement.order,
        twice=not measurement.quick,
    ):
        if (trial.round, trial.cell, trial.again) not in ended:
            yield trial


def _groups(trials: Sequence[Trial], measurement: Measurement) -> Iterator[list[Trial]]:
    """What is repeated, if at all, after all of it was run once: a round, or in isolation a cell's trials."""
    for _, group in itertools.groupby(trials, key=lambda trial: _group_of(trial, measurement)):
        yield list(group)


def _group_of(trial: Trial | TrialResult, measurement: Measurement) -> int:
    if measurement.quick:
        return 0
    return trial.cell if measurement.order == "isolated" else trial.round


@dataclass(frozen=True)
class _Attempt:
    """A trial, and what it needs."""

    trial: Trial
    request: Request
    prepared: Prepared
    reporter: Reporter
    out: Path


def _with_trials(measurement: Measurement, ended: Sequence[TrialResult]) -> Measurement:
    return msgspec.structs.replace(measurement, trials=(*measurement.trials, *ended))


def _needs(measurement: Measurement, trial: Trial, repeat: int) -> bool:
    """Whether a trial is run now: for the first time, or again since it was disturbed or never steady."""
    if repeat == 0:
        return True
    place = (trial.round, trial.cell, trial.again)
    last = next(
        each
        for each in reversed(measurement.trials)
        if (each.round, each.cell, each.again) == place
    )
    return last.failure is None and (last.disturbed or last.median is None)


def _all_disturbed(measurement: Measurement, group: Sequence[Trial]) -> bool:
    """Whether other work disturbed every trial of a group, so that it would disturb repetitions too."""
    group_number = _group_of(group[0], measurement)
    return all(
        trial.disturbed
        for trial in measurement.trials
        if trial.attempt == 0 and _group_of(trial, measurement) == group_number
    )


def _run_side_by_side(
    measurement: Measurement, attempts: Sequence[_Attempt], blocks: int
) -> Measurement:
    """The measurement with the trials of a round, which take their steps in turns."""
    turns = Turns(len(attempts), together=measurement.quick)
    stop = threading.Event()

    def run(place: int, attempt: _Attempt) -> TrialResult:
        ends = _block_ends(attempt.request.steps, blocks)
        with turns.taken(place):
            own = Blocks(ends, lambda: turns.pause(place))
            return _run_attempt(measurement, attempt, 0, stop, own, f"-{place}")

    with ThreadPoolExecutor(len(attempts)) as pool:
        try:  # an interrupt between two starts would leave the first waiting for the second's turn
            futures = [pool.submit(run, place, each) for place, each in enumerate(attempts)]
            ended = [future.result() for future in futures]
        except BaseException:
            stop.set()
            turns.stop()
            raise
    return _with_trials(measurement, ended)


def _count_blocks(records: Sequence[Record], cells: Sequence[Cell]) -> int:
    """How many blocks a trial has: as many in each cell, so that all of a round end together."""
    steps = [cell.options.steps for cell in cells]
    seconds = [
        count * record.timing.median for record, count in zip(records, steps) if record.timing
    ]
    wanted = max(FEWEST_BLOCKS, math.ceil(min(seconds) / BLOCK_SECONDS))
    return max(1, min(wanted, min(steps) // BLOCK_STEPS))


def _block_ends(steps: int, blocks: int) -> tuple[int, ...]:
    return tuple((place + 1) * steps // blocks for place in range(blocks))


def _run_attempt(
    measurement: Measurement,
    attempt: _Attempt,
    number: int,
    stop: threading.Event,
    blocks: Blocks = ALL_AT_ONCE,
    suffix: str = "",
) -> TrialResult:
    trial, request, prepared = attempt.trial, attempt.request, attempt.prepared
    reporter, out = attempt.reporter, attempt.out
    adapter = request.environments[0].adapter
    reporter.phase(adapter, f"round {trial.round + 1} of {measurement.rounds}")
    name = f"trial-{len(measurement.trials)}{suffix}"
    data = prepared.data.first(request.steps)
    prepared = replace(prepared, scratch=prepared.scratch / name, data=data)
    prepared.scratch.mkdir()
    variables = {"PYTHONHASHSEED": str(trial.hash_seed), "DLB_PADDING": "x" * trial.padding}
    request = replace(request, variables={**request.variables, **variables})
    began = record.now()
    ended = run_adapter(request.environments[0], request, prepared, reporter, stop, blocks=blocks)
    shutil.rmtree(prepared.scratch, ignore_errors=True)
    result = TrialResult(
        round=trial.round,
        cell=trial.cell,
        again=trial.again,
        hash_seed=trial.hash_seed,
        padding=trial.padding,
        attempt=number,
        started=began.isoformat(timespec="seconds"),
        checks={check.check: check.verdict for check in ended.checks},
        judged=_judged(ended.checks),
        failure=ended.failure,
    )
    if ended.timing is None or ended.failure is not None:
        return result
    result = msgspec.structs.replace(
        result,
        observed=record.without_series(ended.observed),
        phases={} if ended.phases is None else dict(ended.phases.seconds),
        phases_unknown="" if ended.phases is None else ended.phases.unknown,
    )
    series = record.series_of(ended.observed)
    rule = measurement.steady
    return _with_figures(result, ended.timing, series, request, rule, out, blocks.ends)


def _judged(checks: Sequence[CheckResult]) -> int:
    """How many audited steps were compared with the definition of a step."""
    causes = (finding.cause for check in checks for finding in check.findings)
    return sum(cause.judged for cause in causes if isinstance(cause, StepsAudited))


def _with_figures(
    result: TrialResult,
    timing: Timing,
    series: Mapping[str, np.ndarray],
    request: Request,
    rule: SteadyRule,
    out: Path,
    block_ends: Sequence[int],
) -> TrialResult:
    """The result with its figures, and its series in a file."""
    seconds, waiting = np.array(timing.step_seconds), np.array(timing.data_seconds)
    if block_ends:  # the level of the machine may change from block to block, for all trials alike
        skipped = (0, *block_ends[:-1])[int(WARMUP_SHARE * len(block_ends))]
        skipped, steady = max(skipped, request.warmup), Steady("not tested", 0, ())
    elif rule == "found":
        skipped = warmup_steps(seconds, request.warmup)
        steady = find_steady(seconds[skipped:])
    else:
        skipped, steady = request.warmup, Steady("not tested", 0, ())
    first = skipped + steady.start
    figures: dict[str, float] = {}
    if steady.kind != "no steady state":
        times = seconds[first:]
        p95, p99 = np.percentile(times, (95, 99))
        samples = len(times) * request.batch_size / float(times.sum() + waiting[first:].sum())
        figures = {
            "median": _typical(seconds, first, block_ends),
            "mean": float(times.mean()),
            "p95": float(p95),
            "p99": float(p99),
            "samples_per_second": samples,
            "waiting": float(waiting[first:].mean()),
        }
    return msgspec.structs.replace(
        result,
        kind=steady.kind,
        first_steady=first,
        start_seconds=timing.start_seconds,
        build_seconds=timing.build_seconds,
        first_step_seconds=float(seconds[0]),
        cpu_seconds=timing.cpu_seconds,
        memory_bytes=timing.memory_bytes,
        other_cores=timing.other_cores or 0.0,
        disturbed=record.is_disturbed(timing, available_cores()),
        series=contents.keep_arrays(
            out, {**series, "step_seconds": seconds, "data_seconds": waiting}
        ),
        **figures,
    )


def _typical(seconds: np.ndarray, first: int, block_ends: Sequence[int]) -> float:
    """The median step from ``first`` on; of blocks, the geometric mean of medians without first steps.

    So the ratio of two trials is the mean of the ratios of blocks that followed one another.
    """
    begins = [begin for begin in (0, *block_ends[:-1]) if begin >= first]
    if not block_ends or not begins:
        return float(np.median(seconds[first:]))
    blocks = np.split(seconds[begins[0] :], [begin - begins[0] for begin in begins[1:]])
    return float(np.exp(np.mean([np.log(np.median(block[1:])) for block in blocks])))


def _seconds(trial: TrialResult) -> float:
    """Roughly how long a trial took."""
    return trial.start_seconds + trial.build_seconds + trial.cpu_seconds


def _round_is_over(measurement: Measurement) -> bool:
    last = measurement.trials[-1].round
    met = {(trial.cell, trial.again) for trial in measurement.trials if trial.round == last}
    return len(met) == measurement.trials_a_round


def _is_settled(measurement: Measurement) -> bool:
    """Whether rounds may end: a look finds that each word is settled, of all cells that could be measured."""
    if measurement.until == "all" or measurement.done not in looks(measurement.rounds)[:-1]:
        return False
    measured = {each.cell for each in measurement.trials if each.failure is None}
    others = [each for each in compared_cells(measurement)[1:] if each.cell in measured]
    return bool(others) and all(each.word not in (None, "unclear") for each in others)


def _ends_here(plan: Plan, round_seconds: float, spent: float) -> bool:
    """Whether the budget has no room for another round like the last."""
    if plan.budget_seconds is None or plan.order == "isolated":
        return False
    return affordable_rounds(round_seconds, spent, plan.budget_seconds) < 1


def _after_rounds(measurement: Measurement, plan: Plan, spent: float) -> Measurement:
    """The measurement with its end, or with the number of rounds that the pilot asks for."""
    done = measurement.done
    ended: Ended = "rounds" if plan.precision is None else "precision"
    if _is_settled(measurement):
        return msgspec.structs.replace(measurement, ended="settled")
    if done < measurement.rounds:
        return msgspec.structs.replace(measurement, ended="budget")
    if plan.precision is None or measurement.rounds > plan.rounds:
        return msgspec.structs.replace(measurement, ended=ended)
    needed = rounds_needed(pilot_ratios(measurement.trials, len(measurement.cells)), plan.precision)
    if needed <= done:
        return msgspec.structs.replace(measurement, ended=ended)
    return msgspec.structs.replace(measurement, rounds=needed)
