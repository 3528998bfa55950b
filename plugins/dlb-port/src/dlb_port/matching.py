"""Matching of parameters of two models, only where it is unambiguous.

First, units of known types are paired. A unit is a layer, or a part of one that another framework has as
a layer of its own: one direction of a stacked recurrence, or one convolution of a separable one. Units are
paired by order if both models call the same ones in the same order. Else they are paired if a unit of that
type and those shapes occurs once, or if its name is unique. Others are paired by name, by the order of
their layers if both models call the same ones, or by shape if there is no choice. Nothing is transposed: a
square matrix in an unknown layout is left to the user. Axes of size 1 are no layout.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlb_port.stacked import WAYS, Choice, pair_stacked
from dlb_port.weight_map import Pair
from dlb_worker.contract import ParameterDescription, UserLayer

__all__ = ["BY_SHAPE", "STATISTICS", "MatchableModel", "Proposal", "is_state", "leaf", "propose"]

#: How a pair was found whose shape occurs once.
BY_SHAPE = "by shape"
#: Running statistics, by role. A step of training moves them.
STATISTICS = ("mean", "variance")

#: What additions of low rank are called.
_LOW_RANK = re.compile("lora|low.?rank|adapter", re.IGNORECASE)
#: Words for the maps of an attention, and for the first and the second of two that make a weight.
_MAPS = {
    **{"q": "query", "query": "query", "k": "key", "key": "key", "v": "value", "value": "value"},
    **{"o": "output", "out": "output", "output": "output"},
    **{"a": "first", "down": "first", "b": "second", "up": "second"},
}
#: Attributes that say why a layer has other parameters than its counterpart.
_TELLING = ("reset_after", "shared_axes", "track_running_stats", "go_backwards", "normalize")


def is_state(parameter: ParameterDescription) -> bool:
    """Whether an array is no parameter, and no running statistics of a known layer: a buffer, a constant."""
    statistics = parameter.role in STATISTICS
    return not (parameter.trained or parameter.frozen or statistics)


@dataclass(frozen=True)
class Unit:
    """A layer, or the part of it whose roles begin with the same words, such as ``layer 1 backward``."""

    layer: str
    part: str = ""


@dataclass(frozen=True)
class MatchableModel:
    """The parts of a model that matching needs.

    Attributes:
        layers: layers by name.
        parameters: parameters that need a counterpart.
        calls: names of layers in the order of their calls.
        joined: the parameters that one of ``parameters`` joins, by its name.
    """

    layers: Mapping[str, UserLayer]
    parameters: Sequence[ParameterDescription]
    calls: Sequence[str]
    joined: Mapping[str, tuple[ParameterDescription, ...]] = field(default_factory=dict)

    def parameters_by_unit(self) -> dict[Unit, list[ParameterDescription]]:
        """Parameters by unit; units are in the order of their layers' first call."""
        first_call: dict[str, int] = {}
        for number, name in enumerate(self.calls):
            first_call.setdefault(name, number)
        by_unit = defaultdict(list)
        for parameter in self.parameters:
            by_unit[Unit(parameter.layer, parameter.role.rpartition(" ")[0])].append(parameter)
        return dict(
            sorted(by_unit.items(), key=lambda item: first_call.get(item[0].layer, len(self.calls)))
        )


@dataclass
class Proposal:
    """The result of matching.

    Attributes:
        pairs: matched parameters, in the order of the reference's parameters.
        left: states of each model that have no counterpart: their layer's has none, or they are computed by
            the model's code. They stay as they are, and the outputs show whether that is right.
        undecided: one line for users for each parameter that could not be matched.
        choices: pairs that values have to choose from.
    """

    pairs: list[Pair] = field(default_factory=list)
    left: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    undecided: list[str] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)


