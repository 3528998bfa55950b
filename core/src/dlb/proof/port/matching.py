"""Matching of parameters of two models, only where it is unambiguous.

First, layers of known types are paired: by order if both models call the same layers in the same order. Else
they are paired if a layer of that type and those shapes occurs once, or if its name is unique. Other
parameters are paired by name or by shape if there is no choice. Nothing is transposed: a square matrix in
an unknown layout is left to the user.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlb.proof.port.weight_map import Pair
from dlb_worker.contract import ParameterDescription, UserLayer

__all__ = ["MatchableModel", "Proposal", "propose"]


@dataclass(frozen=True)
class MatchableModel:
    """The parts of a model that matching needs.

    Attributes:
        layers: layers by name.
        parameters: parameters that need a counterpart.
        calls: names of layers in the order of their calls.
    """

    layers: Mapping[str, UserLayer]
    parameters: Sequence[ParameterDescription]
    calls: Sequence[str]

    def parameters_by_layer(self) -> dict[str, list[ParameterDescription]]:
        """Parameters by layer; layers are in the order of their first call."""
        first_call: dict[str, int] = {}
        for number, name in enumerate(self.calls):
            first_call.setdefault(name, number)
        by_layer = defaultdict(list)
        for parameter in self.parameters:
            by_layer[parameter.layer].append(parameter)
        return dict(
            sorted(by_layer.items(), key=lambda item: first_call.get(item[0], len(self.calls)))
        )


@dataclass
class Proposal:
    """The result of matching.

    Attributes:
        pairs: matched parameters, in the order of the reference's parameters.
        undecided: one line for users for each parameter that could not be matched.
    """

    pairs: list[Pair] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)


def propose(source: MatchableModel, target: MatchableModel, names: tuple[str, str]) -> Proposal:
    """Pair the parameters of two models.

    Args:
        names: names of the models, for messages.
    """
    proposal = Proposal()
    source_parameters, target_parameters = (
        source.parameters_by_layer(),
        target.parameters_by_layer(),
    )
    for source_layer, target_layer, why in _pair_layers(
        source, target, source_parameters, target_parameters
    ):
        by_role = {parameter.role: parameter for parameter in target_parameters[target_layer]}
        for parameter in list(source_parameters[source_layer]):
            counterpart = by_role.get(parameter.role)
            if parameter.role and counterpart is not None and counterpart.shape == parameter.shape:
                proposal.pairs.append(Pair(parameter, counterpart, why))
                source_parameters[source_layer].remove(parameter)
                target_parameters[target_layer].remove(counterpart)
    source_left = [
        parameter
        for layer_parameters in source_parameters.values()
        for parameter in layer_parameters
    ]
    target_left = [
        parameter
        for layer_parameters in target_parameters.values()
        for parameter in layer_parameters
    ]
    for rule, why in ((_pair_by_full_name, "by name"), (_pair_by_shape, "by shape")):
        for parameter, counterpart in rule(source_left, target_left):
            proposal.pairs.append(Pair(parameter, counterpart, why))
            source_left.remove(parameter)
            target_left.remove(counterpart)
    positions = {parameter.name: number for number, parameter in enumerate(source.parameters)}
    proposal.pairs.sort(key=lambda pair: positions[pair.source.name])
    named: set[str] = set()
    for parameter in source_left:
        candidates = [
            counterpart.name
            for counterpart in target_left
            if sorted(counterpart.shape) == sorted(parameter.shape)
        ]
        named |= set(candidates)
        proposal.undecided.append(_describe_undecided(names[0], source, parameter, candidates))
    # Parameters of the other model that no line above names.
    proposal.undecided += [
        _describe_undecided(names[1], target, parameter, ())
        for parameter in target_left
        if parameter.name not in named
    ]
    return proposal


def _describe_undecided(
    name: str, model: MatchableModel, parameter: ParameterDescription, candidates: Sequence[str]
) -> str:
    layer = model.layers.get(parameter.layer)
    kind = f" of {layer.type}" if layer else ""
    note = "" if parameter.role else ", lying in a way that is not known,"
    more = f" or {len(candidates) - 4} more" if len(candidates) > 4 else ""
    outcome = (
        f"could be {' or '.join(candidates[:4])}{more}" if candidates else "has no counterpart"
    )
    return f"{name}: {parameter.name}{kind}, {list(parameter.shape)}{note} {outcome}"


Owners = Mapping[str, Sequence[ParameterDescription]]


def _pair_layers(
    source: MatchableModel, target: MatchableModel, ours: Owners, theirs: Owners
) -> Iterable[tuple[str, str, str]]:
    """Pairs of layers of known types, and how each pair was found."""
    own_signatures = {
        name: _signature(source, name, parameters) for name, parameters in ours.items()
    }
    other_signatures = {
        name: _signature(target, name, parameters) for name, parameters in theirs.items()
    }
    own_signatures = {
        name: own_signature for name, own_signature in own_signatures.items() if own_signature
    }
    other_signatures = {
        name: own_signature for name, own_signature in other_signatures.items() if own_signature
    }
    counts = Counter(own_signatures.values())
    same_order = list(own_signatures.values()) == list(
        other_signatures.values()
    ) and not _names_reordered(own_signatures, other_signatures)
    if same_order:
        for (own_name, signature), other_name in zip(own_signatures.items(), other_signatures):
            yield own_name, other_name, "by shape" if counts[signature] == 1 else "by order"
        return
    for signature in dict.fromkeys(own_signatures.values()):
        own_names = [
            name for name, own_signature in own_signatures.items() if own_signature == signature
        ]
        other_names = [
            name for name, own_signature in other_signatures.items() if own_signature == signature
        ]
        if len(own_names) == len(other_names) == 1:
            yield own_names[0], other_names[0], "by shape"
        else:
            yield from ((*pair, "by name") for pair in _pair_by_name(own_names, other_names))
    # A layer with a bias in only one model is still matched by its weight.
    unmatched = {
        name: own_signature
        for name, own_signature in own_signatures.items()
        if own_signature not in other_signatures.values()
    }
    for name, own_signature in unmatched.items():
        candidates = [
            other_name
            for other_name, other_signature in other_signatures.items()
            if _same_kind(own_signature, other_signature)
        ]
        rivals = [
            own_name
            for own_name, other_signature in own_signatures.items()
            if _same_kind(other_signature, own_signature)
        ]
        if (
            len(candidates) == len(rivals) == 1
            and other_signatures[candidates[0]] not in own_signatures.values()
        ):
            yield name, candidates[0], "by shape"


def _signature(
    model: MatchableModel, layer: str, parameters: Sequence[ParameterDescription]
) -> tuple[Any, ...]:
    """The kind of a layer, and role and shape of each parameter; empty if a role is unknown."""
    if layer not in model.layers or not all(parameter.role for parameter in parameters):
        return ()
    return (
        model.layers[layer].kind,
        tuple(sorted((parameter.role, parameter.shape) for parameter in parameters)),
    )


def _same_kind(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    """Whether two layers have the same kind, and equal shapes of the parameters that both have."""
    first_shapes, second_shapes = dict(first[1]), dict(second[1])
    shared = set(first_shapes) & set(second_shapes)
    return (
        first[0] == second[0]
        and bool(shared)
        and all(first_shapes[r] == second_shapes[r] for r in shared)
    )


def _names_reordered(
    own_signatures: Mapping[str, Any], other_signatures: Mapping[str, Any]
) -> bool:
    """Whether layers with equal signatures have the same names in both models, in another order."""
    groups = defaultdict(lambda: ([], []))  # type: ignore[var-annotated]
    for side, layers in enumerate((own_signatures, other_signatures)):
        for name, signature in layers.items():
            groups[signature][side].append(leaf(name))
    return any(
        len(set(own_leaves)) == len(own_leaves) > 1
        and sorted(own_leaves) == sorted(other_leaves)
        and own_leaves != other_leaves
        for own_leaves, other_leaves in groups.values()
    )


def _pair_by_name(
    own_names: Sequence[str], other_names: Sequence[str]
) -> Iterable[tuple[str, str]]:
    """Pairs of layers with equal signatures whose name occurs once in each model."""
    own_counts, other_counts = Counter(map(leaf, own_names)), Counter(map(leaf, other_names))
    for name in own_names:
        if own_counts[leaf(name)] == other_counts[leaf(name)] == 1:
            yield (
                name,
                next(candidate for candidate in other_names if leaf(candidate) == leaf(name)),
            )


def leaf(layer: str) -> str:
    """The last part of a layer's name, in lower case, to compare names across models."""
    return layer.rsplit(".", 1)[-1].lower()


