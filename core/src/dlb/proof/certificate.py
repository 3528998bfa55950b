"""The certificate: what was compared with what, how far apart they were, and what follows.

One JSON document, by itself (``dlb verify --certificate``) or in a run's record.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import msgspec

from dlb import documents
from dlb.errors import RecordError, RequestError

__all__ = [
    "FORMAT",
    "LEVELS",
    "Certificate",
    "Divergence",
    "Figure",
    "Level",
    "Rung",
    "Verdict",
    "Word",
    "check_destination",
    "make_schema",
    "read",
    "schema",
    "with_variant",
    "write",
]

#: Version of the certificate's document.
FORMAT = 1

Verdict = Literal["passed", "failed", "not run"]
#: What a rung is about; ``dlb verify --level`` asks for some of them. In the order of climbing.
Level = Literal[
    "file",
    "weights",
    "forward",
    "layers",
    "gradients",
    "update",
    "trajectory",
    "float32",
    "structure",
    "export",
    "distributed",
]
#: The levels that a workload alone on every adapter is proven by.
LEVELS: tuple[Level, ...] = tuple(
    one for one in get_args(Level) if one not in ("file", "distributed")
)
#: What a result is called wherever it is shown.
Word = Literal["proven", "deviates", "unproven"]


class Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The distance of one tensor from what it is held against.

    Attributes:
        tensor: its canonical name, a layer's name, ``loss``, ``input``, ``logits``.
        relative_l2: see :func:`dlb.proof.distance.relative_l2`; null stands for infinity.
        largest: largest absolute difference; null stands for infinity.
        ulp: largest difference in units of the last place of what is expected, in the type of what
            was found; null stands for infinity, and where no numbers were compared.
    """

    tensor: str
    relative_l2: float | None
    largest: float | None
    ulp: float | None = None


class Rung(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One comparison for one adapter.

    Attributes:
        name: of the rung, e.g. ``forward float64``.
        level: what it is about.
        adapter: whose model was compared.
        against: what it was held against.
        verdict: ``not run`` never counts as passed.
        gate: the largest relative L2 distance that passes; null where bits or graphs must agree.
        figures: every tensor's, worst first: the largest, or where the gate is not one for all
            tensors, the one that is most of its own gate, which is the rung's.
        detail: what differs, or why it was not run.
        seconds: what it cost.
    """

    name: str
    level: Level
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


class Divergence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far an adapter's float32 trajectory strays from its float64 one. It is no verdict.

    Distances are relative L2, over all parameters together, to what the float64 steps changed; null
    stands for infinity.

    Attributes:
        adapter: whose.
        steps: after which the weights were looked at.
        distances: of the float32 trajectory from the float64 one, after each.
        perturbed: of float32 trajectories that start one unit in the last place beside, from the
            float32 one, a row each. Of one adapter alone: the band that the others are seen in.
    """

    adapter: str
    steps: tuple[int, ...]
    distances: tuple[float | None, ...]
    perturbed: tuple[tuple[float | None, ...], ...] = ()


class Certificate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that was compared for one workload.

    Attributes:
        workload, workload_hash, seed: what was compared, and the weights it started from.
        adapters: framework and version, by adapter.
        rungs: every comparison.
        variants: choices of adapters that are not at their default, by adapter.
        deviations: what adapters declare to do differently, by adapter.
        failures: what ended an adapter's run before its rungs were all climbed, by adapter.
        left_out: levels that were not asked for. What is proven is proven at every level.
        divergences: of float32 trajectories, shown and not judged.
        format: version of this document.
    """

    workload: str
    workload_hash: str
    seed: int
    adapters: dict[str, str]
    rungs: tuple[Rung, ...]
    variants: dict[str, dict[str, str]] = {}
    deviations: dict[str, tuple[str, ...]] = {}
    failures: dict[str, str] = {}
    left_out: tuple[Level, ...] = ()
    divergences: tuple[Divergence, ...] = ()
    format: int = FORMAT

    def of(self, adapter: str) -> tuple[Rung, ...]:
        """The rungs of one adapter, in order."""
        return tuple(rung for rung in self.rungs if rung.adapter == adapter)

    def title(self, adapter: str) -> str:
        """An adapter with its variant, as it is shown: ``torch (compile=inductor)``."""
        return with_variant(adapter, self.variants.get(adapter, {}))

    @property
    def judged(self) -> tuple[str, ...]:
        """Adapters that there are rungs of, or whose runs failed, in order."""
        climbed = {rung.adapter for rung in self.rungs}
        return tuple(one for one in self.adapters if one in climbed or one in self.failures)

    def word(self, adapter: str) -> Word:
        """One failed rung makes it ``deviates``; one not run, none at all, a level left out, or a
        run that failed, ``unproven``."""
        if any(rung.verdict == "failed" for rung in self.of(adapter)):
            return "deviates"
        return "proven" if self.holds(adapter) and not self.left_out else "unproven"

    def holds(self, adapter: str) -> bool:
        """Whether every rung that was asked for was climbed, and passed."""
        if adapter in self.failures:
            return False
        return {rung.verdict for rung in self.of(adapter)} == {"passed"}


def with_variant(adapter: str, variant: Mapping[str, str]) -> str:
    """An adapter's name, and its choices that are not at their default."""
    chosen = ", ".join(f"{name}={value}" for name, value in variant.items())
    return f"{adapter} ({chosen})" if chosen else adapter


def check_destination(path: Path | None) -> None:
    """Raises RequestError, before any work, for a path that no certificate could be written to."""
    if path is not None and not path.absolute().parent.is_dir():
        raise RequestError(f"--certificate {path}: there is no folder {path.parent}; make it first")


def write(certificate: Certificate, path: Path) -> None:
    """Write a certificate, whole or not at all.

    Raises:
        RecordError: it cannot be written; what was there before is as it was.
    """
    try:
        documents.write_atomically(path, documents.encode(certificate))
    except OSError as error:
        raise RecordError(
            f"cannot write {path}: {error.strerror or error}; give another path"
        ) from None


def read(path: Path) -> Certificate:
    """Read a certificate and check it against its form.

    Raises:
        RecordError: it cannot be read, is not a certificate, or is of a later format.
    """
    return documents.read(path, Certificate, "certificate", FORMAT)


def schema() -> bytes:
    """JSON Schema (2020-12) of a certificate, as shipped."""
    return documents.shipped_schema("certificate", FORMAT)


def make_schema() -> bytes:
    """The schema that follows from :class:`Certificate`; the shipped one is made from it."""
    return documents.make_schema(Certificate, f"dlb certificate, format {FORMAT}")
