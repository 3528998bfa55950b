"""A user's model, in canonical layout whatever order of the axes it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from dlb.proof.distance import figures, passes
from dlb.proof.findings import Finding
from dlb.proof.findings.port import DrawsRandom
from dlb.proof.port.inputs import LAYOUTS, as_read, from_read
from dlb.proof.port.layer_events import Side
from dlb.proof.tolerances import FLOAT64_TOLERANCE
from dlb.supervision.user_model import RemoteUserModel
from dlb_worker.contract import ForwardPass, Gradients

__all__ = ["Model"]

Array = npt.NDArray[Any]


class Model:
    """A model that was taken in, with how its input and output lie.

    Attributes:
        calls: names of layers in the order in which they are called.
        leave: parameters that are not carried.
    """

    def __init__(
        self, remote: RemoteUserModel, reads: str = "", gives: str = "", leave: Sequence[str] = ()
    ) -> None:
        self.remote = remote
        self.name = remote.name
        self.reads, self.gives = reads, gives
        self.leave = tuple(leave)
        self.calls: list[str] = []

    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        """One pass on a canonical input; outputs canonical."""
        read = as_read(inputs, self.reads, self.name)
        trace = self.remote.forward(read, training=training, layers=layers)
        return ForwardPass(tuple(from_read(one, self.gives) for one in trace.outputs), trace.calls)

    def gradients(self, inputs: Array, cotangents: Sequence[Array], training: bool) -> Gradients:
        """Gradients of parameters, and of the canonical input; states as the passes left them."""
        given = [
            as_read(one, self.gives, self.name) if one.ndim == _axes(self.gives) else one
            for one in cotangents
        ]
        read = as_read(inputs, self.reads, self.name)
        found = self.remote.vjp(read, given, training=training)
        if found.inputs is None:
            return found
        return replace(found, inputs=from_read(found.inputs, self.reads))

    def drawing(self, inputs: Array) -> Finding | None:
        """Where two passes in training mode differ first; None if they do not."""
        leaves = [name for name in self.remote.layers if name]
        first, second = (self.forward(inputs, training=True, layers=leaves) for _ in range(2))
        if not _differ(first.outputs, second.outputs):
            return None
        layers = [
            one.layer
            for one, two in zip(first.calls, second.calls)
            if one.output is not None
            and two.output is not None
            and _differ([one.output], [two.output])
        ]
        layer = Side(self.name, self.remote.layers, first).facts(layers[0]) if layers else None
        return Finding(cause=DrawsRandom(model=self.name, layer=layer))


def _axes(word: str) -> int:
    return len(LAYOUTS.get(word, ()))


def _differ(some: Sequence[Array], others: Sequence[Array]) -> bool:
    found = figures(dict(enumerate(some)), dict(enumerate(others)))  # type: ignore[arg-type]
    return not passes(found, FLOAT64_TOLERANCE)
