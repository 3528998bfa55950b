"""What is recognised in a trace: layers that several operators are, and linear layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dlb_graph.layers.numbers import Array
from dlb_graph.truth.trace import Trace

__all__ = ["Block", "LinearOutput", "Recognised"]


@dataclass(frozen=True)
class Block:
    """Operators that together are a layer.

    Attributes:
        kind, attributes: of the operation that they are.
        inputs: names of the values that they read.
        nominal_values: exact values of the formula's constants, by name; a file keeps them rounded.
        weights: of a normalisation, ``scale`` and ``bias`` [features]; of a PReLU, ``slope`` [1, ...] of
            each number; of a GELU, ``scale`` with C numbers along an axis if an exporter merged the scale
            of a later batch normalisation.
        sources: of a normalisation, for each weight the constant that it is; "" for ones and zeros.
        table: [T, features], added to every sequence that a normalisation outputs; it includes the
            normalisation's bias.
        index_map: of GELU, a group normalisation and attention, int64 in the shape of the output: where
            each number lies in GELU's input, in the normalised [N, C, places], or in the joined outputs
            of the heads, [N, T, features].
        channels_last: of a group normalisation, whether its input has its channels last.
        intermediates: of functions and of attention, names of the values in between.
        linear_parts: of attention, by name, for each input that is part of a linear layer's output,
            int64 in its shape: where each number lies in [N, T, features].
    """

    kind: str
    attributes: dict[str, Any]
    inputs: tuple[str, ...]
    nominal_values: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, Array] = field(default_factory=dict)
    table: Array | None = None
    index_map: Array | None = None
    channels_last: bool = False
    intermediates: tuple[str, ...] = ()
    linear_parts: Mapping[str, Array] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LinearOutput:
    """What a product with a constant matrix computes, or the sum of it and a bias.

    Attributes:
        features: how many numbers each row has.
        biased: whether it is the sum.
    """

    features: int
    biased: bool


@dataclass(frozen=True)
class Recognised:
    """What is recognised in a trace, node by node.

    Attributes:
        blocks: layers that several operators are, by the name of their output.
        nominal_values: exact values, by name, of constants that the file keeps rounded.
        originals: for each value that only repeats or arranges another, the first one in the graph.
        linear: outputs of linear layers, by name.
    """

    trace: Trace
    blocks: dict[str, Block] = field(default_factory=dict)
    nominal_values: dict[str, float | Array] = field(default_factory=dict)
    originals: dict[str, str] = field(default_factory=dict)
    linear: dict[str, LinearOutput] = field(default_factory=dict)

    def original(self, name: str) -> str:
        """The first value in the graph that has the numbers of a value, perhaps in another order."""
        return self.originals.get(name, name)

    def linear_output(self, name: str) -> LinearOutput | None:
        """The linear layer whose output a value has, perhaps in another order; None if there is none."""
        return self.linear.get(self.original(name))
