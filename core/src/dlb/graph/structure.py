"""Whether an exported graph is the canonical one: the structure check of the proof.

Both graphs are brought to what they compute (:mod:`dlb.graph.operations`), and every operation is
given a hash of its meaning and of the hashes of what it reads (Merkle 1987). The graphs are the
same model when they have the same hashes, each as often. Where they differ, both are walked
together, and each layer that differs is named with its attributes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.alignment import Difference, differences
from dlb.graph.operations import Operation, operations

__all__ = ["Difference", "Structure", "compare_operations", "compare_structure"]


@dataclass(frozen=True)
class Structure:
    """How an exported graph compares with the canonical one.

    Attributes:
        equal: they compute the same, layout aside.
        differences: what differs, in the canonical graph's order; empty if and only if equal.
        canonical_parameters, exported_parameters: how many numbers the operations hold, in the
            form that was compared: batch normalisation that the exporter folded counts as folded.
        operators: the exported operations compared and how many of each, by name.
        unseen: batch normalisations that the exported graph does not show as such, because the
            exporter folded them into the layer before (so that they might as well be missing) or
            wrote them out as numbers (so that epsilon is lost). Whether they are right is for the
            comparison of outputs to say.
    """

    equal: bool
    differences: tuple[Difference, ...]
    canonical_parameters: int
    exported_parameters: int
    operators: tuple[tuple[str, int], ...]
    unseen: tuple[str, ...] = ()


def compare_structure(
    canonical: onnx.ModelProto,
    exported: onnx.ModelProto,
    weights: Mapping[str, npt.NDArray[np.floating]] | None = None,
) -> Structure:
    """Compare an exported graph with a canonical one (of inference, with either outputs).

    Args:
        weights: of the model that was exported, by the canonical graph's names, where that graph
            holds others. Exporters leave out a bias that is zeros; one that is not there is not.

    Raises:
        UnsupportedError: a graph cannot be run, which its reading needs.
    """
    wanted = operations(canonical)
    if weights is not None:
        wanted = [
            replace(
                each,
                nonzero_bias=each.bias_name not in weights or bool(weights[each.bias_name].any()),
            )
            for each in wanted
        ]
    return compare_operations(wanted, operations(exported))


def compare_operations(wanted: Sequence[Operation], found: Sequence[Operation]) -> Structure:
    """:func:`compare_structure` of graphs that were read."""
    wanted, found = (_once(each) for each in _tied(wanted, found))
    written_out = any(_is_norm(each) and each.attributes["epsilon"] is None for each in found)
    pairs: list[tuple[Sequence[Operation], Sequence[Operation]]] = [(wanted, found)]
    if sum(map(_is_norm, found)) < sum(map(_is_norm, wanted)):
        pairs += [(_folded(wanted), found), (_folded(wanted, _normalised(found)), found)]
    if any(map(_still, wanted)) and sum(map(_has_bias, found)) < sum(map(_has_bias, wanted)):
        pairs += [(_unbiased(a), _unbiased(b)) for a, b in list(pairs)]
    if any(_is_table(each) for each in wanted):
        pairs += [(_summed(a), _summed(b)) for a, b in list(pairs)]
    if written_out:
        pairs += [(_without_epsilon(a), _without_epsilon(b)) for a, b in list(pairs)]
    compared = [_compare(a, b, wanted) for a, b in pairs]
    return min(compared, key=lambda each: (not each.equal, len(each.differences)))


def _once(graph: Sequence[Operation]) -> list[Operation]:
    """Each operation without parameters once, however often the same is computed of the same:
    exporters leave the second out."""
    made: list[Operation] = []
    moved: dict[int, int] = {}
    known: dict[str, int] = {}
    for place, each in enumerate(graph):
        read = tuple(moved.get(i, i) for i in each.inputs)
        inputs = tuple(sorted(read)) if each.kind in ("Add", "Mul") else read
        meaning = repr((each.kind, sorted(each.attributes.items(), key=str), inputs))
        if not each.parameters and meaning in known:
            moved[place] = known[meaning]
            continue
        moved[place] = known[meaning] = len(made)
        made.append(replace(each, inputs=read))
    return made


def _tied(
    wanted: Sequence[Operation], found: Sequence[Operation]
) -> tuple[Sequence[Operation], Sequence[Operation]]:
    """Both graphs with each matrix that the canonical one shares with an embedding counted once.

    An exporter may write it twice: in the exported graph one is shared that holds the same numbers.
    Where the canonical graph shares none, matrices of the same numbers are as many as there are.
    """
    tables = {each.matrix_name for each in wanted if each.kind == "Embedding"}
    if not any(each.kind == "Linear" and each.matrix_name in tables for each in wanted):
        return wanted, found
    held = [each.matrix for each in found if each.kind == "Embedding" and each.matrix is not None]
    return (
        [_shared(each) if each.matrix_name in tables else each for each in wanted],
        [
            _shared(each)
            if each.matrix is not None and any(np.array_equal(each.matrix, one) for one in held)
            else each
            for each in found
        ],
    )


def _shared(operation: Operation) -> Operation:
    if operation.kind != "Linear" or operation.matrix is None:
        return operation
    return replace(
        operation,
        attributes={**operation.attributes, "weight of an embedding": True},
        parameters=operation.parameters - operation.matrix.size,
    )


def _compare(
    wanted: Sequence[Operation], found: Sequence[Operation], original: Sequence[Operation]
) -> Structure:
    same = _hashes(wanted) == _hashes(found)
    counts = [sum(each.parameters for each in side) for side in (wanted, found)]
    listed = () if same else tuple(differences(wanted, found))
    if same and counts[0] != counts[1]:
        listed = (Difference("", "", "parameters", str(counts[0]), str(counts[1])),)
    shown = {each.name for each in wanted if _is_norm(each) and each.attributes["epsilon"]}
    return Structure(
        equal=not listed,
        differences=listed,
        canonical_parameters=counts[0],
        exported_parameters=counts[1],
        operators=tuple(sorted(Counter(each.kind for each in found).items())),
        unseen=tuple(each.name for each in original if _is_norm(each) and each.name not in shown),
    )


def _hashes(graph: Sequence[Operation]) -> Counter[str]:
    found: list[str] = []
    for operation in graph:
        found.append(_hash(operation, found))
    return Counter(found)


def _hash(operation: Operation, before: Sequence[str]) -> str:
    """Of what it computes; ``before`` has those of the operations that it reads, by place."""
    read = [before[place] if place >= 0 else f"input {-place}" for place in operation.inputs]
    if operation.kind in ("Add", "Mul"):
        read.sort()
    meaning = (operation.kind, sorted(operation.attributes.items(), key=str), read)
    return hashlib.sha256(repr(meaning).encode()).hexdigest()


def _is_norm(operation: Operation) -> bool:
    return operation.kind == "BatchNormalization"


def _has_bias(operation: Operation) -> bool:
    return operation.kind in ("Conv", "Linear") and bool(operation.attributes["bias"])


def _still(operation: Operation) -> bool:
    """Whether it has a bias of zeros, which an exporter may have left out."""
    return _has_bias(operation) and not operation.nonzero_bias


def _unbiased(graph: Sequence[Operation]) -> list[Operation]:
    return [
        replace(
            each,
            attributes={**each.attributes, "bias": False},
            parameters=each.parameters - each.attributes["weight"][0],
        )
        if _still(each)
        else each
        for each in graph
    ]


def _is_table(operation: Operation) -> bool:
    return operation.kind == "PositionEmbedding"


def _summed(graph: Sequence[Operation]) -> list[Operation]:
    """Each table of positions taken into the one that it alone reads, and the bias of a layer
    normalisation into the table that alone reads it: exporters add up constants."""
    readers = Counter(place for each in graph for place in each.inputs)
    made: list[Operation] = []
    moved: dict[int, int] = {}
    for place, each in enumerate(graph):
        before = each.inputs[0] if each.inputs else -1
        if _is_table(each) and before >= 0 and readers[before] == 1:
            into = made[moved[before]]
            if _is_table(into):
                moved[place] = moved[before]
                continue
            if into.kind == "LayerNormalization":
                scale = into.attributes["features"]
                made[moved[before]] = replace(into, parameters=min(into.parameters, scale))
        moved[place] = len(made)
        made.append(replace(each, inputs=tuple(moved.get(i, i) for i in each.inputs)))
    return made


def _without_epsilon(graph: Sequence[Operation]) -> list[Operation]:
    return [
        replace(
            each,
            attributes={**each.attributes, "epsilon": None},
            parameters=2 * each.attributes["channels"],
        )
        if _is_norm(each)
        else each
        for each in graph
    ]


def _normalised(graph: Sequence[Operation]) -> set[str]:
    """Hashes of the operations that batch normalisations read, whatever their epsilon."""
    hashes: list[str] = []
    for each in _without_epsilon(graph):
        hashes.append(_hash(each, hashes))
    norms = (each.inputs[0] for each in graph if _is_norm(each))
    return {hashes[place] for place in norms if place >= 0}


def _folded(graph: Sequence[Operation], apart: Collection[str] = ()) -> list[Operation]:
    """Each batch normalisation that alone reads a convolution, a linear layer or, of [N, features],
    a layer normalisation, taken into it.

    Args:
        apart: :func:`_normalised` of a graph that has folded some; what they read keeps its own.
            tf2onnx does not fold behind convolutions of each channel by itself.
    """
    readers = Counter(place for each in graph for place in each.inputs)
    made: list[Operation] = []
    hashes: list[str] = []
    moved: dict[int, int] = {}
    for place, each in enumerate(graph):
        itself = replace(each, inputs=tuple(moved.get(i, i) for i in each.inputs))
        before = itself.inputs[0]
        alone = before >= 0 and readers[each.inputs[0]] == 1
        if _is_norm(each) and alone and hashes[before] not in apart:
            into = made[before]
            if into.kind in ("Conv", "Linear"):
                bias = 0 if into.attributes["bias"] else each.attributes["channels"]
                made[before] = replace(
                    into,
                    attributes={**into.attributes, "bias": True},
                    parameters=into.parameters + bias,
                    nonzero_bias=True,
                )
                hashes[before], moved[place] = _hash(made[before], hashes), before
                continue
            whole = each.attributes["channels"] == each.attributes["elements"]
            if into.kind == "LayerNormalization" and whole:
                moved[place] = before
                continue
        moved[place] = len(made)
        made.append(itself)
        (plain,) = _without_epsilon([itself])
        hashes.append(_hash(plain, hashes))
    return made
