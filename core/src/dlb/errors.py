"""Every error that dlb raises on purpose.

An error has fields: ``message`` says what went wrong; ``adapter``, ``path``, ``log`` and ``layer`` say
where. ``str(error)`` composes one line from them. No code parses that line.

::

    DlbError                    says what was wrong, where, and what to do next
    ├── RequestError            the request cannot be carried out as written (exit status 2)
    │   ├── SettingError        settings that are out of range, or do not go together
    │   ├── WorkloadError       a workload file or description that is not valid
    │   │   └── ShapeError      a layer that cannot take the shapes of its inputs
    │   ├── UnknownNameError    no adapter, workload, data set, strategy of that name
    │   ├── DataError           a data file that is missing, truncated, oversized or altered
    │   ├── EnvironmentMissing  an adapter with no environment to run in
    │   └── PackageMissing      a command or function of a package that is not installed
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

from dlb_graph.errors import (
    DataError,
    DlbError,
    RequestError,
    Sentence,
    SettingError,
    ShapeError,
    UnknownNameError,
    UnsupportedError,
    WorkloadError,
    sentence_of,
)
from dlb_worker.errors import PluginError

__all__ = [
    "DataError",
    "DlbError",
    "EnvironmentMissing",
    "PackageMissing",
    "PluginError",
    "ProvisionError",
    "RecordError",
    "RequestError",
    "Sentence",
    "SettingError",
    "ShapeError",
    "UnknownNameError",
    "UnsupportedError",
    "WorkerDied",
    "WorkerError",
    "WorkerHung",
    "WorkerRaised",
    "WorkloadError",
    "sentence_of",
]


class EnvironmentMissing(RequestError):
    """An adapter that has no environment to run in."""


class PackageMissing(RequestError):
    """A command or function of a package that is not installed.

    Args:
        what: the command or function.
        package: its distribution.
    """

    def __init__(self, what: str, package: str) -> None:
        super().__init__(
            f"{what} is in the package {package}, which is not installed: pip install {package} "
            f"(in a checkout of dlb: pip install ./plugins/{package})"
        )


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
