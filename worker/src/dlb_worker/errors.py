"""The errors that a worker and an adapter raise on purpose. ``dlb.errors`` has those of the core.

::

    DlbError                says what was wrong, where, and what to do next
    ├── RequestError        the request cannot be carried out as written
    │   └── UnknownNameError    nothing has that name
    ├── PluginError         a plugin fails to load, or breaks the contract
    └── UnsupportedError    an adapter cannot do what was asked, and says so
"""

import difflib
from typing import Iterable

__all__ = ["DlbError", "PluginError", "RequestError", "UnknownNameError", "UnsupportedError"]


class DlbError(Exception):
    """Base of every error raised on purpose. ``exit_status`` is what the command line returns."""

    exit_status = 1


class RequestError(DlbError):
    """The request cannot be carried out as it was written."""

    exit_status = 2


class UnknownNameError(RequestError):
    """Nothing has that name.

    Args:
        kind: what was looked for ("adapter", "workload", ...).
        name: the name asked for.
        known: the names that exist; the nearest is proposed.
        hint: what to do next, a sentence.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1)
        parts = [f"unknown {kind} '{name}'"]
        if near:
            parts.append(f"did you mean '{near[0]}'?")
        parts.append("known: {}".format(", ".join(names) or "none"))
        if hint:
            parts.append(hint)
        super().__init__("; ".join(parts))


class PluginError(DlbError):
    """A plugin failed to load or breaks the hook contract."""


class UnsupportedError(DlbError):
    """An adapter cannot do what was asked of it."""

    exit_status = 2
