"""Dropout."""

from __future__ import annotations

from typing import Any

from dlb_graph.layers.base import Gradients, Graph, Layer, Pass, Shape
from dlb_graph.layers.numbers import Array

__all__ = ["Dropout"]


class Dropout(Layer, tag="dropout", kw_only=True, frozen=True):
    """Dropout, ONNX Dropout. In training, it zeroes elements with probability ``rate`` and scales the
    others by 1 / (1 - rate); otherwise it is the identity. In proofs, dlb supplies the mask."""

    rate: float = 0.5

    constant_numbers = True
    homogeneous = True
    keeps_means = True
    elementwise = True
    mistakes = "dropout that acts in evaluation, or scales where it should not"
    training_mistakes = (
        "the rate taken for the part that is kept, no scaling by 1 / (1 - rate), or a mask "
        "that is drawn again where one was given"
    )

    def field_fault(self, name: str, value: Any) -> str:
        return "" if 0 <= value < 1 else f"rate = {value} must be in [0, 1)"

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        if graph.training and name in graph.masks:
            mask = graph.initializer(f"{name}/mask", graph.masks[name])
            keep_rate = graph.initializer(f"{name}/kept", 1 - self.rate)
            masked = graph.node("Mul", [*inputs, mask], f"{name}/masked")
            graph.node("Div", [masked, keep_rate], name)
            return
        rate = 0.0 if graph.training else self.rate
        graph.node("Dropout", [*inputs, graph.initializer(f"{name}/rate", rate)], name)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        if read.mask is None:
            return (cotangent,), {}
        mask = read.mask[: len(cotangent)].astype(cotangent.dtype)
        return (cotangent * mask / cotangent.dtype.type(1 - self.rate),), {}
