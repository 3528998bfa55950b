"""Parts and replicas of parameters that processes hold, and the whole ones that are made of parts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np

__all__ = ["ADDEND", "HELD", "Placement", "assemble", "of_replica", "of_replicas", "with_marks"]

#: What a mark says of an element: the process holds it, or it holds one addend of it. 0: it does not hold it.
HELD, ADDEND = 1, 2


@dataclass(frozen=True)
class Placement:
    """Which part of a native parameter a process holds. Those that hold the same part are replicas.

    Attributes:
        shape: of the whole parameter.
        part: by axis, which places of it; of a parameter that only others hold, none.
        partial: whether the whole is the sum of what processes hold there.
    """

    shape: Tuple[int, ...]
    part: Tuple[slice, ...]
    partial: bool = False

    def filled(self, array: np.ndarray) -> np.ndarray:
        """The part in an array of the whole parameter's shape, 0 elsewhere."""
        whole = np.zeros(self.shape, array.dtype)
        whole[self.part] = array
        return whole


def of_replica(path: Path, number: int) -> Path:
    """The file of one replica, where a process of several was given the first one's."""
    return path.with_name(f"{path.stem}-{number}{path.suffix}") if number else path


def of_replicas(
    paths: Sequence[Path], results: Sequence[Mapping[str, Any]], most: int
) -> List[Path]:
    """The files that processes wrote by their answers: one of each replica, at most so many of a process."""
    counts = [min(result.get("replicas", 1), most) for result in results]
    return [of_replica(path, n) for path, count in zip(paths, counts) for n in range(count)]


def with_marks(
    arrays: Mapping[str, Any],
    marks: Mapping[str, np.ndarray],
    prefix: str = "",
    change: Callable[[str, Any], Any] = lambda name, array: array,
) -> Iterator[Tuple[str, Any]]:
    """Arrays as they are written, each followed by ``placed/NAME``, its marks, if the process holds a part.

    Args:
        arrays: by parameter; the optimizer's state as ``optimizer/NAME.SLOT``.
        marks: by parameter.
        prefix: of the names that are written.
        change: of an array and its marks alike, such as a draw of elements.
    """
    for name, array in arrays.items():
        yield prefix + name, change(name, array)
        parameter = name[len("optimizer/") :].rpartition(".")[0]
        mark = marks.get(parameter if name.startswith("optimizer/") else name)
        if mark is not None:
            yield f"placed/{prefix}{name}", change(name, mark)


def assemble(processes: Sequence[Dict[str, np.ndarray]]) -> List[Dict[str, np.ndarray]]:
    """Fill the arrays of each process up with those of its peers; elements that nobody holds become NaN.

    What a process holds itself stays, so that replicas can be compared.

    Args:
        processes: by rank, arrays and marks by name. They are changed.

    Returns:
        by rank, the marks, which the arrays are without.
    """
    names = {name for each in processes for name in each if name.startswith("placed/")}
    marks = [{name: each.pop(name) for name in sorted(names & set(each))} for each in processes]
    for mark in names:
        name = mark[len("placed/") :]
        # A process whose optimizer has no state of it holds nothing of it.
        holders = [(each, own[mark]) for each, own in zip(processes, marks) if mark in own]
        whole = np.full_like(holders[0][0][name], np.nan)
        for each, own in reversed(holders):
            np.copyto(whole, each[name], where=own == HELD)
        sums = sum(np.where(own == ADDEND, each[name], 0) for each, own in holders)
        np.copyto(whole, sums, where=np.any([own == ADDEND for _, own in holders], axis=0))
        for each, own in zip(processes, marks):
            if mark in own:
                each[name] = np.where(own[mark] == HELD, each[name], whole)
            else:
                each.setdefault(name, whole)
    return marks
