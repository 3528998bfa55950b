"""``dlb list``: what there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from dlb.cli.output import json_option, print_json, print_table, print_warnings

__all__ = ["list_command"]


@click.command("list")
@click.argument(
    "what", type=click.Choice(["adapters", "workloads", "datasets", "strategies", "plugins"])
)
@json_option
def list_command(what: str, as_json: bool) -> None:
    """What is installed, with versions, and what is known but not installed."""
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
            click.echo(f"Variants of {row[0]}: {_variants_text(entry['variants'])}")
        if entry.get("reason"):
            click.echo(f"{row[0]} is left out: {entry['reason']}")


def _variants_text(variants: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{name}={'|'.join(values)}" for name, values in variants.items())


def _descriptions() -> dict[str, Any]:
    """What each environment says of itself, by adapter; an environment that cannot answer says why."""
    from dlb.adapters import adapter_environments, describe_environment
    from dlb.errors import DlbError

    found: dict[str, Any] = {}
    for name, environment in adapter_environments().items():
        try:
            found[name] = describe_environment(environment)
        except DlbError as error:
            found[name] = {
                "adapters": [],
                "strategies": [],
                "plugins": [],
                "broken": [],
                "error": str(error),
            }
    return found


def _adapters() -> tuple[list[str], list[list[Any]]]:
    from dlb import environments
    from dlb.adapters import adapter_environments

    described, there = _descriptions(), adapter_environments()
    rows: list[list[Any]] = []
    for name in sorted({*environments.KNOWN, *there}):
        if name not in there:
            known = environments.KNOWN[name]
            rows.append([name, known.title, "", "not installed", f"dlb env create {name}", {}])
            continue
        one = next((a for a in described[name]["adapters"] if a["name"] == name), None)
        if one is None:
            broken = "; ".join(b["reason"] for b in described[name]["broken"])
            state = described[name].get("error") or broken or "its plugin is not there"
            rows.append([name, "", "", f"broken: {state}", f"dlb env doctor {name}", {}])
        else:
            state, variants = "installed", one.get("variants", {})
            version, where = one["framework_version"], there[name].where
            rows.append([name, one["title"], version, state, where, variants])
    return ["adapter", "framework", "version", "state", "where", "variants"], rows


def _workloads() -> tuple[list[str], list[list[Any]]]:
    from dlb.catalogue import load_workload, workload_names
    from dlb.workload import workload_hash

    rows = []
    for name in workload_names():
        one = load_workload(name)
        rows.append([name, one.title, one.data.name, workload_hash(one)[:12], one.source])
    return ["workload", "title", "data", "hash", "source"], rows


def _datasets() -> tuple[list[str], list[list[Any]]]:
    from dlb.data.local import LOCAL, find_own
    from dlb.data.locate import state_of
    from dlb.data.registry import data_sets

    rows = [
        [one.name, one.title, f"{one.n_train} + {one.n_test}", one.where, one.licence, ""]
        for one in map(state_of, data_sets().values())
    ]
    rows += [
        [name, "your own files", "", str(find_own(name) or "data.path"), "", title]
        for name, (title, _) in LOCAL.items()
    ]
    return ["data set", "title", "samples", "where", "licence", "files"], rows


def _strategies() -> tuple[list[str], list[list[Any]]]:
    rows, seen = [], set()
    for described in _descriptions().values():
        for one in described["strategies"]:
            key = (one["name"], tuple(one["frameworks"]))
            if key not in seen:
                seen.add(key)
                kind = f"{'synchronous' if one['synchronous'] else 'asynchronous'} {one['parallelism']}"
                rows.append(
                    [
                        one["name"],
                        one["title"],
                        ", ".join(one["frameworks"]),
                        kind,
                        one["parameters"],
                        ", ".join(one["backends"]),
                        ", ".join(one["devices"]),
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
        [one.name, f"{one.distribution} {one.version}", "loaded", contract, list(one.hooks), ""]
        for one in plugins.loaded
    ]
    rows += [
        [one.name, f"{one.distribution} {one.version}", "left out", contract, [], one.reason]
        for one in plugins.broken
    ]
    return ["plugin", "distribution", "state", "contract", "hooks", "reason"], rows


_LISTS = {
    "adapters": _adapters,
    "workloads": _workloads,
    "datasets": _datasets,
    "strategies": _strategies,
    "plugins": _plugins,
}

#: Columns, the last ones, that are in the JSON document and not in the table, which fits 80 columns.
_DETAILS = {
    "adapters": ("variants",),
    "workloads": ("hash", "source"),
    "datasets": ("licence", "files"),
    "strategies": ("parameters", "backends", "devices"),
    "plugins": ("hooks", "reason"),
}
