"""ONNX operators in NumPy that replace unsuitable ones of ``onnx.reference``.

The reasons, observed in onnx 1.16.2 and 1.23.2 with generated attributes:

=======================  ==========================================================================
operator                 what ``onnx.reference`` does
=======================  ==========================================================================
Conv                     correct, but gathers columns by index: several times slower than this
ConvTranspose            loops in Python, without dilation in groups; refuses what ``output_shape`` adds
MaxPool                  at stride 1 with asymmetric pads, returns a wrong shape or raises; else
                         correct, but loops over every element in Python: seconds for a LeNet
AveragePool              loops too; with ``ceil_mode`` splits missing padding between both ends,
                         which moves every window (1.16 also keeps windows that start past the
                         end)
GlobalMaxPool            correct only for maps: for a sequence [N, C, T] it also takes the maximum
                         over channels
LRN                      loops over the batch instead of the channels: correct only by accident
LSTM, GRU, RNN           correct for the plain forward case of an LSTM; ignore ``clip``, ``activations``
                         and ``sequence_lens``; GRU and RNN know no second direction, and leave out the
                         axis of directions; sigmoids overflow
GatherElements           fails for more than 32 entries along the axis
TopK                     1.16 puts the last of equal numbers first
Loop                     joins what iterations output along their first axis, without an axis of their own
Resize                   with ``align_corners`` and scales, and cubic to one pixel, takes other elements
                         than ONNX Runtime; rounds cubic weights to float32; loops in Python
Upsample                 knows the nearest element at whole scales only
BatchNormalization       correct, but rounds epsilon and momentum to float32
LayerNormalization       correct, but rounds epsilon to float32
InstanceNormalization    correct, but rounds epsilon to float32
GroupNormalization       correct, but rounds epsilon to float32
RMSNormalization         correct, but rounds epsilon to float32
Softmax                  before operator set 13, adds up along one axis, not along all from one on
LogSoftmax               likewise; takes the logarithm of a share that may have underflowed: infinite
                         for a number 800 below the largest
Relu                     correct, but copies its result
Sigmoid                  correct, with overflow warnings
HardSigmoid, HardSwish   compute with 1/6 rounded to float32
Erf                      rounds to float32
Gelu                     computes with constants rounded to float32
ReduceMean               1.13 ignores the axes of operator sets before 18
SoftmaxCrossEntropyLoss  takes the logarithm of a softmax that may have underflowed: infinite
                         for a logit 1000 below the largest; and loops in Python
=======================  ==========================================================================

Each operator follows https://onnx.ai/onnx/operators/ at opset 17, and at the older sets from 9 on
that an exporter may write. It computes in the type of its input, and reads real attributes through
:func:`dlb_graph.layers.decimals.decimal`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_loop import Loop as _ReferenceLoop
from onnx.reference.ops.op_resize import Resize as _ReferenceResize

from dlb_graph.layers.decimals import decimal
from dlb_graph.layers.functions import FUNCTIONS, Function
from dlb_graph.layers.numbers import Array
from dlb_graph.layers.resize import along
from dlb_graph.layers.special_functions import gelu, normalised, sigmoid
from dlb_graph.layers.transposed import places_of, spread
from dlb_graph.layers.windows import Window, column_parts, padded, reduced, window_of
from dlb_graph.truth.limits import MOST_INNER_NODES
from dlb_graph.truth.resizing import interpolation_of, nearest_indices

__all__ = ["ACTIVATIONS", "OPERATORS"]


#: The activations of one direction that a recurrent operator may have, the default ones first.
ACTIVATIONS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "LSTM": (("sigmoid", "tanh", "tanh"),),
    "GRU": (("sigmoid", "tanh"),),
    "RNN": (("tanh",), ("relu",)),
}


class _Operator(OpRun):  # type: ignore[misc, unused-ignore]
    """Reads attributes from its node, since onnx versions pass them to OpRun differently."""

    op_domain = ""

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute as written, or its default; a real number as the intended decimal."""
        for attribute in self.onnx_node.attribute:
            if attribute.name == name:
                value = helper.get_attribute_value(attribute)
                if attribute.type == AttributeProto.FLOAT:
                    return decimal(value)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def window(self, x: Array, kernel: tuple[int, ...]) -> Window:
        return window_of(self.attribute, x.shape[2:], kernel)


