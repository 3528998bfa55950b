"""An error as data, as records, certificates and findings store it."""

from __future__ import annotations

import msgspec

from dlb import errors
from dlb.errors import DlbError

__all__ = ["Failure", "failure_of"]


#: The modules that define the errors of the worker and of the core.
ERROR_MODULES = (DlbError.__module__, errors.__name__)


class Failure(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What ended an adapter's run, or kept a check from being run.

    Attributes:
        kind: the type of the error, as :mod:`dlb.errors` names it; ``Interrupted`` for a run that
            was interrupted.
        message: what went wrong and what to do next, in one line. The framework may have written it.
        adapter: whose worker or plugin failed.
        path: the file that the error is about.
        log: the file that keeps the output of the failed worker.
        layer: the layer that the error is about.
    """

    kind: str
    message: str
    adapter: str = ""
    path: str = ""
    log: str = ""
    layer: str = ""

    @property
    def line(self) -> str:
        """One line of text without the adapter, whose name is shown next to it."""
        prefix = f"{self.path}: " if self.path else ""
        return prefix + self.message + (f"; output: {self.log}" if self.log else "")


def failure_of(error: DlbError) -> Failure:
    """The fields of an error."""
    # A plugin may derive its own error: the record names the nearest base class that dlb defines.
    kind = next(base for base in type(error).__mro__ if base.__module__ in ERROR_MODULES)
    return Failure(
        kind=kind.__name__,
        message=" ".join(error.message.split()),
        adapter=error.adapter,
        path=error.path,
        log=error.log,
        layer=error.layer,
    )
