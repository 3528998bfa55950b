"""``dlb list``: adapters, workloads, data sets, strategies and plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from dlb.cli.output import echo, json_option, print_json, print_table, print_warnings

__all__ = ["list_command"]


@click.command("list")
@click.argument(
    "what", type=click.Choice(["adapters", "workloads", "datasets", "strategies", "plugins"])
)
@json_option
def list_command(what: str, as_json: bool) -> None:
    """List what is installed, with versions, and what is known but not installed."""
    print_warnings()
    columns, rows = _LISTS[what]()
    if as_json:
        print_json({what: [dict(zip(columns, row)) for row in rows]})
        return
    shown = [name for name in columns if name not in _DETAILS.get(what, ())]
    print_table(shown, [[str(cell or "-") for cell in row[: len(shown)]] for row in rows])
    for row in rows:
        entry = dict(zip(columns, row))
        if entry.get("variants"):
            echo(f"Variants of {row[0]}: {_variants_text(entry['variants'])}")
        if entry.get("reason"):
            echo(f"{row[0]} is left out: {entry['reason']}")


def _variants_text(variants: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{name}={'|'.join(values)}" for name, values in variants.items())


def _descriptions() -> dict[str, Any]:
    """The description of each environment, by adapter; a broken environment has the error instead."""
    from dlb.adapters import adapter_environments, describe_environment
    from dlb.errors import DlbError

    descriptions: dict[str, Any] = {}
    for name, environment in adapter_environments().items():
        try:
            descriptions[name] = describe_environment(environment)
        except DlbError as error:
            descriptions[name] = {
                "adapters": [],
                "strategies": [],
                "plugins": [],
                "broken": [],
                "error": str(error),
            }
    return descriptions


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
    from dlb.errors import DlbError
    from dlb.workload import workload_hash

    rows = []
    for name in workload_names():
        try:
            workload = load_workload(name)
        except DlbError as error:  # of a plugin: the others are shown all the same
            rows.append([name, f"cannot be read: {error}", "", "", ""])
            continue
        rows.append(
            [
                name,
                workload.title,
                workload.data.name,
                workload_hash(workload)[:12],
                workload.source,
            ]
        )
    return ["workload", "title", "data", "hash", "source"], rows


def _datasets() -> tuple[list[str], list[list[Any]]]:
    from dlb.data.local import LOCAL, find_own
    from dlb.data.locate import state_of
    from dlb.data.registry import data_sets

    rows = [
        [
            data_set.name,
            data_set.title,
            f"{data_set.n_train} + {data_set.n_test}",
            data_set.where,
            data_set.licence,
            "",
        ]
        for data_set in map(state_of, data_sets().values())
    ]
    rows += [
        [name, "your own files", "", str(find_own(name) or "data.path"), "", title]
        for name, (title, _) in LOCAL.items()
    ]
    return ["data set", "title", "samples", "where", "licence", "files"], rows


def _strategies() -> tuple[list[str], list[list[Any]]]:
    rows, listed = [], set()
    for described in _descriptions().values():
        for entry in described["strategies"]:
            key = (entry["name"], tuple(entry["frameworks"]))
            if key not in listed:
                listed.add(key)
                kind = f"{'synchronous' if entry['synchronous'] else 'asynchronous'} {entry['parallelism']}"
                rows.append(
                    [
                        entry["name"],
                        entry["title"],
                        ", ".join(entry["frameworks"]),
                        kind,
                        entry["parameters"],
                        ", ".join(entry["backends"]),
                        ", ".join(entry["devices"]),
                    ]
                )
    columns = ["strategy", "title", "adapters", "kind", "parameters", "backends", "devices"]
    return columns, rows


def _plugins() -> tuple[list[str], list[list[Any]]]:
    from dlb_worker.contract import CONTRACT
    from dlb_worker.plugins import load_plugins

    plugins = load_plugins()
    contract = ".".join(map(str, CONTRACT))
    rows: list[list[Any]] = [
        [
            plugin.name,
            f"{plugin.distribution} {plugin.version}",
            "loaded",
            contract,
            list(plugin.hooks),
            "",
        ]
        for plugin in plugins.loaded
    ]
    rows += [
        [
            plugin.name,
            f"{plugin.distribution} {plugin.version}",
            "left out",
            contract,
            [],
            plugin.reason,
        ]
        for plugin in plugins.broken
    ]
    return ["plugin", "distribution", "state", "contract", "hooks", "reason"], rows


_LISTS = {
    "adapters": _adapters,
    "workloads": _workloads,
    "datasets": _datasets,
    "strategies": _strategies,
    "plugins": _plugins,
}

#: The last columns, which only the JSON document has, so that the table fits 80 characters.
_DETAILS = {
    "adapters": ("variants",),
    "workloads": ("hash", "source"),
    "datasets": ("licence", "files"),
    "strategies": ("parameters", "backends", "devices"),
    "plugins": ("hooks", "reason"),
}
