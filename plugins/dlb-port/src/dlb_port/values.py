"""Which values two models have in common, in whatever layout each keeps them.

Layers only locate a difference: two right models may cut the same computation into other layers. So a
value is searched for among all values of the other model, wherever its layers begin and end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb_graph.comparing.distance import relative_l2
from dlb_graph.comparing.tolerances import FLOAT32_CONSTANT
from dlb_worker.contract import LayerCall

__all__ = ["KnownValues", "find_parting", "parting_calls"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class _Fingerprint:
    """Sums of a value that no order of its elements changes, each with the sum of its magnitudes."""

    size: int
    sums: tuple[float, ...]
    magnitudes: tuple[float, ...]

    @classmethod
    def of(cls, array: Array) -> _Fingerprint:
        numbers = array.reshape(-1).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            powers = [numbers, numbers**2, numbers**3]
            return cls(
                array.size,
                tuple(float(power.sum()) for power in powers),
                tuple(float(np.abs(power).sum()) for power in powers),
            )

    def agrees(self, other: _Fingerprint, tolerance: float) -> bool:
        """Whether both can be the same numbers. Negated, so that a NaN agrees with nothing."""
        return self.size == other.size and all(
            abs(own - its) <= tolerance * max(magnitude, its_magnitude)
            for own, its, magnitude, its_magnitude in zip(
                self.sums, other.sums, self.magnitudes, other.magnitudes
            )
        )


class KnownValues:
    """All values of one pass: what layers read and what they return."""

    def __init__(self, calls: Sequence[LayerCall], outputs: Iterable[Array], tolerance: float):
        self.tolerance = tolerance
        self._kept: dict[int, tuple[Array, _Fingerprint]] = {}
        self._by_size: dict[int, list[_Fingerprint]] = {}
        arrays = [array for call in calls for array in (*_inputs(call), call.output)]
        for array in (*arrays, *outputs):
            if array is not None and not _constant(array):
                print_of = self.fingerprint(array)
                self._by_size.setdefault(print_of.size, []).append(print_of)

    def fingerprint(self, array: Array) -> _Fingerprint:
        """The fingerprint of an array, computed once."""
        if id(array) not in self._kept:  # the array is kept, so that its id stays its own
            self._kept[id(array)] = array, _Fingerprint.of(array)
        return self._kept[id(array)][1]

    def __contains__(self, array: Array | None) -> bool:
        if array is None:
            return False
        wanted = self.fingerprint(array)
        return any(wanted.agrees(x, self.tolerance) for x in self._by_size.get(wanted.size, ()))

    def same(self, first: Array, second: Array) -> bool:
        """Whether two arrays can be the same numbers."""
        return self.fingerprint(first).agrees(self.fingerprint(second), self.tolerance)


def find_parting(
    own_calls: Sequence[LayerCall],
    other_calls: Sequence[LayerCall],
    ours: KnownValues,
    theirs: KnownValues,
) -> tuple[LayerCall, LayerCall] | None:
    """The first calls that read the same values and return values that the other model does not have.

    A call whose inputs are not all known is passed over, so that what follows a difference on one
    branch is not blamed for it. None if there are no such calls.
    """
    own_parting = parting_calls(own_calls, theirs)
    other_parting = parting_calls(other_calls, ours)
    # A table that only one model shows is an input that the other does not know.
    if not own_parting:
        own_parting = _nearly_as(own_calls, other_parting)
    elif not other_parting:
        other_parting = _nearly_as(other_calls, own_parting)
    for call in own_parting:
        for other_call in other_parting:
            if any(
                ours.same(own, other)
                for own in _inputs(call)
                for other in _inputs(other_call)
                if own is not None and other is not None
            ):
                return call, other_call
    return None


def _nearly_as(calls: Sequence[LayerCall], parting: Sequence[LayerCall]) -> list[LayerCall]:
    """Calls that return what one of the other model's does, but for a rounding to float32."""
    return [
        call
        for call in calls
        if call.output is not None
        and any(
            each.output is not None
            and 0 < relative_l2(call.output, each.output) <= FLOAT32_CONSTANT
            for each in parting
        )
    ]


def parting_calls(calls: Sequence[LayerCall], known: KnownValues) -> list[LayerCall]:
    """Calls that read values which the other model knows, and return one that it does not have."""
    return [call for call in calls if _parts(call, known)]


def _parts(call: LayerCall, known: KnownValues) -> bool:
    inputs = _inputs(call)
    return (
        call.output is not None
        and not _constant(call.output)
        and call.output not in known
        and bool(inputs)
        and all(array is not None and (array in known or _constant(array)) for array in inputs)
    )


def _constant(array: Array) -> bool:
    """Whether a value is constant, such as a state of zeros. It would agree with too much."""
    return array.size < 2 or bool((array == array.reshape(-1)[0]).all())


def _inputs(call: LayerCall) -> list[Array | None]:
    return [call.inputs, *call.others]
