"""A proxy of a user model in a worker process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.errors import PluginError
from dlb.supervision.group import Group
from dlb.supervision.remote import read_arrays, scratch_file, write_arrays
from dlb_worker.contract import (
    ForwardPass,
    Gradients,
    LayerCall,
    ParameterDescription,
    UserLayer,
)

__all__ = ["RemoteUserModel"]

Array = npt.NDArray[Any]


class _ModelDescription(msgspec.Struct):
    """The result of the call ``load``."""

    model: int
    layers: list[UserLayer]
    parameters: list[ParameterDescription]
    input_shape: tuple[int, ...] | None = None


class RemoteUserModel:
    """A user model, loaded by the one worker of a group.

    Attributes:
        name: the adapter's name.
        dtype: dtype of parameters and computation.
        layers: the layers by name.
        parameters: the parameters by name, in order.
        input_shape: the shape of one sample, if the model states it.
    """

    def __init__(
        self,
        group: Group,
        factory: str,
        folder: Path,
        inputs: Array | None,
        dtype: str = "float64",
    ) -> None:
        """Load the model.

        Args:
            group: a group of one worker.
            factory: ``package.module:function``.
            folder: where its module is searched first.
            inputs: [batch, ...] as the model reads it; layers without a shape are built with it.
            dtype: dtype of parameters and computation, ``float32`` or ``float64``.

        Raises:
            PluginError: the adapter returned a wrong description of the model.
        """
        self.group, self.dtype = group, dtype
        self.name = group.launch.adapter
        path = "" if inputs is None else str(self._write({"inputs": inputs}))
        arguments = {"factory": factory, "folder": str(folder), "inputs": path, "dtype": dtype}
        (answer,) = group.call("load", arguments)
        try:
            described = msgspec.convert(answer, _ModelDescription)
        except msgspec.ValidationError as error:
            raise PluginError(
                f"its adapter returned a wrong description of the model: {error}", adapter=self.name
            ) from None
        self.number = described.model
        self.layers = {layer.name: layer for layer in described.layers}
        self.parameters = {parameter.name: parameter for parameter in described.parameters}
        self.input_shape = described.input_shape
        if len(self.parameters) != len(described.parameters):
            raise PluginError("its adapter has several parameters of one name", adapter=self.name)

    def drop(self) -> None:
        """Drop the model in the worker, so that its memory is freed."""
        self.group.call("drop", {"model": self.number})

    def weights(self) -> dict[str, Array]:
        """Every parameter and state by name."""
        to = scratch_file(self.group)
        self._call("weights", to=str(to))
        return read_arrays(self.group, to)

    def load_weights(self, weights: dict[str, Array]) -> None:
        """Set parameters and states by name."""
        self._call("set_weights", weights=str(self._write(weights)))

    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        """One forward pass; see :meth:`dlb_worker.native.UserModel.forward`."""
        path, to = self._write({"inputs": inputs}), scratch_file(self.group)
        result = self._call(
            "forward", inputs=str(path), to=str(to), training=training, layers=list(layers)
        )
        arrays = read_arrays(self.group, to)

        def value(number: int | None) -> Array | None:
            return None if number is None else arrays[f"values/{number}"]

        return ForwardPass(
            outputs=tuple(arrays[f"values/{number}"] for number in result["outputs"]),
            calls=tuple(
                LayerCall(call["layer"], value(call["inputs"]), value(call["output"]))
                for call in result["calls"]
            ),
        )

    def vjp(self, inputs: Array, cotangents: Sequence[Array], *, training: bool) -> Gradients:
        """One backward pass; see :meth:`dlb_worker.native.UserModel.vjp`."""
        arrays = {f"cotangents/{number}": array for number, array in enumerate(cotangents)}
        path = self._write({"inputs": inputs, **arrays})
        to = scratch_file(self.group)
        self._call("gradients", inputs=str(path), to=str(to), training=training)
        gradients = read_arrays(self.group, to)

        def by_prefix(prefix: str) -> dict[str, Array]:
            return {
                name.removeprefix(prefix): array
                for name, array in gradients.items()
                if name.startswith(prefix)
            }

        return Gradients(
            gradients["loss"],
            by_prefix("parameters/"),
            gradients.get("inputs"),
            by_prefix("states/"),
        )

    def export(self, to: Path) -> None:
        """Export the model as ONNX with the framework's exporter."""
        self._call("export", to=str(to))

    def _call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self.group.call(name, {"model": self.number, **arguments})[0]

    def _write(self, arrays: dict[str, Array]) -> Path:
        path = scratch_file(self.group)
        write_arrays(path, {name: np.ascontiguousarray(array) for name, array in arrays.items()})
        return path
