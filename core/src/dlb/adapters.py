"""The adapters that exist, and the interpreter that each one runs in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlb.errors import DlbError, EnvironmentMissing, PluginError, UnknownNameError, WorkerError
from dlb.scratch import scratch_folder
from dlb_worker.plugins import load_plugins

if TYPE_CHECKING:
    from dlb.environments import Finding

__all__ = [
    "AdapterEnvironment",
    "adapter_environments",
    "check_strategy",
    "describe_adapter",
    "describe_environment",
    "diagnose",
    "find_adapters",
    "known_adapters",
]

HERE = "this environment"


@dataclass(frozen=True)
class AdapterEnvironment:
    """The environment that an adapter is installed in.

    Attributes:
        adapter: the adapter's name.
        python: the interpreter that runs the adapter's workers.
        where: ``this environment``, or the environment's folder.
    """

    adapter: str
    python: Path
    where: str


def adapter_environments() -> dict[str, AdapterEnvironment]:
    """Every adapter that can run now, by name; one in this environment takes precedence."""
    from dlb import environments

    by_name = {
        name: AdapterEnvironment(name, Path(sys.executable), HERE)
        for name in sorted(load_plugins().adapters)
    }
    for environment in environments.list_all():
        if environment.managed and environment.worker_version is None:
            continue  # made by an earlier dlb, without dlb-worker
        by_name.setdefault(
            environment.name,
            AdapterEnvironment(environment.name, Path(environment.python), str(environment.folder)),
        )
    return by_name


def known_adapters() -> list[str]:
    """Names of the adapters that are installed or that dlb can install."""
    from dlb import environments

    return sorted({*environments.KNOWN, *adapter_environments()})


def find_adapters(
    names: Sequence[str],
    *,
    provision: bool = False,
    source: Path | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> list[AdapterEnvironment]:
    """The environments of adapters, in the order of ``names``.

    Args:
        names: adapters; empty for every adapter that can run.
        provision: make missing environments, and make those again whose source has changed.
        source: a checkout or a folder of wheels to install from.
        report: receives a line of text for each step.

    Raises:
        UnknownNameError: there is no adapter of that name.
        PluginError: the adapter's plugin is in this environment, but failed to load.
        EnvironmentMissing: the adapter has no environment; the message says how to make one.
        ProvisionError: the environment could not be made.
    """
    from dlb import environments

    available = adapter_environments()
    called = (environments.adapter_called(name, available) for name in names)
    requested = list(dict.fromkeys(called)) or list(available)
    if not requested:
        known = " ".join(sorted(environments.KNOWN))
        raise EnvironmentMissing(
            f"no adapter is installed; make environments with: dlb env create {known}"
        )
    for name in requested:
        broken = next((plugin for plugin in load_plugins().broken if plugin.name == name), None)
        if name not in available and broken is not None:
            raise PluginError(f"adapter '{name}' cannot be used; {broken}")
        if name not in available and name not in environments.KNOWN:
            raise UnknownNameError(
                "adapter",
                name,
                {*environments.KNOWN, *environments.also_known(), *available},
                f"write {' '.join(f'--on {each}' for each in name.split(','))}"
                if "," in name
                else f"an adapter by others is installed with: dlb env create {name} --from DIR",
            )
    if provision:
        elsewhere = [
            name for name in requested if name not in available or available[name].where != HERE
        ]
        for made in environments.make_each(environments.ensure, elsewhere, report, source=source):
            available[made.name] = AdapterEnvironment(
                made.name, Path(made.python), str(made.folder)
            )
    for name in requested:
        if name not in available:
            raise EnvironmentMissing(
                f"adapter '{name}' has no environment; make it with: dlb env create {name} "
                "(or add --provision)"
            )
    return [available[name] for name in requested]


def describe_environment(environment: AdapterEnvironment) -> dict[str, Any]:
    """The environment's description of itself: see :func:`dlb_worker.description.describe`.

    Raises:
        WorkerError: the environment's worker failed.
    """
    from dlb.supervision import Launch, worker_group
    from dlb_worker.description import describe

    if environment.where == HERE:
        return describe(load_plugins())
    with scratch_folder() as scratch:
        with worker_group(Launch(environment.adapter, environment.python, scratch)) as group:
            return group.call("describe")[0]


def describe_adapter(environment: AdapterEnvironment) -> tuple[dict[str, Any] | None, str]:
    """What an environment says of its adapter; None and the reason if it cannot be used."""
    try:
        described = describe_environment(environment)
    except DlbError as error:
        return None, str(error)
    entry = next((a for a in described["adapters"] if a["name"] == environment.adapter), None)
    reasons = [broken["reason"] for broken in described["broken"]]
    return entry, "" if entry else "; ".join(reasons) or "its plugin is not there"


def diagnose(name: str) -> list[Finding]:
    """What is right and wrong with an adapter's environment, each with the command that fixes it.

    Raises:
        RequestError: the name cannot be an adapter's.
    """
    from dlb import environments
    from dlb.environments import Finding, distribution_of

    environment = adapter_environments().get(name)
    findings = []
    if environment is None or environment.where != HERE:
        findings = environments.doctor(name)
        remedy = f"dlb env create {name}"
    else:
        findings = [Finding("ok", f"it is installed next to dlb, for {environment.python}")]
        remedy = f"{environment.python} -m pip install --force-reinstall {distribution_of(name)}"
    if environment is not None and all(finding.severity != "error" for finding in findings):
        entry, reason = describe_adapter(environment)
        if entry is None:
            findings.append(Finding("error", f"it cannot be used: {reason}", remedy))
        else:
            title = f"{entry.get('title', name)} {entry.get('framework_version', '')}".strip()
            findings.append(Finding("ok", f"it works: {title}"))
    return findings


def check_strategy(strategy: str, required: Sequence[AdapterEnvironment]) -> None:
    """Check, before any work, that every adapter has the strategy.

    Raises:
        UnknownNameError: an adapter does not have it; the message lists those that it has.
    """
    for environment in required:
        try:
            strategies = describe_environment(environment)["strategies"]
        except WorkerError:
            # An environment that cannot answer fails in its own run, which says why.
            continue
        names = [
            entry["name"] for entry in strategies if environment.adapter in entry["frameworks"]
        ]
        if strategy not in names:
            raise UnknownNameError(
                f"strategy of adapter '{environment.adapter}':",
                strategy,
                names,
                "choose adapters with --on",
            )
