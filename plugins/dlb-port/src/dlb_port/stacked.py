"""Equal layers whose weights one model keeps in one array, as scans over layers do, and the other apart.

Slices of such an array lie as its code reads them, which nothing says of a square matrix. So all ways are
tried, and values decide: the one is taken with which the outputs are nearest to the reference's.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, permutations, product
from typing import Any

from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE
from dlb_port.weight_map import Pair, join
from dlb_worker.contract import ParameterDescription

__all__ = ["WAYS", "Choice", "nearest", "pair_stacked"]

#: Most ways that are tried.
WAYS = 64
#: Other words for what a parameter is.
_WORDS = {
    **dict.fromkeys(("kernel", "w", "gamma", "scale"), "weight"),
    **dict.fromkeys(("b", "beta", "offset"), "bias"),
}
#: Pairs, of which one sequence is right.
Choice = list[list[Pair]]
Parameters = Sequence[ParameterDescription]


def pair_stacked(left: Parameters, right: Parameters) -> Iterator[Choice]:
    """Choices of pairs of a stacked parameter with as many as it has slices, or with another stacked one.

    Args:
        left, right: unmatched ones of the reference and of the other model, in the order of the calls.
    """
    taken: list[ParameterDescription] = []
    for turned, apart, whole in ((False, left, right), (True, right, left)):
        rows: dict[Any, list[list[ParameterDescription]]] = defaultdict(list)
        both = [[each] for each in apart if not turned and _is_stack(each) and len(each.shape) > 2]
        for members in [*_equal(apart), *both]:
            key = len(members), tuple(sorted(_sizes(members[0].shape)))
            rows[key if len(members) > 1 else _key(members[0])].append(members)
        for key, found in rows.items():
            stacks = [each for each in whole if _key(each) == key and _is_stack(each)]
            used = [*stacks, *(member for members in found for member in members)]
            if len(stacks) == len(found) and not any(each in taken for each in used):
                named = _by_name(found, stacks)
                orders = iter([named]) if named else permutations(stacks)
                ways = (
                    [
                        [pair for way in (0, 1) if (pair := _pair(*each, way, turned))]
                        for each in zip(found, order)
                    ]
                    for order in orders
                )
                choice = [
                    [*way]
                    for order in islice(ways, WAYS + 1)
                    for way in islice(product(*order), WAYS + 1)
                ]
                if choice:
                    taken += used
                    # Most codes let all slices lie alike.
                    yield sorted(choice, key=lambda way: len({pair.transpose for pair in way}))


def nearest(choices: Sequence[Choice], distance: Callable[[Sequence[Pair]], float]) -> list[Pair]:
    """Of every choice, the pairs with which the outputs are nearest.

    Args:
        distance: of the outputs, with pairs for all choices.
    """
    best: tuple[float, list[Pair]] = (math.inf, [])
    every = [[pair for pairs in way for pair in pairs] for way in product(*choices)]
    for pairs in every if len(every) > 1 else ():
        found = distance(pairs)
        if found < best[0] or not best[1]:
            best = (found, pairs)
        if found <= FLOAT64_TOLERANCE:
            break
    return best[1] or every[0]


def _equal(parameters: Parameters) -> list[list[ParameterDescription]]:
    """Parameters of several layers that are called alike but for a number, and have one shape."""
    groups = defaultdict(list)
    for each in parameters:
        if each.trained or each.frozen:
            # The place in a list, or else the number that a framework makes names unique with.
            name = re.sub(r"(?<![^.])\d+(?![^.])", "", each.name)
            name = re.sub(r"_?\d+(?=\.|$)", "", name) if name == each.name else name
            groups[(name, each.shape)].append(each)
    return [members for members in groups.values() if len(members) > 1]


def _is_stack(parameter: ParameterDescription) -> bool:
    """Whether it may be one: a parameter, and not one whose layout is known."""
    return (parameter.trained or parameter.frozen) and not parameter.role


def _sizes(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size != 1]


def _key(stack: ParameterDescription) -> tuple[int, tuple[int, ...]]:
    return stack.shape[0] if stack.shape else 0, tuple(sorted(_sizes(stack.shape[1:])))


def _by_name(found: Sequence[Parameters], stacks: Parameters) -> list[ParameterDescription]:
    """The stacked parameter of each group, if their names say so; none if they do not."""

    def fits(member: ParameterDescription, stack: ParameterDescription) -> bool:
        words = [_WORDS.get(word, word) for word in _words(stack.name.rpartition(".")[2])]
        own = {*_words(member.name), member.role}
        own |= {_WORDS.get(word, word) for word in own}
        own -= {"weight"} if member.role == "bias" else set()
        return bool(words) and own.issuperset(words)

    chosen = [[each for each in stacks if fits(members[0], each)] for members in found]
    named = [each[0] for each in chosen if len(each) == 1]
    return named if len({each.name for each in named}) == len(found) else []


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[\W_]+", name.lower()) if word]


def _pair(members: Parameters, stack: ParameterDescription, way: int, turned: bool) -> Pair | None:
    """One way to lie: as the slices do, or with the first two axes last; None if it does not fit.

    Args:
        turned: whether the stacked parameter is the reference's.
    """
    apart, parts, shape = join(members), tuple(members), members[0].shape
    if len(members) == 1:
        apart, parts, shape = members[0], (), shape[1:]
    axes = [*range(2, len(shape)), 1, 0] if way else [*range(len(shape))]
    if (way and len(shape) < 2) or _sizes([shape[axis] for axis in axes]) != _sizes(
        stack.shape[1:]
    ):
        return None
    if turned:
        back = [1 + axes.index(axis) for axis in range(len(shape))]
        whole = (stack.shape[0], *(shape[axis] for axis in axes))
        return Pair(stack, apart, "by values", whole, (0, *back) if way else None, (), parts)
    order = (0, *(1 + axis for axis in axes)) if way else None
    return Pair(apart, stack, "by values", (stack.shape[0], *shape), order, parts, ())
