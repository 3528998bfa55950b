"""Weights that several layers of a file share.

A file may store them once, or a copy for each layer, perhaps transposed. So dlb compares the
numbers: two matrices that were drawn or trained separately are not equal in every number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from dlb_graph.comparing.read_facts import ReadFact, SameNumbers, SharedLayers, TiedWeights
from dlb_graph.layers import Embedding, Linear, Shape
from dlb_graph.layers.numbers import Array
from dlb_graph.workload.model import Input, Model, Node
from dlb_graph.workload.shapes import state_names

__all__ = ["tie_weights"]

#: Numbers of a matrix that are compared first.
_PREFIX = 8


def tie_weights(
    nodes: Sequence[Node], weights: Mapping[str, Array], shapes: Mapping[str, Shape]
) -> tuple[tuple[Node, ...], dict[str, Array], list[ReadFact]]:
    """Let layers share what they share in the file.

    A linear layer that multiplies by an earlier embedding's table is tied to it. A layer that is the same as an
    earlier one, in all numbers, computes with the parameters of that one.

    Args:
        nodes: the layers, in order.
        weights: by ``layer.parameter``, in canonical layout.
        shapes: of the model's input and of each layer's value, by name.

    Returns:
        the layers; the weights without those that belong to another layer; facts about shared
        weights, and about layers that share weights in the file but are trained separately.
    """
    by_name = {node.name: node for node in nodes}
    own_weights, facts = dict(weights), list[ReadFact]()
    for owner, *others in _equal_layers(nodes, weights, shapes):
        for name in others:
            by_name[name] = msgspec.structs.replace(by_name[name], weights_of=owner)
            for key in _names_of(name, weights):
                del own_weights[key]
        facts.append(SharedLayers(layers=tuple(others), owner=owner))
    for first, *duplicates in _equal_matrices(own_weights):
        owner = first.rpartition(".")[0]
        shared = {node.weights_of for node in by_name.values()}
        untied = []
        for name in duplicates:
            layer, parameter = name.rpartition(".")[::2]
            node = by_name[layer]
            table = isinstance(by_name[owner].layer, Embedding) and layer not in shared
            if table and isinstance(node.layer, Linear) and parameter == "weight":
                by_name[layer] = msgspec.structs.replace(
                    node, layer=msgspec.structs.replace(node.layer, tied_to=owner)
                )
                del own_weights[name]
                facts.append(TiedWeights(layer=layer, owner=owner))
            else:
                untied.append(name)
        if untied:
            facts.append(SameNumbers(tensors=(first, *untied)))
    return tuple(by_name.values()), own_weights, facts


def _names_of(layer: str, weights: Mapping[str, Array]) -> list[str]:
    return [name for name in weights if name.rpartition(".")[0] == layer]


def _equal_layers(
    nodes: Sequence[Node], weights: Mapping[str, Array], shapes: Mapping[str, Shape]
) -> list[list[str]]:
    """Groups of at least two layers, by name, that are the same in all attributes and numbers."""
    model = Model(input=Input(shape=(1,)), nodes=tuple(nodes))
    states = {name.rpartition(".")[0] for name in state_names(model)}
    own: dict[str, list[Array]] = defaultdict(list)
    for name, array in weights.items():
        own[name.rpartition(".")[0]].append(array)
    groups: dict[Any, list[list[str]]] = defaultdict(list)
    for node in nodes:
        arrays = own.get(node.name, [])
        # Numbers that are all equal may be so without being shared.
        if node.name in states or not any(
            array.size and (array != array.flat[0]).any() for array in arrays
        ):
            continue
        prefix = tuple(float(array.flat[-1]) for array in arrays)
        axes = tuple(len(shapes[name]) for name in node.inputs)
        key = (node.layer, axes, tuple(array.shape for array in arrays), prefix)
        for group in groups[key]:
            if all(map(np.array_equal, own[group[0]], arrays)):
                group.append(node.name)
                break
        else:
            groups[key].append([node.name])
    return [group for each in groups.values() for group in each if len(group) > 1]


def _equal_matrices(weights: Mapping[str, Array]) -> list[list[str]]:
    """Groups of at least two matrices or kernels, by name, that are equal in every number."""
    groups_by_prefix: dict[tuple[Any, ...], list[list[str]]] = defaultdict(list)
    for name, array in weights.items():
        # Constant matrices and vectors may be equal without being shared.
        if array.ndim < 2 or not array.size or (array == array.flat[0]).all():
            continue
        prefix = (array.shape, *array.flat[:_PREFIX])
        for group in groups_by_prefix[prefix]:
            if np.array_equal(weights[group[0]], array):
                group.append(name)
                break
        else:
            groups_by_prefix[prefix].append([name])
    return [group for groups in groups_by_prefix.values() for group in groups if len(group) > 1]
