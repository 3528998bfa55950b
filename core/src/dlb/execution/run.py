"""``dlb run`` and ``dlb verify``: build, prove, time and record one adapter after the other."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from dlb import __version__, interrupts, record
from dlb.adapters import AdapterEnvironment
from dlb.execution import kept_proofs
from dlb.execution.across_adapters import (
    check_across_adapters,
    ensure_calibration,
    find_calibration,
)
from dlb.execution.adapter import AdapterRun, run_adapter
from dlb.execution.workers import Workers
from dlb.failure import Failure
from dlb.machine_state import machine_state
from dlb.prepared import Prepared, prepare
from dlb.proof.certificate import Certificate, Divergence
from dlb.proof.divergence import observed_steps
from dlb.proof.update_batches import step_numbers
from dlb.provenance import git_state, machine_facts
from dlb.record import Record
from dlb.request import Reporter, Request, check
from dlb.scratch import scratch_folder
from dlb.shown import Shown
from dlb.threads import limited_products
from dlb_graph.workload import workload_hash
from dlb_graph.workload.files import to_document

__all__ = ["Outcome", "run"]


@dataclass(repr=False)
class Outcome(Shown):
    """The results of a run.

    Attributes:
        records: one per adapter.
        certificate: the proof of all adapters.
        paths: files of the records; empty if none were written.
        interrupted: whether the user interrupted the run.
        measurement: what was measured in rounds afterwards; None if nothing was.
    """

    answered_by: ClassVar[str] = "dlb.report.answers:outcome_answer"
    records: list[Record]
    certificate: Certificate
    paths: list[Path] = field(default_factory=list)
    interrupted: bool = False
    measurement: Any = None

    @property
    def proven(self) -> bool:
        """Whether every adapter finished and was proven."""
        return bool(self.records) and all(
            adapter_record.proof == "proven" for adapter_record in self.records
        )

    @property
    def passed(self) -> bool:
        """Whether every adapter finished, and every check that was asked for passed."""
        return bool(self.records) and all(
            self.certificate.passed(adapter_record.adapter) for adapter_record in self.records
        )


def run(
    request: Request,
    reporter: Reporter,
    workers: Mapping[str, Workers] | None = None,
    key: str | None = None,
    *,
    recorded: bool = True,
) -> Outcome:
    """Run a workload on adapters, prove them the same, and record each.

    If one adapter fails, the others still run. A record is written when its adapter ends, and again when
    the certificate is complete.

    Args:
        workers: running workers by adapter, to run several workloads in; only without a strategy.
            Other adapters get new workers, which end with the run.
        key: that of the request's kept proof, if it is known already.
        recorded: whether records are written; what calls may do it.

    Raises:
        RequestError: the request is wrong; nothing was started.
        RecordError: a record cannot be written; earlier records are kept.
    """
    check(request)
    if request.out is not None:
        record.check_folder(request.out)
    with limited_products(request.at_once), scratch_folder() as folder:
        if request.command == "verify":
            key = ""
        elif key is None:
            key = kept_proofs.proof_key(request)
        kept = None if request.prove_again else kept_proofs.find(key)
        request = replace(request, proven=request.proven or kept is not None)
        prepared = prepare(request, folder)
        out = request.out if recorded else None
        outcome = _run_all(request, prepared, reporter, workers or {}, kept, out)
        kept_proofs.keep(key, outcome.certificate)
        return outcome


def _run_all(
    request: Request,
    prepared: Prepared,
    reporter: Reporter,
    workers: Mapping[str, Workers],
    kept: Certificate | None,
    out: Path | None,
) -> Outcome:
    """Run every adapter, then the checks across adapters; write records with the complete proof to ``out``."""
    runs: list[AdapterRun] = []
    records: list[Record] = []
    ended: list[tuple[datetime, AdapterRun]] = []
    interrupted = False
    machine = {**machine_facts(), "state": machine_state()}

    def take(began: datetime, adapter_run: AdapterRun) -> None:
        runs.append(adapter_run)
        certificate = _certify(request, runs, kept)
        records.append(_record(request, prepared, adapter_run, certificate, began, machine))
        if out is not None:
            record.write(records[-1], out)
        so_far = _certify(request, runs, kept, across=kept is None)
        status = so_far.status(adapter_run.adapter)
        reporter.recorded(msgspec.structs.replace(records[-1], certificate=so_far, proof=status))

    try:
        with closing(_run_each(request, prepared, reporter, workers, ended)) as finished:
            for began, adapter_run in finished:
                take(began, adapter_run)
        if kept is None:
            ensure_calibration(request, prepared, reporter, runs)
    except KeyboardInterrupt:
        interrupted = True
        # Runs that had ended, but that were not recorded yet.
        taken = {run.adapter for run in runs}
        for began, adapter_run in ended:
            if adapter_run.adapter not in taken:
                take(began, adapter_run)
    requested = [environment.adapter for environment in request.environments]
    done = {run.adapter for run in runs}
    missing = [adapter for adapter in requested if adapter not in done]
    # Adapters are missing only after an interruption. A certificate without them would look complete.
    interruption = Failure(kind="Interrupted", message="interrupted before it was done")
    runs += [AdapterRun(adapter, failure=interruption) for adapter in missing]
    runs.sort(key=lambda run: requested.index(run.adapter))
    records.sort(key=lambda kept: requested.index(kept.adapter))
    certificate = _certify(request, runs, kept, across=kept is None)
    failures = {run.adapter: run.failure for run in runs}
    final = [
        msgspec.structs.replace(
            adapter_record,
            certificate=certificate,
            proof=certificate.status(adapter_record.adapter),
            failure=failures[adapter_record.adapter],
        )
        for adapter_record in records
    ]
    paths: list[Path] = []
    if out is not None:
        paths = [record.write(adapter_record, out) for adapter_record in final]
        for before in records:
            record.discard_certificate(before, certificate, out)
    return Outcome(final, certificate, paths, interrupted)


def _run_each(
    request: Request,
    prepared: Prepared,
    reporter: Reporter,
    workers: Mapping[str, Workers],
    ended: list[tuple[datetime, AdapterRun]],
) -> Generator[tuple[datetime, AdapterRun], None, None]:
    """Run each adapter; yields when it began and its results. ``ended`` gets the same at once."""
    stop = threading.Event()

    def run_one(environment: AdapterEnvironment) -> tuple[datetime, AdapterRun]:
        began, given_workers = record.now(), workers.get(environment.adapter)
        ended_run = (
            began,
            run_adapter(environment, request, prepared, reporter, stop, given_workers),
        )
        ended.append(ended_run)
        return ended_run

    if request.at_once == 1:
        yield from map(run_one, request.environments)
        return
    with ThreadPoolExecutor(request.at_once) as pool:
        try:
            running = [pool.submit(run_one, environment) for environment in request.environments]
            for future in as_completed(running):
                yield future.result()
        finally:
            # Whatever happened, end the processes of adapters that still run.
            with interrupts.ignored():
                stop.set()
                pool.shutdown(cancel_futures=True)


def _certify(
    request: Request, runs: list[AdapterRun], kept: Certificate | None, across: bool = False
) -> Certificate:
    """The certificate of the adapters that have run; with ``across``, also checks across adapters.

    Args:
        kept: a proof that is used again.
    """
    checks = kept_proofs.with_kept((result for run in runs for result in run.checks), kept)
    if across:
        checks += check_across_adapters(runs, request.groups, find_calibration(request, runs))
    numbers = step_numbers(
        request.workload.optimizer, request.workload.schedule, request.trajectory_steps
    )
    steps = observed_steps(len(numbers))
    return Certificate(
        workload=request.workload.name,
        workload_hash=workload_hash(request.workload),
        seed=request.seed,
        adapters={run.adapter: run.version for run in runs},
        checks=tuple(checks),
        variants={
            run.adapter: variant for run in runs if (variant := request.variant(run.adapter))
        },
        deviations={run.adapter: run.deviations for run in runs if run.deviations},
        diverged={run.adapter: run.diverged for run in runs if run.diverged},
        failures={run.adapter: run.failure for run in runs if run.failure},
        left_out=request.left_out,
        divergences=tuple(
            Divergence(
                adapter=run.adapter,
                steps=steps,
                distances=run.float32.drift,
                perturbed=run.calibration.perturbed if run.calibration else (),
            )
            for run in runs
            if run.float32 is not None
        )
        + (kept.divergences if kept else ()),
        made=record.now().isoformat(timespec="seconds"),
        kept=kept.made if kept else "",
    )


def _record(
    request: Request,
    prepared: Prepared,
    adapter_run: AdapterRun,
    certificate: Certificate,
    began: datetime,
    machine: dict[str, object],
) -> Record:
    """The record of one adapter. It is not called proven before all adapters have run."""
    workload = request.workload
    deviates = certificate.status(adapter_run.adapter) == "deviates"
    return Record(
        format=record.FORMAT,
        name=record.new_name(workload.name, adapter_run.adapter, began),
        started=began.isoformat(timespec="seconds"),
        command=request.command,
        adapter=adapter_run.adapter,
        framework=adapter_run.facts.get("framework", ""),
        framework_version=adapter_run.facts.get("version", ""),
        workload_name=workload.name,
        workload=to_document(workload),
        workload_hash=workload_hash(workload),
        data={"name": workload.data.name, "from": prepared.data.where},
        options=request.options(adapter_run.adapter),
        proof="deviates" if deviates else "unproven",
        certificate=certificate,
        timing=adapter_run.timing,
        quality=adapter_run.quality,
        exported=adapter_run.exported,
        failure=adapter_run.failure,
        machine=machine,
        worker=adapter_run.facts,
        core={"version": __version__, "git": git_state(Path(__file__).parent)},
        observed=adapter_run.observed,
    )
