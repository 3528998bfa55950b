"""Changes fields of a workload from the command line: ``--set optimizer.learning_rate=0.01``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dlb_graph.errors import RequestError, SettingError
from dlb_graph.workload.decoding import decode, did_you_mean
from dlb_graph.workload.files import check
from dlb_graph.workload.model import Workload

__all__ = ["parse_value", "with_changes"]


def with_changes(
    workload: Workload, changes: Iterable[str], *, keep_model: bool = False
) -> Workload:
    """The workload with some fields changed.

    Args:
        changes: each ``FIELD=VALUE``. FIELD is a path of names, such as ``data.name``; a layer is named
            by its node: ``model.nodes.fc1.layer.out_features``. VALUE is written as in a workload
            file; a bare word is text.
        keep_model: reject changes of the model, because the weights of a file fit only that model.

    Raises:
        SettingError: a change has another form, names no field, or changes a model to be kept; or the result
            is not a valid workload.
    """
    changes = tuple(changes)
    if not changes:
        return workload
    document = msgspec.json.decode(msgspec.json.encode(workload))
    for change in changes:
        path, sign, text = change.partition("=")
        if not sign or not path:
            raise _refused([change], "give FIELD=VALUE, as optimizer.learning_rate=0.01")
        _set(document, path.split("."), parse_value(text), change)
    try:
        changed = decode(document, "not a valid workload")
        if changed.model != workload.model and keep_model:
            raise RequestError(
                "the model and its weights come from the file; everything but model can be changed"
            )
        return check(changed)
    except RequestError as error:
        raise _refused(changes, error.message) from error


def _refused(changes: Sequence[str], reason: str) -> SettingError:
    return SettingError(lambda name: f"{name('changes')} {', '.join(changes)}: {reason}")


def parse_value(text: str) -> Any:
    """A value as a workload file has it; a bare word is text."""
    try:
        return msgspec.toml.decode(f"value = {text}")["value"]
    except (msgspec.DecodeError, KeyError, RecursionError, ValueError):
        return text


def _set(document: dict[str, Any], path: list[str], value: Any, change: str) -> None:
    container: Any = document
    for depth, name in enumerate(path):
        is_node_list = isinstance(container, list) and all(
            isinstance(node, dict) for node in container
        )
        fields = {node["name"]: node for node in container} if is_node_list else container
        last = depth == len(path) - 1
        # An earlier change may have set the type; which fields that type has is checked later.
        typed = last and isinstance(fields, dict) and "type" in fields
        if not isinstance(fields, dict) or (name not in fields and not typed):
            names = list(map(str, fields)) if isinstance(fields, dict) else []
            where = ".".join(path[:depth]) or "a workload"
            raise _refused(
                [change],
                f"{where} has no field '{name}'{did_you_mean(name, names)}; it has "
                f"{', '.join(names) or 'none'}",
            )
        if last:
            _replace(container, fields, name, value)
        container = fields[name]


def _replace(container: Any, fields: dict[str, Any], name: str, value: Any) -> None:
    """Set a field. A new type of optimizer, schedule or layer starts with its own defaults."""
    if isinstance(container, list):
        container[container.index(fields[name])] = value
    elif name == "type":
        container.clear()
        container["type"] = value
    else:
        container[name] = value
