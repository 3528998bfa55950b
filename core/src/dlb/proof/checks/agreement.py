"""``gradients`` and ``trajectories``: adapters compared with each other, as far as rounding allows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping

import msgspec
import numpy as np

from dlb.proof.certificate import Baseline, CheckGroup, CheckResult
from dlb.proof.distance import figure, relative_l2, worst_first
from dlb.proof.engine import Check
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.common import StepsCompared
from dlb.proof.findings.workload import RoundingGrows
from dlb.proof.tolerances import FLOAT64_TOLERANCE, SMALL, STEP_SCALE, Tensors, norm_floor

__all__ = ["check_agreement", "comparable_steps", "error_growth", "largest_agreed_distance"]


def error_growth(changes: Tensors, perturbed: Tensors) -> float:
    """The largest distance of any tensor between the changes of two trajectories of one adapter.

    :func:`check_agreement` measures the same distance between adapters.

    Args:
        changes: changes of the plain trajectory, by ``layer.parameter``.
        perturbed: changes of the perturbed trajectory; it has at least the tensors of ``changes``.
    """
    least = norm_floor(changes, SMALL)
    return max(
        (relative_l2(perturbed[name], changes[name], least) for name in changes), default=0.0
    )


def comparable_steps(
    steps: Collection[int], growth: Mapping[int, float], apart: float = 0.0
) -> tuple[int, Finding]:
    """After how many steps trajectories can be compared, and the finding that says so.

    Args:
        steps: numbers of steps after which changes were kept.
        growth: error growth by number of steps, for steps longer by :data:`STEP_SCALE`; empty if unknown.
        apart: the largest distance between gradients that agree; it grows in the same way.
    """
    requested, factor = max(steps), max(1.0, apart / STEP_SCALE)
    near = [step for step in steps if factor * growth.get(step, 0.0) <= FLOAT64_TOLERANCE]
    chosen = max(near, default=min(steps))
    if chosen == requested:
        return chosen, Finding(cause=StepsCompared(steps=chosen))
    cause = RoundingGrows(
        steps=chosen,
        asked=requested,
        step_scale=STEP_SCALE,
        error_growth=growth[requested] if math.isfinite(growth[requested]) else None,
        gradients_apart=apart if factor > 1.0 else None,
    )
    return chosen, Finding(cause=cause)


def largest_agreed_distance(results: Collection[CheckResult]) -> float:
    """The largest distance between gradients of adapters whose gradients agree."""
    agreeing = [item for result in results if result.verdict == "passed" for item in result.figures]
    return max((item.relative_l2 or 0.0 for item in agreeing), default=0.0)


def check_agreement(
    check: str,
    group: CheckGroup,
    tensors: Mapping[str, Tensors],
    independently_correct: Collection[str],
    *findings: Finding,
) -> list[CheckResult]:
    """Compare the tensors of every adapter with those of the other adapters, in float64.

    An adapter's figure for a tensor is its median distance to the others. So one wrong adapter among three
    or more does not make the others fail. An adapter without others to compare with gets no result.

    Args:
        tensors: ``loss``, ``input`` and parameter gradients, or changes, by adapter.
        independently_correct: adapters that passed their own checks; others are compared with these only.
        findings: facts about the comparison, added to every result.
    """
    results = []
    least = {adapter: norm_floor(own_tensors, SMALL) for adapter, own_tensors in tensors.items()}
    for adapter, own_tensors in tensors.items():
        peers = {
            peer: peer_tensors
            for peer, peer_tensors in tensors.items()
            if peer != adapter and peer in independently_correct
        }
        if not peers:
            continue
        collected: list[Figure] = []
        for tensor, array in own_tensors.items():
            distances = [
                relative_l2(array, peer_tensors.get(tensor, np.full(1, np.nan)), least[peer])
                for peer, peer_tensors in peers.items()
            ]
            median = statistics.median_low(distances)
            nearest = min(peers, key=lambda peer: abs(distances[list(peers).index(peer)] - median))
            counterpart = peers[nearest].get(tensor, np.full(1, np.nan))
            compared = figure(tensor, array, counterpart, least[adapter])
            finite = median if np.isfinite(median) else None
            collected.append(msgspec.structs.replace(compared, relative_l2=finite))
        ordered = worst_first(collected)
        baseline = Baseline(kind="adapters", names=tuple(peers), float64=True)
        judged = Check(check, group, adapter, baseline)
        results.append(judged.result(ordered, FLOAT64_TOLERANCE, findings))
    return results