Parameters = Sequence[ParameterDescription]
Pairs = list[tuple[ParameterDescription, ParameterDescription]]


def _pair_by_full_name(left: Parameters, right: Parameters) -> Pairs:
    """Pairs of parameters with the same full name that fit in one layout only."""
    by_name = {candidate.name: candidate for candidate in right}
    return [
        (parameter, by_name[parameter.name])
        for parameter in left
        if parameter.name in by_name and _fits_unambiguously(parameter, by_name[parameter.name])
    ]


def _pair_by_shape(left: Parameters, right: Parameters) -> Pairs:
    """Pairs of parameters whose sizes of axes occur once in each model."""
    own_counts = Counter(tuple(sorted(parameter.shape)) for parameter in left)
    other_counts = Counter(tuple(sorted(parameter.shape)) for parameter in right)
    pairs = []
    for parameter in left:
        key = tuple(sorted(parameter.shape))
        if own_counts[key] == other_counts[key] == 1:
            candidate = next(
                candidate for candidate in right if tuple(sorted(candidate.shape)) == key
            )
            if _fits_unambiguously(parameter, candidate):
                pairs.append((parameter, candidate))
    return pairs


def _fits_unambiguously(parameter: ParameterDescription, counterpart: ParameterDescription) -> bool:
    """Whether a parameter in an unknown layout fits its counterpart in one order of axes only.

    That holds if the sizes of its axes are distinct.
    """
    distinct = len(set(parameter.shape)) == len(parameter.shape)
    return (
        counterpart.shape == parameter.shape
        and distinct
        and not (parameter.role and counterpart.role)
    )
