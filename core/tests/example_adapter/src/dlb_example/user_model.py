"""A :class:`dlb_example.native.Net` that a user wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlb_example import native
from dlb_example.native import Array, Layer, Net
from dlb_worker.contract import ForwardPass, Gradients, LayerCall, UserLayer, UserModelRequest
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import UserModel, text_attributes
from dlb_worker.parameters import AS_IS, NativeParameter, ParameterMapping, location


def transposed(array: Array) -> Array:
    return array.T


def kind_of(layer: Layer) -> tuple[str, dict[str, ParameterMapping]]:
    """The layer kind, and where its parameters are; "" and none if not known."""
    if not isinstance(layer, native.Linear):
        return "", {}
    weight = location("weight")
    if isinstance(layer, native.Dense):
        weight = location("weight", transposed, transposed)
    return "linear", {"weight": weight, "bias": location("bias")}


class UserNet(UserModel):
    """A native is a layer and the name of its attribute."""

    def __init__(self, request: UserModelRequest) -> None:
        self.dtype = request.dtype
        native.set_dtype(request.dtype)
        self.net = request.make()
        if not isinstance(self.net, Net):
            raise UnsupportedError(
                f"the factory returned a {type(self.net).__name__}; it must return a dlb_example Net"
            )
        for name, layer in self.net.layers.items():
            if isinstance(layer, native.Linear) and layer.weight is None:
                if request.inputs is None:
                    raise UnsupportedError(
                        f"'{name}.weight' has no shape before the model has seen an input; give "
                        "--input or --input-shape"
                    )
                self.run(request.inputs, False)
        self.parameters = [
            self.parameter(name, layer, attribute)
            for name, layer in self.net.layers.items()
            for attribute in (*layer.trained, *layer.states)
        ]

    def parameter(self, name: str, layer: Layer, attribute: str) -> NativeParameter:
        mapping = kind_of(layer)[1].get(attribute)
        role = attribute if mapping else ""
        trained, natives = attribute in layer.trained, ((layer, attribute),)
        name_of = f"{name}.{attribute}"
        return NativeParameter(name_of, name, role, trained, natives, mapping or AS_IS)

    def read(self, native: Any) -> Array:
        return np.array(getattr(*native))

    def write(self, native: Any, array: Array) -> None:
        setattr(*native, array)

    def layers(self) -> list[UserLayer]:
        found = [UserLayer("", "Net", {})]
        for name, layer in self.net.layers.items():
            attributes = text_attributes(vars(layer))
            found.append(UserLayer(name, type(layer).__name__, attributes, kind_of(layer)[0]))
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
    ) -> ForwardPass:
        values = self.run(inputs, training)
        given = dict(zip(values, [inputs, *values.values()]))
        calls = [
            LayerCall(name, given[name], value) if name in layers else LayerCall(name, None, None)
            for name, value in values.items()
        ]
        return ForwardPass((list(values.values())[-1],), tuple(calls))

    def vjp(
        self, inputs: Array, cotangents: Sequence[Array], *, training: bool = False
    ) -> Gradients:
        output = list(self.run(inputs, training).values())[-1]
        down: Array = cotangents[0]
        found: dict[int, dict[str, Array]] = {}
        for layer in reversed(self.net.layers.values()):
            down, found[id(layer)] = layer.backward(down)
        return Gradients(
            loss=np.sum(output * cotangents[0]),
            parameters=self.gather(lambda native: found[id(native[0])][native[1]]),
            inputs=down if inputs.dtype.kind == "f" else None,
        )
