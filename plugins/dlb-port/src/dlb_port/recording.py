"""A model's answers, recorded where it runs and given again where it does not.

A proof asks the reference a number of questions: a forward pass of these inputs at these weights, gradients
for those cotangents. They do not depend on the model that it is compared with. So the answers can be kept,
each under the hash of its question.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, Union

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.errors import UnsupportedError
from dlb_worker.contract import (
    Dropout,
    ForwardPass,
    Gradients,
    LayerCall,
    ParameterDescription,
    UserLayer,
)

__all__ = ["Answers", "ModelHandle", "RecordedModel", "RecordingModel", "fingerprint"]

Array = npt.NDArray[Any]
#: Keeps an array, and returns its name.
Keep = Callable[[Array], str]
#: The array of a name.
Find = Callable[[str], Array]


class ModelHandle(Protocol):
    """A user's model, wherever it runs; see :class:`dlb_port.remote_model.RemoteUserModel`."""

    evaluation_only: bool
    name: str
    dtype: str
    layers: dict[str, UserLayer]
    parameters: dict[str, ParameterDescription]
    input_shape: tuple[int, ...] | None

    def drop(self) -> None: ...

    def weights(self) -> dict[str, Array]: ...

    def load_weights(self, weights: dict[str, Array]) -> None: ...

    def set_dropout(self, active: bool) -> None: ...

    def bypass(self, layers: Sequence[str]) -> None: ...

    def forward(
        self, inputs: Mapping[str, Array], *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass: ...

    def vjp(
        self, inputs: Mapping[str, Array], cotangents: Sequence[Array], *, training: bool
    ) -> Gradients: ...

    def own_steps(
        self, trainer: str, folder: Path, batches: Mapping[str, Array], observed: Sequence[int]
    ) -> tuple[Array, dict[int, dict[str, Array]]]: ...

    def export(self, to: Path) -> None: ...


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base class: immutable; unknown fields are rejected. An array is the name it is kept by."""


class Call(_Part, frozen=True, omit_defaults=True):
    """A call of a layer, as :class:`dlb_worker.contract.LayerCall`."""

    layer: str
    inputs: str | None = None
    output: str | None = None
    others: tuple[str | None, ...] = ()
    dropout: Dropout | None = None


class Pass(_Part, frozen=True, tag="forward"):
    """A forward pass, as :class:`dlb_worker.contract.ForwardPass`."""

    outputs: tuple[str, ...]
    names: tuple[str, ...]
    calls: tuple[Call, ...]

    @property
    def has_values(self) -> bool:
        """Whether values of layers were asked for."""
        return any(call.output is not None for call in self.calls)


class Backward(_Part, frozen=True, tag="gradients"):
    """A backward pass, as :class:`dlb_worker.contract.Gradients`."""

    loss: str
    parameters: dict[str, str]
    states: dict[str, str]
    several: dict[str, str]


class Held(_Part, frozen=True, tag="weights"):
    """Parameters and states by name."""

    arrays: dict[str, str]


class Steps(_Part, frozen=True, tag="steps"):
    """The losses of a user's own training steps, and the weights after some of them."""

    losses: str
    weights: dict[int, dict[str, str]]


Answer = Union[Pass, Backward, Held, Steps]
_Kind = TypeVar("_Kind", Pass, Backward, Held, Steps)


class Answers(_Part, frozen=True):
    """What is recorded of a model in one dtype.

    Attributes:
        layers, parameters, input_shape: as the adapter described them.
        answers: different answers to one question, by its hash. A model that draws no random numbers has one.
    """

    layers: tuple[UserLayer, ...]
    parameters: tuple[ParameterDescription, ...]
    input_shape: tuple[int, ...] | None
    answers: dict[str, list[Answer]]


def fingerprint(array: Array) -> str:
    """A hash of dtype, shape and numbers."""
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape}\n".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]


