"""Large weights that lie beside their graph.

Reading a file copies its graph some ten times, and ``CopyFrom`` copies every byte of the weights. So a
large tensor of a graph that was read has no data: it refers to an array here, as ONNX's external data refer
to a file. The array keeps the type that was written. What reads the tensor gets it in the type that the
tensor declares, so a graph in another precision needs no other array.

Whoever holds an array (:func:`hold`) keeps it alive as long as a graph refers to it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb_graph.layers.numbers import Array

__all__ = [
    "HELD_BYTES",
    "Values",
    "array_of",
    "held_arrays",
    "hold",
    "is_held",
    "weights_as_inputs",
]

#: Tensors of at least so many bytes are held beside their graph.
HELD_BYTES = 1 << 16
#: Begins what stands for a path. What follows is drawn, so that no file can name another's array.
_PREFIX = "dlb-held:"
_arrays: WeakValueDictionary[str, Array] = WeakValueDictionary()


def hold(name: str, array: Array, element: int | None = None) -> onnx.TensorProto:
    """A tensor that refers to an array, which the caller keeps alive.

    Args:
        element: the ``TensorProto`` type in which it is read; the array's own if left out.
    """
    place = _PREFIX + secrets.token_hex(16)
    _arrays[place] = array
    tensor = TensorProto(
        name=name,
        dims=array.shape,
        data_type=helper.np_dtype_to_tensor_dtype(array.dtype) if element is None else element,
        data_location=TensorProto.EXTERNAL,
    )
    tensor.external_data.add(key="location", value=place)
    return tensor


def is_held(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor refers to an array here."""
    return tensor.data_location == TensorProto.EXTERNAL and _place(tensor).startswith(_PREFIX)


def array_of(tensor: onnx.TensorProto) -> Array:
    """The numbers of a tensor, in the type that it declares."""
    if not is_held(tensor):
        return numpy_helper.to_array(tensor)
    return _held(tensor).astype(helper.tensor_dtype_to_np_dtype(tensor.data_type), copy=False)


def held_arrays(graph: onnx.GraphProto) -> dict[str, Array]:
    """The arrays that initialisers of a graph refer to, in the type that was written, by name."""
    return {tensor.name: _held(tensor) for tensor in graph.initializer if is_held(tensor)}


def weights_as_inputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its held weights as inputs, so that other programs can read it; itself if it has none."""
    held = [tensor for tensor in model.graph.initializer if is_held(tensor)]
    if not held:
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    del graph.initializer[:]
    graph.initializer.extend(tensor for tensor in model.graph.initializer if not is_held(tensor))
    declared = {value.name for value in graph.input}
    graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in held
        if tensor.name not in declared
    )
    return result


class Values(MutableMapping[str, Array]):
    """Values of a graph by name, of which held weights are converted each time they are read.

    Args:
        computed: in the types of the graph.
        held: as :func:`held_arrays` returns them.
        types: of the graph, for each name in ``held``.
    """

    def __init__(
        self,
        computed: Mapping[str, Array],
        held: Mapping[str, Array],
        types: Mapping[str, np.dtype[Any]],
    ) -> None:
        self._computed, self._held, self._types = dict(computed), dict(held), types
        # Weights are read several times in a row, or while others hold what was read.
        self._converted: WeakValueDictionary[str, Array] = WeakValueDictionary()
        self._last: Array | None = None

    def __getitem__(self, name: str) -> Array:
        if name not in self._held:
            return self._computed[name]
        found = self._converted.get(name)
        if found is None:
            found = self._held[name].astype(self._types[name], copy=False)
            self._converted[name] = found
        self._last = found
        return found

    def __setitem__(self, name: str, value: Array) -> None:
        self._held.pop(name, None)
        self._computed[name] = value

    def __delitem__(self, name: str) -> None:
        del (self._held if name in self._held else self._computed)[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._computed
        yield from self._held

    def __len__(self) -> int:
        return len(self._computed) + len(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._computed or name in self._held

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value, without converting it."""
        return (self._held if name in self._held else self._computed)[name].shape

    def copy(self) -> Values:
        """Another mapping of the same values."""
        return Values(self._computed, self._held, self._types)


def _place(tensor: onnx.TensorProto) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _held(tensor: onnx.TensorProto) -> Array:
    array = _arrays.get(_place(tensor))
    if array is None:
        raise RuntimeError(f"the array of weight '{tensor.name}' is gone: nothing kept it alive")
    return array
