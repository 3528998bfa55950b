"""The stages of one adapter's run, in order, and their results."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy.typing as npt

from dlb.adapters import AdapterEnvironment
from dlb.capabilities import Capabilities, capabilities_of, check_capabilities
from dlb.errors import DlbError, RecordError, WorkerError
from dlb.execution.audit import Audit, judge, refuse_audit
from dlb.execution.calibration import Calibration, calibrate
from dlb.execution.distributed import (
    check_unequal_shares,
    compare_with_schedule,
    compare_with_single_worker,
    is_synchronous,
    take_few_parts,
    train_few_steps,
)
from dlb.execution.diverged import find_divergence
from dlb.execution.dropout import prove_native_dropout
from dlb.execution.export import export_model
from dlb.execution.float32 import Float32Proof, prove_float32
from dlb.execution.float64 import missing_masks, prove_model, prove_steps, refuse_training
from dlb.execution.models import Stage
from dlb.execution.quality import test_model
from dlb.execution.timing import time_phases, time_training
from dlb.execution.turns import ALL_AT_ONCE, Blocks
from dlb.execution.workers import Workers
from dlb.failure import Failure, failure_of
from dlb.prepared import Prepared
from dlb.proof.certificate import CheckResult, Divergent
from dlb.proof.checks.distributed import ScheduleTaken, StepsTaken
from dlb.proof.checks.export import refuse_export
from dlb.proof.checks.file import check_file
from dlb.proof.divergence import Changes
from dlb.proof.engine import Check
from dlb.proof.findings import Finding
from dlb.proof.findings.workload import Asynchronous, TrainedNotFinite
from dlb.proof.worker_logs import keep_output, names_log, with_kept_logs
from dlb.provenance import free_cores
from dlb.record import Exported, Quality, Timing
from dlb.request import Reporter, Request
from dlb.supervision.group import Group
from dlb.supervision.remote import PhaseTimes
from dlb_worker.errors import one_line

__all__ = ["AdapterRun", "calibrate_again", "run_adapter"]

Array = npt.NDArray[Any]
#: Groups whose checks use the model that is timed.
TIMED_GROUPS = {"weights", "float32", "audit", "structure", "export"}


@dataclass
class AdapterRun:
    """The results of one adapter. A run that failed has the results of the stages before the failure.

    Attributes:
        facts: what the framework and its worker report about themselves.
        version: framework and version.
        deviations: deviations that the adapter declares.
        checks: results of the checks that need no other adapter.
        gradients: float64 gradients by ``layer.parameter``, to be compared across adapters.
        changes: what float64 steps changed, by number of steps, to be compared across adapters.
        float32: the float32 proof.
        calibration: the effect of rounding; only the adapter that was calibrated has one.
        timing, quality, exported: of the model that was timed.
        phases: how long the parts of a step take, in a trial.
        observed: what observers recorded during training.
        diverged: where training ends in NaN or infinity, as the workload's own does; None if nowhere.
        failure: the error that ended the run early.
    """

    adapter: str
    facts: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    deviations: tuple[str, ...] = ()
    checks: list[CheckResult] = field(default_factory=list)
    gradients: Mapping[str, Array] = field(default_factory=dict)
    changes: Mapping[int, Changes] = field(default_factory=dict)
    float32: Float32Proof | None = None
    calibration: Calibration | None = None
    timing: Timing | None = None
    quality: Quality | None = None
    exported: Exported | None = None
    phases: PhaseTimes | None = None
    observed: dict[str, Any] = field(default_factory=dict)
    diverged: Divergent | None = None
    failure: Failure | None = None

    @property
    def independently_correct(self) -> bool:
        """Whether none of its own checks failed, so that other adapters can be compared with it."""
        return not any(result.verdict == "failed" for result in self.checks)


def run_adapter(
    environment: AdapterEnvironment,
    request: Request,
    prepared: Prepared,
    reporter: Reporter,
    stop: threading.Event,
    workers: Workers | None = None,
    blocks: Blocks = ALL_AT_ONCE,
) -> AdapterRun:
    """Run one adapter. An error of the adapter does not raise; the result holds it.

    Args:
        stop: ends the run when it is set.
        workers: running workers to use, only for a run without a strategy; None starts new ones.
        blocks: of the steps that are timed, between which others are.

    Raises:
        RecordError: the exported model cannot be written.
        KeyboardInterrupt: ``stop`` was set; the adapter's processes have ended.
    """
    adapter_run = AdapterRun(environment.adapter)
    if request.imported is not None:
        # All other checks compare with the canonical graph; this one compares that with the file.
        adapter_run.checks.append(
            msgspec.structs.replace(check_file(request.imported), adapter=environment.adapter)
        )
    stage = _stage(environment, request, prepared, reporter, stop, adapter_run, blocks)
    reporter.phase(environment.adapter, "starting")
    with _failures_kept(stage, adapter_run):
        if request.strategy:
            _run_with_strategy(stage, adapter_run)
        else:
            _run_in_one_worker(stage, adapter_run, workers)
        _keep_failures(stage, adapter_run, None)
    reporter.finished(
        environment.adapter, adapter_run.failure.line if adapter_run.failure else "done"
    )
    return adapter_run


def calibrate_again(
    environment: AdapterEnvironment,
    request: Request,
    prepared: Prepared,
    reporter: Reporter,
    stop: threading.Event,
    run: AdapterRun,
) -> None:
    """Calibrate an adapter whose run has ended, in a new worker.

    Sets ``run.calibration``, or ``run.failure`` if the worker fails.
    """
    stage = _stage(environment, request, prepared, reporter, stop, run)
    with _failures_kept(stage, run), stage.start("calibration", single=True) as workers:
        run.calibration = calibrate(stage, workers.group, run.changes, run.float32)
    reporter.finished(environment.adapter, run.failure.line if run.failure else "done")


def _stage(
    environment: AdapterEnvironment,
    request: Request,
    prepared: Prepared,
    reporter: Reporter,
    stop: threading.Event,
    run: AdapterRun,
    blocks: Blocks = ALL_AT_ONCE,
) -> Stage:
    def keep(result: CheckResult) -> None:
        """Keep a result if its group was asked for; results of ``distributed`` are always kept."""
        if result.group in request.groups or result.group == "distributed":
            run.checks.append(result)

    scratch = prepared.scratch / environment.adapter
    scratch.mkdir(exist_ok=True)
    return Stage(environment, request, prepared, reporter, scratch, stop, keep, blocks)


@contextmanager
def _failures_kept(stage: Stage, run: AdapterRun) -> Iterator[None]:
    """Keep whatever ends the block with the run, so that it costs no other adapter its result.

    Raises:
        RecordError: a file of the results cannot be written.
    """
    try:
        yield
    except RecordError:
        raise
    except DlbError as error:
        _keep_failures(stage, run, error)
    # A worker may answer what nobody has thought of.
    except Exception as error:
        if os.environ.get("DLB_DEBUG"):
            raise
        log = stage.scratch / "dlb" / "traceback.log"
        log.parent.mkdir(exist_ok=True)
        log.write_text(traceback.format_exc(), encoding="utf-8", errors="replace")
        failure = WorkerError(
            f"an answer of its worker could not be used: {one_line(error)}",
            adapter=stage.adapter,
            log=log,
        )
        _keep_failures(stage, run, failure)


def _keep_failures(stage: Stage, run: AdapterRun, error: DlbError | None) -> None:
    """Keep the error that ended a run, and the workers' output that errors and findings point to."""
    if error is None and not any(map(names_log, run.checks)):
        return
    copies = keep_output(stage.scratch, stage.request.out, stage.adapter)
    run.checks = [with_kept_logs(result, copies) for result in run.checks]
    if error is not None:
        error.log = copies.get(error.log, error.log)
        run.failure = failure_of(error)


