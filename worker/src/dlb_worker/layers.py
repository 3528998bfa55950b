"""The registry that each adapter keeps: for each layer kind how it is built and what it holds."""

import importlib
from operator import attrgetter
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

from dlb_worker.model import Model, Node
from dlb_worker.parameters import Mappings, NativeParameter

__all__ = ["Layer", "LazyModule", "native_parameters", "sentences"]


class Layer(NamedTuple):
    """How an adapter builds one layer kind.

    Attributes:
        sentence: begins with ``native`` or ``composed`` and says how.
        build: makes the native layer; each adapter documents its arguments, a node the first.
        parameters: where the native layer holds each parameter, by role.
        mappings: the same as a function of the node, where it depends on that.
    """

    sentence: str
    build: Callable[..., Any]
    parameters: Mappings = {}
    mappings: Optional[Callable[[Node], Mappings]] = None


class LazyModule:
    """A module that is imported when an attribute is first read.

    A registry describes its layers without importing the framework, so it names modules with this.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


def sentences(registry: Mapping[str, Layer]) -> Dict[str, str]:
    """The sentence for each kind, as a description has them."""
    return {kind: layer.sentence for kind, layer in registry.items()}


def native_parameters(
    model: Model, registry: Mapping[str, Layer], holder: Callable[[Node], Any]
) -> List[NativeParameter]:
    """Every parameter of a built model, read by the registry's attributes.

    Args:
        holder: the native object of a node whose attributes hold its parameters.
    """
    parameters = []
    for node in model.nodes:
        if node.weights_of:
            continue
        layer = registry[node.kind]
        mappings = layer.parameters if layer.mappings is None else layer.mappings(node)
        for role, parameter in node.parameters.items():
            mapping, native = mappings[role], holder(node)
            natives = tuple(attrgetter(attribute)(native) for attribute in mapping.attributes)
            parameters.append(
                NativeParameter(
                    parameter.name, node.name, role, parameter.trained, natives, mapping
                )
            )
    return parameters
