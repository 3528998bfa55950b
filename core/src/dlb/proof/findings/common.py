"""Causes that checks of every kind find."""

from __future__ import annotations

from typing import Any, Literal

from dlb.failure import Failure
from dlb_graph.comparing.causes import Cause, Part, Shape

__all__ = [
    "BitsDiffer",
    "CannotRun",
    "FeatureMissing",
    "Missing",
    "NotFinite",
    "ShapeMismatch",
    "StepsCompared",
    "StructureDifference",
    "StructuresDiffer",
]


class ShapeMismatch(Cause, frozen=True, kw_only=True):
    """A tensor has another shape than it should have; null stands for no array at all."""

    found: Shape | None
    expected: Shape | None


class NotFinite(Cause, frozen=True, kw_only=True):
    """A tensor holds a NaN or an infinity."""


class Missing(Cause, frozen=True, kw_only=True):
    """Tensors or values that should be there are not."""

    names: tuple[str, ...]


class BitsDiffer(Cause, frozen=True, kw_only=True):
    """Tensors that should be equal bit for bit are not."""

    tensors: tuple[str, ...]


class StepsCompared(Cause, frozen=True, kw_only=True):
    """After how many training steps the values were compared: a fact, not a fault."""

    steps: int


class CannotRun(Cause, frozen=True, kw_only=True):
    """A framework, an exporter or an evaluator raised an error, so the check was not run."""

    failure: Failure


class FeatureMissing(Cause, frozen=True, kw_only=True):
    """The adapter lacks a feature that the check needs.

    Attributes:
        feature: of the features that an adapter describes.
        because: what of the workload asks for it: layer names, for ``masks`` the dropouts.
    """

    feature: str
    because: tuple[str, ...] = ()


class StructureDifference(Part, frozen=True, kw_only=True):
    """One thing in which two graphs differ.

    Attributes:
        layer: of the first graph; empty where it has none.
        node: of the second graph; empty where it has none.
        what: ``operator``, or the attribute.
        expected, found: what the first and the second graph have.
    """

    layer: str
    node: str
    what: str
    expected: str
    found: str

    @classmethod
    def of(cls, difference: Any) -> StructureDifference:
        """The same of a :class:`dlb_graph.structure.structure.Difference`."""
        return cls(**{name: getattr(difference, name) for name in cls.__struct_fields__})


class StructuresDiffer(Cause, frozen=True, kw_only=True):
    """Two graphs are made of other operators.

    Attributes:
        differences: the first of them.
        more: how many further ones there are.
        decided_by: ``structure`` where that is the verdict; ``values`` where all that differs is
            analytic, so that equal values on noise decide; ``nothing`` where they cannot.
        undecided: nodes that values on noise cannot decide about.
    """

    locates = True

    differences: tuple[StructureDifference, ...]
    more: int = 0
    decided_by: Literal["structure", "values", "nothing"] = "structure"
    undecided: tuple[str, ...] = ()
