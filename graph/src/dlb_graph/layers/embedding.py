"""Tables of rows: by index, and by place."""

from __future__ import annotations

from dlb_graph.layers.base import Gradients, Graph, Layer, Pass, Shape, check_rank
from dlb_graph.layers.initializers import Initializer
from dlb_graph.layers.numbers import Array, np

__all__ = ["Embedding", "PositionEmbedding"]


class Embedding(Layer, tag="embedding", kw_only=True, frozen=True):
    """Rows of a table by integer index, ONNX Gather on axis 0: [N, T] to [N, T, features].

    Parameters: ``weight`` [entries, features].
    """

    entries: int
    features: int
    init: Initializer = "glorot_uniform"

    looks_up = True
    linear_roles = ("weight",)
    growing_roles = ("weight",)
    summand = "weight"
    mistakes = "the table's order, or an index that is shifted or masked"

    def output_shape(self, inputs: list[Shape]) -> Shape:
        check_rank(inputs[0], 1)
        return (*inputs[0], self.features)

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        return {"weight": (self.entries, self.features)}

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        graph.node("Gather", [f"{name}.weight", *inputs], name, axis=0)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        gradient = np.zeros(read.parameters["weight"].shape, cotangent.dtype)
        np.add.at(gradient, read.input.reshape(-1), cotangent.reshape(-1, cotangent.shape[-1]))
        return (None,), {"weight": gradient}


class PositionEmbedding(Layer, tag="position_embedding", kw_only=True, frozen=True):
    """A learned table added to every sequence [N, T, features], ONNX Add.

    Parameters: ``weight`` [T, features].
    """

    init: Initializer = "glorot_uniform"

    ranks = (2,)
    operator = "Add"
    keeps_means = True
    elementwise = True
    mistakes = "positions that are shifted, or a table that is scaled"

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        return {"weight": shape}

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        return (cotangent,), {"weight": cotangent.sum(axis=0)}