class Conv(_Operator):
    """Convolution over any number of axes: a matrix product for each group and chunk of samples."""

    def _run(self, x: Array, w: Array, b: Array | None = None, **_: Any) -> tuple[Array]:
        window = self.window(x, w.shape[2:])
        groups = self.attribute("group", 1)
        y = np.empty((len(x), w.shape[0], *window.output), x.dtype)
        filters, depth = w.shape[0] // groups, w.shape[1]
        for group in range(groups):
            own = slice(group * filters, (group + 1) * filters)
            matrix, read = w[own].reshape(filters, -1), x[:, group * depth : (group + 1) * depth]
            for part, (columns,) in column_parts(read, window, 1):
                shape = (filters, len(x[part]), *window.output)
                y[part, own] = (matrix @ columns).reshape(shape).swapaxes(0, 1)
        if b is not None:
            y += b.reshape(-1, *(1,) * len(window.kernel))
        return (y,)


class ConvTranspose(_Operator):
    """Transposed convolution over any number of axes."""

    def _run(self, x: Array, w: Array, b: Array | None = None, **_: Any) -> tuple[Array]:
        places = places_of(self.attribute, x.shape[2:], w.shape[2:])
        y = spread(x, w, places)
        if b is not None:
            y += b.reshape(-1, *(1,) * len(places.kernel))
        return (y,)


class MaxPool(_Operator):
    """The maximum of each window. Padding never wins; a NaN always does."""

    def _run(self, x: Array, **_: Any) -> tuple[Array, ...]:
        if len(self.onnx_node.output) > 1:
            raise NotImplementedError("MaxPool with its second output, the indices")
        window = self.window(x, tuple(self.attribute("kernel_shape", ())))
        least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        return (reduced(np.maximum, padded(x, window, least), window),)


