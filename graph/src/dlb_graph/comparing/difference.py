"""One difference between two graphs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Difference"]


@dataclass(frozen=True)
class Difference:
    """A difference between a canonical and an exported graph.

    Attributes:
        layer: the canonical layer; empty if there is none.
        node: the exported node that was compared with it; empty if there is none.
        what: ``operator``, or the attribute that differs.
        expected, found: the value in the canonical and in the exported graph.
    """

    layer: str
    node: str
    what: str
    expected: str
    found: str

    def __str__(self) -> str:
        where = f"layer '{self.layer}'" if self.layer else f"exported node '{self.node}'"
        return f"{where}: {self.what}: expected {self.expected}, found {self.found}"
