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

from typing import Any

from dlb_worker.errors import (
    DlbError,
    PluginError,
    RequestError,
    UnknownNameError,
    UnsupportedError,
)

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


class WorkloadError(RequestError):
    """A workload that cannot be read or does not hold together."""


class ShapeError(WorkloadError):
    """A layer that cannot take the shapes it is given."""


class DataError(RequestError):
    """A data file that is missing, truncated, oversized or altered."""


class EnvironmentMissing(RequestError):
    """An adapter that has no environment to run in."""


class ProvisionError(DlbError):
    """An environment that could not be made."""


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
