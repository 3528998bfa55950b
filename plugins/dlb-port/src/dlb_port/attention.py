"""Attention that users write as one, three or four matrices, in the form of a layer of a framework.

A layer of attention keeps the maps of queries, keys and values one below the other. Users write three linear
layers, or one for all three. Joined, both are matched with such a layer, and with each other.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from dlb_port.matching import MatchableModel, leaf
from dlb_port.weight_map import join
from dlb_worker.contract import ParameterDescription

__all__ = ["with_attention_joined"]

#: What users call the maps, and words that say nothing more.
_MAPS = {
    "q": "query",
    "query": "query",
    "k": "key",
    "key": "key",
    "v": "value",
    "value": "value",
    "kv": "key and value",
    "keyvalue": "key and value",
    "qkv": "input",
    "querykeyvalue": "input",
    "in": "input",
    "o": "output",
    "out": "output",
    "output": "output",
}
#: A place in a sequence, such as of a map and a dropout, and a map that something is added to.
_INNER = re.compile(r"(\.(\d+|base|base_layer|original|frozen|linear))+$")
_FILLERS = re.compile(r"proj(ection)?|linear|dense|layer|weight|to|fc|w|lin|map|attn|attention")


def with_attention_joined(model: MatchableModel) -> MatchableModel | None:
    """The model with joined parameters in place of those of linear layers; None if there are none.

    Linear layers belong together if they lie in the same layer and their names say which map each is.
    """
    linear: dict[str, list[ParameterDescription]] = defaultdict(list)
    for parameter in model.parameters:
        layer = model.layers.get(parameter.layer)
        if layer is not None and layer.kind == "linear":
            linear[parameter.layer].append(parameter)
    by_parent: dict[str, dict[str, str]] = defaultdict(dict)
    for name in linear:
        path = _INNER.sub("", name)
        if part := _map_of(path):
            by_parent[path.rpartition(".")[0]].setdefault(part, name)
    parameters, joined = list(model.parameters), dict(model.joined)
    for maps in by_parent.values():
        ways = ("input",), ("query", "key and value"), ("query", "key", "value")
        complete = [way for way in ways if {*way, "output"} <= {*maps}]
        if not complete:
            continue
        inputs = [maps[name] for name in complete[0]]
        for members, role in _roles(linear, inputs, maps["output"]):
            whole = join(members, role)
            place = min(parameters.index(member) for member in members)
            parameters = [each for each in parameters if each not in members]
            # Also a single map takes part as a part of the attention.
            parameters.insert(place, replace(whole, layer=maps["output"]))
            joined[whole.name] = tuple(members)
    return replace(model, parameters=parameters, joined=joined) if joined else None


def _roles(
    linear: dict[str, list[ParameterDescription]], inputs: list[str], output: str
) -> Iterator[tuple[list[ParameterDescription], str]]:
    """The parameters that each parameter of an attention joins, with its role."""
    for layers, start in ((inputs, "input"), ([output], "output")):
        for role in ("weight", "bias"):
            members = [each for layer in layers for each in linear[layer] if each.role == role]
            if len(members) == len(layers):
                yield members, f"{start}_{role}"


def _map_of(layer: str) -> str:
    """``query`` of ``block.q_proj``; "" of a layer whose name says no map."""
    words = [re.sub("^w(?=[qkvo])", "", word) for word in re.split(r"[_\d]+", leaf(layer)) if word]
    telling = [word for word in words if not _FILLERS.fullmatch(word)] or words
    return _MAPS.get("".join(telling), "")
