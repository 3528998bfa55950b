"""``dlb list``: adapters, workloads, data sets, strategies and plugins."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import click

from dlb.cli.output import echo, json_option, show_rows

__all__ = ["list_command"]


@click.command("list")
@click.argument(
    "what", type=click.Choice(["adapters", "workloads", "datasets", "strategies", "plugins"])
)
@json_option
def list_command(what: str, as_json: bool) -> None:
    """List what is installed, with versions, and what is known but not installed."""
    make, shown = _LISTS[what]
    columns, rows = make()
    show_rows(what, columns, rows, as_json, shown=shown)
    for row in () if as_json else rows:
        entry = dict(zip(columns, row))
        if entry.get("variants"):
            variants = (f"{name}={'|'.join(each)}" for name, each in entry["variants"].items())
            echo(f"Variants of {row[0]}: {'; '.join(variants)}")
        if entry.get("reason"):
            echo(f"{row[0]} is left out: {entry['reason']}")


def _adapters() -> tuple[list[str], list[list[Any]]]:
    from dlb import environments
    from dlb.adapters import adapter_environments, describe_adapter

    installed = adapter_environments()
    rows: list[list[Any]] = []
    for name in sorted({*environments.KNOWN, *installed}):
        if name not in installed:
            framework = environments.KNOWN[name]
            rows.append([name, framework.title, "", "not installed", f"dlb env create {name}", {}])
            continue
        entry, reason = describe_adapter(installed[name])
        if entry is None:
            rows.append([name, "", "", f"broken: {reason}", f"dlb env doctor {name}", {}])
        else:
            variants = entry.get("variants", {})
            version, where = entry.get("framework_version", ""), installed[name].where
            title = entry.get("title", name)
            rows.append([name, title, version, "installed", where, variants])
    return ["adapter", "framework", "version", "state", "where", "variants"], rows


def _workloads() -> tuple[list[str], list[list[Any]]]:
    from dlb.catalogue import load_workload, workload_names
    from dlb.data.locate import state_of
    from dlb.data.own import own_kinds
    from dlb.data.registry import PACKAGE, data_sets
    from dlb.errors import DlbError
    from dlb_graph.workload import workload_hash

    states = {name: state_of(data_set) for name, data_set in data_sets().items()}
    rows: list[list[Any]] = []
    for name in workload_names():
        try:
            workload = load_workload(name)
        except DlbError as error:  # of a plugin: the others are shown all the same
            rows.append([name, f"cannot be read: {error}", "", "", "", "", None])
            continue
        data, hashed = workload.data.name, workload_hash(workload)[:12]
        other = "made here" if data == "synthetic" else f"in the package {PACKAGE}"
        missing, state = 0, "your own" if data in own_kinds() else other
        if data in states:
            here = states[data].where != "not fetched"
            missing = 0 if here else states[data].download_size
            size = f"fetch {missing / 1e6:,.3g} MB" if missing else "not here"
            state = "here" if here else size
        rows.append([name, workload.title, data, state, hashed, workload.source, missing])
    return ["workload", "title", "data", "state", "hash", "source", "bytes_to_fetch"], rows


def _datasets() -> tuple[list[str], list[list[Any]]]:
    from dlb.data.locate import state_of
    from dlb.data.own import own_data, own_kinds
    from dlb.data.registry import data_sets

    rows = [
        [each.name, each.title, f"{each.n_train} + {each.n_test}", each.where, each.licence, ""]
        for each in map(state_of, data_sets().values())
    ]
    rows += [
        [name, "your own files", "", str(own.find() or "data.path"), "", own.title]
        for name, own in zip(own_kinds(), map(own_data, own_kinds()))
    ]
    return ["data set", "title", "samples", "where", "licence", "files"], rows


def _strategies() -> tuple[list[str], list[list[Any]]]:
    from dlb.adapters import adapter_environments, describe_environment
    from dlb.errors import DlbError

    rows: dict[Any, list[Any]] = {}
    for environment in adapter_environments().values():
        described: Mapping[str, Any] = {"strategies": ()}
        with contextlib.suppress(DlbError):  # a broken one is told of by dlb list adapters
            described = describe_environment(environment)
        for entry in described["strategies"]:
            other = "averaging" if entry.get("averages_every") else "asynchronous"
            kind = f"{'synchronous' if entry['synchronous'] else other} {entry['parallelism']}"
            adapters, backends, devices = (
                ", ".join(entry[name]) for name in ("frameworks", "backends", "devices")
            )
            row = [entry["name"], entry["title"], adapters, kind]
            rows.setdefault(
                (entry["name"], adapters), [*row, entry["parameters"], backends, devices]
            )
    columns = ["strategy", "title", "adapters", "kind", "parameters", "backends", "devices"]
    return columns, list(rows.values())


def _plugins() -> tuple[list[str], list[list[Any]]]:
    from dlb_worker.contract import CONTRACT
    from dlb_worker.plugins import load_plugins

    plugins: Any = load_plugins()
    contract = ".".join(map(str, CONTRACT))
    rows: list[list[Any]] = [
        [each.name, f"{each.distribution} {each.version}", state, contract, hooks, reason]
        for each, state, hooks, reason in (
            *((each, "loaded", list(each.hooks), "") for each in plugins.loaded),
            *((each, "left out", [], each.reason) for each in plugins.broken),
        )
    ]
    return ["plugin", "distribution", "state", "contract", "hooks", "reason"], rows


#: What makes each, and how many columns the table has, so that it fits 80 characters; the document has all.
_LISTS = {
    "adapters": (_adapters, 5),
    "workloads": (_workloads, 4),
    "datasets": (_datasets, 4),
    "strategies": (_strategies, 4),
    "plugins": (_plugins, 4),
}
