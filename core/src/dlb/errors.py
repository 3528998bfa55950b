"""Every error that dlb raises on purpose.

An error carries fields: what went wrong in ``message``, and the adapter, path, log and layer that it is
about. ``str(error)`` composes one line from them. Nobody takes that line apart again.

::

    DlbError                    says what was wrong, where, and what to do next
    ├── RequestError            the request cannot be carried out as written (exit status 2)
    │   ├── WorkloadError       a workload file or description that does not hold together
    │   │   └── ShapeError      a layer that cannot take the shapes it is given
    │   ├── UnknownNameError    no adapter, workload, data set, strategy of that name
    │   ├── DataError           a data file that is missing, truncated, oversized or altered
    │   └── EnvironmentMissing  an adapter with no environment to run in
    ├── PluginError             a plugin that failed to load, or breaks the contract
    ├── ProvisionError          an environment could not be made
    ├── UnsupportedError        an adapter cannot do what was asked, and says so
    ├── RecordError             a record that could not be written, or is not one
    └── WorkerError             a worker process failed
        ├── WorkerDied          it ended, or was killed, before it answered
        ├── WorkerHung          it stopped answering in the stated time
        └── WorkerRaised        the framework raised inside it
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import Any

__all__ = [
    "DataError",
    "DlbError",
    "EnvironmentMissing",
    "PluginError",
    "ProvisionError",
    "RecordError",
    "RequestError",
    "ShapeError",
    "UnknownNameError",
    "UnsupportedError",
    "WorkerDied",
    "WorkerError",
    "WorkerHung",
    "WorkerRaised",
    "WorkloadError",
]


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
        path: str | PathLike[str] | None = None,
        log: str | PathLike[str] | None = None,
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


class WorkloadError(RequestError):
    """A workload that cannot be read or does not hold together."""


class ShapeError(WorkloadError):
    """A layer that cannot take the shapes it is given."""


class UnknownNameError(RequestError):
    """There is nothing of that name.

    Args:
        kind: what was looked for ("adapter", "workload", ...).
        name: the name asked for.
        known: the names there are; the nearest is proposed.
        hint: what to do next, a sentence.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        import difflib

        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1)
        parts = [f"unknown {kind} '{name}'"]
        if near:
            parts.append(f"did you mean '{near[0]}'?")
        parts.append(f"known: {', '.join(names) or 'none'}")
        if hint:
            parts.append(hint)
        super().__init__("; ".join(parts))


class DataError(RequestError):
    """A data file that is missing, truncated, oversized or altered."""


class EnvironmentMissing(RequestError):
    """An adapter that has no environment to run in."""


class PluginError(DlbError):
    """A plugin that failed to load or breaks the hook contract."""


class ProvisionError(DlbError):
    """An environment that could not be made."""


class UnsupportedError(DlbError):
    """An adapter cannot do what was asked of it."""

    exit_status = 2


class RecordError(DlbError):
    """A record that could not be written, or a file that is not a record."""


class WorkerError(DlbError):
    """A worker process failed."""


class WorkerDied(WorkerError):
    """A worker ended, or was killed, before it answered."""


class WorkerHung(WorkerError):
    """A worker stopped answering within the stated time."""


class WorkerRaised(WorkerError):
    """The framework raised inside a worker.

    ``remote_traceback`` is the worker's own traceback, for the log, never for the terminal.
    """

    def __init__(self, message: str, remote_traceback: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.remote_traceback = remote_traceback