class _Questions:
    """The state that a question is asked in: the weights that were loaded, and whether dropout acts, or
    else which other layers are left out."""

    def __init__(self) -> None:
        self._loaded: dict[str, str] = {}
        self._dropout: bool | list[str] = True

    def loaded(self, weights: Mapping[str, Array]) -> None:
        self._loaded |= {name: fingerprint(array) for name, array in weights.items()}

    def dropout(self, active: bool | list[str]) -> None:
        self._dropout = active

    def hash(self, call: str, arrays: Mapping[str, Array], *more: object) -> str:
        """The hash of a question in this state."""
        described = {name: fingerprint(array) for name, array in arrays.items()}
        loaded = sorted(self._loaded.items())
        question = [call, loaded, self._dropout, sorted(described.items()), more]
        return hashlib.sha256(msgspec.json.encode(question)).hexdigest()[:32]

    def forward(self, inputs: Mapping[str, Array], training: bool) -> str:
        return self.hash("forward", inputs, training)

    def vjp(self, inputs: Mapping[str, Array], cotangents: Sequence[Array], training: bool) -> str:
        numbered = {f"/{number}": array for number, array in enumerate(cotangents)}
        return self.hash("vjp", {**inputs, **numbered}, training)

    def steps(self, batches: Mapping[str, Array], observed: Sequence[int]) -> str:
        return self.hash("own_steps", batches, *observed)


