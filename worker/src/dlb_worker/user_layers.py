"""A user's model whose layers are objects of the framework: what is the same in every framework."""

import abc
from typing import Any, List, Mapping, Optional, Set, Tuple

import numpy as np

from dlb_worker.contract import UserLayer, UserModelRequest
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import UserModel
from dlb_worker.parameters import Kinds, Mappings, NativeParameter, kind_among, user_parameter

__all__ = ["LayeredUserModel", "first_tensor", "make_model", "needed_inputs"]


class LayeredUserModel(UserModel):
    """A user's model that is a tree of layers.

    Attributes:
        kinds: the layer kind of each type of layer, and where such a layer holds its parameters.
        names: every layer with its path, the model itself first.
    """

    kinds: Kinds
    names: Mapping[Any, str]

    @abc.abstractmethod
    def own_parameters(self, layer: Any) -> Mapping[str, Any]:
        """Parameters and states of a layer that hold real numbers, by attribute, without its parts'.

        The mappings of the layer's kind name attributes too. Those may lead into its parts.
        """

    @abc.abstractmethod
    def is_trained(self, native: Any) -> bool:
        """Whether training moves a parameter by its gradient."""

    @abc.abstractmethod
    def attributes(self, layer: Any) -> Mapping[str, str]:
        """What a layer was made with, as text."""

    def momentum(self, layer: Any) -> Optional[float]:
        """As :attr:`dlb_worker.contract.UserLayer.momentum` defines it."""
        return None

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
                    trained = self.is_trained(own[mapping.attribute])
                    natives = {labels[each]: own.pop(each) for each in mapping.attributes}
                    parameters.append(user_parameter(name, role, trained, natives, mapping))
            for attribute, native in own.items():
                natives = {labels[attribute]: native}
                parameters.append(user_parameter(name, "", self.is_trained(native), natives))
        return parameters


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


def needed_inputs(inputs: Optional[np.ndarray], problem: str) -> np.ndarray:
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
