"""Every error that dlb raises on purpose.

An error has fields: ``message`` says what went wrong; ``adapter``, ``path``, ``log`` and ``layer`` say
where. ``str(error)`` composes one line from them. No code parses that line.

::

    DlbError                    says what was wrong, where, and what to do next
    ├── RequestError            the request cannot be carried out as written (exit status 2)
    │   ├── WorkloadError       a workload file or description that is not valid
    │   │   └── ShapeError      a layer that cannot take the shapes of its inputs
    │   ├── UnknownNameError    no adapter, workload, data set, strategy of that name
    │   ├── DataError           a data file that is missing, truncated, oversized or altered
    │   └── EnvironmentMissing  an adapter with no environment to run in
    ├── PluginError             a plugin that failed to load, or breaks the contract
    ├── ProvisionError          an environment could not be made
    ├── UnsupportedError        an adapter cannot do what was requested
    ├── RecordError             a record that could not be written, or a file that is not a record
    └── WorkerError             a worker process failed
        ├── WorkerDied          the worker ended, or was killed, before it answered
        ├── WorkerHung          the worker stopped answering within the stated time
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
    """A workload that cannot be read or is not valid."""


class ShapeError(WorkloadError):
    """A layer that cannot take the shapes of its inputs."""


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

    ``remote_traceback`` is the worker's own traceback. It goes to the log, never to the terminal.
    """

    def __init__(self, message: str, remote_traceback: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.remote_traceback = remote_traceback
