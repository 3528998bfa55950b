"""A user's model whose layers are objects of the framework: what is the same in every framework."""

import abc
import inspect
from contextlib import contextmanager
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)

import numpy as np

from dlb_worker.contract import Dropout, Inputs, UserLayer, UserModelRequest
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import UserModel
from dlb_worker.parameters import (
    AS_IS,
    Kinds,
    Mappings,
    NativeParameter,
    ParameterMapping,
    kind_among,
    low_rank,
    user_parameter,
)

__all__ = [
    "LayeredUserModel",
    "bound",
    "first_tensor",
    "input_gradients",
    "make_model",
    "needed_inputs",
    "one_example",
    "other_tensors",
]


class LayeredUserModel(UserModel):
    """A user's model that is a tree of layers.

    Attributes:
        model: the framework's own object.
        kinds: the layer kind of each type of layer, and where such a layer holds its parameters.
        names: every layer with its path, the model itself first.
    """

    model: Any
    kinds: Kinds
    names: Mapping[Any, str]
    #: Whether layers and functions drop something in training mode.
    drops: bool = True
    #: The method of a layer that the framework calls.
    called: str = "forward"

    @abc.abstractmethod
    def native(self, array: np.ndarray) -> Any:
        """An array as the framework's tensor, real numbers in the model's dtype."""

    def natives(self, inputs: Inputs) -> Dict[str, Any]:
        """The framework's tensor of every input by name; "" is the name of the only one."""
        arrays = inputs if isinstance(inputs, Mapping) else {"": inputs}
        return {name: self.native(array) for name, array in arrays.items()}

    def own_steps(
        self,
        make_step: Callable[[Any], Callable[[Any], Any]],
        batches: Iterable[Mapping[str, np.ndarray]],
    ) -> Iterator[float]:
        step = make_step(self.model)
        for batch in batches:
            with self.training_mode():
                loss = step({name: self.native(array) for name, array in batch.items()})
            yield float(np.asarray(self.host(loss)).reshape(-1)[0])

    @contextmanager
    def training_mode(self) -> Iterator[None]:
        """While it lasts, the framework trains, as far as it has such a mode of its own."""
        yield

    def host(self, loss: Any) -> Any:
        """A loss as a number or an array of one number."""
        return loss

    @abc.abstractmethod
    def own_parameters(self, layer: Any) -> Mapping[str, Any]:
        """Parameters and states of a layer that hold real numbers, by attribute, without its parts'.

        The mappings of the layer's kind name attributes too. Those may lead into its parts.
        """

    @abc.abstractmethod
    def is_trained(self, native: Any) -> bool:
        """Whether training moves a parameter by its gradient."""

    def is_frozen(self, native: Any) -> bool:
        """Whether it is a parameter whose training is switched off; a buffer or a constant is none."""
        return False

    @abc.abstractmethod
    def attributes(self, layer: Any) -> Mapping[str, str]:
        """What a layer was made with, as text."""

    def momentum(self, layer: Any) -> Optional[float]:
        """As :attr:`dlb_worker.contract.UserLayer.momentum` defines it."""
        return None

    def penalties(self, layer: Any) -> Mapping[str, str]:
        """As :attr:`dlb_worker.contract.UserLayer.penalties` defines them."""
        return {}

    def dropout(self, layer: Any) -> Optional[Dropout]:
        """What a layer drops at its rate of now; None if nothing."""
        return None

    def set_rate(self, layer: Any, rate: float) -> None:
        """Set the dropout rate of a layer that has one."""
        raise NotImplementedError

    def set_dropout(self, active: bool) -> None:
        self.drops = active
        if not active:
            dropouts = [(layer, self.dropout(layer)) for layer in self.names]
            self._rates = [(layer, each.rate) for layer, each in dropouts if each is not None]
        for layer, rate in getattr(self, "_rates", ()):
            self.set_rate(layer, rate if active else 0.0)

    def bypass(self, layers: Sequence[str]) -> None:
        for layer, name in self.names.items():
            if name in layers:
                setattr(layer, self.called, _first)

    def kind_of(self, layer: Any) -> Tuple[str, Mappings]:
        """The layer kind that a layer is, and where its parameters are; "" and none if not known."""
        return kind_among(self.kinds, layer)

    def labels(self, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        """What the names of a layer's own parameters end with, by attribute."""
        return {attribute: attribute for attribute in parameters}

    def layers(self) -> List[UserLayer]:
        return [
            UserLayer(
                name,
                type(layer).__name__,
                self.attributes(layer),
                self.kind_of(layer)[0],
                self.momentum(layer),
                self.penalties(layer),
            )
            for layer, name in self.names.items()
        ]

    def find_parameters(self) -> List[NativeParameter]:
        """Every layer's parameters: with a role where its kind has one, then the others as they are.

        A parameter that several layers share belongs to the first.
        """
        parameters = []
        seen: Set[int] = set()
        for layer, name in self.names.items():
            own = {}
            for attribute, native in self.own_parameters(layer).items():
                if id(native) not in seen:
                    seen.add(id(native))
                    own[attribute] = native
            labels = self.labels(own)
            for role, mapping in self.kind_of(layer)[1].items():
                if all(attribute in own for attribute in mapping.attributes):
                    first = own[mapping.attribute]
                    natives = {labels[each]: own.pop(each) for each in mapping.attributes}
                    parameters.append(self._parameter(name, role, first, natives, mapping))
            shapes = {labels[each]: tuple(native.shape or ()) for each, native in own.items()}
            ranks = low_rank(shapes, self.kind_of(layer)[0])
            for attribute, native in own.items():
                label = labels[attribute]
                role, mapping = ranks.get(label, ("", AS_IS))
                parameters.append(self._parameter(name, role, native, {label: native}, mapping))
        return parameters

    def _parameter(
        self,
        layer: str,
        role: str,
        native: Any,
        natives: Mapping[str, Any],
        mapping: ParameterMapping = AS_IS,
    ) -> NativeParameter:
        trained = self.is_trained(native)
        frozen = not trained and self.is_frozen(native)
        return user_parameter(layer, role, trained, natives, mapping, frozen)


def _first(*inputs: Any, **named: Any) -> Any:
    """What a layer that is left out returns."""
    return (*inputs, *named.values())[0]


def make_model(request: UserModelRequest, expected: type, description: str) -> Any:
    """The model that the user's factory returns.

    Args:
        description: the expected type in words, with its article.

    Raises:
        UnsupportedError: the factory returns another type.
    """
    model = request.make()
    if not isinstance(model, expected):
        raise UnsupportedError(
            f"the factory returned a {type(model).__name__}; it must return {description}"
        )
    return model


def bound(
    function: Callable[..., Any], natives: Mapping[str, Any]
) -> Tuple[Any, Mapping[str, Any]]:
    """Arguments and named arguments with which a model's function reads its inputs.

    Several are given by name if every name is a parameter's, together as one mapping if the function
    reads one argument, and otherwise in their order.
    """
    if len(natives) < 2:
        return tuple(natives.values()), {}
    parameters = inspect.signature(function).parameters.values()
    named = {each.name for each in parameters if each.kind is not each.VAR_POSITIONAL}
    if named.issuperset(natives):
        return (), dict(natives)
    required = [
        each
        for each in parameters
        if each.kind is each.VAR_POSITIONAL
        or (each.kind is each.POSITIONAL_OR_KEYWORD and each.default is each.empty)
    ]
    if len(required) == 1 and required[0].kind is not required[0].VAR_POSITIONAL:
        return (dict(natives),), {}
    return tuple(natives.values()), {}


def input_gradients(gradients: Mapping[str, np.ndarray]) -> Dict[str, Any]:
    """The fields of :class:`dlb_worker.contract.Gradients` that hold gradients of real inputs.

    Args:
        gradients: by name, as in :meth:`LayeredUserModel.natives`.
    """
    several = {name: array for name, array in gradients.items() if name}
    return {"inputs": gradients.get(""), "several": several}


def one_example(model: UserModel) -> np.ndarray:
    """The example of a model that reads one input, for an exporter that knows no other.

    Raises:
        UnsupportedError: the model reads several.
    """
    if model.example is None or isinstance(model.example, Mapping):
        raise UnsupportedError("this adapter exports user models of one input only")
    return model.example


def needed_inputs(inputs: Optional[Inputs], problem: str) -> Inputs:
    """The batch from which layers learn their shapes.

    Args:
        problem: what has no shape, a clause.

    Raises:
        UnsupportedError: there is no batch.
    """
    if inputs is None:
        raise UnsupportedError(
            f"{problem} before the model has seen an input; give --input or --input-shape"
        )
    return inputs


def first_tensor(value: Any) -> Any:
    """The one tensor that stands for what a layer reads or returns: a sequence, not states."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return value


def other_tensors(values: Any) -> List[Any]:
    """Everything else that a layer reads, such as the second value of a sum."""
    flat: List[Any] = []

    def walk(value: Any) -> None:
        if isinstance(value, (list, tuple)):
            for each in value:
                walk(each)
        elif isinstance(value, Mapping):
            walk(list(value.values()))
        else:
            flat.append(value)

    walk(values)
    return flat[1:]
