"""Reads layers over the steps of a sequence: LSTM, GRU and RNN, in either direction or both."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx

from dlb_graph import layers as L
from dlb_graph.layers.numbers import Array
from dlb_graph.reading.importer import Attributes, Importer
from dlb_graph.reading.layers import unsupported
from dlb_graph.reading.views import Shape, ValueView, positions, rows_by_sample
from dlb_graph.truth.operators import ACTIVATIONS
from dlb_graph.truth.weights import directions

__all__ = ["recurrent"]


#: The most sequences of a sample: each is read by a layer.
_SEQUENCES = 256


def recurrent(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A layer for each direction; one that runs backwards lies between reversals of the steps."""
    trace, known = importer.trace, ACTIVATIONS[node.op_type]
    constants, backwards = importer.weights(node), directions(attributes)
    count = len(backwards)
    lengths, peepholes = trace.constant(node, 4), trace.constant(node, 7)
    states = [name for name in node.input[5:7] if name]
    steps = trace.values[node.input[0]].shape[0]
    activations = [activation.decode().lower() for activation in attributes.get("activations", [])]
    every_direction = [[*names] * count for names in known]
    unsupported_options = {
        "layout 1 (batch before steps)": bool(attributes.get("layout", 0)),
        f"activations {', '.join(activations)}": activations not in ([], *every_direction),
        # Reversed otherwise than in the file, its kinks could not be compared with the file's.
        "Relu backwards": "relu" in activations and any(backwards),
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
    sequences, order = _sequences(importer, node)
    samples, _, features = importer.layers[sequences[0]].shape
    rows, hidden = constants["backward " * backwards[0] + "recurrent_weight"].shape
    layer = _layer(node, hidden, attributes, activations or known[0])
    no_bias = np.zeros((2, rows) if layer.has_two_biases else rows)
    whole = (samples, steps, features)
    output_shape = (samples, steps, hidden)
    turned = L.Gather(axis=1, indices=tuple(range(steps))[::-1])
    layers: list[list[str]] = []
    for sequence in sequences:
        layers.append([])
        for backward in backwards:
            start, reverse = "backward " * backward, backward and steps > 1
            weights = {
                role: constants.get(f"{start}{role}", no_bias)
                for role in ("input_weight", "recurrent_weight", "bias")
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
        of_states = (samples, len(sequences), count, hidden)
        joined = _joined(importer, node, last, 1, (samples, math.prod(of_states[1:])))
        columns = positions(of_states).transpose(2, 0, 1, 3).reshape(count, -1, hidden)
        importer.also(node.output[1], ValueView(joined, columns[:, order]))
    both = (samples, steps, count * hidden)
    of_sequences = [_joined(importer, node, names, 2, both) for names in layers]
    joined = _joined(importer, node, of_sequences, 1, (samples, len(sequences) * steps, both[2]))
    place = (samples, len(sequences), steps, count, hidden)
    columns = positions(place).transpose(2, 3, 0, 1, 4).reshape(steps, count, -1, hidden)
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
) -> L.Recurrent:
    if node.op_type == "LSTM":
        return L.LSTM(hidden=hidden)
    if node.op_type == "GRU":
        reset_last = bool(attributes.get("linear_before_reset", 0))
        return L.GRU(hidden=hidden, linear_before_reset=reset_last)
    return L.RNN(hidden=hidden, activation="relu" if "relu" in activations else "tanh")
