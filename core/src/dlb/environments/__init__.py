"""Makes, finds, examines and removes the environments of adapters.

Frameworks cannot share one environment. Each adapter ``NAME`` therefore has its own, which holds
``dlb-worker`` and the distribution ``dlb-NAME``. uv makes it. An environment is complete when it has its
record, ``dlb-environment.json``, which is written last. Linux and macOS only.
"""

from __future__ import annotations

from dlb.environments.doctor import Finding, doctor
from dlb.environments.folders import list_all
from dlb.environments.inspection import packages
from dlb.environments.names import (
    KNOWN,
    Framework,
    adapter_called,
    also_known,
    distribution_of,
)
from dlb.environments.provision import add, create, ensure, make_each, remove
from dlb.environments.record import Environment, find

__all__ = [
    "KNOWN",
    "Environment",
    "Finding",
    "Framework",
    "adapter_called",
    "add",
    "also_known",
    "create",
    "distribution_of",
    "doctor",
    "ensure",
    "find",
    "list_all",
    "make_each",
    "packages",
    "remove",
]
