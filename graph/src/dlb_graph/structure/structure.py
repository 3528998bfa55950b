"""Whether an exported graph is the canonical one: the structure check of the proof.

Both graphs are read as operations, independent of layout (:mod:`dlb_graph.structure.normal_form`). Each
operation gets a hash of its meaning and of its inputs' hashes (Merkle 1987). The graphs are the
same model if they have the same hashes, each equally often. If they differ, both graphs are
aligned, and each differing layer is named with its attributes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx

from dlb_graph.structure.alignment import Difference, differences
from dlb_graph.structure.normal_form import operations
from dlb_graph.structure.operation import WEIGHTED, Operation

__all__ = ["Difference", "Structure", "compare_operations", "compare_structure"]


@dataclass(frozen=True)
class Structure:
    """How an exported graph compares with the canonical one.

    Attributes:
        equal: both compute the same, layout aside.
        differences: in the canonical graph's order; empty if and only if ``equal``.
        canonical_parameters, exported_parameters: how many numbers the operations hold, in the form
            that was compared: a batch normalisation that the exporter folded counts as folded.
        unseen: batch normalisations that the exported graph does not show. The exporter folded them
            into the layer before, so that they may as well be missing, or decomposed them, so that
            epsilon is lost. Only a comparison of outputs can show whether they are correct.
    """

    equal: bool
    differences: tuple[Difference, ...]
    canonical_parameters: int
    exported_parameters: int
    unseen: tuple[str, ...] = ()


def compare_structure(
    canonical: onnx.ModelProto,
    exported: onnx.ModelProto,
    weights: Mapping[str, npt.NDArray[np.floating]] | None = None,
) -> Structure:
    """Compare an exported graph with a canonical one (for inference, with either outputs).

    Args:
        weights: of the exported model, by the canonical graph's names, if that graph holds other
            weights. Exporters leave out a bias of zeros. A name that is missing counts as nonzero.

    Raises:
        UnsupportedError: a graph cannot be run, which is necessary to read it.
    """
    canonical_operations = operations(canonical)
    if weights is not None:
        canonical_operations = [
            replace(
                operation,
                nonzero_bias=operation.bias_name not in weights
                or bool(weights[operation.bias_name].any()),
            )
            for operation in canonical_operations
        ]
    return compare_operations(canonical_operations, operations(exported))


def compare_operations(canonical: Sequence[Operation], exported: Sequence[Operation]) -> Structure:
    """:func:`compare_structure` of graphs that were read.

    Exporters fold or leave out some operations. So several variants of both graphs are compared,
    and the variant with the fewest differences counts.
    """
    canonical, exported = map(_without_duplicates, _count_shared_once(canonical, exported))
    variants: list[tuple[Sequence[Operation], Sequence[Operation]]] = [(canonical, exported)]
    if sum(map(_is_norm, exported)) < sum(map(_is_norm, canonical)):
        kept = _inputs_of_norms(exported)
        variants += [(_fold_norms(canonical), exported), (_fold_norms(canonical, kept), exported)]
    if any(map(_has_zero_bias, canonical)) and sum(map(_has_bias, exported)) < sum(
        map(_has_bias, canonical)
    ):
        variants += [(_without_zero_biases(a), _without_zero_biases(b)) for a, b in variants]
    if any(map(_is_table, canonical)):
        variants += [(_sum_tables(a), _sum_tables(b)) for a, b in variants]
    if any(_is_norm(layer) and layer.attributes["epsilon"] is None for layer in exported):
        variants += [(_without_epsilon(a), _without_epsilon(b)) for a, b in variants]
    compared = [_compare(*pair, canonical) for pair in variants]
    return min(compared, key=lambda result: (not result.equal, len(result.differences)))


def _without_duplicates(graph: Sequence[Operation]) -> list[Operation]:
    """The operations without repetitions of a computation that has no parameters.

    Exporters leave out the second of two equal computations with equal inputs.
    """
    kept: list[Operation] = []
    new_index: dict[int, int] = {}
    index_of_meaning: dict[str, int] = {}
    for index, operation in enumerate(graph):
        sources = tuple(new_index.get(i, i) for i in operation.inputs)
        meaning = _meaning(operation, sources)
        if not operation.parameters and meaning in index_of_meaning:
            new_index[index] = index_of_meaning[meaning]
            continue
        new_index[index] = index_of_meaning[meaning] = len(kept)
        kept.append(replace(operation, inputs=sources))
    return kept


def _count_shared_once(
    canonical: Sequence[Operation], exported: Sequence[Operation]
) -> tuple[Sequence[Operation], Sequence[Operation]]:
    """Both graphs with each matrix that the canonical graph shares with an embedding counted once.

    An exporter may write such a matrix twice. In the exported graph, a matrix is shared if it
    equals an embedding's table. If the canonical graph shares none, equal matrices are counted
    separately.
    """
    tables = {operation.matrix_name for operation in canonical if operation.kind == "Embedding"}
    if not any(
        operation.kind == "Linear" and operation.matrix_name in tables for operation in canonical
    ):
        return canonical, exported
    embedding_tables = [
        operation.matrix
        for operation in exported
        if operation.kind == "Embedding" and operation.matrix is not None
    ]
    return (
        [
            _without_matrix(operation) if operation.matrix_name in tables else operation
            for operation in canonical
        ],
        [
            _without_matrix(operation)
            if operation.matrix is not None
            and any(np.array_equal(operation.matrix, table) for table in embedding_tables)
            else operation
            for operation in exported
        ],
    )


def _without_matrix(operation: Operation) -> Operation:
    """A Linear whose weight belongs to an embedding."""
    if operation.kind != "Linear" or operation.matrix is None:
        return operation
    return replace(
        operation,
        attributes={**operation.attributes, "weight of an embedding": True},
        parameters=operation.parameters - operation.matrix.size,
    )


def _compare(
    canonical: Sequence[Operation], exported: Sequence[Operation], original: Sequence[Operation]
) -> Structure:
    same_hashes = _hashes(canonical) == _hashes(exported)
    parameter_counts = [
        sum(operation.parameters for operation in side) for side in (canonical, exported)
    ]
    listed = () if same_hashes else tuple(differences(canonical, exported))
    if same_hashes and parameter_counts[0] != parameter_counts[1]:
        listed = (
            Difference("", "", "parameters", str(parameter_counts[0]), str(parameter_counts[1])),
        )
    visible_norms = {
        operation.name
        for operation in canonical
        if _is_norm(operation) and operation.attributes["epsilon"]
    }
    return Structure(
        equal=not listed,
        differences=listed,
        canonical_parameters=parameter_counts[0],
        exported_parameters=parameter_counts[1],
        unseen=tuple(
            operation.name
            for operation in original
            if _is_norm(operation) and operation.name not in visible_norms
        ),
    )


def _hashes(graph: Sequence[Operation]) -> Counter[str]:
    hashes: list[str] = []
    for operation in graph:
        hashes.append(_hash(operation, hashes))
    return Counter(hashes)


def _hash(operation: Operation, hashes: Sequence[str]) -> str:
    """The hash of what an operation computes; ``hashes`` has those of all operations before it."""
    sources = [hashes[index] if index >= 0 else f"input {-index}" for index in operation.inputs]
    return hashlib.sha256(_meaning(operation, sources).encode()).hexdigest()


def _meaning(operation: Operation, sources: Sequence[int] | Sequence[str]) -> str:
    """What an operation computes of its sources, as text."""
    ordered = sorted(sources) if operation.kind in ("Add", "Mul") else list(sources)
    return repr((operation.kind, sorted(operation.attributes.items(), key=str), ordered))


def _is_norm(operation: Operation) -> bool:
    return operation.kind == "BatchNormalization"


def _has_bias(operation: Operation) -> bool:
    return operation.kind in WEIGHTED and bool(operation.attributes["bias"])


def _has_zero_bias(operation: Operation) -> bool:
    """Whether it has a bias of zeros, which an exporter may leave out."""
    return _has_bias(operation) and not operation.nonzero_bias


def _without_zero_biases(graph: Sequence[Operation]) -> list[Operation]:
    return [
        replace(
            operation,
            attributes={**operation.attributes, "bias": False},
            parameters=operation.parameters - operation.attributes["weight"][0],
        )
        if _has_zero_bias(operation)
        else operation
        for operation in graph
    ]


def _is_table(operation: Operation) -> bool:
    return operation.kind == "PositionEmbedding"


def _sum_tables(graph: Sequence[Operation]) -> list[Operation]:
    """The graph with constant tables added up, as exporters do.

    A position table is added to the table before it, if nothing else reads that. So is the bias of
    a layer normalisation before a table.
    """
    readers = Counter(index for operation in graph for index in operation.inputs)
    kept: list[Operation] = []
    new_index: dict[int, int] = {}
    for index, operation in enumerate(graph):
        source = operation.inputs[0] if operation.inputs else -1
        if _is_table(operation) and source >= 0 and readers[source] == 1:
            target = kept[new_index[source]]
            if _is_table(target):
                new_index[index] = new_index[source]
                continue
            if target.kind == "LayerNormalization":
                scale = target.attributes["features"]
                kept[new_index[source]] = replace(target, parameters=min(target.parameters, scale))
        new_index[index] = len(kept)
        kept.append(replace(operation, inputs=tuple(new_index.get(i, i) for i in operation.inputs)))
    return kept


def _without_epsilon(graph: Sequence[Operation]) -> list[Operation]:
    return [
        replace(
            operation,
            attributes={**operation.attributes, "epsilon": None},
            parameters=2 * operation.attributes["channels"],
        )
        if _is_norm(operation)
        else operation
        for operation in graph
    ]


def _inputs_of_norms(graph: Sequence[Operation]) -> set[str]:
    """Hashes of the operations that batch normalisations read, whatever their epsilon."""
    hashes: list[str] = []
    for operation in _without_epsilon(graph):
        hashes.append(_hash(operation, hashes))
    norm_inputs = (operation.inputs[0] for operation in graph if _is_norm(operation))
    return {hashes[index] for index in norm_inputs if index >= 0}


def _fold_norms(graph: Sequence[Operation], unfolded: Collection[str] = ()) -> list[Operation]:
    """The graph with batch normalisations folded into the layer before, if nothing else reads that.

    The layer is a convolution (transposed or not), a linear layer, a group normalisation or, for
    [N, features], a layer normalisation.

    Args:
        unfolded: hashes of layers that keep their batch normalisation (:func:`_inputs_of_norms`).
            tf2onnx does not fold into depthwise convolutions.
    """
    readers = Counter(index for operation in graph for index in operation.inputs)
    kept: list[Operation] = []
    hashes: list[str] = []
    new_index: dict[int, int] = {}
    for index, operation in enumerate(graph):
        renumbered = replace(operation, inputs=tuple(new_index.get(i, i) for i in operation.inputs))
        source = renumbered.inputs[0]
        sole_reader = source >= 0 and readers[operation.inputs[0]] == 1
        if _is_norm(operation) and sole_reader and hashes[source] not in unfolded:
            target = kept[source]
            if target.kind in WEIGHTED:
                bias = 0 if target.attributes["bias"] else operation.attributes["channels"]
                kept[source] = replace(
                    target,
                    attributes={**target.attributes, "bias": True},
                    parameters=target.parameters + bias,
                    nonzero_bias=True,
                )
                hashes[source], new_index[index] = _hash(kept[source], hashes), source
                continue
            normalises_features = (
                operation.attributes["channels"] == operation.attributes["elements"]
            )
            normalises_channels = (
                target.kind == "GroupNormalization"
                and operation.attributes["channels"] == target.attributes["channels"]
            )
            if normalises_channels or (target.kind == "LayerNormalization" and normalises_features):
                new_index[index] = source
                continue
        new_index[index] = len(kept)
        kept.append(renumbered)
        (without_epsilon,) = _without_epsilon([renumbered])
        hashes.append(_hash(without_epsilon, hashes))
    return kept
