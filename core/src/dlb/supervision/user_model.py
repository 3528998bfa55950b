"""A user's model in a worker, used as if it were here."""

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


class _Described(msgspec.Struct):
    """The answer to ``load``."""

    model: int
    layers: list[UserLayer]
    parameters: list[ParameterDescription]
    input_shape: tuple[int, ...] | None = None


class RemoteUserModel:
    """A user's model, loaded by the one worker of a group.

    Attributes:
        name: its adapter.
        dtype: of parameters and computation.
        layers: by name.
        parameters: by name, in order.
        input_shape: of one sample, if the model tells.
    """

    def __init__(
        self,
        group: Group,
        factory: str,
        folder: Path,
        inputs: Array | None,
        dtype: str = "float64",
    ) -> None:
        """Load it.

        Args:
            factory: ``package.module:function``.
            folder: where its module is looked for first.
            inputs: [batch, ...] as the model reads it, to show to layers without a shape.
            dtype: of its parameters and computation, ``float32`` or ``float64``.
        """
        self.group, self.dtype = group, dtype
        self.name = group.launch.adapter
        given = "" if inputs is None else str(self._written({"inputs": inputs}))
        arguments = {"factory": factory, "folder": str(folder), "inputs": given, "dtype": dtype}
        (answer,) = group.call("load", arguments)
        try:
            described = msgspec.convert(answer, _Described)
        except msgspec.ValidationError as error:
            raise PluginError(
                f"its adapter describes the model wrongly: {error}", adapter=self.name
            ) from None
        self.number = described.model
        self.layers = {one.name: one for one in described.layers}
        self.parameters = {one.name: one for one in described.parameters}
        self.input_shape = described.input_shape
        if len(self.parameters) != len(described.parameters):
            raise PluginError("its adapter gave several parameters one name", adapter=self.name)

    def drop(self) -> None:
        """Forget it, so that its memory can go."""
        self.group.call("drop", {"model": self.number})

    def weights(self) -> dict[str, Array]:
        """Every parameter and state by name."""
        to = scratch_file(self.group)
        self._call("weights", to=str(to))
        return read_arrays(self.group, to)

    def load_weights(self, weights: dict[str, Array]) -> None:
        """Set parameters and states by name."""
        self._call("set_weights", weights=str(self._written(weights)))

    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        """One pass; see :meth:`dlb_worker.native.UserModel.forward`."""
        given, to = self._written({"inputs": inputs}), scratch_file(self.group)
        told = self._call(
            "forward", inputs=str(given), to=str(to), training=training, layers=list(layers)
        )
        arrays = read_arrays(self.group, to)

        def value(number: int | None) -> Array | None:
            return None if number is None else arrays[f"values/{number}"]

        return ForwardPass(
            outputs=tuple(arrays[f"values/{number}"] for number in told["outputs"]),
            calls=tuple(
                LayerCall(call["layer"], value(call["inputs"]), value(call["output"]))
                for call in told["calls"]
            ),
        )

    def vjp(self, inputs: Array, cotangents: Sequence[Array], *, training: bool) -> Gradients:
        """One pass back; see :meth:`dlb_worker.native.UserModel.vjp`."""
        arrays = {f"cotangents/{number}": array for number, array in enumerate(cotangents)}
        given = self._written({"inputs": inputs, **arrays})
        to = scratch_file(self.group)
        self._call("gradients", inputs=str(given), to=str(to), training=training)
        found = read_arrays(self.group, to)

        def of(start: str) -> dict[str, Array]:
            return {name[len(start) :]: found[name] for name in found if name.startswith(start)}

        return Gradients(found["loss"], of("parameters/"), found.get("inputs"), of("states/"))

    def export(self, to: Path) -> None:
        """Write it as ONNX with the framework's exporter."""
        self._call("export", to=str(to))

    def _call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self.group.call(name, {"model": self.number, **arguments})[0]

    def _written(self, arrays: dict[str, Array]) -> Path:
        path = scratch_file(self.group)
        write_arrays(path, {name: np.ascontiguousarray(array) for name, array in arrays.items()})
        return path