class AveragePool(_Operator):
    """The mean of each window, over its part of the input, or of the padded input."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        window = self.window(x, tuple(self.attribute("kernel_shape", ())))
        inside = np.ones((1, 1, *x.shape[2:]), x.dtype)
        counted = padded(inside, window, 0.0)
        if self.attribute("count_include_pad", 0):
            within = (slice(None), slice(None), *window.declared)
            counted[within] = 1.0
        total = reduced(np.add, padded(x, window, 0.0), window)
        return ((total / reduced(np.add, counted, window)).astype(x.dtype),)


class GlobalMaxPool(_Operator):
    """The maximum of each channel, over all axes after it."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class LRN(_Operator):
    """x / (bias + alpha / size * sum of squares over the channels around) ** beta."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        size = self.attribute("size", 1)
        before, after = (size - 1) // 2, size // 2
        squares = np.zeros((x.shape[0], x.shape[1] + size - 1, *x.shape[2:]), x.dtype)
        squares[:, before : before + x.shape[1]] = x * x
        total = sum(squares[:, start : start + x.shape[1]] for start in range(before + after + 1))
        scale = self.attribute("bias", 1.0) + self.attribute("alpha", 1e-4) / size * total
        return ((x / scale ** self.attribute("beta", 0.75)).astype(x.dtype),)


class BatchNormalization(_Operator):
    """Inference and training from opset 14 on; earlier sets in inference."""

    def _run(
        self, x: Array, scale: Array, bias: Array, mean: Array, variance: Array, **_: Any
    ) -> tuple[Array, ...]:
        shape = (1, -1, *(1,) * (x.ndim - 2))
        training = bool(self.attribute("training_mode", 0))
        running: tuple[Array, ...] = ()
        if training:
            momentum = self.attribute("momentum", 0.9)
            axes = (0, *range(2, x.ndim))
            batch = x.mean(axis=axes), x.var(axis=axes)
            running = tuple(
                (momentum * old + (1 - momentum) * new).astype(old.dtype)
                for old, new in zip((mean, variance), batch)
            )
            mean, variance = batch
        deviation = np.sqrt(variance + self.attribute("epsilon", 1e-5)).reshape(shape)
        y = x - mean.reshape(shape)
        y /= deviation
        y *= scale.reshape(shape)
        y += bias.reshape(shape)
        return (y.astype(x.dtype, copy=False), *running)[: len(self.onnx_node.output)]


class LayerNormalization(_Operator):
    """Normalisation over the axes from ``axis`` on, with the other outputs if they are used."""

    def _run(
        self, x: Array, scale: Array, bias: Array | None = None, **_: Any
    ) -> tuple[Array, ...]:
        axes = tuple(range(self.attribute("axis", -1) % x.ndim, x.ndim))
        mean = x.mean(axis=axes, keepdims=True)
        variance = x.var(axis=axes, keepdims=True)
        inverse = 1.0 / np.sqrt(variance + self.attribute("epsilon", 1e-5))
        y = (x - mean) * inverse * scale + (0.0 if bias is None else bias)
        outputs = (y.astype(x.dtype), mean, inverse.astype(x.dtype))
        return outputs[: len(self.onnx_node.output)]


class InstanceNormalization(_Operator):
    """Normalisation of each channel of a sample."""

    def _run(self, x: Array, scale: Array, bias: Array, **_: Any) -> tuple[Array]:
        return (_normalised(x, scale, bias, x.shape[1], self.attribute("epsilon", 1e-5)),)


class GroupNormalization(_Operator):
    """Normalisation of groups of channels. Operator sets before 21 have a scale for each group."""

    def _run(self, x: Array, scale: Array, bias: Array, **_: Any) -> tuple[Array]:
        groups = self.attribute("num_groups", 1)
        return (_normalised(x, scale, bias, groups, self.attribute("epsilon", 1e-5)),)


class RMSNormalization(_Operator):
    """Division by the root mean square over the axes from ``axis`` on."""

    def _run(self, x: Array, scale: Array, **_: Any) -> tuple[Array]:
        axes = tuple(range(self.attribute("axis", -1) % x.ndim, x.ndim))
        mean = (x * x).mean(axis=axes, keepdims=True)
        y = x / np.sqrt(mean + self.attribute("epsilon", 1e-5)) * scale
        return (y.astype(x.dtype, copy=False),)


def _normalised(x: Array, scale: Array, bias: Array, groups: int, epsilon: float) -> Array:
    """Each group of channels normalised; one scale and bias for each channel, or for several."""
    of_channels = (1, -1, *(1,) * (x.ndim - 2))
    scale, bias = (
        np.repeat(array, x.shape[1] // array.size).reshape(of_channels) for array in (scale, bias)
    )
    y: Array = (normalised(x, groups, epsilon) * scale + bias).astype(x.dtype, copy=False)
    return y


class Softmax(_Operator):
    """The softmax along one axis; before operator set 13 along all axes from one on."""

    def _axes(self, x: Array) -> tuple[int, ...]:
        early = self.run_params["opsets"].get("", 0) < 13
        axis = self.attribute("axis", 1 if early else -1) % x.ndim
        return tuple(range(axis, x.ndim if early else axis + 1))

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        axes = self._axes(x)
        shares = np.exp(x - x.max(axis=axes, keepdims=True, initial=-np.inf))
        shares /= shares.sum(axis=axes, keepdims=True)
        return (shares,)


class LogSoftmax(Softmax):
    """Its logarithm, which is finite where a share is too small for a number."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        axes = self._axes(x)
        shifted = x - x.max(axis=axes, keepdims=True, initial=-np.inf)
        return (shifted - np.log(np.exp(shifted).sum(axis=axes, keepdims=True)),)


class Relu(_Operator):
    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (np.maximum(x, x.dtype.type(0)),)


class Sigmoid(_Operator):
    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (sigmoid(x),)


class Gelu(_Operator):
    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (gelu(x, self.attribute("approximate", "none")).astype(x.dtype),)


class ReduceMean(_Operator):
    """Mean over axes given as an attribute (before opset 18) or as an input."""

    def _run(self, x: Array, *axes: Array, **_: Any) -> tuple[Array]:
        over = axes[0].ravel().tolist() if axes else self.attribute("axes", ())
        if not over and self.attribute("noop_with_empty_axes", 0):
            return (x,)
        return (x.mean(axis=tuple(over) or None, keepdims=bool(self.attribute("keepdims", 1))),)