class RecordingModel:
    """A model whose answers are recorded.

    Args:
        model: the model that answers.
        keep: keeps an array.
    """

    def __init__(self, model: ModelHandle, keep: Keep) -> None:
        self.model, self.keep = model, keep
        self.name, self.dtype = model.name, model.dtype
        self.evaluation_only = model.evaluation_only
        self.layers, self.parameters = model.layers, model.parameters
        self.input_shape = model.input_shape
        self._questions = _Questions()
        self._answers: dict[str, list[Answer]] = {}

    def recorded(self) -> Answers:
        """What was recorded so far."""
        layers, parameters = tuple(self.layers.values()), tuple(self.parameters.values())
        return Answers(layers, parameters, self.input_shape, self._answers)

    def drop(self) -> None:
        self.model.drop()

    def weights(self) -> dict[str, Array]:
        weights = self.model.weights()
        self._add(self._questions.hash("weights", {}), Held(self._kept(weights)))
        return weights

    def load_weights(self, weights: dict[str, Array]) -> None:
        self.model.load_weights(weights)
        self._questions.loaded(weights)

    def set_dropout(self, active: bool) -> None:
        self.model.set_dropout(active)
        self._questions.dropout(active)

    def bypass(self, layers: Sequence[str]) -> None:
        self.model.bypass(layers)
        self._questions.dropout([*layers])

    def forward(
        self, inputs: Mapping[str, Array], *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        """As the model's. If any values of layers are asked for, those of all are recorded."""
        asked = list(self.layers) if layers else []
        found = self.model.forward(inputs, training=training, layers=asked)
        outputs, calls = tuple(map(self.keep, found.outputs)), tuple(map(self._call, found.calls))
        own = Pass(outputs, tuple(found.names), calls)
        question = self._questions.forward(inputs, training)
        known = self._answers.setdefault(question, [])
        for place, other in enumerate(known):
            if isinstance(other, Pass) and other.outputs == own.outputs:
                known[place] = own if own.has_values else other
                return found
        known.append(own)
        return found

    def vjp(
        self, inputs: Mapping[str, Array], cotangents: Sequence[Array], *, training: bool
    ) -> Gradients:
        found = self.model.vjp(inputs, cotangents, training=training)
        own = Backward(
            self.keep(np.asarray(found.loss, np.float64)),
            self._kept(found.parameters),
            self._kept(found.states),
            self._kept(found.several),
        )
        self._add(self._questions.vjp(inputs, cotangents, training), own)
        return found

    def own_steps(
        self, trainer: str, folder: Path, batches: Mapping[str, Array], observed: Sequence[int]
    ) -> tuple[Array, dict[int, dict[str, Array]]]:
        losses, weights = self.model.own_steps(trainer, folder, batches, observed)
        kept = {step: self._kept(arrays) for step, arrays in weights.items()}
        self._add(self._questions.steps(batches, observed), Steps(self.keep(losses), kept))
        return losses, weights

    def export(self, to: Path) -> None:
        self.model.export(to)

    def _add(self, question: str, answer: Answer) -> None:
        known = self._answers.setdefault(question, [])
        if answer not in known:
            known.append(answer)

    def _kept(self, arrays: Mapping[str, Array]) -> dict[str, str]:
        return {name: self.keep(array) for name, array in arrays.items()}

    def _call(self, call: LayerCall) -> Call:
        def name(array: Array | None) -> str | None:
            return None if array is None else self.keep(array)

        others = tuple(map(name, call.others))
        return Call(call.layer, name(call.inputs), name(call.output), others, call.dropout)


class RecordedModel:
    """A model that gives recorded answers.

    Its methods raise UnsupportedError if a question was not recorded.

    Args:
        name: what messages call it.
        dtype: the dtype that it was recorded in.
        answers: what was recorded.
        find: the array of a name.
    """

    evaluation_only = False

    def __init__(self, name: str, dtype: str, answers: Answers, find: Find) -> None:
        self.name, self.dtype = name, dtype
        self.layers = {layer.name: layer for layer in answers.layers}
        self.parameters = {parameter.name: parameter for parameter in answers.parameters}
        self.input_shape = answers.input_shape
        self._answers, self._find = answers.answers, find
        self._questions = _Questions()
        self._given: dict[str, int] = {}

    def drop(self) -> None:
        """Nothing is held."""

    def weights(self) -> dict[str, Array]:
        return self._found(self._answer(self._questions.hash("weights", {}), Held).arrays)

    def load_weights(self, weights: dict[str, Array]) -> None:
        self._questions.loaded(weights)

    def set_dropout(self, active: bool) -> None:
        self._questions.dropout(active)

    def bypass(self, layers: Sequence[str]) -> None:
        self._questions.dropout([*layers])

    def forward(
        self, inputs: Mapping[str, Array], *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        found = self._answer(self._questions.forward(inputs, training), Pass)
        asked = set(layers)

        def call_of(call: Call) -> LayerCall:
            def value(name: str | None) -> Array | None:
                return self._find(name) if name is not None and call.layer in asked else None

            others = tuple(map(value, call.others))
            return LayerCall(
                call.layer, value(call.inputs), value(call.output), others, call.dropout
            )

        outputs = tuple(map(self._find, found.outputs))
        return ForwardPass(outputs, tuple(map(call_of, found.calls)), found.names)

    def vjp(
        self, inputs: Mapping[str, Array], cotangents: Sequence[Array], *, training: bool
    ) -> Gradients:
        found = self._answer(self._questions.vjp(inputs, cotangents, training), Backward)
        parameters, states = self._found(found.parameters), self._found(found.states)
        loss = self._find(found.loss)
        return Gradients(loss, parameters, None, states, self._found(found.several))

    def own_steps(
        self, trainer: str, folder: Path, batches: Mapping[str, Array], observed: Sequence[int]
    ) -> tuple[Array, dict[int, dict[str, Array]]]:
        found = self._answer(self._questions.steps(batches, observed), Steps)
        weights = {step: self._found(arrays) for step, arrays in found.weights.items()}
        return self._find(found.losses), weights

    def export(self, to: Path) -> None:
        raise UnsupportedError("a capture cannot be exported", adapter=self.name)

    def _answer(self, question: str, kind: type[_Kind]) -> _Kind:
        """The next of the answers to a question, in turn."""
        known = [each for each in self._answers.get(question, ()) if isinstance(each, kind)]
        if not known:
            raise UnsupportedError(
                "its capture does not hold what is asked here; capture it again with this version of dlb "
                "and of NumPy",
                adapter=self.name,
            )
        number = self._given.get(question, 0)
        self._given[question] = number + 1
        return known[number % len(known)]

    def _found(self, arrays: Mapping[str, str]) -> dict[str, Array]:
        return {name: self._find(kept) for name, kept in arrays.items()}
