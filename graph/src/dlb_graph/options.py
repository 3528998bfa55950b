"""What a user chooses of an ONNX file that leaves something open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlb_graph.arguments import check_values

__all__ = ["AS_IT_IS", "Reading"]


@dataclass(frozen=True)
class Reading:
    """What a user chose.

    Attributes:
        sizes: of axes that the file leaves open, by name; ``INPUT:AXIS`` names any, from 0.
        constants: inputs that hold one number everywhere, such as a mask of ones, and values that nodes
            compute and that are one number for every input of interest, such as whether a token is padding.
        output: that the loss reads; empty if the file has one.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)
    output: str = ""

    def __post_init__(self) -> None:
        check_values(Reading, vars(self))

    @property
    def chosen(self) -> bool:
        """Whether anything was."""
        return bool(self.sizes or self.constants or self.output)


AS_IT_IS = Reading()
