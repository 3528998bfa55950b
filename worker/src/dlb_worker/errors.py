"""The errors that a worker and an adapter raise on purpose. ``dlb.errors`` has those of the core.

::

    DlbError                says what was wrong, where, and what to do next
    ├── RequestError        the request cannot be carried out as written
    │   └── UnknownNameError    nothing has that name
    ├── PluginError         a plugin fails to load, or breaks the contract
    └── UnsupportedError    an adapter cannot do what was asked, and says so
"""

import difflib
import os
from typing import Iterable, Union

__all__ = [
    "DlbError",
    "PluginError",
    "RequestError",
    "UnknownNameError",
    "UnsupportedError",
    "one_line",
]


def one_line(error: BaseException) -> str:
    """An error of any type in one line of bounded length, even if its text cannot be made."""
    try:
        text = " ".join(str(error).split()).encode("utf-8", "replace").decode()
    except BaseException:
        text = "its text cannot be made"
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return line if len(line) < 500 else line[:500] + " ..."


class DlbError(Exception):
    """Base of every error raised on purpose. ``exit_status`` is what the command line returns.

    Attributes:
        message: what was wrong and what to do next, without what the other fields say.
        adapter: whose worker or plugin failed; empty where it is nobody's.
        path: the file that the error is about.
        log: the file that the failed process wrote its output to.
        layer: the layer that the error is about.
    """

    exit_status = 1

    def __init__(
        self,
        message: str = "",
        *,
        adapter: str = "",
        path: Union[str, "os.PathLike[str]", None] = None,
        log: Union[str, "os.PathLike[str]", None] = None,
        layer: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.adapter = adapter
        self.path = "" if path is None else str(path)
        self.log = "" if log is None else str(log)
        self.layer = layer

    def __str__(self) -> str:
        before = "".join(f"{place}: " for place in (self.adapter, self.path) if place)
        return before + self.detail

    @property
    def detail(self) -> str:
        """The line without the adapter and the path, for where both are shown already."""
        return self.message + (f"; output: {self.log}" if self.log else "")


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
