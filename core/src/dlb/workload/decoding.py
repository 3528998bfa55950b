"""From plain containers to a workload, with errors that say what would be right."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec.inspect import LiteralType, StructType, Type, UnionType, VarTupleType

from dlb.errors import WorkloadError
from dlb.workload.model import Workload

__all__ = ["decoded"]

#: How msgspec says where a value is: ``... - at `$.model.nodes[0].layer` ``.
_PLACE = re.compile(r" - at `\$([^`]*)`$")


def decoded(document: Any, where: str) -> Workload:
    """The workload that plain containers hold.

    Raises:
        WorkloadError: a field that there is not, or that is missing, or of the wrong type; the
            message begins with ``where``, names the field and says which there are.
    """
    try:
        return msgspec.convert(document, Workload)
    except msgspec.ValidationError as error:
        raise WorkloadError(f"{where}: {_explained(str(error), document)}") from None


def _explained(message: str, document: Any) -> str:
    """msgspec's message, with the node that it is about and what there is to choose from."""
    place = _PLACE.search(message)
    steps = re.findall(r"\w+", place[1]) if place else []
    kind: Type = msgspec.inspect.type_info(Workload)
    node = ""
    for step in steps:
        if isinstance(kind, VarTupleType):
            kind, document = kind.item_type, document[int(step)]
            node = str(document.get("name", "")) if isinstance(document, dict) else ""
        elif isinstance(chosen := _chosen(kind, document), StructType):
            fields = {field.encode_name: field.type for field in chosen.fields}
            if step not in fields:
                break
            kind, document = fields[step], document[step]
        else:
            break
    known = _known(_chosen(kind, document), message)
    return f"{message}{f' in node {node!r}' if node else ''}{f'; {known}' if known else ''}"


def _chosen(kind: Type, document: Any) -> Type:
    """Of several structs, the one whose type ``document`` gives."""
    for one in kind.types if isinstance(kind, UnionType) and isinstance(document, dict) else ():
        if isinstance(one, StructType) and document.get(str(one.tag_field)) == one.tag:
            return one
    return kind


def _known(chosen: Type, message: str) -> str:
    """What a message about a field, a type or a value of a list leaves open."""
    if isinstance(chosen, StructType) and " field `" in message:
        needed = ", ".join(field.encode_name for field in chosen.fields if field.required)
        others = ", ".join(field.encode_name for field in chosen.fields if not field.required)
        what = f"{chosen.tag_field} '{chosen.tag}'" if chosen.tag else "it"
        parts = [f"needs {needed}"] * bool(needed) + [f"can have {others}"] * bool(others)
        return f"{what} {' and '.join(parts) or 'has no fields'}"
    if isinstance(chosen, (StructType, UnionType)) and not message.startswith("Expected"):
        kinds = chosen.types if isinstance(chosen, UnionType) else (chosen,)
        tags = sorted(str(one.tag) for one in kinds if isinstance(one, StructType))
        return f"known: {', '.join(tags)}"
    if isinstance(chosen, LiteralType):
        return f"known: {', '.join(map(str, chosen.values))}"
    return ""
