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
import numpy.typing as npt

from dlb.proof.findings import Finding
from dlb.proof.findings.workload import SameNumbers, TiedWeights
from dlb.workload.layers import Embedding, Linear
from dlb.workload.model import Node

__all__ = ["tie_weights"]

Array = npt.NDArray[Any]
#: Numbers of a matrix that are compared first.
_PREFIX = 8


def tie_weights(
    nodes: Sequence[Node], weights: Mapping[str, Array]
) -> tuple[tuple[Node, ...], dict[str, Array], list[Finding]]:
    """Tie each linear layer to an earlier embedding if it multiplies by the embedding's table.

    Args:
        nodes: the layers, in order.
        weights: by ``layer.parameter``, in canonical layout.

    Returns:
        the layers; the weights without those that belong to another layer; findings about tied
        weights, and about layers that share weights in the file but are trained separately.
    """
    own_weights = dict(weights)
    findings: list[Finding] = []
    by_name = {node.name: node for node in nodes}
    for first, *duplicates in _equal_matrices(weights):
        owner = first.rpartition(".")[0]
        untied = []
        for name in duplicates:
            layer, parameter = name.rpartition(".")[::2]
            node = by_name[layer]
            table = isinstance(by_name[owner].layer, Embedding)
            if table and isinstance(node.layer, Linear) and parameter == "weight":
                by_name[layer] = msgspec.structs.replace(
                    node, layer=msgspec.structs.replace(node.layer, tied_to=owner)
                )
                del own_weights[name]
                findings.append(Finding(cause=TiedWeights(layer=layer, owner=owner)))
            else:
                untied.append(name)
        if untied:
            findings.append(Finding(cause=SameNumbers(tensors=(first, *untied))))
    return tuple(by_name.values()), own_weights, findings


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
