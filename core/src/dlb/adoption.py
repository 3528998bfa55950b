"""What adapters share in taking in a model that somebody wrote: for :func:`dlb_adopt_model`.

Which attribute of which layer is which canonical parameter, and how it lies, is each adapter's own
knowledge of its framework, by the layer's type. What is the same for all of them is here.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dlb.contract import AdoptedModel, AdoptedParameter
from dlb.errors import UnsupportedError

__all__ = [
    "Held",
    "NativeModel",
    "Way",
    "gru_ways",
    "held",
    "plain",
    "stacked",
    "summed",
    "tensors",
    "words",
]

Array = npt.NDArray[Any]


class Place(Protocol):
    """An entry of an adapter's layer table: one attribute, and the two ways across."""

    @property
    def attribute(self) -> str: ...

    @property
    def to_native(self) -> Callable[[Any], Any]: ...

    @property
    def to_canonical(self) -> Callable[[Any], Any]: ...


@dataclass(frozen=True)
class Way:
    """A canonical parameter: the attributes of a layer that hold it, and the ways across.

    Attributes:
        attributes: of the layer.
        to_canonical: their arrays to the canonical one.
        to_native: the canonical array to theirs.
        to_gradient: their gradients to the canonical one.
        joined: what stands between their names.
    """

    attributes: tuple[str, ...]
    to_canonical: Callable[[Sequence[Array]], Array]
    to_native: Callable[[Array], Sequence[Array]]
    to_gradient: Callable[[Sequence[Array]], Array]
    joined: str = " + "


def plain(place: Place, attribute: str = "") -> Way:
    """One attribute, as the layer table has it; ``attribute`` where it is called otherwise."""

    def canonical(arrays: Sequence[Array]) -> Array:
        array: Array = place.to_canonical(arrays[0])
        return array

    name = attribute or place.attribute
    return Way((name,), canonical, lambda array: [place.to_native(array)], canonical)


def summed(place: Place, first: str, second: str) -> Way:
    """Two attributes that the layer adds, such as the two biases of an LSTM.

    The first is given the sum and the second zero. Each one's gradient is the gradient of the sum.
    """

    def canonical(arrays: Sequence[Array]) -> Array:
        array: Array = place.to_canonical(arrays[0] + arrays[1])
        return array

    def native(array: Array) -> Sequence[Array]:
        whole = place.to_native(array)
        return [whole, np.zeros_like(whole)]

    return Way((first, second), canonical, native, lambda arrays: place.to_canonical(arrays[0]))


def stacked(attributes: Sequence[str], place: Place | None = None) -> Way:
    """Attributes that lie one after another on the first axis of the canonical parameter.

    Args:
        place: the two ways across for each of them; as they are when left out.
    """

    def canonical(arrays: Sequence[Array]) -> Array:
        return np.concatenate([place.to_canonical(one) if place else one for one in arrays])

    def native(array: Array) -> Sequence[Array]:
        parts = np.split(array, len(attributes))
        return [place.to_native(one) if place else one for one in parts]

    return Way(tuple(attributes), canonical, native, canonical, " | ")


def gru_ways(
    weights: tuple[str, str], biases: tuple[str, str], gates: tuple[int, int, int]
) -> dict[str, Way]:
    """A GRU whose reset gate acts after the recurrent product, as ONNX' ``linear_before_reset``.

    Canonical weights are [3 * hidden, ...] in ONNX' order of gates: update, reset, hidden; the
    biases of both products lie one below the other, [2, 3 * hidden].

    Args:
        weights, biases: the attributes, of the input and of the last step.
        gates: the place of each of ONNX' gates among the framework's.
    """
    back = tuple(gates.index(gate) for gate in range(3))

    def ordered(array: Array, order: Sequence[int]) -> Array:
        parts = np.split(array, 3)
        return np.concatenate([parts[gate] for gate in order])

    def weight(attribute: str) -> Way:
        def canonical(arrays: Sequence[Array]) -> Array:
            return ordered(arrays[0], gates)

        return Way((attribute,), canonical, lambda array: [ordered(array, back)], canonical)

    def both(arrays: Sequence[Array]) -> Array:
        return np.stack([ordered(array, gates) for array in arrays])

    bias = Way(biases, both, lambda array: [ordered(one, back) for one in array], both, " | ")
    return {
        "input_weight": weight(weights[0]),
        "recurrent_weight": weight(weights[1]),
        "bias": bias,
    }


