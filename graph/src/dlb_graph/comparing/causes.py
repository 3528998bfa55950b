"""What every finding is made of: distances, layers and the base of causes."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import msgspec

__all__ = ["LISTED", "Cause", "Figure", "LayerFacts", "Part", "shape_of"]

Shape = tuple[int, ...]
#: How many of many things a finding lists.
LISTED = 6


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: immutable; unknown fields are refused."""


class Figure(Part, frozen=True, kw_only=True):
    """The distance of one tensor from what it is compared with.

    Attributes:
        tensor: its canonical name, a layer's name, ``loss``, ``input``, ``logits``.
        relative_l2: see :func:`dlb_graph.comparing.distance.relative_l2`; null stands for infinity.
        largest: largest absolute difference; null stands for infinity.
        ulp: largest difference in units of the last place of what is expected, in the type of the
            compared tensor; null stands for infinity, and where no numbers were compared.
    """

    tensor: str
    relative_l2: float | None
    largest: float | None
    ulp: float | None = None

    @property
    def distance(self) -> float:
        """``relative_l2``, as a number."""
        return math.inf if self.relative_l2 is None else self.relative_l2


class LayerFacts(Part, frozen=True, kw_only=True, omit_defaults=True):
    """A layer, or a node of an ONNX file.

    Attributes:
        name: its name in the model; empty for a model itself.
        kind: the layer type of :mod:`dlb_graph.workload`, or the ONNX operator.
        type: the framework's name of its type, of a user's model.
        attributes: as they are described: by the workload, by the framework, or in the file.
        built: what the framework says of the layer that it built.
        owner: the model or file that it belongs to, where two are compared.
        momentum: of a normalisation of a user's model, the part of its running statistics that a step keeps.
    """

    name: str
    kind: str = ""
    type: str = ""
    attributes: dict[str, Any] = {}
    built: str = ""
    owner: str = ""
    momentum: float | None = None


def _code(name: str) -> str:
    """``ShapeMismatch`` as ``shape_mismatch``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]


class Cause(Part, frozen=True, kw_only=True, omit_defaults=True, tag_field="code", tag=_code):
    """Base of causes: each has a code and fields of its own, and no sentences.

    Attributes:
        locates: whether it says where a difference is, without a layer.
        aside: of what was set aside, replaced, rounded or fixed in order to compare: what shows that it hides
            nothing. ``checked``: a check that was run; ``rounding``: that it is no more than rounding.
    """

    locates: ClassVar[bool] = False
    aside: ClassVar[Literal["", "checked", "rounding"]] = ""


def shape_of(array: Any) -> Shape | None:
    """The shape of an array as a finding holds it; None of what is not there."""
    return None if array is None else tuple(int(size) for size in array.shape)
