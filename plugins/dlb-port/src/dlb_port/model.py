"""A user's model, with inputs, outputs and parameters as the reference has them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.errors import UnsupportedError, WorkerRaised
from dlb.proof.findings import Finding
from dlb_graph.comparing.distance import figures, passes
from dlb_graph.comparing.tolerances import FLOAT32_LAYERS, FLOAT64_TOLERANCE
from dlb_port.findings.port import DrawsRandom
from dlb_port.inputs import LAYOUTS, Inputs, in_model_layout, to_canonical_layout, to_model_layout
from dlb_port.layer_events import Side
from dlb_port.recording import ModelHandle
from dlb_port.stochastic_depth import UNSEEN, dropped_samples, is_identity
from dlb_worker.contract import Dropout, ForwardPass, Gradients, LayerCall

__all__ = ["Model"]

Array = npt.NDArray[Any]


class Model:
    """A user's model in its worker or file, with the layouts of its inputs and outputs.

    Attributes:
        remote: the model in its worker, or its file.
        input_layout: a name of :data:`LAYOUTS`; "" is canonical.
        output_layouts: one for all outputs with that number of axes, or one for each output.
        leave: parameters that are not carried.
        calls: names of layers in the order of their calls.
        dropouts: what is dropped in training mode, with the layer, in the order of the calls.
    """

    def __init__(
        self,
        remote: ModelHandle,
        input_layout: str = "",
        output_layouts: str | Sequence[str] = "",
        leave: Sequence[str] = (),
    ) -> None:
        self.remote = remote
        self.name = remote.name
        self.input_layout, self.output_layouts = input_layout, output_layouts
        self.leave = tuple(leave)
        self.calls: list[str] = []
        self.dropouts: list[tuple[str, Dropout]] = []
        #: Layers that drop samples and cannot be switched off.
        self.drawing: list[str] = []
        self._bypassed: tuple[str, ...] = ()
        #: Places of the reference's outputs among the model's own, and the shapes of both.
        self._order: list[int] = []
        self._shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def with_remote(self, remote: ModelHandle) -> Model:
        """The same model, made again in another dtype."""
        again = copy.copy(self)
        again.remote = remote
        if self.dropouts:
            remote.set_dropout(False)
        if self._bypassed:
            remote.bypass(self._bypassed)
        return again

    def align_outputs(self, own: ForwardPass, reference: ForwardPass) -> None:
        """From now on, give outputs in the reference's order and shapes.

        Outputs are paired by their names if both models name them alike, and else by their order. Axes of
        size 1 do not tell outputs apart: a state may be [1, N, H] in one framework and [N, H] in another.
        """
        if len(own.outputs) != len(reference.outputs):
            return
        self._order = list(range(len(own.outputs)))
        if len(own.names) == len(own.outputs) and sorted(own.names) == sorted(reference.names):
            self._order = [own.names.index(name) for name in reference.names]
        ordered = [own.outputs[place] for place in self._order]
        self._shapes = [
            (output.shape, expected.shape)
            if np.squeeze(output).shape == np.squeeze(expected).shape
            else (output.shape, output.shape)
            for output, expected in zip(ordered, reference.outputs)
        ]

    def forward(
        self, inputs: Inputs, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        """One forward pass; inputs and outputs are in canonical layout.

        Args:
            layers: layers whose values are returned too.
        """
        model_inputs = in_model_layout(inputs, self.input_layout, self.name)
        trace = self.remote.forward(model_inputs, training=training, layers=layers)
        layout = self._output_layout
        outputs = [
            to_canonical_layout(each, layout(place)) for place, each in enumerate(trace.outputs)
        ]
        names = trace.names
        if len(self._order) == len(outputs):
            places = zip(self._order, self._shapes)
            outputs = [_reshaped(outputs[place], shapes[1]) for place, shapes in places]
            names = tuple(names[place] for place in self._order) if names else ()
        return ForwardPass(tuple(outputs), trace.calls, names)

    def gradients(self, inputs: Inputs, cotangents: Sequence[Array], training: bool) -> Gradients:
        """Gradients of parameters and of real inputs in canonical layout, and states after the pass.

        Args:
            cotangents: one for each output, as :meth:`forward` returns it.
        """
        own = list(cotangents)
        for cotangent, place, shapes in zip(cotangents, self._order, self._shapes):
            own[place] = _reshaped(cotangent, shapes[0])
        own = [
            to_model_layout(cotangent, layout, self.name)
            if cotangent.ndim == len(LAYOUTS.get(layout, ()))
            else cotangent
            for cotangent, layout in zip(own, map(self._output_layout, range(len(own))))
        ]
        model_inputs = in_model_layout(inputs, self.input_layout, self.name)
        gradients = self.remote.vjp(model_inputs, own, training=training)
        named = gradients.several.items()
        several = {name: to_canonical_layout(each, self.input_layout) for name, each in named}
        return replace(gradients, several=several)

    def own_steps(
        self, trainer: str, folder: Path, batches: Mapping[str, Array], observed: Sequence[int]
    ) -> tuple[Array, dict[int, dict[str, Array]]]:
        """Train by the user's own program; see :meth:`dlb_port.remote_model.RemoteUserModel.own_steps`.

        Args:
            batches: [steps, batch, ...] in canonical layout. Real arrays with the input layout's number of
                axes in a batch are converted.
        """
        own = dict(batches)
        axes = LAYOUTS.get(self.input_layout, ())
        for name, array in batches.items():
            if array.dtype.kind == "f" and array.ndim - 1 == len(axes):
                own[name] = array.transpose(0, *(axis + 1 for axis in axes))
        return self.remote.own_steps(trainer, folder, own, observed)

    def _output_layout(self, place: int) -> str:
        if isinstance(self.output_layouts, str):
            return self.output_layouts
        return self.output_layouts[place] if place < len(self.output_layouts) else ""

    def record_dropout(self, inputs: Inputs) -> None:
        """Note what the model drops in training mode, and switch it off where its adapter can."""
        calls = self.forward(inputs, training=True).calls
        layers = self.remote.layers
        holders = {name.rpartition(".")[0] for name in layers}
        plain = [name for name in layers if name not in holders and not layers[name].kind]

        def passes_of(names: Sequence[str], *, training: bool = True) -> list[LayerCall]:
            found = self.forward(inputs, training=training, layers=names).calls
            return [call for call in found if call.layer in names]

        samples: dict[str, Dropout] = {}
        with suppress(UnsupportedError):  # a capture that was not asked for it
            samples = dropped_samples(passes_of, plain)
        self.drawing = [*samples]
        drops = [(call.layer, call.dropout or samples.get(call.layer)) for call in calls]
        self.dropouts = [(layer, dropout) for layer, dropout in drops if dropout]
        if any(call.dropout for call in calls):
            self.remote.set_dropout(False)
        if samples and not any(dropout.of in UNSEEN for dropout in samples.values()):
            with suppress(UnsupportedError, WorkerRaised):
                self.remote.bypass([*samples])
                self._bypassed = tuple(samples)
                if all(map(is_identity, passes_of([*samples]))):
                    self.drawing = []

    def find_randomness(self, inputs: Inputs) -> Finding | None:
        """The first layer that differs between two passes in training mode; None if none does.

        Two passes may drop the same samples, so what is known to drop some need not differ.
        """
        if self.drawing:
            return self._draws(self.drawing[0])
        leaves = [name for name in self.remote.layers if name]
        first, second = (self.forward(inputs, training=True, layers=leaves) for _ in range(2))
        tolerance = FLOAT64_TOLERANCE if self.remote.dtype == "float64" else FLOAT32_LAYERS

        def differ(one: Sequence[Array], other: Sequence[Array]) -> bool:
            compared = figures(dict(enumerate(one)), dict(enumerate(other)))  # type: ignore[arg-type]
            return not passes(compared, tolerance)

        if not differ(first.outputs, second.outputs):
            return None
        layers = [
            call.layer
            for call, other_call in zip(first.calls, second.calls)
            if call.output is not None
            and other_call.output is not None
            and differ([call.output], [other_call.output])
        ]
        return self._draws(layers[0] if layers else None)

    def _draws(self, layer: str | None) -> Finding:
        side = Side(self.name, self.remote.layers, ForwardPass((), ()))
        facts = None if layer is None else side.facts(layer)
        return Finding(cause=DrawsRandom(model=self.name, layer=facts))


def _reshaped(array: Array, shape: tuple[int, ...]) -> Array:
    return array.reshape(shape) if array.size == np.prod(shape, dtype=int) else array