@dataclass(frozen=True)
class Held:
    """A parameter of a model: what holds it, and the ways across, or None where it is as it is.

    Attributes:
        name, layer, role, trained: see :class:`dlb.contract.AdoptedParameter`.
        natives: the framework's own objects.
        way: across.
    """

    name: str
    layer: str
    role: str
    trained: bool
    natives: tuple[Any, ...]
    way: Way | None = None


def held(
    layer: str, role: str, trained: bool, natives: Mapping[str, Any], way: Way | None = None
) -> Held:
    """A parameter that is named after its layer and the attributes of the layer that hold it.

    Args:
        natives: by attribute, in the order of the way's.
    """
    joined = way.joined if way else ""
    name = joined.join(f"{layer}.{attribute}".lstrip(".") for attribute in natives)
    return Held(name, layer, role, trained, tuple(natives.values()), way)


class NativeModel(AdoptedModel):
    """Parameters and weights of a model from what holds them.

    Attributes:
        held: every parameter and state, in the order of the layers.
        dtype: of them.
    """

    held: Sequence[Held]
    dtype: str

    @abc.abstractmethod
    def read(self, native: Any) -> Array:
        """A copy of the array of one of the framework's parameters."""

    @abc.abstractmethod
    def write(self, native: Any, array: Array) -> None:
        """Set one of the framework's parameters to an array of its shape and dtype."""

    def parameters(self) -> list[AdoptedParameter]:
        found = []
        for one in self.held:
            arrays = [self.read(native) for native in one.natives]
            for array in arrays:
                if str(array.dtype) != self.dtype:
                    raise UnsupportedError(
                        f"parameter '{one.name}' is {array.dtype} although {self.dtype} was asked "
                        "for; take the fixed type out of the code of its layer"
                    )
            found.append(
                AdoptedParameter(
                    name=one.name,
                    layer=one.layer,
                    role=one.role,
                    shape=(one.way.to_canonical(arrays) if one.way else arrays[0]).shape,
                    native_shape=arrays[0].shape,
                    dtype=str(arrays[0].dtype),
                    trained=one.trained,
                )
            )
        return found

    def weights(self) -> dict[str, Array]:
        return {one.name: self._canonical(one) for one in self.held}

    def states(self) -> dict[str, Array]:
        """What is not trained, as it is now."""
        return {one.name: self._canonical(one) for one in self.held if not one.trained}

    def _canonical(self, one: Held) -> Array:
        arrays = [self.read(native) for native in one.natives]
        return one.way.to_canonical(arrays) if one.way else arrays[0]

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        known = {one.name: one for one in self.held}
        for name, array in weights.items():
            one = known[name]
            given = np.asarray(array, self.dtype)
            arrays = one.way.to_native(given) if one.way else [given]
            for native, part in zip(one.natives, arrays):
                self.write(native, np.ascontiguousarray(part))

    def gathered(self, gradient: Callable[[Any], Array]) -> dict[str, Array]:
        """Gradients of what is trained, canonical, from the gradient of each native parameter."""
        found = {}
        for one in self.held:
            if one.trained:
                arrays = [gradient(native) for native in one.natives]
                found[one.name] = one.way.to_gradient(arrays) if one.way else arrays[0]
        return found


def tensors(value: Any, is_tensor: Callable[[Any], bool]) -> Iterator[Any]:
    """The tensors of what a model or a layer gave: one, or lists, tuples and mappings of them.

    Raises:
        UnsupportedError: there is something else in it.
    """
    if is_tensor(value):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from tensors(one, is_tensor)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors(one, is_tensor)
    elif value is not None:
        raise UnsupportedError(
            f"the model gives a {type(value).__name__} among its outputs; return tensors, or "
            "lists, tuples or dictionaries of them"
        )


def words(attributes: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Of the attributes of a layer those that are numbers, words or several of them, as text."""
    return {name: str(value) for name, value in attributes if _plain(value)}


def _plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_plain(one) for one in value)
    return isinstance(value, (bool, int, float, str))
