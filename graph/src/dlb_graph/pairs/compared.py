"""Whether two ONNX files compute the same, and what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlb_graph.arguments import checked
from dlb_graph.comparing.analytic import undecided_nodes
from dlb_graph.comparing.difference import Difference
from dlb_graph.comparing.distance import relative_l2
from dlb_graph.comparing.numbers import other_numbers
from dlb_graph.comparing.read_facts import PairFact
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE
from dlb_graph.pairs.runs import FilePair, make_pair, run_both
from dlb_graph.rewriting.control_flow import straight
from dlb_graph.rewriting.nominal import fix_input_shapes
from dlb_graph.structure.structure import Structure, compare_structure

__all__ = ["Comparison", "compare", "structure_of"]


@dataclass(frozen=True)
class Comparison:
    """How two files compare.

    Attributes:
        equal: both compute the same: every output agrees, and either the layers do, or these values decide what
            is written in another way.
        distances: relative L2 distance of each output in float64, the worst of all batches, by its name in the
            first file.
        differences: of the layers; empty if both are the same, layout aside.
        numbers: other numbers of the same operator in the same place, which are a difference however small.
        undecided: operators of one file alone, of which equal values on noise prove nothing.
        facts: where the inputs come from, what was paired by order, what computes as in training.
    """

    equal: bool
    distances: Mapping[str, float]
    differences: tuple[Difference, ...]
    numbers: tuple[Difference, ...]
    undecided: tuple[str, ...]
    facts: tuple[PairFact, ...]


@checked
def compare(
    first: str | Path, second: str | Path, *, inputs: str | Path | None = None, seed: int = 0
) -> Comparison:
    """Compare two ONNX files of any exporters, in float64 and without a framework.

    Args:
        inputs: an .npz file with the inputs; seeded noise of the right shapes if left out.
        seed: of the noise.

    Raises:
        DataError: a file cannot be read.
        UnsupportedError: a file holds something that cannot be run.
        RequestError: the files have different inputs or outputs, or the given inputs do not fit.
    """
    pair = make_pair(first, second, inputs, seed)
    with np.errstate(all="ignore"):  # an overflow is found as an infinity
        runs = run_both(pair)
        distances = {
            name: max(relative_l2(theirs[name], ours[name]) for ours, theirs in zip(*runs.values))
            for name, _ in pair.outputs
        }
        structure, _ = structure_of(pair)
        numbers = tuple(other_numbers(*runs.traces))
        undecided: tuple[str, ...] = ()
        if not structure.equal:
            undecided = tuple(undecided_nodes(*runs.traces, FLOAT64_TOLERANCE))
    agree = all(distance <= FLOAT64_TOLERANCE for distance in distances.values())
    equal = agree and not numbers and not undecided
    return Comparison(equal, distances, structure.differences, numbers, undecided, pair.facts)


def structure_of(pair: FilePair) -> tuple[Structure, bool]:
    """How the layers of two files compare, and whether it is the first that hides batch normalisations.

    Either file may have them folded into other layers.

    Raises:
        UnsupportedError: a graph cannot be run, which is necessary to read it.
    """
    one, other = (
        straight(fix_input_shapes(file.float64, batches[0])) for file, batches in pair.sides
    )
    structure = compare_structure(one, other)
    if not structure.equal:
        turned = compare_structure(other, one)
        if turned.equal:
            return turned, True
    return structure, False