class _Recurrent(_Operator):
    """A recurrent operator with the usual activations, in any direction and either layout."""

    state_count = 1

    def run_direction(
        self, x: Array, w: Array, r: Array, b: Array, states: list[Array]
    ) -> tuple[list[Array], list[Array]]:
        """One direction: x [T, N, F] to the hidden state at each step, and the last of each state."""
        raise NotImplementedError

    def _run(
        self, x: Array, w: Array, r: Array, *others: Array | None, **_: Any
    ) -> tuple[Array, ...]:
        """Every direction: the hidden states [T, directions, N, H], and the last of each state."""
        b, lengths, h, c, peepholes = (*others, *(None,) * 5)[:5]
        initial = [h, c][: self.state_count]
        direction = self.attribute("direction", "forward")
        batch_first = bool(self.attribute("layout", 0))
        if batch_first:
            x = x.swapaxes(0, 1)
            initial = [None if state is None else state.swapaxes(0, 1) for state in initial]
        if len(x) > MOST_INNER_NODES:
            raise NotImplementedError(f"{self.op_type} of more than {MOST_INNER_NODES} steps")
        self._check_options(
            len(w),
            sequence_lens=lengths is not None and bool(np.any(lengths != len(x))),
            peepholes=peepholes is not None and bool(np.any(peepholes)),
            input_forget=bool(self.attribute("input_forget", 0)),
        )
        reversals = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        directions = []
        for index, reverse in enumerate(reversals[direction]):
            gate_biases = np.zeros((2, r.shape[1]), x.dtype) if b is None else b[index]
            zeros = np.zeros((x.shape[1], r.shape[2]), x.dtype)
            states = [zeros if state is None else state[index] for state in initial]
            steps, last = self.run_direction(
                x[::-1] if reverse else x, w[index], r[index], gate_biases.reshape(2, -1), states
            )
            hidden = np.stack(steps)
            directions.append((hidden[::-1] if reverse else hidden, *last))
        y = np.stack([result[0] for result in directions], axis=1)
        lasts = [np.stack(states) for states in list(zip(*directions))[1:]]
        if batch_first:
            y, lasts = y.transpose(2, 0, 1, 3), [state.swapaxes(0, 1) for state in lasts]
        return (y, *lasts)[: len(self.onnx_node.output)]

    def named_activations(self) -> list[str]:
        """The activations of all directions, as the node names them; empty for the default ones."""
        return [name.decode().lower() for name in self.attribute("activations", [])]

    def _check_options(self, directions: int, **used: bool) -> None:
        """Raises NotImplementedError if an option is used that dlb does not evaluate."""
        known = ACTIVATIONS[self.onnx_node.op_type]
        every_direction = [[*names] * directions for names in known]
        used["activations"] = self.named_activations() not in ([], *every_direction)
        used["clip"] = bool(self.attribute("clip", 0.0))
        names = [name for name, is_used in used.items() if is_used]
        if names:
            raise NotImplementedError(f"{self.onnx_node.op_type} with {', '.join(names)}")


class LSTM(_Recurrent):
    state_count = 2

    def run_direction(
        self, x: Array, w: Array, r: Array, b: Array, states: list[Array]
    ) -> tuple[list[Array], list[Array]]:
        hidden, cell = states
        steps = []
        for gate_input in x @ w.T + (b[0] + b[1]):
            i, o, f, g = np.split(gate_input + hidden @ r.T, 4, axis=-1)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(cell)
            steps.append(hidden)
        return steps, [hidden, cell]


class GRU(_Recurrent):
    def run_direction(
        self, x: Array, w: Array, r: Array, b: Array, states: list[Array]
    ) -> tuple[list[Array], list[Array]]:
        (hidden,) = states
        size = hidden.shape[-1]
        reset_last = bool(self.attribute("linear_before_reset", 0))
        steps = []
        for gate_input in x @ w.T + b[0]:
            recurrent = hidden @ r[: 2 * size].T + b[1, : 2 * size]
            update, reset = np.split(sigmoid(gate_input[:, : 2 * size] + recurrent), 2, axis=-1)
            if reset_last:
                candidate = reset * (hidden @ r[2 * size :].T + b[1, 2 * size :])
            else:
                candidate = (reset * hidden) @ r[2 * size :].T + b[1, 2 * size :]
            candidate = np.tanh(gate_input[:, 2 * size :] + candidate)
            hidden = (1 - update) * candidate + update * hidden
            steps.append(hidden)
        return steps, [hidden]


class RNN(_Recurrent):
    def run_direction(
        self, x: Array, w: Array, r: Array, b: Array, states: list[Array]
    ) -> tuple[list[Array], list[Array]]:
        (hidden,) = states
        rectified = "relu" in self.named_activations()
        steps = []
        for step_input in x @ w.T + (b[0] + b[1]):
            sums = step_input + hidden @ r.T
            hidden = np.maximum(sums, x.dtype.type(0)) if rectified else np.tanh(sums)
            steps.append(hidden)
        return steps, [hidden]


