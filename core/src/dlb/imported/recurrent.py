"""Reads layers over the steps of a sequence: LSTM, GRU and RNN, in either direction or both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.operators import ACTIVATIONS
from dlb.imported.importer import Importer
from dlb.imported.layers import unsupported
from dlb.imported.views import Shape, ValueView, positions, rows_by_sample
from dlb.workload import layers as L

__all__ = ["recurrent"]

Array = npt.NDArray[Any]
Attributes = Mapping[str, Any]

#: The most sequences of a sample: each is read by a layer.
_SEQUENCES = 256
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
    sequences, order = _sequences(importer, node)
    samples, _, features = importer.layers[sequences[0]].shape
    hidden = int(r.shape[2])
    layer = _layer(node, hidden, attributes, activations or known[0])
    whole = (samples, steps, features)
    output_shape = (samples, steps, hidden)
    backwards = BACKWARDS.get(attributes.get("direction", ""), (False,))
    turned = L.Gather(axis=1, indices=tuple(range(steps))[::-1])
    layers: list[list[str]] = []
    for sequence in sequences:
        layers.append([])
        for index, reverse in enumerate(reverse and steps > 1 for reverse in backwards):
            weights = {
                "input_weight": w[index],
                "recurrent_weight": r[index],
                "bias": _bias(layer, None if b is None else b[index], len(w[index])),
            }
            source = importer.add(node, turned, [sequence], whole) if reverse else sequence
            name = importer.add(node, layer, [source], output_shape, weights)
            if reverse:
                name = importer.add(node, turned, [name], output_shape)
            layers[-1].append(name)
    if len(node.output) > 1 and node.output[1]:
        ends = [L.Select(axis=1, index=0 if reverse else steps - 1) for reverse in backwards]
        last = [
            importer.add(node, end, [name], (samples, hidden))
            for names in layers
            for end, name in zip(ends, names)
        ]
        of_states = (samples, len(sequences), directions, hidden)
        joined = _joined(importer, node, last, 1, (samples, math.prod(of_states[1:])))
        columns = positions(of_states).transpose(2, 0, 1, 3).reshape(directions, -1, hidden)
        importer.also(node.output[1], ValueView(joined, columns[:, order]))
    both = (samples, steps, directions * hidden)
    of_sequences = [_joined(importer, node, names, 2, both) for names in layers]
    joined = _joined(importer, node, of_sequences, 1, (samples, len(sequences) * steps, both[2]))
    place = (samples, len(sequences), steps, directions, hidden)
    columns = positions(place).transpose(2, 3, 0, 1, 4).reshape(steps, directions, -1, hidden)
    return ValueView(joined, columns[:, :, order])


def _joined(
    importer: Importer, node: onnx.NodeProto, names: Sequence[str], axis: int, shape: Shape
) -> str:
    """A concat of layers; a single one as it is."""
    return names[0] if len(names) == 1 else importer.add(node, L.Concat(axis=axis), names, shape)


def _sequences(importer: Importer, node: onnx.NodeProto) -> tuple[list[str], Array]:
    """Layers of the sequences [N, steps, features] that a node reads, and where each sequence of its value is.

    A sample may have several sequences, such as the rows of a map.

    Returns:
        the layers, and int64 [sequences of all samples]: of each the number n * len(layers) + k, where the
        layer k has it as sample n.
    """
    name = node.input[0]
    view = importer.view(name)
    shape, index_map = importer.shape(view), importer.index_map(name)
    steps, columns, features = index_map.shape
    if len(shape) == 3 and np.array_equal(index_map.transpose(1, 0, 2), positions(shape)):
        return [view.layer], np.arange(columns)
    wrong = unsupported(node, f"does not read the steps of layer '{view.layer}' {list(shape)}")
    if columns == shape[0]:
        batch_first = importer.materialise_layout(name, axes=(1, 0, 2))
        if batch_first.layer == view.layer:
            raise wrong
        return [batch_first.layer], np.arange(columns)
    by_sample = rows_by_sample(index_map[0, :, 0] // math.prod(shape[1:]), shape[0])
    count = columns // shape[0]
    if by_sample is None or index_map.size != math.prod(shape) or count > _SEQUENCES:
        raise wrong
    rows = index_map.transpose(1, 0, 2)[by_sample].reshape(shape[0], count * steps, features)
    source = importer.materialise(name, rows)
    if source.index_map is not None or importer.shape(source) != rows.shape:
        raise wrong
    parts = [
        importer.add(
            node,
            L.Slice(starts=(number * steps, 0), ends=((number + 1) * steps, features)),
            [source.layer],
            (shape[0], steps, features),
        )
        for number in range(count)
    ]
    return parts, np.argsort(by_sample)


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
