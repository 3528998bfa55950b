"""A user's model, with inputs and outputs in canonical layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from dlb.proof.distance import figures, passes
from dlb.proof.findings import Finding
from dlb.proof.findings.port import DrawsRandom
from dlb.proof.port.inputs import LAYOUTS, to_canonical_layout, to_model_layout
from dlb.proof.port.layer_events import Side
from dlb.proof.tolerances import FLOAT64_TOLERANCE
from dlb.supervision.user_model import RemoteUserModel
from dlb_worker.contract import ForwardPass, Gradients

__all__ = ["Model"]

Array = npt.NDArray[Any]


class Model:
    """A user's model in its worker, with the layouts of its input and output.

    Attributes:
        remote: the model in its worker.
        input_layout, output_layout: names of :data:`LAYOUTS`; "" is canonical.
        leave: parameters that are not carried.
        calls: names of layers in the order of their calls.
    """

    def __init__(
        self,
        remote: RemoteUserModel,
        input_layout: str = "",
        output_layout: str = "",
        leave: Sequence[str] = (),
    ) -> None:
        self.remote = remote
        self.name = remote.name
        self.input_layout, self.output_layout = input_layout, output_layout
        self.leave = tuple(leave)
        self.calls: list[str] = []

    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        """One forward pass; input and outputs are in canonical layout.

        Args:
            layers: layers whose values are returned too.
        """
        model_input = to_model_layout(inputs, self.input_layout, self.name)
        trace = self.remote.forward(model_input, training=training, layers=layers)
        return ForwardPass(
            tuple(to_canonical_layout(output, self.output_layout) for output in trace.outputs),
            trace.calls,
        )

    def gradients(self, inputs: Array, cotangents: Sequence[Array], training: bool) -> Gradients:
        """Gradients of parameters and of the input in canonical layout, and states after the pass.

        Args:
            cotangents: one for each output, in canonical layout.
        """
        model_cotangents = [
            to_model_layout(cotangent, self.output_layout, self.name)
            if cotangent.ndim == _axis_count(self.output_layout)
            else cotangent
            for cotangent in cotangents
        ]
        model_input = to_model_layout(inputs, self.input_layout, self.name)
        gradients = self.remote.vjp(model_input, model_cotangents, training=training)
        if gradients.inputs is None:
            return gradients
        return replace(gradients, inputs=to_canonical_layout(gradients.inputs, self.input_layout))

    def find_randomness(self, inputs: Array) -> Finding | None:
        """The first layer that differs between two passes in training mode; None if none does."""
        leaves = [name for name in self.remote.layers if name]
        first, second = (self.forward(inputs, training=True, layers=leaves) for _ in range(2))
        if not _differ(first.outputs, second.outputs):
            return None
        layers = [
            call.layer
            for call, other_call in zip(first.calls, second.calls)
            if call.output is not None
            and other_call.output is not None
            and _differ([call.output], [other_call.output])
        ]
        layer = Side(self.name, self.remote.layers, first).facts(layers[0]) if layers else None
        return Finding(cause=DrawsRandom(model=self.name, layer=layer))


def _axis_count(layout: str) -> int:
    return len(LAYOUTS.get(layout, ()))


def _differ(first: Sequence[Array], second: Sequence[Array]) -> bool:
    compared = figures(dict(enumerate(first)), dict(enumerate(second)))  # type: ignore[arg-type]
    return not passes(compared, FLOAT64_TOLERANCE)
