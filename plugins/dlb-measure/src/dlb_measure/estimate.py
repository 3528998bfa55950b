"""How long a sweep will take, and how much memory its cells need, before anything is run.

Where the results folder has a record of a like run, its times are used. Else they follow from the number of
multiply-adds, which can be wrong by several times; whoever shows an estimate says which it is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dlb import record
from dlb.errors import RecordError
from dlb.execution import kept_proofs
from dlb.prepared import proof_batch
from dlb.provenance import available_cores
from dlb.record import StoredRecord
from dlb.request import Request
from dlb_graph.workload import Model, infer_shapes, multiply_adds, parameter_shapes, workload_hash
from dlb_measure.measure import TRIAL_SECONDS
from dlb_measure.plan import TRIAL_STEPS, Plan
from dlb_measure.steady import WARMUP_SECONDS

__all__ = ["Estimate", "estimate", "total_seconds"]

#: A framework's start, where no record says how long it takes.
START_SECONDS = 4.0
#: What a run costs beside its start, its proof and its steps: data, test, export, audit.
RUN_SECONDS, AUDIT_SECONDS = 3.0, 1.0
#: A proof costs so many seconds, and passes of NumPy over so many samples for each sample of its batch.
PROOF_SECONDS, PROOF_PASSES = 6.0, 60
#: Of what a matrix product reaches, a layer reaches about this share, where no record says more.
LAYER_SHARE = 0.2
#: Forward and backward pass together, in forward passes.
PASSES = 3
#: Weights, gradients, and what an optimizer keeps, in sizes of the weights.
WEIGHT_COPIES = 3
#: Beside the arrays, a process of a framework has about this many bytes.
PROCESS_BYTES = 200 * 2**20


@dataclass(frozen=True)
class Estimate:
    """What a cell will cost.

    Attributes:
        proof_kept: whether its proof is kept, so that it is not made again.
        run_seconds: its proof and training.
        trial_seconds: one of its trials.
        steps, trial_steps: steps of its run, and of a trial.
        step_seconds: one step.
        memory_bytes: of all its workers: as a record of the same cell has it, else at least this much.
        measured: whether the times are those of a record.
    """

    proof_kept: bool
    run_seconds: float
    trial_seconds: float
    steps: int
    trial_steps: int
    step_seconds: float
    memory_bytes: int
    measured: bool


def total_seconds(estimates: Sequence[Estimate], plan: Plan | None) -> float:
    """Seconds of a whole sweep."""
    runs = math.fsum(each.run_seconds for each in estimates)
    if plan is None or not estimates:
        return runs
    trials = [each.trial_seconds for each in estimates]
    count = plan.rounds * plan.trials_a_round(len(trials))
    rounds = count * math.fsum(trials) / len(trials)
    return runs + (rounds if plan.budget_seconds is None else min(rounds, plan.budget_seconds))


def estimate(
    requests: Sequence[Request], plan: Plan | None, kept: bool | None = None
) -> list[Estimate]:
    """What each request, of one adapter, will cost; all have one folder for results.

    Args:
        kept: whether one proof of all together is kept; None to look for one of each.
    """
    adapters = [request.environments[0].adapter for request in requests]
    out = requests[0].out
    earlier = _earlier(out, set(adapters)) if out is not None else {}
    if kept is None:
        proofs = [kept_proofs.is_kept(key) for key in kept_proofs.proof_keys(requests)]
    else:
        proofs = [kept] * len(requests)
    return [
        _estimate(request, plan, earlier.get(adapter, ()), proof)
        for request, adapter, proof in zip(requests, adapters, proofs)
    ]


def _estimate(
    request: Request, plan: Plan | None, earlier: Sequence[StoredRecord], kept: bool
) -> Estimate:
    like = _most_like(request, earlier)
    if like is not None and like.timing is not None:
        share = request.batch_size / like.options.batch_size
        step, start = like.timing.median * share, like.timing.start_seconds
        start += like.timing.build_seconds
    else:
        step, start = _computed_step(request), START_SECONDS
    proof = (
        0.0 if kept or request.proven else PROOF_SECONDS + _proof_passes(request) / _rate("float64")
    )
    run = start * (1 if kept else 2) + proof + request.steps * step + RUN_SECONDS
    trial_steps = 0
    if plan is not None:
        enough = math.ceil((WARMUP_SECONDS + TRIAL_SECONDS) / step)
        trial_steps = plan.trial_steps or min(request.steps, max(TRIAL_STEPS, enough))
    return Estimate(
        proof_kept=kept,
        run_seconds=run,
        trial_seconds=start + trial_steps * step + AUDIT_SECONDS,
        steps=request.steps,
        trial_steps=trial_steps,
        step_seconds=step,
        memory_bytes=_memory(request, like),
        measured=like is not None,
    )


def _earlier(out: Path, adapters: set[str]) -> Mapping[str, list[StoredRecord]]:
    """Records of the folder that have times, by adapter, the last first."""
    found: dict[str, list[StoredRecord]] = {}
    for path in sorted(out.glob("*.json"), reverse=True)[:1000]:
        if not any(f"-{adapter}-" in path.stem for adapter in adapters):
            continue
        try:
            each = record.read_header(path)
        except RecordError:
            continue
        timed = each.timing is not None and each.timing.median > 0 and each.options.batch_size > 0
        if timed and each.adapter in adapters:
            found.setdefault(each.adapter, []).append(each)
    return found


def _most_like(request: Request, earlier: Sequence[StoredRecord]) -> StoredRecord | None:
    """The record that tells most of a request's times; None if there is none of the model."""
    own = workload_hash(request.workload)

    def distance(each: StoredRecord) -> tuple[bool, bool, bool, float]:
        options = each.options
        return (
            options.threads != request.threads or options.workers != request.workers,
            options.variant != request.variant(each.adapter),
            each.workload_hash != own,
            abs(math.log(options.batch_size / request.batch_size)),
        )

    candidates = [
        each
        for each in earlier
        if each.workload_name == request.workload.name
        and (each.options.device, each.options.dtype) == (request.device, request.dtype)
    ]
    return min(candidates, key=distance, default=None)


