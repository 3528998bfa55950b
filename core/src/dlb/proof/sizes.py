"""How many samples and steps the checks of a model take: fewer where a sample costs more.

Every check computes the model in float64 several times, in NumPy too, and a trajectory of 20 steps sixty
times. More samples show nothing that a few do not, but for statistics of a batch, which need more than two.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlb.workload import BatchNorm, Model, multiply_adds

__all__ = ["ProofSizes", "proof_sizes"]


@dataclass(frozen=True)
class ProofSizes:
    """How large the checks of a model are.

    Attributes:
        batch: samples of the forward and gradient checks.
        extremes: samples of the checks at extremes, for which more show nothing more.
        update: samples of each step of the update checks. A step costs a backward pass.
        steps: of the trajectory, unless others are asked for.
    """

    batch: int
    extremes: int
    update: int
    steps: int


_SMALL = ProofSizes(batch=16, extremes=4, update=4, steps=20)
_LARGE = ProofSizes(batch=4, extremes=2, update=4, steps=20)
_LARGEST = ProofSizes(batch=2, extremes=2, update=2, steps=5)
_LARGEST_NORMALISED = ProofSizes(batch=4, extremes=2, update=4, steps=5)
#: Multiply-adds of a sample from which a model is large, and largest.
LARGE, LARGEST = 250_000_000, 2_500_000_000


def proof_sizes(model: Model) -> ProofSizes:
    """How large the checks of a model are."""
    work = sum(multiply_adds(model).values())
    if work <= LARGE:
        return _SMALL
    if work <= LARGEST:
        return _LARGE
    normalised = any(isinstance(node.layer, BatchNorm) for node in model.nodes)
    return _LARGEST_NORMALISED if normalised else _LARGEST
