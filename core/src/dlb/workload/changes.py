"""Fields of a workload changed from the command line: ``--set optimizer.learning_rate=0.01``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from dlb.errors import RequestError
from dlb.workload.decoding import decoded
from dlb.workload.files import check
from dlb.workload.model import Workload

__all__ = ["with_changes"]


def with_changes(
    workload: Workload, changes: Iterable[str], *, keep_model: bool = False
) -> Workload:
    """The workload with some fields changed.

    Args:
        changes: each ``FIELD=VALUE``. FIELD is a path of names, of which a layer's is the name of
            its node: ``data.name``, ``model.nodes.fc1.layer.out_features``. VALUE is written as in
            a workload file; a bare word is text.
        keep_model: refuse another model: the weights are a file's, and fit that one.

    Raises:
        RequestError: not of that form, no such field, or another model where it must be kept.
        WorkloadError: what comes of it is not a workload.
    """
    changes = tuple(changes)
    if not changes:
        return workload
    document = msgspec.json.decode(msgspec.json.encode(workload))
    for change in changes:
        path, sign, text = change.partition("=")
        if not sign or not path:
            raise RequestError(f"--set {change}: give FIELD=VALUE, as optimizer.learning_rate=0.01")
        _set(document, path.split("."), _value(text), change)
    changed = decoded(document, f"--set {', '.join(changes)}: not a workload any more")
    if keep_model and changed.model != workload.model:
        raise RequestError(
            f"--set {', '.join(changes)}: the model and its weights are the file's; "
            "everything but model can be changed"
        )
    try:
        return check(changed)
    except RequestError as error:
        error.message = f"--set {', '.join(changes)}: {error.message}"
        raise


def _value(text: str) -> Any:
    try:
        return msgspec.toml.decode(f"value = {text}")["value"]
    except (msgspec.DecodeError, KeyError, RecursionError, ValueError):
        return text


def _set(document: dict[str, Any], path: list[str], value: Any, change: str) -> None:
    at: Any = document
    for depth, name in enumerate(path):
        nodes = isinstance(at, list) and all(isinstance(one, dict) for one in at)
        held = {node["name"]: node for node in at} if nodes else at
        last = depth == len(path) - 1
        # What fields a type has that was given just now is not known here.
        typed = last and isinstance(held, dict) and "type" in held
        if not isinstance(held, dict) or (name not in held and not typed):
            known = ", ".join(map(str, held)) if isinstance(held, dict) and held else "none"
            where = ".".join(path[:depth]) or "a workload"
            raise RequestError(f"--set {change}: {where} has no field '{name}'; it has {known}")
        if last:
            _replace(at, held, name, value)
        at = held[name]


def _replace(at: Any, held: dict[str, Any], name: str, value: Any) -> None:
    """Another type of optimizer, schedule or layer has other fields: those are its defaults."""
    if isinstance(at, list):
        at[at.index(held[name])] = value
    elif name == "type":
        at.clear()
        at["type"] = value
    else:
        at[name] = value
