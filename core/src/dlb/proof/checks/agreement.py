"""``gradients`` and ``trajectories``: adapters compared with each other, as far as rounding allows."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping

import msgspec
import numpy as np

from dlb.proof.certificate import CheckResult
from dlb.proof.engine import Check
from dlb.proof.findings import Figure, Finding
from dlb_graph.comparing.distance import figure, relative_l2, worst_first
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE, SMALL, Tensors, norm_floor

__all__ = ["check_agreement", "largest_agreed_distance"]


def largest_agreed_distance(results: Collection[CheckResult]) -> float:
    """The largest distance between gradients of adapters whose gradients agree."""
    agreeing = [item for result in results if result.verdict == "passed" for item in result.figures]
    return max((item.relative_l2 or 0.0 for item in agreeing), default=0.0)


def check_agreement(
    name: str,
    tensors: Mapping[str, Tensors],
    independently_correct: Collection[str],
    *findings: Finding,
) -> list[CheckResult]:
    """Compare the tensors of every adapter with those of the other adapters, in float64.

    An adapter's figure for a tensor is its median distance to the others. So one wrong adapter among three
    or more does not make the others fail. An adapter without others to compare with gets no result.

    Args:
        name: of the check.
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
        check = Check.of(name, adapter, *peers)
        results.append(check.result(ordered, FLOAT64_TOLERANCE, findings))
    return results
