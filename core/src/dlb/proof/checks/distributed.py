"""``distributed``: several workers compared with one worker."""

from __future__ import annotations

from collections.abc import Sequence

from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.distance import figures, same_bits, worst_first
from dlb.proof.engine import Check
from dlb.proof.findings import Finding
from dlb.proof.findings.workload import WorkersCompared, WorkersDisagree
from dlb.proof.tolerances import FLOAT64_TOLERANCE, Tensors

__all__ = ["check_distributed", "distributed_check"]

SINGLE_WORKER = Baseline(kind="single_worker")


def check_distributed(
    adapter: str,
    workers: int,
    steps: int,
    per_worker_weights: Sequence[Tensors],
    single_worker: Tensors,
) -> CheckResult:
    """Compare the weights of K workers with one worker's, after the same steps on the same global batches.

    Args:
        workers: K.
        per_worker_weights: weights of each worker, by ``layer.parameter``.
        single_worker: weights of the one worker.
    """
    compared = [figures(weights, single_worker) for weights in per_worker_weights]
    ordered = worst_first(item for by_tensor in compared for item in by_tensor)
    first, *peers = per_worker_weights
    apart = [
        name
        for name in single_worker
        if any(not same_bits(weights[name], first[name]) for weights in peers)
    ]
    findings = [Finding(cause=WorkersCompared(workers=workers, steps=steps))]
    if apart:
        findings.insert(0, Finding(cause=WorkersDisagree(tensors=tuple(apart))))
    return distributed_check(adapter).result(ordered, FLOAT64_TOLERANCE, findings)


def distributed_check(adapter: str) -> Check:
    """The check ``distributed`` of an adapter."""
    return Check("distributed", "distributed", adapter, SINGLE_WORKER)
