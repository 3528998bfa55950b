"""The environments that adapters live in: made, found, examined, removed.

Frameworks cannot share one environment, so each adapter ``NAME`` has its own, which holds
``dlb-worker`` and the distribution ``dlb-NAME``. uv does the work. An environment is whole when its
record, ``dlb-environment.json``, is there: it is written last. Linux and macOS only.
"""

from __future__ import annotations

from dlb.environments.doctor import Finding, doctor
from dlb.environments.inspection import packages
from dlb.environments.names import KNOWN, Framework, distribution_of
from dlb.environments.provision import add, create, ensure, remove
from dlb.environments.record import Environment, find, list_all

__all__ = [
    "KNOWN",
    "Environment",
    "Finding",
    "Framework",
    "add",
    "create",
    "distribution_of",
    "doctor",
    "ensure",
    "find",
    "list_all",
    "packages",
    "remove",
]