class DequantizeLinear(_Operator):
    """Integers as real numbers, for all numbers or along an axis; the reference has no early versions."""

    def _run(self, x: Array, scale: Array, zero: Array | None = None, **_: Any) -> tuple[Array]:
        if self.attribute("block_size", 0):
            raise NotImplementedError("DequantizeLinear of blocks")
        shape = [1] * x.ndim
        if scale.size > 1:
            shape[self.attribute("axis", 1)] = -1
        scale = scale.reshape(shape if x.ndim else ())
        moved = x.astype(scale.dtype)
        if zero is not None:
            moved = moved - zero.astype(scale.dtype).reshape(scale.shape)
        return (moved * scale,)


class DynamicQuantizeLinear(_Operator):
    """Numbers as integers of 8 bits between their least and largest; the reference keeps these in float32."""

    def _run(self, x: Array, **_: Any) -> tuple[Array, Array, Array]:
        below, above = max(0.0, -float(x.min())), max(0.0, float(x.max()))
        scale = x.dtype.type((above + below or 1.0) / 255)
        zero = np.rint(below / scale)
        return (
            np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8),
            np.asarray(scale),
            np.uint8(zero),
        )


class OneHot(_Operator):
    """The depth may be an array of one number, which the reference refuses."""

    def _run(
        self, indices: Array, depth: Array, values: Array, axis: int = -1, **_: Any
    ) -> tuple[Array]:
        classes = int(np.ravel(depth)[0])
        rank = indices.ndim + 1
        shape = [1] * rank
        shape[axis % rank] = classes
        found = np.expand_dims(indices % classes, axis) == np.arange(classes).reshape(shape)
        inside = np.expand_dims((indices >= -classes) & (indices < classes), axis)
        off, on = values
        return (np.where(found & inside, on, off).astype(values.dtype),)


class GatherElements(_Operator):
    """One number for each index, along an axis."""

    def _run(self, data: Array, indices: Array, **_: Any) -> tuple[Array]:
        axis = self.attribute("axis", 0)
        size = data.shape[axis]
        if indices.size and not -size <= indices.min() <= indices.max() < size:
            raise IndexError(f"an index is not in {-size} to {size - 1}")
        # Other axes of the indices may be shorter than those of the data.
        other = tuple(
            slice(None) if place == axis % data.ndim else slice(length)
            for place, length in enumerate(indices.shape)
        )
        return (np.take_along_axis(data[other], indices % size, axis),)


class TopK(_Operator):
    """The largest or smallest numbers along an axis in order, and where they are: of equal ones the first."""

    def _run(self, data: Array, k: Array, **_: Any) -> tuple[Array, Array]:
        axis = self.attribute("axis", -1) % data.ndim
        if self.attribute("largest", 1):
            rising = np.argsort(np.flip(data, axis), axis=axis, kind="stable")
            order = data.shape[axis] - 1 - np.flip(rising, axis)
        else:
            order = np.argsort(data, axis=axis, kind="stable")
        indices = order[(slice(None),) * axis + (slice(int(np.ravel(k)[0])),)].astype(np.int64)
        return np.take_along_axis(data, indices, axis), indices


