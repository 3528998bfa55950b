"""Aligns two graphs to name the layers in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlb_graph.comparing.difference import Difference
from dlb_graph.structure.operation import Operation

__all__ = ["Difference", "differences"]


def differences(canonical: Sequence[Operation], exported: Sequence[Operation]) -> list[Difference]:
    """The differences between two graphs, in the canonical graph's order.

    The size of a value is reported only if no layer before it differs.
    """
    return _Alignment(canonical, exported).align()


class _Alignment:
    """Pairs exported operations with canonical ones, and collects the differences."""

    def __init__(self, canonical: Sequence[Operation], exported: Sequence[Operation]) -> None:
        self.canonical, self.exported = canonical, exported
        #: The exported index for each canonical index. The graphs' inputs are the same.
        self.counterpart = {-1 - k: -1 - k for k in range(max(len(canonical), len(exported)))}
        self.unmatched = dict.fromkeys(range(len(exported)))
        self.reported: set[int] = set()
        self.differences: list[Difference] = []

    def align(self) -> list[Difference]:
        for index, layer in enumerate(self.canonical):
            if any(source in self.reported for source in layer.inputs):
                self.reported.add(index)
            self._match(index, layer)
        for index in self.unmatched:
            operation = self.exported[index]
            self.differences.append(
                Difference("", operation.name, "operator", "none", operation.kind)
            )
        return self.differences

    def _match(self, index: int, layer: Operation) -> None:
        """Find the exported operation that a layer corresponds to."""
        sources = self._order(layer, [self.counterpart[source] for source in layer.inputs])
        candidates = [
            k
            for k in self.unmatched
            if self._order(self.exported[k], self.exported[k].inputs) == sources
        ]
        same_kind = [k for k in candidates if self.exported[k].kind == layer.kind]
        same_kind.sort(
            key=lambda k: len(_unequal_attributes(layer.attributes, self.exported[k].attributes))
        )
        if same_kind:
            return self._pair(index, layer, same_kind[0])
        for skipped in candidates:
            after_skipped = [
                k
                for k in self.unmatched
                if skipped in self.exported[k].inputs and self.exported[k].kind == layer.kind
            ]
            if after_skipped:
                del self.unmatched[skipped]
                self._report_operator(index, layer, self.exported[skipped])
                return self._pair(index, layer, after_skipped[0])
        if layer.inputs != () and layer.kind in ("Add", "Mul", "Concat"):
            same_kind_elsewhere = [k for k in self.unmatched if self.exported[k].kind == layer.kind]
            if same_kind_elsewhere:
                operation = self.exported[same_kind_elsewhere[0]]
                expected = ", ".join(
                    self.canonical[k].name if k >= 0 else "input" for k in layer.inputs
                )
                actual = self._names(operation.inputs)
                self.differences.append(
                    Difference(layer.name, operation.name, "inputs", expected, actual)
                )
                self.reported.add(index)
                return self._pair(index, layer, same_kind_elsewhere[0])
        candidate = self.exported[candidates[0]] if candidates else None
        self._report_operator(index, layer, candidate)
        self.counterpart[index] = self.counterpart[layer.inputs[0]]

    def _pair(self, index: int, layer: Operation, exported_index: int) -> None:
        """Pair a layer with an exported operation, and report the attributes that differ."""
        self.unmatched.pop(exported_index, None)
        self.counterpart[index] = exported_index
        operation = self.exported[exported_index]
        unequal = _unequal_attributes(layer.attributes, operation.attributes)
        if index in self.reported or len(unequal) > 1:
            unequal.pop("elements", None)
        for name, (expected, actual) in unequal.items():
            what = "output elements of a sample" if name == "elements" else name
            self.differences.append(
                Difference(layer.name, operation.name, what, str(expected), str(actual))
            )
        if unequal:
            self.reported.add(index)

    def _report_operator(self, index: int, layer: Operation, operation: Operation | None) -> None:
        kind = operation.kind if operation else "none"
        node = operation.name if operation else ""
        self.differences.append(Difference(layer.name, node, "operator", layer.kind, kind))
        self.reported.add(index)

    def _order(self, operation: Operation, sources: Sequence[int]) -> list[int]:
        """The sources in order; sorted, if their order does not change the result."""
        return sorted(sources) if operation.kind in ("Add", "Mul") else list(sources)

    def _names(self, indices: Sequence[int]) -> str:
        """Exported operations, named by the canonical layers that they are paired with."""
        back = {exported: index for index, exported in self.counterpart.items()}
        layers = [back.get(index) for index in indices]
        return ", ".join(
            "another" if index is None else ("input" if index < 0 else self.canonical[index].name)
            for index in layers
        )


def _unequal_attributes(
    canonical: dict[str, Any], exported: dict[str, Any]
) -> dict[str, tuple[Any, Any]]:
    return {
        name: (canonical.get(name), exported.get(name))
        for name in {**canonical, **exported}
        if canonical.get(name) != exported.get(name)
    }
