"""Which adapters there are, and the interpreter that each one runs in."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlb.errors import EnvironmentMissing, PluginError, UnknownNameError, WorkerError
from dlb_worker.plugins import load_plugins

__all__ = [
    "AdapterEnvironment",
    "adapter_environments",
    "check_strategy",
    "describe_environment",
    "find_adapters",
    "known_adapters",
]

HERE = "this environment"


@dataclass(frozen=True)
class AdapterEnvironment:
    """Where an adapter lives.

    Attributes:
        adapter: its name.
        python: the interpreter that its workers run in.
        where: ``this environment``, or the environment's folder.
    """

    adapter: str
    python: Path
    where: str


def adapter_environments() -> dict[str, AdapterEnvironment]:
    """Every adapter that can run now: of this environment first, then of the others."""
    from dlb import environments

    found = {
        name: AdapterEnvironment(name, Path(sys.executable), HERE)
        for name in sorted(load_plugins().adapters)
    }
    for environment in environments.list_all():
        if environment.managed and environment.worker_version is None:
            continue  # made by an earlier dlb, without dlb-worker
        found.setdefault(
            environment.name,
            AdapterEnvironment(environment.name, Path(environment.python), str(environment.folder)),
        )
    return found


def known_adapters() -> list[str]:
    """Names of adapters that can be had, installed or not."""
    from dlb import environments

    return sorted({*environments.KNOWN, *adapter_environments()})


def find_adapters(
    names: Sequence[str],
    *,
    provision: bool = False,
    source: Path | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> list[AdapterEnvironment]:
    """The environments of adapters, in the order given; all there are when ``names`` is empty.

    Args:
        provision: make (or make anew, when its source has changed) what is missing.
        source: a checkout or a folder of wheels to make it from.
        report: hears what is being made, a line at a time.

    Raises:
        UnknownNameError: nobody knows an adapter of that name.
        PluginError: its plugin is here, and was left out as broken.
        EnvironmentMissing: it is known and has no environment; the message says how to make it.
        ProvisionError: it could not be made.
    """
    from dlb import environments

    there = adapter_environments()
    wanted = list(dict.fromkeys(names)) or list(there)
    if not wanted:
        known = " ".join(sorted(environments.KNOWN))
        raise EnvironmentMissing(
            f"no adapter is installed; make environments with: dlb env create {known}"
        )
    for name in wanted:
        broken = next((one for one in load_plugins().broken if one.name == name), None)
        if name not in there and broken is not None:
            raise PluginError(f"adapter '{name}' cannot be used; {broken}")
        if name not in there and name not in environments.KNOWN:
            raise UnknownNameError(
                "adapter",
                name,
                {*environments.KNOWN, *there},
                f"an adapter by others is installed with: dlb env create {name} --from DIR",
            )
    found = []
    for name in wanted:
        environment = there.get(name)
        if provision and (environment is None or environment.where != HERE):
            made = environments.ensure(name, source=source, report=report)
            environment = AdapterEnvironment(name, Path(made.python), str(made.folder))
        if environment is None:
            raise EnvironmentMissing(
                f"adapter '{name}' has no environment; make it with: dlb env create {name} "
                "(or add --provision)"
            )
        found.append(environment)
    return found


def describe_environment(environment: AdapterEnvironment) -> dict[str, Any]:
    """What the environment of an adapter says of itself: see :func:`dlb_worker.description.describe`.

    Raises:
        WorkerError: it cannot answer.
    """
    from dlb.supervision import Launch, worker_group
    from dlb_worker.description import describe

    if environment.where == HERE:
        return describe(load_plugins())
    with tempfile.TemporaryDirectory(prefix="dlb-") as scratch:
        with worker_group(Launch(environment.adapter, environment.python, Path(scratch))) as group:
            return group.call("describe")[0]


def check_strategy(strategy: str, required: Sequence[AdapterEnvironment]) -> None:
    """See, before any work, that every adapter has the strategy.

    Raises:
        UnknownNameError: one has not; the message names those that it has.
    """
    for environment in required:
        try:
            known = describe_environment(environment)["strategies"]
        except WorkerError:
            # An environment that cannot answer costs its own run, which says why.
            continue
        names = [one["name"] for one in known if environment.adapter in one["frameworks"]]
        if strategy not in names:
            raise UnknownNameError(
                f"strategy of adapter '{environment.adapter}':",
                strategy,
                names,
                "choose adapters with --on",
            )
