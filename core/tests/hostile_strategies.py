"""Documents with odd content: valid ones in which something was changed."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

__all__ = ["altered", "damaged"]

#: Values that a field rarely has, some of them valid.
ODD = [
    None, True, False, -1, 0, 1, 2**31, 10**30, -0.0, 0.5, 1e308, 1e-320, "", " ", "a\nb", "\x1b[31m",
    "[bold]", "[/]", "nan", "../..", "a" * 5000, "\u202e", [], {}, [[]], [None], {"": 0}, [0] * 50,
    {"type": "relu"}, "sgd", "2024-13-45T99:99:99+99:99", [1e308, 1e308],
]  # fmt: skip


def _paths(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every value within a document."""
    items: list[tuple[Any, Any]] = []
    if isinstance(document, dict):
        items = list(document.items())
    elif isinstance(document, list):
        items = list(enumerate(document))
    return [place for key, value in items for place in ((*path, key), *_paths(value, (*path, key)))]


@st.composite
def altered(draw: st.DrawFn, document: Any, odd: list[Any] = ODD) -> Any:
    """The document with one to three values replaced, removed, added or moved."""
    result = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        places = _paths(result)
        if not places:
            return result
        *parents, last = draw(st.sampled_from(places))
        container = result
        for key in parents:
            container = container[key]
        how = draw(st.sampled_from(["odd", "odd", "odd", "other", "remove", "add"]))
        if how == "odd":
            container[last] = copy.deepcopy(draw(st.sampled_from(odd)))
        elif how == "other":
            other = result
            for key in draw(st.sampled_from(places)):
                other = other[key]
            container[last] = copy.deepcopy(other)
        elif how == "remove":
            del container[last]
        elif isinstance(container, list):
            container.append(copy.deepcopy(container[last]))
        else:
            container[f"{last}x"] = copy.deepcopy(container[last])
    return result


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """The content with some bytes changed, cut out or repeated."""
    result = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(0, len(result) - 1)))
        size = draw(st.integers(1, 8))
        how = draw(st.sampled_from(["change", "cut", "repeat", "end"]))
        if how == "change":
            result[start : start + size] = draw(st.binary(min_size=1, max_size=size))
        elif how == "cut":
            del result[start : start + size]
        elif how == "repeat":
            result[start:start] = result[start : start + size] * draw(st.integers(1, 50))
        else:
            del result[start:]
    return bytes(result)
