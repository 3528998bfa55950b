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
    "Home",
    "check_strategy",
    "describe_home",
    "find_adapters",
    "homes",
    "known_adapters",
]

HERE = "this environment"


@dataclass(frozen=True)
class Home:
    """Where an adapter lives.

    Attributes:
        adapter: its name.
        python: the interpreter that its workers run in.
        where: ``this environment``, or the environment's folder.
    """

    adapter: str
    python: Path
    where: str


def homes() -> dict[str, Home]:
    """Every adapter that can run now: of this environment first, then of the others."""
    from dlb import environments

    found = {
        name: Home(name, Path(sys.executable), HERE) for name in sorted(load_plugins().adapters)
    }
    for environment in environments.list_all():
        if environment.managed and environment.worker_version is None:
            continue  # made by an earlier dlb, without dlb-worker
        found.setdefault(
            environment.name,
            Home(environment.name, Path(environment.python), str(environment.folder)),
        )
    return found


def known_adapters() -> list[str]:
    """Names of adapters that can be had, installed or not."""
    from dlb import environments

    return sorted({*environments.KNOWN, *homes()})


def find_adapters(
    names: Sequence[str],
    *,
    provision: bool = False,
    source: Path | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> list[Home]:
    """The homes of adapters, in the order given; all there are when ``names`` is empty.

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

    there = homes()
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
        home = there.get(name)
        if provision and (home is None or home.where != HERE):
            environment = environments.ensure(name, source=source, report=report)
            home = Home(name, Path(environment.python), str(environment.folder))
        if home is None:
            raise EnvironmentMissing(
                f"adapter '{name}' has no environment; make it with: dlb env create {name} "
                "(or add --provision)"
            )
        found.append(home)
    return found


def describe_home(home: Home) -> dict[str, Any]:
    """What the environment of an adapter says of itself: see :func:`dlb_worker.description.describe`.

    Raises:
        WorkerError: it cannot answer.
    """
    from dlb.supervision import Launch, worker_group
    from dlb_worker.description import describe

    if home.where == HERE:
        return describe(load_plugins())
    with tempfile.TemporaryDirectory(prefix="dlb-") as scratch:
        with worker_group(Launch(home.adapter, home.python, Path(scratch))) as group:
            return group.call("describe")[0]


def check_strategy(strategy: str, homes: Sequence[Home]) -> None:
    """See, before any work, that every adapter has the strategy.

    Raises:
        UnknownNameError: one has not; the message names those that it has.
    """
    for home in homes:
        try:
            known = describe_home(home)["strategies"]
        except WorkerError:
            # An environment that cannot answer costs its own run, which says why.
            continue
        names = [one["name"] for one in known if home.adapter in one["frameworks"]]
        if strategy not in names:
            raise UnknownNameError(
                f"strategy of adapter '{home.adapter}':",
                strategy,
                names,
                "choose adapters with --on",
            )