class Loop(_ReferenceLoop):  # type: ignore[misc, unused-ignore]
    """A body that is run again and again: its last states, and what each iteration outputs, stacked."""

    op_domain = ""
    body: Any

    def _run(  # type: ignore[override, unused-ignore]
        self,
        most: Array | None,
        condition: Array | None,
        *states: Any,
        context: Mapping[str, Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> tuple[Any, ...]:
        iteration_name, condition_name, *state_names = self.body.input_names
        outer_values, scanned = dict(context or {}), list[list[Any]]()
        goes_on = condition is None or bool(np.all(condition))
        iteration = 0
        while goes_on and (most is None or iteration < int(np.ravel(most)[0])):
            own_values = {iteration_name: np.int64(iteration), condition_name: np.bool_(True)}
            inputs = {**outer_values, **own_values, **dict(zip(state_names, states))}
            next_condition, *outputs = self.body.run(None, inputs, attributes=attributes)
            goes_on, iteration = bool(np.all(next_condition)), iteration + 1
            states = tuple(outputs[: len(state_names)])
            scanned.append(outputs[len(state_names) :])
        if not iteration and len(self.body.output_names) > 1 + len(states):
            raise NotImplementedError("Loop without an iteration, whose output has no shape")
        return (*states, *map(np.stack, zip(*scanned)))[: len(self.onnx_node.output)]


class Resize(_ReferenceResize):  # type: ignore[misc, unused-ignore]
    """The nearest element by its index, and interpolation by taps; else as the reference has it."""

    op_domain = ""

    def _run(  # type: ignore[override, unused-ignore]
        self, x: Array, *others: Array | None, **attributes: Any
    ) -> tuple[Array, ...]:
        opset = self.run_params["opsets"].get("", 0)
        found = _resized(self.onnx_node, opset, x, others)
        if found is None:
            reference: Any = super()._run
            result: tuple[Array, ...] = reference(x, *others, **attributes)
            return result
        return (found,)


class Upsample(_Operator):
    """As Resize."""

    def _run(self, x: Array, *others: Array | None, **_: Any) -> tuple[Array]:
        opset = self.run_params["opsets"].get("", 0)
        found = _resized(self.onnx_node, opset, x, others)
        if found is None:
            raise NotImplementedError(f"Upsample in mode {self.attribute('mode', 'nearest')}")
        return (found,)


def _resized(
    node: onnx.NodeProto, opset: int, x: Array, others: Sequence[Array | None]
) -> Array | None:
    """A value resized as a node asks for, by its nearest elements or by interpolation; None if by neither."""
    indices_by_axis = nearest_indices(node, opset, x.shape, others)
    layer = interpolation_of(node, opset, x.shape, others) if indices_by_axis is None else None
    if layer is not None:
        for axis, taps in layer.taps(x.shape):  # which counts axes after a batch
            x = along(x, axis - 1, taps.matrix)
        return x
    if indices_by_axis is None:
        return None
    for axis, indices in indices_by_axis.items():
        x = x.take(indices, axis)
    return x


class SoftmaxCrossEntropyLoss(_Operator):
    """Minus the log-softmax over axis 1 at the labels; scores [N, C, ...], labels [N, ...]."""

    def _run(
        self, scores: Array, labels: Array, weights: Array | None = None, **_: Any
    ) -> tuple[Array, ...]:
        shifted = scores - scores.max(axis=1, keepdims=True)
        logarithm = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        counted = labels != self.attribute("ignore_index", None)
        safe_labels = np.where(counted, labels, 0)
        label_logarithm = np.take_along_axis(logarithm, safe_labels[:, None], axis=1)[:, 0]
        label_weights = counted * (
            np.ones_like(label_logarithm) if weights is None else weights[safe_labels]
        )
        loss: Any = -label_logarithm * label_weights
        reduction = self.attribute("reduction", "mean")
        if reduction != "none":
            loss = loss.sum() / (label_weights.sum() if reduction == "mean" else 1.0)
        return (np.asarray(loss, scores.dtype), logarithm)[: len(self.onnx_node.output)]


def _of_function(function: Function) -> type[_Operator]:
    """A function of single numbers as an operator."""

    def run(self: _Operator, x: Array, **_: Any) -> tuple[Array]:
        defaults = function.defaults or {}
        numbers = {name: self.attribute(name, number) for name, number in defaults.items()}
        for name, exact in (function.constants or {}).items():
            number = self.attribute(name, exact)
            numbers[name] = exact if np.float32(number) == np.float32(exact) else number
        with np.errstate(all="ignore"):
            return (np.asarray(function.value(x, **numbers)).astype(x.dtype, copy=False),)

    return type(function.operator, (_Operator,), {"_run": run})


#: Functions whose formula the reference computes with overflow, or with other constants.
_INEXACT = ("erf", "hard_swish", "mish", "selu", "softplus", "softsign")
#: The operators that :mod:`dlb_graph.truth.evaluate` uses in place of the reference: every public class here,
#: and the functions that it computes with numbers rounded to float32, with overflow or warnings.
OPERATORS = (
    *(
        kind
        for name, kind in list(globals().items())
        if isinstance(kind, type) and kind.__module__ == __name__ and not name.startswith("_")
    ),
    *(
        _of_function(function)
        for name, function in FUNCTIONS.items()
        if function.operator and (function.defaults or function.limited or name in _INEXACT)
    ),
)