def _computed_step(request: Request) -> float:
    """Seconds of a step by the number of multiply-adds."""
    work = PASSES * _work(request.workload.model) * request.batch_size
    # Threads that share a core are no faster; of many, each step waits for the last.
    cores = min(request.threads * request.workers, available_cores())
    return max(1e-4, work / (LAYER_SHARE * _rate("float32") * cores))


def _proof_passes(request: Request) -> float:
    model = request.workload.model
    return PROOF_PASSES * proof_batch(model) * _work(model)


def _memory(request: Request, like: StoredRecord | None) -> int:
    """Bytes of all workers."""
    if like is not None and like.options.batch_size == request.batch_size:
        resources = like.observed.get("resources", {})
        peak = resources.get("memory_peak_bytes")
        if isinstance(peak, int) and like.options.workers == request.workers:
            return peak
    size = 8 if request.dtype == "float64" else 4
    model = request.workload.model
    samples = request.batch_size // request.workers // request.workload.optimizer.accumulate
    each = WEIGHT_COPIES * _parameters(model) + _values(model) * samples
    return request.workers * (PROCESS_BYTES + each * size)


@cache
def _work(model: Model) -> int:
    return max(1, sum(multiply_adds(model).values()))


@cache
def _values(model: Model) -> int:
    return sum(math.prod(shape) for shape in infer_shapes(model).values())


@cache
def _parameters(model: Model) -> int:
    return sum(math.prod(shape) for shape in parameter_shapes(model).values())


@cache
def _rate(dtype: str) -> float:
    """Multiply-adds a second of a matrix product on one core."""
    import numpy as np
    from threadpoolctl import threadpool_limits

    size = 512
    one = np.ones((size, size), dtype)
    with threadpool_limits(1, user_api="blas"):
        one @ one
        best = math.inf
        for _ in range(3):
            begin = time.perf_counter()
            one @ one
            best = min(best, time.perf_counter() - begin)
    return size**3 / best
