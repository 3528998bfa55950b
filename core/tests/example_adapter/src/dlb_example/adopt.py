"""A :class:`dlb_example.native.Net` that somebody wrote, taken in as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlb.adoption import Held, NativeModel, Way, plain, words
from dlb.contract import AdoptedLayer, AdoptRequest, Gradients, LayerCall, Trace
from dlb.errors import UnsupportedError
from dlb_example import native
from dlb_example.native import Array, Layer, Net


class Place:
    """A parameter as it is, or turned."""

    def __init__(self, attribute: str, turned: bool = False) -> None:
        self.attribute, self.turned = attribute, turned

    def to_native(self, array: Array) -> Array:
        return array.T if self.turned else array

    to_canonical = to_native


def known(layer: Layer) -> tuple[str, dict[str, Way]]:
    if not isinstance(layer, native.Linear):
        return "", {}
    turned = isinstance(layer, native.Dense)
    return "linear", {"weight": plain(Place("weight", turned)), "bias": plain(Place("bias"))}


class AdoptedNet(NativeModel):
    """A native is a layer and the name of its attribute."""

    def __init__(self, request: AdoptRequest) -> None:
        self.dtype = request.dtype
        native.set_dtype(request.dtype)
        self.net = request.make()
        if not isinstance(self.net, Net):
            raise UnsupportedError(
                f"its factory gave a {type(self.net).__name__}; it must give a dlb_example Net"
            )
        for name, layer in self.net.layers.items():
            if isinstance(layer, native.Linear) and layer.weight is None:
                if request.inputs is None:
                    raise UnsupportedError(
                        f"'{name}.weight' has no shape before the model has seen an input; give "
                        "--input or --input-shape"
                    )
                self.run(request.inputs, False)
        self.held = [
            self.holder(name, layer, attribute)
            for name, layer in self.net.layers.items()
            for attribute in layer.trained
        ]

    def holder(self, name: str, layer: Layer, attribute: str) -> Held:
        ways = known(layer)[1]
        role = attribute if attribute in ways else ""
        return Held(
            f"{name}.{attribute}", name, role, True, ((layer, attribute),), ways.get(attribute)
        )

    def read(self, native: Any) -> Array:
        return np.array(getattr(*native))

    def write(self, native: Any, array: Array) -> None:
        setattr(*native, array)

    def layers(self) -> list[AdoptedLayer]:
        found = [AdoptedLayer("", "Net", {})]
        for name, layer in self.net.layers.items():
            attributes = words(vars(layer).items())
            found.append(AdoptedLayer(name, type(layer).__name__, attributes, known(layer)[0]))
        return found

    def input_shape(self) -> tuple[int, ...] | None:
        shape: tuple[int, ...] | None = self.net.shape
        return shape

    def run(self, inputs: Array, training: bool) -> dict[str, Array]:
        """The value of every layer, in order."""
        values, value = {}, inputs
        for name, layer in self.net.layers.items():
            value = values[name] = layer.forward(value, training)
        return values

    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> Trace:
        values = self.run(inputs, training)
        given = dict(zip(values, [inputs, *values.values()]))
        calls = [
            LayerCall(name, given[name], value) if name in layers else LayerCall(name, None, None)
            for name, value in values.items()
        ]
        return Trace((list(values.values())[-1],), tuple(calls))

    def gradients(
        self, inputs: Array, cotangents: Sequence[Array], *, training: bool = False
    ) -> Gradients:
        output = list(self.run(inputs, training).values())[-1]
        down: Array = cotangents[0]
        found: dict[int, dict[str, Array]] = {}
        for layer in reversed(self.net.layers.values()):
            down, found[id(layer)] = layer.backward(down)
        return Gradients(
            loss=np.sum(output * cotangents[0]),
            parameters=self.gathered(lambda native: found[id(native[0])][native[1]]),
            inputs=down if inputs.dtype.kind == "f" else None,
        )