def propose(source: MatchableModel, target: MatchableModel, names: tuple[str, str]) -> Proposal:
    """Pair the parameters of two models.

    Args:
        names: names of the models, for messages.
    """
    proposal = Proposal()
    source_parameters, target_parameters = source.parameters_by_unit(), target.parameters_by_unit()

    def pair(parameter: ParameterDescription, counterpart: ParameterDescription, why: str) -> None:
        parts = source.joined.get(parameter.name, ()), target.joined.get(counterpart.name, ())
        proposal.pairs.append(Pair(parameter, counterpart, why, None, None, *parts))

    for source_unit, target_unit, why in _pair_units(
        source, target, source_parameters, target_parameters
    ):
        ours, theirs = source_parameters[source_unit], target_parameters[target_unit]
        by_role = {_role(parameter): parameter for parameter in theirs}
        for parameter in list(ours):
            counterpart = by_role.get(_role(parameter))
            if parameter.role and counterpart is not None and counterpart.shape == parameter.shape:
                pair(parameter, counterpart, why)
                ours.remove(parameter)
                theirs.remove(counterpart)
        for left, parameters in zip(proposal.left, (ours, theirs)):
            states = [each for each in parameters if each.role and not each.trained]
            left += [each.name for each in states]
            parameters[:] = [each for each in parameters if each not in states]
    source_left = [each for unit in source_parameters.values() for each in unit]
    target_left = [each for unit in target_parameters.values() for each in unit]
    rules = ((_pair_by_path, "by name"), (_pair_by_order, "by order"), (_pair_by_shape, BY_SHAPE))
    for rule, why in rules:
        for parameter, counterpart in rule(source_left, target_left):
            pair(parameter, counterpart, why)
            source_left.remove(parameter)
            target_left.remove(counterpart)
    choices = [*pair_stacked(source_left, target_left)]
    for choice in choices if math.prod(map(len, choices)) <= WAYS else ():
        proposal.choices.append(choice)
        for each in choice[0]:
            for member in each.source_parts or (each.source,):
                source_left.remove(member)
            for member in each.target_parts or (each.target,):
                target_left.remove(member)
    for left, parameters in zip(proposal.left, (source_left, target_left)):
        left += [parameter.name for parameter in parameters if is_state(parameter)]
    positions = {parameter.name: number for number, parameter in enumerate(source.parameters)}
    proposal.pairs.sort(key=lambda pair: positions[pair.source.name])
    candidates = {
        parameter.name: [each.name for each in target_left if _may_be(parameter, each)]
        for parameter in source_left
        if not is_state(parameter)
    }
    # What has no counterpart comes first: it may be why others have several.
    named = {*proposal.left[1], *(name for found in candidates.values() for name in found)}
    lonely = [
        _describe_undecided(names[1], target, parameter, ())
        for parameter in target_left
        if parameter.name not in named
    ]
    described = [
        (
            len(candidates[each.name]),
            _describe_undecided(names[0], source, each, candidates[each.name]),
        )
        for each in source_left
        if each.name in candidates
    ]
    proposal.undecided += [text for count, text in described if not count] + lonely
    proposal.undecided += [text for count, text in described if count]
    return proposal


def _may_be(parameter: ParameterDescription, other: ParameterDescription) -> bool:
    """Whether a user may want to pair two parameters: their sizes fit, and what is known of their roles."""
    roles = {_role(parameter), _role(other)} - {""}
    return len(roles) <= 1 and sorted(_sizes(parameter)) == sorted(_sizes(other))


def _role(parameter: ParameterDescription) -> str:
    """The role in the parameter's unit."""
    return parameter.role.rpartition(" ")[2]


def _describe_undecided(
    name: str, model: MatchableModel, parameter: ParameterDescription, candidates: Sequence[str]
) -> str:
    layer = model.layers.get(parameter.layer)
    telling = [
        f"{attribute}={layer.attributes[attribute]}"
        for attribute in _TELLING
        if layer and attribute in layer.attributes
    ]
    kind = f" of {layer.type}" + (f"({', '.join(telling)})" if telling else "") if layer else ""
    note = "" if parameter.role else ", lying in a way that is not known,"
    more = f" or {len(candidates) - 4} more" if len(candidates) > 4 else ""
    outcome = (
        f"could be {' or '.join(candidates[:4])}{more}" if candidates else "has no counterpart"
    )
    return f"{name}: {parameter.name}{kind}, {list(parameter.shape)}{note} {outcome}"


Owners = Mapping[Unit, Sequence[ParameterDescription]]
Signatures = dict[Unit, tuple[Any, ...]]


