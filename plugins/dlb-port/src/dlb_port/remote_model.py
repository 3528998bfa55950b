"""A proxy of a user model in a worker process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.errors import PluginError
from dlb.supervision.answers import LoadedModel
from dlb.supervision.group import Group
from dlb.supervision.remote import check_exported, read_arrays, scratch_file, write_arrays
from dlb_worker.contract import Dropout, ForwardPass, Gradients, LayerCall

__all__ = ["RemoteUserModel"]

Array = npt.NDArray[Any]


class RemoteUserModel:
    """A user model, loaded by the one worker of a group.

    Attributes:
        name: what messages call the model: the adapter's name, if it has no other.
        dtype: dtype of parameters and computation.
        layers: the layers by name.
        parameters: the parameters by name, in order.
        input_shape: the shape of one sample, if the model states it.
    """

    #: Whether the model has no training mode and no gradients, as an ONNX file.
    evaluation_only = False

    def __init__(
        self,
        group: Group,
        factory: str,
        folder: Path,
        inputs: Mapping[str, Array] | None,
        dtype: str = "float64",
    ) -> None:
        """Load the model.

        Args:
            group: a group of one worker.
            factory: ``package.module:function``.
            folder: where its module is searched first.
            inputs: every input [batch, ...] by name, as the model reads it; layers without a shape are
                built with them.
            dtype: dtype of parameters and computation, ``float32`` or ``float64``.

        Raises:
            PluginError: two parameters have one name.
        """
        self.group, self.dtype = group, dtype
        self.name = group.launch.label
        path = "" if inputs is None else str(self._write(_written(inputs)))
        arguments = {"factory": factory, "folder": str(folder), "inputs": path, "dtype": dtype}
        (answer,) = group.call("load", arguments)
        described = msgspec.convert(answer, LoadedModel)
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

    def set_dropout(self, active: bool) -> None:
        """Switch off or on what calls report as dropout."""
        self._call("set_dropout", active=active)

    def bypass(self, layers: Sequence[str]) -> None:
        """Let layers return their input; see :meth:`dlb_worker.native.UserModel.bypass`."""
        self._call("bypass", layers=list(layers))

    def forward(
        self, inputs: Mapping[str, Array], *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        """One forward pass; see :meth:`dlb_worker.native.UserModel.forward`."""
        path, to = self._write(_written(inputs)), scratch_file(self.group)
        result = self._call(
            "forward", inputs=str(path), to=str(to), training=training, layers=list(layers)
        )
        arrays = read_arrays(self.group, to)

        def value(number: int | None) -> Array | None:
            return None if number is None else arrays[f"values/{number}"]

        return ForwardPass(
            outputs=tuple(arrays[f"values/{number}"] for number in result["outputs"]),
            calls=tuple(
                LayerCall(
                    call["layer"],
                    value(call["inputs"]),
                    value(call["output"]),
                    tuple(map(value, call.get("others", ()))),
                    msgspec.convert(call["dropout"], Dropout) if call.get("dropout") else None,
                )
                for call in result["calls"]
            ),
            names=tuple(result.get("names", ())),
        )

    def vjp(
        self, inputs: Mapping[str, Array], cotangents: Sequence[Array], *, training: bool
    ) -> Gradients:
        """One backward pass; see :meth:`dlb_worker.native.UserModel.vjp`.

        Gradients of real inputs are in ``several``, even if there is one input.
        """
        arrays = {f"cotangents/{number}": array for number, array in enumerate(cotangents)}
        path = self._write({**_written(inputs), **arrays})
        to = scratch_file(self.group)
        self._call("gradients", inputs=str(path), to=str(to), training=training)
        gradients = read_arrays(self.group, to)

        def by_prefix(prefix: str) -> dict[str, Array]:
            own = [name for name in gradients if name.startswith(prefix)]
            return {name.removeprefix(prefix): gradients[name] for name in own}

        several = by_prefix("inputs/")
        if "inputs" in gradients:
            several = dict.fromkeys(inputs, gradients["inputs"])
        parameters, states = by_prefix("parameters/"), by_prefix("states/")
        return Gradients(gradients["loss"], parameters, None, states, several)

    def own_steps(
        self, trainer: str, folder: Path, batches: Mapping[str, Array], observed: Sequence[int]
    ) -> tuple[Array, dict[int, dict[str, Array]]]:
        """Train by the user's own program; the weights move.

        Args:
            trainer: ``package.module:function``, a function of the model that returns its step.
            folder: where its module is searched first.
            batches: for each name an array [steps, batch, ...], as the model reads it.
            observed: steps after which the weights are returned.

        Returns:
            the loss of every step, and the weights by step and name.
        """
        path, to = self._write(dict(batches)), scratch_file(self.group)
        paths = {"folder": str(folder), "data": str(path), "to": str(to)}
        self._call("own_steps", trainer=trainer, observed=list(observed), **paths)
        arrays = read_arrays(self.group, to)
        weights: dict[int, dict[str, Array]] = {step: {} for step in observed}
        for name, array in arrays.items():
            if name.startswith("weights/"):
                _, step, parameter = name.split("/", 2)
                weights[int(step)][parameter] = array
        return arrays["losses"], weights

    def export(self, to: Path) -> None:
        """Export the model as ONNX with the framework's exporter."""
        self._call("export", to=str(to))
        check_exported(to)

    def _call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self.group.call(name, {"model": self.number, **arguments})[0]

    def _write(self, arrays: dict[str, Array]) -> Path:
        path = scratch_file(self.group)
        write_arrays(path, {name: np.asarray(array, order="C") for name, array in arrays.items()})
        return path


def _written(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs as they are written: the only one as ``inputs``, several as ``inputs/NAME``."""
    if len(inputs) == 1:
        return {"inputs": next(iter(inputs.values()))}
    return {f"inputs/{name}": array for name, array in inputs.items()}