def _run_in_one_worker(stage: Stage, run: AdapterRun, given_workers: Workers | None) -> None:
    """Prove in float64; then build, train, test and export the timed model, all in one process.

    Where fewer cores are free than the timed model has threads, what is proven of other models is proven in a
    second process that has fewer.
    """
    began, request = time.monotonic(), stage.request
    threads = request.threads
    if request.command != "verify" and request.device == "cpu" and not request.proven:
        threads = min(threads, free_cores())
    apart = given_workers is None and threads < request.threads
    with (
        nullcontext(given_workers) if given_workers else stage.start("timed") as timed,
        stage.start("proof", threads=threads) if apart else nullcontext(timed) as workers,
    ):
        adapter = _check_adapter(stage, run, timed)
        no_masks = missing_masks(stage, adapter.features)
        if request.proven:
            audit = _measure(stage, run, timed, adapter)
            _audit(stage, timed.group, audit, began, no_masks)
            return
        model, run.gradients = prove_model(stage, workers.group, training=no_masks is None)
        model.drop()
        run.changes, run.diverged = prove_steps(stage, workers.group, training=no_masks is None)
        audit = _measure(stage, run, timed, adapter)
        _audit(stage, timed.group, audit, began, no_masks)
        _prove_rounding(stage, run, workers.group, no_masks)


