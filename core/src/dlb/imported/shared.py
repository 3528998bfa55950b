"""Weights that several layers of a file share.

A file may keep them once, or once for each layer that reads them, turned as its operator wants:
exporters do either. So it is the numbers that tell: two matrices that were drawn or trained apart
are not equal in each of them.
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

__all__ = ["tied"]

Array = npt.NDArray[Any]
#: Numbers that stand for a matrix until whole ones are compared.
_GLANCE = 8


def tied(
    nodes: Sequence[Node], weights: Mapping[str, Array]
) -> tuple[tuple[Node, ...], dict[str, Array], list[Finding]]:
    """Linear layers tied to the embedding before them whose table they multiply by.

    Args:
        weights: by ``layer.parameter``, in canonical layout.

    Returns:
        the layers; the weights without those that are another layer's; findings about what was
        tied, and about layers that the file lets share weights and that are trained apart.
    """
    kept = dict(weights)
    findings: list[Finding] = []
    made = {node.name: node for node in nodes}
    for first, *others in _equal(weights):
        owner = first.rpartition(".")[0]
        apart = []
        for name in others:
            layer, parameter = name.rpartition(".")[::2]
            node = made[layer]
            table = isinstance(made[owner].layer, Embedding)
            if table and isinstance(node.layer, Linear) and parameter == "weight":
                made[layer] = msgspec.structs.replace(
                    node, layer=msgspec.structs.replace(node.layer, tied_to=owner)
                )
                del kept[name]
                findings.append(Finding(cause=TiedWeights(layer=layer, owner=owner)))
            else:
                apart.append(name)
        if apart:
            findings.append(Finding(cause=SameNumbers(tensors=(first, *apart))))
    return tuple(made.values()), kept, findings


def _equal(weights: Mapping[str, Array]) -> list[list[str]]:
    """Names of matrices and kernels that are equal in every number, in order; alone, none is."""
    alike: dict[tuple[Any, ...], list[list[str]]] = defaultdict(list)
    for name, array in weights.items():
        # Ones, zeros, and vectors of few numbers are equal without being shared.
        if array.ndim < 2 or not array.size or (array == array.flat[0]).all():
            continue
        glance = (array.shape, *array.flat[:_GLANCE])
        for group in alike[glance]:
            if np.array_equal(weights[group[0]], array):
                group.append(name)
                break
        else:
            alike[glance].append([name])
    return [group for groups in alike.values() for group in groups if len(group) > 1]