def _pair_units(
    source: MatchableModel, target: MatchableModel, ours: Owners, theirs: Owners
) -> Iterable[tuple[Unit, Unit, str]]:
    """Pairs of units of known types, and how each pair was found."""
    own_signatures, other_signatures = _signatures(source, ours), _signatures(target, theirs)
    if Counter(own_signatures.values()) != Counter(other_signatures.values()):
        # A hand-written bidirectional layer has two recurrences that both run forwards.
        undirected = [
            {unit: (signature[0], "", signature[2]) for unit, signature in signatures.items()}
            for signatures in (own_signatures, other_signatures)
        ]
        if _same_order(*undirected):
            own_signatures, other_signatures = undirected
    if not _same_order(own_signatures, other_signatures):
        # An addition of low rank is called before the layer that it is added to, or after it.
        own_moved, other_moved = map(_low_rank_last, (own_signatures, other_signatures))
        if _same_order(own_moved, other_moved):
            own_signatures, other_signatures = own_moved, other_moved
    counts = Counter(own_signatures.values())
    if _same_order(own_signatures, other_signatures):
        for (own_unit, signature), other_unit in zip(own_signatures.items(), other_signatures):
            yield own_unit, other_unit, BY_SHAPE if counts[signature] == 1 else "by order"
        return
    for signature in dict.fromkeys(own_signatures.values()):
        own_units = [unit for unit, each in own_signatures.items() if each == signature]
        other_units = [unit for unit, each in other_signatures.items() if each == signature]
        if len(own_units) == len(other_units) == 1:
            yield own_units[0], other_units[0], BY_SHAPE
        else:
            yield from ((*pair, "by name") for pair in _pair_by_name(own_units, other_units))
    # A layer with a bias in only one model is still matched by its weight.
    unmatched = {
        unit: signature
        for unit, signature in own_signatures.items()
        if signature not in other_signatures.values()
    }
    for unit, signature in unmatched.items():
        candidates = [one for one, each in other_signatures.items() if _same_kind(signature, each)]
        rivals = [own for own, each in own_signatures.items() if _same_kind(each, signature)]
        if (
            len(candidates) == len(rivals) == 1
            and other_signatures[candidates[0]] not in own_signatures.values()
        ):
            yield unit, candidates[0], BY_SHAPE


def _signatures(model: MatchableModel, owners: Owners) -> Signatures:
    signatures = {unit: _signature(model, unit, owners[unit]) for unit in owners}
    return {unit: signature for unit, signature in signatures.items() if signature}


def _low_rank_last(signatures: Signatures) -> Signatures:
    """The units with those of low rank last, as far as their names say."""
    return dict(sorted(signatures.items(), key=lambda item: bool(_LOW_RANK.search(str(item[0])))))


def _same_order(own_signatures: Signatures, other_signatures: Signatures) -> bool:
    """Whether both models have the same units in the same order, as far as their names say."""
    return list(own_signatures.values()) == list(
        other_signatures.values()
    ) and not _names_reordered(own_signatures, other_signatures)


def _signature(
    model: MatchableModel, unit: Unit, parameters: Sequence[ParameterDescription]
) -> tuple[Any, ...]:
    """Kind, direction, and role and shape of each parameter; empty if a role is unknown, of no mere state."""
    parameters = [each for each in parameters if each.role or not is_state(each)]
    if unit.layer not in model.layers or not all(each.role for each in parameters):
        return ()
    layer = model.layers[unit.layer]
    kind = "attention" if any(each.name in model.joined for each in parameters) else layer.kind
    if unit.part.startswith("low-rank"):
        kind = "linear" if all(len(each.shape) < 3 for each in parameters) else "conv"
    backwards = "backward" in unit.part or layer.attributes.get("go_backwards") == "True"
    shapes = tuple(sorted((_role(parameter), parameter.shape) for parameter in parameters))
    return kind, "backward" if backwards else "", shapes


