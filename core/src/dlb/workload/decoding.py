"""Decodes a workload from plain containers, with errors that list the valid choices."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec.inspect import LiteralType, StructType, Type, UnionType, VarTupleType

from dlb.errors import WorkloadError
from dlb.workload.layers import type_name
from dlb.workload.losses import SoftmaxCrossEntropy
from dlb.workload.model import Workload

__all__ = ["decode"]

#: The path of a value in a message of msgspec: ``... - at `$.model.nodes[0].layer` ``.
_PATH = re.compile(r" - at `\$([^`]*)`$")


def decode(document: Any, where: str) -> Workload:
    """Decode a workload from plain containers.

    Args:
        document: the plain containers.
        where: the start of error messages.

    Raises:
        WorkloadError: a field is unknown, missing, or of the wrong type. The message names the
            field and lists the valid choices.
    """
    document = _with_loss_type(document)
    try:
        return msgspec.convert(document, Workload)
    except msgspec.ValidationError as error:
        raise WorkloadError(f"{where}: {_explain(str(error), document)}") from None


def _with_loss_type(document: Any) -> Any:
    """The document with the type of its loss, which files leave out that are older than other losses."""
    loss = document.get("loss") if isinstance(document, dict) else None
    if not isinstance(loss, dict) or "type" in loss:
        return document
    return {**document, "loss": {"type": type_name(SoftmaxCrossEntropy), **loss}}


def _explain(message: str, document: Any) -> str:
    """msgspec's message, with the name of the node and the valid choices."""
    match = _PATH.search(message)
    steps = re.findall(r"\w+", match[1]) if match else []
    kind: Type = msgspec.inspect.type_info(Workload)
    node = ""
    for step in steps:
        if isinstance(kind, VarTupleType):
            kind, document = kind.item_type, document[int(step)]
            node = str(document.get("name", "")) if isinstance(document, dict) else ""
        elif isinstance(chosen := _choose_struct(kind, document), StructType):
            fields = {field.encode_name: field.type for field in chosen.fields}
            if step not in fields:
                break
            kind, document = fields[step], document[step]
        else:
            break
    choices = _describe_choices(_choose_struct(kind, document), message)
    return f"{message}{f' in node {node!r}' if node else ''}{f'; {choices}' if choices else ''}"


def _choose_struct(kind: Type, document: Any) -> Type:
    """The struct of a union whose tag ``document`` has; ``kind`` itself if there is none."""
    for member in kind.types if isinstance(kind, UnionType) and isinstance(document, dict) else ():
        if isinstance(member, StructType) and document.get(str(member.tag_field)) == member.tag:
            return member
    return kind


def _describe_choices(chosen: Type, message: str) -> str:
    """The valid choices of the field, type or value that a message is about; "" if unknown."""
    if isinstance(chosen, StructType) and " field `" in message:
        needed = ", ".join(field.encode_name for field in chosen.fields if field.required)
        optional = ", ".join(field.encode_name for field in chosen.fields if not field.required)
        title = f"{chosen.tag_field} '{chosen.tag}'" if chosen.tag else "it"
        parts = [f"needs {needed}"] * bool(needed) + [f"can have {optional}"] * bool(optional)
        return f"{title} {' and '.join(parts) or 'has no fields'}"
    if isinstance(chosen, (StructType, UnionType)) and not message.startswith("Expected"):
        kinds = chosen.types if isinstance(chosen, UnionType) else (chosen,)
        tags = sorted(str(member.tag) for member in kinds if isinstance(member, StructType))
        return f"known: {', '.join(tags)}"
    if isinstance(chosen, LiteralType):
        return f"known: {', '.join(map(str, chosen.values))}"
    return ""