def _run_with_strategy(stage: Stage, run: AdapterRun) -> None:
    """Run the same stages with a strategy.

    Processes that train together hold one model at a time. So models that only the proof needs are built
    in other processes.
    """
    began = time.monotonic()
    if stage.request.proven:
        with stage.start("timed") as workers:
            adapter = _check_adapter(stage, run, workers)
            no_masks = missing_masks(stage, adapter.features)
            synchronous, shared = is_synchronous(stage, workers)
            audit = _measure(stage, run, workers, adapter)
        with stage.start("single", single=True) as workers:
            _audit(stage, workers.group, audit, began, no_masks, synchronous and not shared)
        return
    steps: StepsTaken | ScheduleTaken | None = None
    with stage.start("distributed") as workers:
        adapter = _check_adapter(stage, run, workers)
        no_masks = missing_masks(stage, adapter.features)
        model, run.gradients = prove_model(stage, workers.group, training=no_masks is None)
        synchronous, shared = is_synchronous(stage, workers)
        reason = no_masks
        if not synchronous:
            reason = Finding(cause=Asynchronous(strategy=stage.request.strategy))
        if reason is not None:
            stage.keep(Check.of("distributed", stage.adapter).not_run(reason))
        if no_masks is None and synchronous:
            steps = train_few_steps(stage, model)
        elif no_masks is None and shared:
            steps = take_few_parts(stage, model)
    with stage.start("timed") as workers:
        audit = _measure(stage, run, workers, adapter)
    with stage.start("single", single=True) as workers:
        if isinstance(steps, StepsTaken):
            compare_with_single_worker(stage, workers.group, steps)
        elif steps is not None:
            compare_with_schedule(stage, workers, steps)
        run.changes, diverged = prove_steps(stage, workers.group, training=no_masks is None)
        run.diverged = run.diverged or diverged
        _audit(stage, workers.group, audit, began, no_masks, synchronous and not shared)
        _prove_rounding(stage, run, workers.group, no_masks)


def _check_adapter(stage: Stage, run: AdapterRun, workers: Workers) -> Capabilities:
    """Keep what the framework reports about itself, and check its capabilities.

    Raises:
        UnsupportedError: the adapter cannot run the request.
    """
    request, facts = stage.request, workers.facts
    run.facts, run.version = facts, f"{facts['framework']} {facts['version']}"
    adapter = capabilities_of(workers.described, stage.adapter)
    run.deviations = adapter.deviations
    check_capabilities(
        adapter,
        request.workload,
        dtype=request.dtype,
        device=request.device,
        variant=request.variant(stage.adapter),
        crops=stage.prepared.data.crops is not None,
    )
    if len(set(request.shares)) > 1:
        check_unequal_shares(adapter, workers.described, request)
    return adapter


def _measure(
    stage: Stage, run: AdapterRun, workers: Workers, adapter: Capabilities
) -> Audit | None:
    """Time, test and export the model that is measured.

    Returns:
        what was kept for the audit; None if no group was asked for that needs the model.
    """
    groups = stage.request.groups
    if not groups & TIMED_GROUPS:
        return None
    timed = time_training(stage, workers, adapter.features)
    diverged = find_divergence(stage, timed.losses.tolist())
    run.diverged = diverged or run.diverged
    run.timing, run.observed = timed.timing, timed.observed
    if stage.request.trial_draws is None:
        run.quality = test_model(stage, timed, finite=diverged is None)
    else:
        run.phases = time_phases(stage, timed)
    if groups & {"structure", "export"} and diverged is not None:
        refuse_export(stage.adapter, Finding(cause=TrainedNotFinite()), stage.keep)
    elif groups & {"structure", "export"}:
        diverges = run.diverged is not None
        run.exported = export_model(stage, timed, adapter.features, diverges=diverges)
    if not stage.request.strategy:
        timed.model.drop()
    return timed.audit if diverged is None else timed.audit.before(diverged.step)


def _audit(
    stage: Stage,
    group: Group,
    audit: Audit | None,
    began: float,
    no_masks: Finding | None,
    synchronous: bool = True,
) -> None:
    """Judge the audited steps of the timed run."""
    if audit is None or "audit" not in stage.request.groups:
        return
    if no_masks is not None:
        refuse_audit(stage, no_masks)
        return
    if not audit.audited:  # the loss of the first step is not finite
        refuse_audit(stage, Finding(cause=TrainedNotFinite()))
        return
    judge(stage, group, audit, began, synchronous)


def _prove_rounding(stage: Stage, run: AdapterRun, group: Group, no_masks: Finding | None) -> None:
    """Prove models in float32 in one worker, and calibrate the first adapter."""
    request = stage.request
    if no_masks is not None:
        refuse_training(stage, no_masks)
        if request.dtype == "float32":
            prove_native_dropout(stage, group, "float32")
        return
    if request.dtype == "float32" and "float32" in request.groups:
        run.float32 = prove_float32(stage, group, run.changes)
    # A single adapter is calibrated even if a check failed: its perturbed trajectories are shown.
    may_calibrate = run.independently_correct or len(request.environments) == 1
    if stage.environment == request.environments[0] and may_calibrate:
        run.calibration = calibrate(stage, group, run.changes, run.float32)