def _same_kind(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    """Whether two units have the same kind, and equal shapes of the parameters that both have."""
    first_shapes, second_shapes = dict(first[2]), dict(second[2])
    shared = set(first_shapes) & set(second_shapes)
    same = all(first_shapes[each] == second_shapes[each] for each in shared)
    return first[:2] == second[:2] and bool(shared) and same


def _names_reordered(own_signatures: Signatures, other_signatures: Signatures) -> bool:
    """Whether units with equal signatures have the same names in both models, in another order."""
    groups = defaultdict(lambda: ([], []))  # type: ignore[var-annotated]
    for side, units in enumerate((own_signatures, other_signatures)):
        for unit, signature in units.items():
            groups[signature][side].append(leaf(unit.layer))
    return any(
        len(set(own_leaves)) == len(own_leaves) > 1
        and sorted(own_leaves) == sorted(other_leaves)
        and own_leaves != other_leaves
        for own_leaves, other_leaves in groups.values()
    )


def _pair_by_name(
    own_units: Sequence[Unit], other_units: Sequence[Unit]
) -> Iterable[tuple[Unit, Unit]]:
    """Pairs of units with equal signatures whose name occurs once in each model."""
    own_counts, other_counts = (Counter(map(_name_of, units)) for units in (own_units, other_units))
    for unit in own_units:
        name = _name_of(unit)
        if own_counts[name] == other_counts[name] == 1:
            yield unit, next(other for other in other_units if _name_of(other) == name)


def _name_of(unit: Unit) -> str:
    """The last part of a unit's name; of low rank, the map that it is added to, and whether it is the first."""
    whole = f"{unit.layer} {unit.part}".lower()
    if not _LOW_RANK.search(whole):
        return leaf(unit.layer)
    words = {_MAPS.get(word, "") for word in re.split("[^a-z]+", whole)}
    return " ".join(sorted(words))


def leaf(layer: str) -> str:
    """The last part of a layer's name, in lower case, to compare names across models."""
    return layer.rsplit(".", 1)[-1].lower()


Parameters = Sequence[ParameterDescription]
Pairs = list[tuple[ParameterDescription, ParameterDescription]]


def _pair_by_path(left: Parameters, right: Parameters) -> Pairs:
    """Pairs of parameters with the same full name that fit in one layout only."""
    by_name = {candidate.name: candidate for candidate in right}
    return [
        (parameter, by_name[parameter.name])
        for parameter in left
        if parameter.name in by_name and _fits_unambiguously(parameter, by_name[parameter.name])
    ]


def _pair_by_order(left: Parameters, right: Parameters) -> Pairs:
    """Pairs of parameters of layers that both models have in the same order, such as blocks that repeat.

    Several parameters of one layer have the same names in both. Sequences are in the order of calls.
    """
    own, other = (_by_layer(parameters) for parameters in (left, right))
    if [[key for key, _ in layer] for layer in own] != [
        [key for key, _ in layer] for layer in other
    ]:
        return []
    pairs = [
        (parameter, counterpart)
        for own_layer, other_layer in zip(own, other)
        for (_, parameter), (_, counterpart) in zip(own_layer, other_layer)
    ]
    return pairs if all(_fits_unambiguously(*pair) for pair in pairs) else []


def _by_layer(
    parameters: Parameters,
) -> list[list[tuple[tuple[str, tuple[int, ...]], ParameterDescription]]]:
    """Trained parameters of each layer, each under its name, if there are several, and its sizes."""
    by_layer = defaultdict(list)
    for parameter in parameters:
        if not is_state(parameter):
            by_layer[parameter.layer].append(parameter)
    return [
        sorted(
            (
                ((leaf(each.name) if len(members) > 1 else "", _sizes(each)), each)
                for each in members
            ),
            key=lambda item: item[0],
        )
        for members in by_layer.values()
    ]


def _pair_by_shape(left: Parameters, right: Parameters) -> Pairs:
    """Pairs of parameters whose sizes of axes occur once in each model."""
    own_counts = Counter(tuple(sorted(_sizes(parameter))) for parameter in left)
    other_by_sizes = defaultdict(list)
    for candidate in right:
        other_by_sizes[tuple(sorted(_sizes(candidate)))].append(candidate)
    return [
        (parameter, candidates[0])
        for parameter in left
        for candidates in (other_by_sizes[tuple(sorted(_sizes(parameter)))],)
        if own_counts[tuple(sorted(_sizes(parameter)))] == len(candidates) == 1
        and _fits_unambiguously(parameter, candidates[0])
    ]


def _sizes(parameter: ParameterDescription) -> tuple[int, ...]:
    """The shape without axes of size 1."""
    return tuple(size for size in parameter.shape if size != 1)


def _fits_unambiguously(parameter: ParameterDescription, counterpart: ParameterDescription) -> bool:
    """Whether a parameter in an unknown layout fits its counterpart in one order of axes only.

    That holds if the sizes of its axes are distinct.
    """
    sizes = _sizes(parameter)
    known = parameter.role and counterpart.role
    return _sizes(counterpart) == sizes and len(set(sizes)) == len(sizes) and not known
