"""The certificate: what was compared with what, how far apart they were, and what follows."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Certificate", "Figure", "Rung", "Verdict", "Word"]

Verdict = Literal["passed", "failed", "not run"]
#: What a result is called wherever it is shown.
Word = Literal["proven", "deviates", "unproven"]


class Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The distance of one tensor from what it is held against.

    Attributes:
        tensor: its canonical name, a layer's name, ``loss``, ``input``, ``logits``.
        relative_l2: see :func:`dlb.proof.distance.relative_l2`; null stands for infinity.
        largest: largest absolute difference; null stands for infinity.
    """

    tensor: str
    relative_l2: float | None
    largest: float | None


class Rung(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One comparison for one adapter.

    Attributes:
        name: of the rung, e.g. ``forward float64``.
        adapter: whose model was compared.
        against: what it was held against.
        verdict: ``not run`` never counts as passed.
        gate: the largest relative L2 distance that passes; null where bits or graphs must agree.
        figures: every tensor's, worst first.
        detail: what differs, or why it was not run.
        seconds: what it cost.
    """

    name: str
    adapter: str
    against: str
    verdict: Verdict
    gate: float | None = None
    figures: tuple[Figure, ...] = ()
    detail: str = ""
    seconds: float = 0.0

    @property
    def worst(self) -> Figure | None:
        """The figure of the tensor furthest away."""
        return self.figures[0] if self.figures else None


class Certificate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that was compared for one workload.

    Attributes:
        workload, workload_hash, seed: what was compared, and the weights it started from.
        adapters: framework and version, by adapter.
        rungs: every comparison.
        deviations: what adapters declare to do differently, by adapter.
    """

    workload: str
    workload_hash: str
    seed: int
    adapters: dict[str, str]
    rungs: tuple[Rung, ...]
    deviations: dict[str, tuple[str, ...]] = {}

    def of(self, adapter: str) -> tuple[Rung, ...]:
        """The rungs of one adapter, in order."""
        return tuple(rung for rung in self.rungs if rung.adapter == adapter)

    def word(self, adapter: str) -> Word:
        """One failed rung makes it ``deviates``; one not run, or none at all, ``unproven``."""
        verdicts = {rung.verdict for rung in self.of(adapter)}
        if "failed" in verdicts:
            return "deviates"
        return "proven" if verdicts == {"passed"} else "unproven"
