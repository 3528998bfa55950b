"""Decodes workloads and other documents that people write, with errors that list the valid choices."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import inspect as types

from dlb_graph.errors import FieldError, WorkloadError
from dlb_graph.layers import type_name
from dlb_graph.losses import SoftmaxCrossEntropy
from dlb_graph.workload.model import Workload

__all__ = ["decode", "decode_as", "did_you_mean"]

Form = TypeVar("Form")
#: What a table and a list may be.
_CONTAINERS: dict[type, tuple[type[types.Type], ...]] = {
    dict: (types.DictType,),
    list: (types.VarTupleType, types.ListType),
}
#: Keys of a table that are tried, to find the one whose value is wrong.
_MOST_KEYS = 100
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
    return decode_as(_with_loss_type(document), where, Workload, WorkloadError)


def decode_as(
    document: Any, where: str, form: type[Form], error_type: type[FieldError] = FieldError
) -> Form:
    """Decode any form, as :func:`decode`.

    Raises:
        FieldError: of the given type; a field is unknown, missing, or of the wrong type.
    """
    try:
        return msgspec.convert(document, form)
    except (msgspec.ValidationError, RecursionError) as error:
        text, place = _explain(str(error), document, form)
        raise error_type(f"{where}: {text}", place) from None


def _with_loss_type(document: Any) -> Any:
    """The document with the type of its loss, which files leave out that are older than other losses."""
    loss = document.get("loss") if isinstance(document, dict) else None
    if not isinstance(loss, dict) or "type" in loss:
        return document
    return {**document, "loss": {"type": type_name(SoftmaxCrossEntropy), **loss}}


def _explain(message: str, document: Any, form: type) -> tuple[str, list[str | int]]:
    """msgspec's message in the words of such a file, with the valid choices; and the place of the field.

    A place is named as ``--set`` takes it: ``model.nodes.conv1.layer.kernel``.
    """
    match, whole = _PATH.search(message), document
    text = message[: match.start()] if match else message
    kind: types.Type = types.type_info(form)
    names, place = list[str](), list[str | int]()
    for step in re.findall(r"\w+|\.{3}", match[1]) if match else ():
        chosen, key = _choose(kind, document), step
        if isinstance(chosen, (types.VarTupleType, types.ListType)):
            key, kind = int(step), chosen.item_type
        elif isinstance(chosen, types.DictType):
            key, kind = _wrong_key(document, whole, form, message), chosen.value_type
        elif isinstance(chosen, types.StructType):
            # A field, or the tag of a union, such as a layer's type.
            kind = {each.encode_name: each.type for each in chosen.fields}.get(step, chosen)
        else:
            key = ""
        if key == "":
            break
        document = document.get(key) if isinstance(document, dict) else document[key]
        named = isinstance(key, int) and isinstance(document, dict) and document.get("name")
        names.append(str(named or key))
        place.append(key)
    place += re.findall(r"unknown field `(.*)`", text)
    said = _in_words(text, _choose(kind, document))
    if said.startswith("expected `array`, got `int`"):
        said += f"; write a number for each axis, such as [{document}, {document}]"
    return ": ".join([*filter(None, [".".join(names)]), said]), place


def _wrong_key(table: dict[str, Any], whole: Any, form: type, message: str) -> str:
    """The key of a table without which a document has another fault, or none; "" if there is none."""
    for key in [*table][:_MOST_KEYS]:
        value = table.pop(key)
        try:
            msgspec.convert(whole, form)
            return key
        except msgspec.ValidationError as error:
            if str(error) != message:
                return key
        finally:
            table[key] = value
    return ""


def _in_words(text: str, chosen: types.Type) -> str:
    """What msgspec says of a struct, a type or a value, and the valid choices."""
    quoted = re.search(r"[`'](.*)[`']$", text)
    name = quoted[1] if quoted else ""
    if isinstance(chosen, types.StructType) and " field `" in text:
        needed = [field.encode_name for field in chosen.fields if field.required]
        optional = [field.encode_name for field in chosen.fields if not field.required]
        owner = f"{chosen.tag_field} '{chosen.tag}'" if chosen.tag else "it"
        parts = [f"needs {', '.join(needed)}"] * bool(needed)
        parts += [f"can have {', '.join(optional)}"] * bool(optional)
        choices = f"{owner} {' and '.join(parts) or 'has no fields'}"
        if "unknown" in text:
            return f"unknown field '{name}'{did_you_mean(name, needed + optional)}; {choices}"
        return f"missing field '{name}'; {choices}"
    kinds = chosen.types if isinstance(chosen, types.UnionType) else (chosen,)
    tags = sorted(str(member.tag) for member in kinds if isinstance(member, types.StructType))
    words = [member.values for member in kinds if isinstance(member, types.LiteralType)]
    tags += [str(value) for values in words for value in values if value]
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


def _choose(kind: types.Type, document: Any) -> types.Type:
    """The member of a union that ``document`` is: of structs by its tag; ``kind`` itself if there is none."""
    for member in kind.types if isinstance(kind, types.UnionType) else ():
        if isinstance(member, types.StructType):
            if isinstance(document, dict) and document.get(str(member.tag_field)) == member.tag:
                return member
        elif isinstance(member, _CONTAINERS.get(type(document), ())):
            return member
    return kind
