"""Decodes a workload from plain containers, with errors that list the valid choices."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.inspect import LiteralType, StructType, Type, UnionType, VarTupleType

from dlb_graph.errors import WorkloadError
from dlb_graph.layers import type_name
from dlb_graph.losses import SoftmaxCrossEntropy
from dlb_graph.workload.model import Workload

__all__ = ["decode", "did_you_mean"]

#: The path of a value in a message of msgspec: ``... - at `$.model.nodes[0].layer` ``.
_PATH = re.compile(r" - at `\$([^`]*)`$")
#: What frameworks call layers and fields whose names here are not alike, in plain letters.
_ELSEWHERE = {
    "dense": ("linear",),
    "fc": ("linear",),
    "fullyconnected": ("linear",),
    "convolution": ("conv",),
    "filters": ("out_channels",),
    "features": ("out_channels", "out_features"),
    "units": ("out_features", "hidden_size"),
    "padding": ("pads",),
    "p": ("rate",),
    "prob": ("rate",),
    "lr": ("learning_rate",),
    "crossentropy": ("softmax_cross_entropy",),
    "mse": ("squared_error",),
}


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
    """msgspec's message in the words of a workload file, with the valid choices.

    A place is named as ``--set`` takes it: ``model.nodes.conv1.layer.kernel``.
    """
    match = _PATH.search(message)
    steps = re.findall(r"\w+", match[1]) if match else []
    kind: Type = msgspec.inspect.type_info(Workload)
    places = []
    for step in steps:
        if isinstance(kind, VarTupleType):
            kind, document = kind.item_type, document[int(step)]
            named = isinstance(document, dict) and document.get("name")
            places.append(str(named or step))
            continue
        places.append(step)
        if not isinstance(chosen := _choose_struct(kind, document), StructType):
            break
        fields = {field.encode_name: field.type for field in chosen.fields}
        if step not in fields:
            # The tag of a union, such as a layer's type.
            document = document.get(step) if isinstance(document, dict) else document
            break
        kind, document = fields[step], document[step]
    where = f"{'.'.join(places)}: " if places else ""
    text = message[: match.start()] if match else message
    return where + _in_words(text, _choose_struct(kind, document))


def _in_words(text: str, chosen: Type) -> str:
    """What msgspec says of a struct, a type or a value, and the valid choices."""
    quoted = re.search(r"[`'](.*)[`']$", text)
    name = quoted[1] if quoted else ""
    if isinstance(chosen, StructType) and " field `" in text:
        needed = [field.encode_name for field in chosen.fields if field.required]
        optional = [field.encode_name for field in chosen.fields if not field.required]
        owner = f"{chosen.tag_field} '{chosen.tag}'" if chosen.tag else "it"
        parts = [f"needs {', '.join(needed)}"] * bool(needed)
        parts += [f"can have {', '.join(optional)}"] * bool(optional)
        choices = f"{owner} {' and '.join(parts) or 'has no fields'}"
        if "unknown" in text:
            return f"unknown field '{name}'{did_you_mean(name, needed + optional)}; {choices}"
        return f"missing field '{name}'; {choices}"
    kinds = chosen.types if isinstance(chosen, UnionType) else (chosen,)
    tags = sorted(str(member.tag) for member in kinds if isinstance(member, StructType))
    if isinstance(chosen, LiteralType):
        tags = [str(value) for value in chosen.values]
    if not tags or text.startswith("Expected"):
        return text[:1].lower() + text[1:]
    if "missing" in text:
        return f"missing field '{name}'; known: {', '.join(tags)}"
    if not quoted:
        return f"{text[:1].lower()}{text[1:]}; known: {', '.join(tags)}"
    return f"unknown value '{name}'{did_you_mean(name, tags)}; known: {', '.join(tags)}"


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """A question with the name that is meant, to follow another; "" if none is near.

    Names of frameworks count as dlb's own: ``Conv2D`` is near ``conv``, and ``filters`` is ``out_channels``.
    """
    plain = {_plain(known): known for known in reversed(names)}
    elsewhere = _ELSEWHERE.get(_plain(name), ())
    near = [known for known in elsewhere if known in names] or [
        plain[match] for match in difflib.get_close_matches(_plain(name), plain, n=1)
    ]
    return f"; did you mean '{near[0]}'?" if near else ""


def _plain(name: str) -> str:
    """A name without what frameworks write differently: case, underscores, the number of axes."""
    return re.sub(r"_|[123]d$", "", name.lower())


def _choose_struct(kind: Type, document: Any) -> Type:
    """The struct of a union whose tag ``document`` has; ``kind`` itself if there is none."""
    for member in kind.types if isinstance(kind, UnionType) and isinstance(document, dict) else ():
        if isinstance(member, StructType) and document.get(str(member.tag_field)) == member.tag:
            return member
    return kind
