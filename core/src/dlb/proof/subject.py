"""A subject of a proof, and what it holds next to what it should hold.

A subject is a model that an adapter built, a model that a user wrote, or an ONNX file. Each is made with its
reference: the canonical graph, another user's model, or another file. It gives both sides of a comparison by
the same names and in the same layout, so that one function, :func:`dlb.proof.engine.judge`, compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from dlb.proof.check_table import Ability
from dlb.proof.findings import Figure, Finding
from dlb_graph.comparing.tolerances import Tensors

__all__ = ["Sides", "Subject"]


@dataclass(frozen=True)
class Sides:
    """Tensors of a subject, and those that are expected.

    Attributes:
        actual, expected: by the same names. If ``tolerance`` is None, every bit must agree.
        figures: distances that were computed already, of further tensors.
        tolerance: the largest distance that passes.
        faults: what differs, apart from numbers.
        doubts: why the comparison says nothing, unless something differs.
        facts: about the comparison.
        locate: says where figures, worst first, are past the tolerance.
        by_figures: whether figures decide; if not, only faults do, and figures show how far they go.
    """

    actual: Tensors = field(default_factory=dict)
    expected: Tensors = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    tolerance: float | None = None
    faults: tuple[Finding, ...] = ()
    doubts: tuple[Finding, ...] = ()
    facts: tuple[Finding, ...] = ()
    locate: Callable[[tuple[Figure, ...]], tuple[Finding, ...]] = lambda compared: ()
    by_figures: bool = True


class Subject(Protocol):
    """A model or a file, with its reference.

    Attributes:
        name: of the adapter, the model or the file.
        references: names of what it is compared with; empty if that is the truth.
        abilities: what it can do; a check that needs more does not apply to it.
        compares: what the subject gives for a check, by the check's name. Each computes both sides.
    """

    name: str
    references: tuple[str, ...]

    @property
    def abilities(self) -> frozenset[Ability]: ...

    @property
    def compares(self) -> Mapping[str, Callable[[], Sides]]: ...
