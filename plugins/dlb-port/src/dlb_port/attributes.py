"""Attributes of users' layers in canonical terms: each framework names and counts them in its own way."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from dlb.proof.findings import LayerFacts

__all__ = ["ENTRIES", "catalogue_entries", "shown_attributes"]

#: What frameworks call an attribute, by its name in workloads.
_NAMES = {
    "dilation": ("dilation", "dilation_rate", "dilate"),
    "epsilon": ("epsilon", "eps"),
    "features": ("out_channels", "filters", "out_features", "units", "hidden_size"),
    "kernel": ("kernel_size", "pool_size", "kernel", "ksize"),
    "momentum": ("momentum", "decay"),
    "padding": ("padding", "pad"),
    "slope": ("slope", "negative_slope"),
    "stride": ("stride", "strides"),
}
#: What changes no number that counterparts compute, or what the shapes of weights show.
_NOTHING = {
    "batch_first", "data_format", "in_channels", "in_features", "input_size", "mode", "num_features",
    "renorm_momentum", "return_sequences", "return_state", "stateful", "synchronized", "track_running_stats",
    "unroll", "zero_output_for_mask",
}  # fmt: skip
#: Entries of the catalogue of framework differences, by kind of layer ("" is any) and attribute.
ENTRIES = {
    ("batch_norm", "epsilon"): "batch-norm-default-epsilon",
    ("batch_norm", "momentum"): "batch-norm-default-momentum",
    ("conv", "padding"): "same-padding",
    ("layer_norm", "epsilon"): "layer-norm-default-epsilon",
    ("", "slope"): "leaky-relu-default-slope",
}


def catalogue_entries(own: LayerFacts, other: LayerFacts) -> Iterator[str]:
    """Entries of the catalogue of framework differences about what two layers have otherwise."""
    ours, theirs = _canonical(own), _canonical(other)
    for name in ours.keys() & theirs.keys():
        entry = ENTRIES.get((own.kind, name)) or ENTRIES.get(("", name))
        if entry and ours[name][0] != theirs[name][0]:
            yield entry


def shown_attributes(layer: LayerFacts, other: LayerFacts) -> Mapping[str, Any]:
    """What a layer has otherwise than another in canonical terms, with the framework's own name and number.

    If the other has nothing otherwise that evaluation shows, whatever it has not alike is shown: but for None,
    where the other has no value.
    """
    ours, theirs = _canonical(layer), _canonical(other)
    both = [name for name in ours if name in theirs]
    apart = {name: ours[name] for name in both if ours[name][0] != theirs[name][0]}
    shown = {}
    for name, (value, native) in apart.items():
        text = str(layer.attributes[native])
        by = f" by {native}" * (native != name) if _value(text) == value else f" by {native}={text}"
        shown[name] = f"{value}{by}"
    if shown.keys() - {"momentum"}:
        return shown
    left = _NOTHING | {ours[name][1] for name in both}
    its = other.attributes
    return shown | {
        name: value
        for name, value in layer.attributes.items()
        if name not in left and (value != "None" or name in its) and its.get(name, "") != value
    }


def _canonical(layer: LayerFacts) -> dict[str, tuple[Any, str]]:
    """The value and the framework's name of an attribute, by its canonical name."""
    here = layer.attributes
    own = {name: each for name, natives in _NAMES.items() for each in natives if each in here}
    values = {name: _value(layer.attributes[native]) for name, native in own.items()}
    if layer.momentum is not None:
        values["momentum"] = float(f"{layer.momentum:.6g}")
    return {name: (values[name], native) for name, native in own.items()}


def _value(text: Any) -> Any:
    """One number for several that are equal: a kernel of (3, 3) is one of 3."""
    try:
        value = ast.literal_eval(str(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {"valid": 0}.get(text, text)
    several = isinstance(value, (list, tuple)) and value and all(each == value[0] for each in value)
    return value[0] if several else value
