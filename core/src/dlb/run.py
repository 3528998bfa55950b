"""``dlb run`` and ``dlb verify``: build, prove, time, record, one adapter after the other."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Collection, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec
from threadpoolctl import threadpool_limits

from dlb import __version__, interrupts, record
from dlb.adapter_run import AdapterRun, Workers, run_adapter
from dlb.adapters import Home
from dlb.proof import rungs
from dlb.proof.certificate import Certificate, Level, Rung
from dlb.provenance import available_cores, git_state, machine_facts
from dlb.record import Options, Record
from dlb.request import Prepared, Reporter, Request, check, prepare
from dlb.workload import workload_hash
from dlb.workload.files import to_document

__all__ = ["Outcome", "run"]


@dataclass
class Outcome:
    """What came of a run: a record for each adapter, where they lie, and the certificate."""

    records: list[Record]
    certificate: Certificate
    paths: list[Path] = field(default_factory=list)
    interrupted: bool = False

    @property
    def proven(self) -> bool:
        """Whether every adapter finished and was proven."""
        return bool(self.records) and all(one.proof == "proven" for one in self.records)

    @property
    def passed(self) -> bool:
        """Whether every adapter finished, and every rung that was asked for passed."""
        return bool(self.records) and all(
            self.certificate.holds(one.adapter) for one in self.records
        )


def run(
    request: Request, reporter: Reporter, workers: Mapping[str, Workers] | None = None
) -> Outcome:
    """Run a workload on adapters, prove them the same, and record each.

    An adapter that fails costs its own run and nothing else. Records are written as each adapter
    ends, and again when the certificate is whole.

    Args:
        workers: by adapter, those that are already there, to run one workload after another in;
            of runs without a strategy. An adapter without has its own, which end with its run.

    Raises:
        RequestError: the request cannot be carried out; nothing was started.
        RecordError: a record cannot be written; those before it are kept.
    """
    check(request)
    if request.out is not None:
        record.check_folder(request.out)
    # The truth is computed while workers compute: with more threads than cores, NumPy's matrix
    # products take several times longer.
    own = threadpool_limits(max(1, available_cores() // request.at_once), user_api="blas")
    with own, tempfile.TemporaryDirectory(prefix="dlb-") as folder:
        prepared = prepare(request, Path(folder))
        return _run_all(request, prepared, reporter, workers or {})


def _run_all(
    request: Request, prepared: Prepared, reporter: Reporter, workers: Mapping[str, Workers]
) -> Outcome:
    """Every adapter, then what needs several of them, then the records with the whole proof."""
    runs: list[AdapterRun] = []
    records: list[Record] = []
    ended: list[tuple[datetime, AdapterRun]] = []
    interrupted = False
    machine = machine_facts()

    def take(moment: datetime, ran: AdapterRun) -> None:
        runs.append(ran)
        certificate = _certify(request, runs)
        records.append(_record(request, prepared, ran, certificate, moment, machine))
        _write(records[-1], request)

    try:
        with closing(_climb(request, prepared, reporter, workers, ended)) as climbed:
            for moment, ran in climbed:
                take(moment, ran)
    except KeyboardInterrupt:
        interrupted = True
        # Those that had ended, but were not taken yet.
        taken = {one.adapter for one in runs}
        for moment, ran in ended:
            if ran.adapter not in taken:
                take(moment, ran)
    done = {one.adapter for one in runs}
    missing = [one.adapter for one in request.homes if one.adapter not in done]
    # None but where it was interrupted; a certificate without them would look whole.
    runs += [AdapterRun(adapter, failure="interrupted before it was done") for adapter in missing]
    asked = [one.adapter for one in request.homes]
    runs.sort(key=lambda one: asked.index(one.adapter))
    records.sort(key=lambda one: asked.index(one.adapter))
    certificate = _certify(request, runs, across=True)
    final = [
        msgspec.structs.replace(one, certificate=certificate, proof=certificate.word(one.adapter))
        for one in records
    ]
    paths = [path for one in final if (path := _write(one, request)) is not None]
    return Outcome(final, certificate, paths, interrupted)


def _climb(
    request: Request,
    prepared: Prepared,
    reporter: Reporter,
    workers: Mapping[str, Workers],
    ended: list[tuple[datetime, AdapterRun]],
) -> Generator[tuple[datetime, AdapterRun], None, None]:
    """When each adapter began, and what came of it, as each is done; at once in ``ended``."""
    stop = threading.Event()

    def climb(home: Home) -> tuple[datetime, AdapterRun]:
        moment, lent = record.now(), workers.get(home.adapter)
        found = moment, run_adapter(home, request, prepared, reporter, stop, lent)
        ended.append(found)
        return found

    if request.at_once == 1:
        yield from map(climb, request.homes)
        return
    with ThreadPoolExecutor(request.at_once) as pool:
        climbing = [pool.submit(climb, home) for home in request.homes]
        try:
            for one in as_completed(climbing):
                yield one.result()
        finally:
            # On every way out the processes of those that still climb are ended first.
            with interrupts.ignored():
                stop.set()
                pool.shutdown(cancel_futures=True)


def _certify(request: Request, runs: list[AdapterRun], across: bool = False) -> Certificate:
    """What the adapters so far were held against; with ``across``, each other too."""
    found = [rung for one in runs for rung in one.rungs]
    if across:
        found += _across(runs, request.levels)
    return Certificate(
        workload=request.workload.name,
        workload_hash=workload_hash(request.workload),
        seed=request.seed,
        adapters={one.adapter: one.version for one in runs},
        rungs=tuple(found),
        variants={
            one.adapter: variant for one in runs if (variant := request.variant(one.adapter))
        },
        deviations={one.adapter: one.deviations for one in runs if one.deviations},
        failures={one.adapter: one.failure for one in runs if one.failure},
        left_out=request.left_out,
        divergences=tuple(one.divergence for one in runs if one.divergence is not None),
    )


def _across(runs: list[AdapterRun], levels: Collection[Level]) -> list[Rung]:
    """What takes several adapters, or the best of them, to judge."""
    found: list[Rung] = []
    gradients = {one.adapter: one.gradients for one in runs if one.gradients}
    # None of steps that only rounding moved.
    looked = {
        one.adapter: one.changes
        for one in runs
        if any(changes.moved for changes in one.changes.values())
    }
    rounded = {one.adapter: one.rounded for one in runs if one.rounded}
    sound = _sound(runs)
    # One whose own steps are not right is no measure of what rounding may do to them.
    growths = next((one.growths for one in runs if one.growths and one.adapter in sound), {})
    for masked in (True, False):
        # One with dropout and one without are not the same model.
        alike = [one.adapter for one in runs if one.masked == masked]
        some = {name: gradients[name] for name in alike if name in gradients}
        agreement: list[Rung] = []
        if "gradients" in levels:
            agreement = rungs.agreement_rungs("gradients", "gradients", some, sound)
        found += agreement
        if "trajectory" in levels and looked:
            apart = rungs.agreed(agreement)
            steps, detail = rungs.comparable(next(iter(looked.values())), growths, apart)
            some = {name: looked[name][steps].read_moved() for name in alike if name in looked}
            found += rungs.agreement_rungs("trajectories", "trajectory", some, sound, detail)
    if len(rounded) > 1:
        nudged = [batch for one in runs if one.adapter in sound for batch in one.nudged]
        found += rungs.float32_rungs(rounded, nudged)
    return found


def _sound(runs: list[AdapterRun]) -> set[str]:
    """Adapters that failed nothing by themselves, and so can bear witness for others."""
    return {one.adapter for one in runs if not any(rung.verdict == "failed" for rung in one.rungs)}


def _write(one: Record, request: Request) -> Path | None:
    return record.write(one, request.out) if request.out is not None else None


def _record(
    request: Request,
    prepared: Prepared,
    ran: AdapterRun,
    certificate: Certificate,
    moment: datetime,
    machine: dict[str, object],
) -> Record:
    """The record of one adapter; until all have run, what it could be proven is not known."""
    workload = request.workload
    deviates = certificate.word(ran.adapter) == "deviates"
    return Record(
        format=record.FORMAT,
        name=record.new_name(workload.name, ran.adapter, moment),
        started=moment.isoformat(timespec="seconds"),
        command=request.command,
        adapter=ran.adapter,
        framework=ran.facts.get("framework", ""),
        framework_version=ran.facts.get("version", ""),
        workload_name=workload.name,
        workload=to_document(workload),
        workload_hash=workload_hash(workload),
        data={"name": workload.data.name, "from": prepared.where},
        options=Options(
            batch_size=request.batch_size,
            steps=request.steps,
            warmup=request.warmup,
            threads=request.threads,
            device=request.device,
            dtype=request.dtype,
            seed=request.seed,
            input=request.via,
            strategy=request.strategy,
            workers=request.workers,
            variant=request.variant(ran.adapter),
        ),
        proof="deviates" if deviates else "unproven",
        certificate=certificate,
        timing=ran.timing,
        quality=ran.quality,
        exported=ran.exported,
        failure=ran.failure,
        machine=machine,
        worker=ran.facts,
        core={"version": __version__, "git": git_state(Path(__file__).parent)},
        observed=ran.observed,
    )
