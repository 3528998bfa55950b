"""Walking two graphs together to name the layers in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dlb.graph.operations import Operation

__all__ = ["Difference", "differences"]


@dataclass(frozen=True)
class Difference:
    """One thing that differs.

    Attributes:
        layer: the canonical layer; empty where there is none.
        node: the exported node compared with it; empty where there is none.
        what: ``operator``, or the attribute.
        expected, found: what the canonical and the exported graph have.
    """

    layer: str
    node: str
    what: str
    expected: str
    found: str

    def __str__(self) -> str:
        where = f"layer '{self.layer}'" if self.layer else f"exported node '{self.node}'"
        return f"{where}: {self.what}: expected {self.expected}, found {self.found}"


def differences(wanted: Sequence[Operation], found: Sequence[Operation]) -> list[Difference]:
    """What differs, in the canonical graph's order.

    The size of a value is reported only where nothing before it has already been.
    """
    return _Alignment(wanted, found).walk()


class _Alignment:
    def __init__(self, wanted: Sequence[Operation], found: Sequence[Operation]) -> None:
        self.wanted, self.found = wanted, found
        #: Exported place that stands for each canonical place; the graphs' inputs are the same.
        self.stands = {-1 - k: -1 - k for k in range(max(len(wanted), len(found)))}
        self.unused = dict.fromkeys(range(len(found)))
        self.reported: set[int] = set()
        self.listed: list[Difference] = []

    def walk(self) -> list[Difference]:
        for place, layer in enumerate(self.wanted):
            if any(each in self.reported for each in layer.inputs):
                self.reported.add(place)
            self._match(place, layer)
        for place in self.unused:
            extra = self.found[place]
            self.listed.append(Difference("", extra.name, "operator", "none", extra.kind))
        return self.listed

    def _match(self, place: int, layer: Operation) -> None:
        read = self._order(layer, [self.stands[each] for each in layer.inputs])
        here = [k for k in self.unused if self._order(self.found[k], self.found[k].inputs) == read]
        alike = [k for k in here if self.found[k].kind == layer.kind]
        alike.sort(key=lambda k: len(_unlike(layer.attributes, self.found[k].attributes)))
        if alike:
            return self._take(place, layer, alike[0])
        for between in here:
            later = [
                k
                for k in self.unused
                if between in self.found[k].inputs and self.found[k].kind == layer.kind
            ]
            if later:
                del self.unused[between]
                self._report(place, layer, "operator", layer.kind, self.found[between])
                return self._take(place, layer, later[0])
        if layer.inputs != () and layer.kind in ("Add", "Mul", "Concat"):
            rest = [k for k in self.unused if self.found[k].kind == layer.kind]
            if rest:
                shown = self._names(self.found[rest[0]].inputs)
                given = [self.wanted[k].name if k >= 0 else "input" for k in layer.inputs]
                node = self.found[rest[0]].name
                expected = ", ".join(given)
                self.listed.append(Difference(layer.name, node, "inputs", expected, shown))
                self.reported.add(place)
                return self._take(place, layer, rest[0])
        other = self.found[here[0]] if here else None
        self._report(place, layer, "operator", layer.kind, other)
        self.stands[place] = self.stands[layer.inputs[0]]

    def _take(self, place: int, layer: Operation, taken: int) -> None:
        self.unused.pop(taken, None)
        self.stands[place] = taken
        exported = self.found[taken]
        unlike = _unlike(layer.attributes, exported.attributes)
        if place in self.reported or len(unlike) > 1:
            unlike.pop("elements", None)
        for what, (expected, found) in unlike.items():
            shown = "output elements of a sample" if what == "elements" else what
            self.listed.append(
                Difference(layer.name, exported.name, shown, str(expected), str(found))
            )
        if unlike:
            self.reported.add(place)

    def _report(
        self, place: int, layer: Operation, what: str, expected: str, other: Operation | None
    ) -> None:
        kind = other.kind if other else "none"
        node = other.name if other else ""
        self.listed.append(Difference(layer.name, node, what, expected, kind))
        self.reported.add(place)

    def _order(self, operation: Operation, places: Sequence[int]) -> list[int]:
        return sorted(places) if operation.kind in ("Add", "Mul") else list(places)

    def _names(self, places: Sequence[int]) -> str:
        """Exported places by the canonical layers that they stand for."""
        back = {exported: place for place, exported in self.stands.items()}
        known = [back.get(place) for place in places]
        return ", ".join(
            "another" if place is None else ("input" if place < 0 else self.wanted[place].name)
            for place in known
        )


def _unlike(wanted: dict[str, Any], found: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {
        name: (wanted.get(name), found.get(name))
        for name in {**wanted, **found}
        if wanted.get(name) != found.get(name)
    }
