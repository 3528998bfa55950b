"""Reads layers over the steps of a sequence: LSTM, GRU and RNN, in either direction or both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.operators import ACTIVATIONS
from dlb.imported.importer import Importer
from dlb.imported.layers import unsupported
from dlb.imported.views import Shape, ValueView, positions
from dlb.workload import layers as L

__all__ = ["recurrent"]

Array = npt.NDArray[Any]
Attributes = Mapping[str, Any]

#: Whether each direction runs backwards. A layer does by the order of its steps.
BACKWARDS: Mapping[str, tuple[bool, ...]] = {"reverse": (True,), "bidirectional": (False, True)}


def recurrent(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A layer for each direction; one that runs backwards lies between reversals of the steps."""
    trace, known = importer.trace, ACTIVATIONS[node.op_type]
    w, r, b, lengths, _, _, peepholes = (trace.constant(node, number) for number in range(1, 8))
    states = [name for name in node.input[5:7] if name]
    steps = trace.values[node.input[0]].shape[0]
    activations = [activation.decode().lower() for activation in attributes.get("activations", [])]
    directions = 1 if r is None else len(r)
    every_direction = [[*names] * directions for names in known]
    unsupported_options = {
        "weights that depend on the input": w is None
        or r is None
        or (b is None and len(node.input) > 3 and bool(node.input[3])),
        "layout 1 (batch before steps)": bool(attributes.get("layout", 0)),
        f"activations {', '.join(activations)}": activations not in ([], *every_direction),
        # Reversed otherwise than in the file, its kinks could not be compared with the file's.
        "Relu backwards": "relu" in activations and attributes.get("direction", "") in BACKWARDS,
        "clip": bool(attributes.get("clip", 0.0)),
        "input_forget": bool(attributes.get("input_forget", 0)),
        "peepholes": peepholes is not None and bool(np.any(peepholes)),
        "sequences of different lengths": lengths is not None and bool(np.any(lengths != steps)),
        "a nonzero initial state": any(
            name in trace.live or bool(np.any(trace.values[name])) for name in states
        ),
    }
    if any(unsupported_options.values()):
        raise unsupported(
            node, ", ".join(name for name, is_used in unsupported_options.items() if is_used)
        )
    assert w is not None and r is not None
    view = importer.view(node.input[0])
    shape, index_map = importer.shape(view), importer.index_map(node.input[0])
    if len(shape) != 3 or not np.array_equal(index_map.transpose(1, 0, 2), positions(shape)):
        batch_first = importer.materialise_layout(node.input[0], axes=(1, 0, 2))
        if batch_first.layer == view.layer:
            raise unsupported(
                node, f"does not read the steps of layer '{view.layer}' {list(shape)}"
            )
        view, shape = batch_first, importer.shape(batch_first)
    hidden = int(r.shape[2])
    layer = _layer(node, hidden, attributes, activations or known[0])
    output_shape = (*shape[:2], hidden)
    layers, ends = [], []
    for index, reverse in enumerate(BACKWARDS.get(attributes.get("direction", ""), (False,))):
        weights = {
            "input_weight": w[index],
            "recurrent_weight": r[index],
            "bias": _bias(layer, None if b is None else b[index], len(w[index])),
        }
        turned = L.Gather(axis=1, indices=tuple(range(steps))[::-1])
        reverse = reverse and steps > 1
        source = importer.add(node, turned, [view.layer], shape) if reverse else view.layer
        layer_name = importer.add(node, layer, [source], output_shape, weights)
        if reverse:
            layer_name = importer.add(node, turned, [layer_name], output_shape)
        layers.append(layer_name)
        ends.append(L.Select(axis=1, index=0 if reverse else steps - 1))
    if len(node.output) > 1 and node.output[1]:
        _last_states(importer, node, layers, ends, (shape[0], hidden))
    if directions == 1:
        return ValueView(layers[0], positions(output_shape).transpose(1, 0, 2)[:, None])
    output_shape = (*shape[:2], directions * hidden)
    layer_name = importer.add(node, L.Concat(axis=2), layers, output_shape)
    index_map = positions(output_shape).reshape(*shape[:2], directions, hidden)
    return ValueView(layer_name, index_map.transpose(1, 2, 0, 3))


def _last_states(
    importer: Importer,
    node: onnx.NodeProto,
    layers: Sequence[str],
    ends: Sequence[L.Layer],
    shape: Shape,
) -> None:
    """The second output: the value of each direction at the step where it ends, [directions, N, hidden]."""
    names = [importer.add(node, end, [name], shape) for name, end in zip(layers, ends)]
    samples, hidden = shape
    whole = names[0]
    if len(names) > 1:
        whole = importer.add(node, L.Concat(axis=1), names, (samples, len(names) * hidden))
    places = positions((samples, len(names), hidden)).transpose(1, 0, 2)
    importer.also(node.output[1], ValueView(whole, places))


def _layer(
    node: onnx.NodeProto, hidden: int, attributes: Attributes, activations: Sequence[str]
) -> L.Layer:
    if node.op_type == "LSTM":
        return L.LSTM(hidden=hidden)
    if node.op_type == "GRU":
        reset_last = bool(attributes.get("linear_before_reset", 0))
        return L.GRU(hidden=hidden, linear_before_reset=reset_last)
    return L.RNN(hidden=hidden, activation="relu" if "relu" in activations else "tanh")


def _bias(layer: L.Layer, both: Array | None, rows: int) -> Array:
    """A layer's bias from those of one direction, [2 * rows]; zeros where there are none."""
    biases = np.zeros((2, rows)) if both is None else both.reshape(2, rows)
    return biases if L.has_two_biases(layer) else biases[0] + biases[1]
