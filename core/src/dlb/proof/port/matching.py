"""Proposing which parameter is which, only where nothing else could be meant.

Layers whose type says what their parameters are come first: they are paired where both models call
the same layers in the same order, else where a layer of that type and those shapes is there once,
or where names single it out. What is left is paired by shape where that leaves no choice. Nothing
is ever transposed: a square matrix that lies in an unknown way is left to the user.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlb.proof.port.weight_map import Pair
from dlb_worker.contract import ParameterDescription, UserLayer

__all__ = ["Owned", "Proposal", "propose"]


@dataclass(frozen=True)
class Owned:
    """A model as far as matching needs it.

    Attributes:
        layers: by name.
        parameters: those to be matched.
        calls: names of layers in the order in which they are called.
    """

    layers: Mapping[str, UserLayer]
    parameters: Sequence[ParameterDescription]
    calls: Sequence[str]

    def owners(self) -> dict[str, list[ParameterDescription]]:
        """Parameters by their layer, layers in the order of their first call."""
        first: dict[str, int] = {}
        for number, name in enumerate(self.calls):
            first.setdefault(name, number)
        found = defaultdict(list)
        for one in self.parameters:
            found[one.layer].append(one)
        return dict(sorted(found.items(), key=lambda item: first.get(item[0], len(self.calls))))


@dataclass
class Proposal:
    """What could be decided, and what could not.

    Attributes:
        pairs: in the order of the reference's layers.
        undecided: a line each, for people.
    """

    pairs: list[Pair] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)


def propose(source: Owned, target: Owned, names: tuple[str, str]) -> Proposal:
    """Pair the parameters of two models.

    Args:
        names: of the models, for what is told.
    """
    proposal = Proposal()
    ours, theirs = source.owners(), target.owners()
    for first, second, why in _layers(source, target, ours, theirs):
        by_role = {one.role: one for one in theirs[second]}
        for one in list(ours[first]):
            other = by_role.get(one.role)
            if one.role and other is not None and other.shape == one.shape:
                proposal.pairs.append(Pair(one, other, why))
                ours[first].remove(one)
                theirs[second].remove(other)
    left = [one for some in ours.values() for one in some]
    right = [one for some in theirs.values() for one in some]
    for rule, why in ((_by_whole_name, "by name"), (_by_shape, "by shape")):
        for one, other in rule(left, right):
            proposal.pairs.append(Pair(one, other, why))
            left.remove(one)
            right.remove(other)
    place = {one.name: number for number, one in enumerate(source.parameters)}
    proposal.pairs.sort(key=lambda pair: place[pair.source.name])
    named: set[str] = set()
    for one in left:
        like = [other.name for other in right if sorted(other.shape) == sorted(one.shape)]
        named |= set(like)
        proposal.undecided.append(_told(names[0], source, one, like))
    # Of the other model, what was not told above.
    proposal.undecided += [
        _told(names[1], target, one, ()) for one in right if one.name not in named
    ]
    return proposal


def _told(model: str, owned: Owned, one: ParameterDescription, like: Sequence[str]) -> str:
    layer = owned.layers.get(one.layer)
    kind = f" of {layer.type}" if layer else ""
    how = "" if one.role else ", lying in a way that is not known,"
    more = f" or {len(like) - 4} more" if len(like) > 4 else ""
    could = f"could be {' or '.join(like[:4])}{more}" if like else "has no counterpart"
    return f"{model}: {one.name}{kind}, {list(one.shape)}{how} {could}"


Owners = Mapping[str, Sequence[ParameterDescription]]


def _layers(
    source: Owned, target: Owned, ours: Owners, theirs: Owners
) -> Iterable[tuple[str, str, str]]:
    """Pairs of layers whose parameters are known by their types, and how each was found."""
    mine = {name: _signature(source, name, held) for name, held in ours.items()}
    other = {name: _signature(target, name, held) for name, held in theirs.items()}
    mine = {name: one for name, one in mine.items() if one}
    other = {name: one for name, one in other.items() if one}
    often = Counter(mine.values())
    in_step = list(mine.values()) == list(other.values()) and not _contradicted(mine, other)
    if in_step:
        for (first, signature), second in zip(mine.items(), other):
            yield first, second, "by shape" if often[signature] == 1 else "by order"
        return
    for signature in dict.fromkeys(mine.values()):
        some = [name for name, one in mine.items() if one == signature]
        others = [name for name, one in other.items() if one == signature]
        if len(some) == len(others) == 1:
            yield some[0], others[0], "by shape"
        else:
            yield from ((*pair, "by name") for pair in _by_name(some, others))
    # A layer that has a bias in one model only still shares its weight.
    alone = {name: one for name, one in mine.items() if one not in other.values()}
    for name, one in alone.items():
        near = [second for second, two in other.items() if _kin(one, two)]
        kin = [first for first, two in mine.items() if _kin(two, one)]
        if len(near) == len(kin) == 1 and other[near[0]] not in mine.values():
            yield name, near[0], "by shape"


def _signature(owned: Owned, layer: str, held: Sequence[ParameterDescription]) -> tuple[Any, ...]:
    """Kind, and the shape of each parameter; empty where they are not known."""
    if layer not in owned.layers or not all(one.role for one in held):
        return ()
    return (owned.layers[layer].kind, tuple(sorted((one.role, one.shape) for one in held)))


def _kin(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two layers are of one kind, and what both have is of one shape."""
    mine, theirs = dict(one[1]), dict(other[1])
    shared = set(mine) & set(theirs)
    return one[0] == other[0] and bool(shared) and all(mine[r] == theirs[r] for r in shared)


def _contradicted(mine: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether layers that are alike have the same names in both models, in another order."""
    groups = defaultdict(lambda: ([], []))  # type: ignore[var-annotated]
    for side, layers in enumerate((mine, other)):
        for name, signature in layers.items():
            groups[signature][side].append(leaf(name))
    return any(
        len(set(some)) == len(some) > 1 and sorted(some) == sorted(others) and some != others
        for some, others in groups.values()
    )


def _by_name(some: Sequence[str], others: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Of layers that are alike, those that have one name in both models."""
    mine, theirs = Counter(map(leaf, some)), Counter(map(leaf, others))
    for name in some:
        if mine[leaf(name)] == theirs[leaf(name)] == 1:
            yield name, next(other for other in others if leaf(other) == leaf(name))


def leaf(layer: str) -> str:
    """The last part of a layer's name, by which it is known across models."""
    return layer.rsplit(".", 1)[-1].lower()


Parameters = Sequence[ParameterDescription]
Pairs = list[tuple[ParameterDescription, ParameterDescription]]


def _by_whole_name(left: Parameters, right: Parameters) -> Pairs:
    """Of what is left, pairs of one whole name, which may only lie in one way."""
    others = {other.name: other for other in right}
    return [
        (one, others[one.name])
        for one in left
        if one.name in others and _fits(one, others[one.name])
    ]


def _by_shape(left: Parameters, right: Parameters) -> Pairs:
    """Of what is left, pairs that nothing else could be meant by."""
    mine = Counter(tuple(sorted(one.shape)) for one in left)
    theirs = Counter(tuple(sorted(one.shape)) for one in right)
    found = []
    for one in left:
        key = tuple(sorted(one.shape))
        if mine[key] == theirs[key] == 1:
            other = next(other for other in right if tuple(sorted(other.shape)) == key)
            if _fits(one, other):
                found.append((one, other))
    return found


def _fits(one: ParameterDescription, other: ParameterDescription) -> bool:
    """Whether one can be carried to the other in one way only, one of them lying in an unknown
    way: their axes are of different sizes, so that no other order would do."""
    distinct = len(set(one.shape)) == len(one.shape)
    return other.shape == one.shape and distinct and not (one.role and other.role)
