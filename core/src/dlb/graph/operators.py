"""ONNX operators in NumPy, put in the place of those of ``onnx.reference`` that will not do.

Why each is here (seen in onnx 1.16.2 and 1.23.2, on generated attributes):

=======================  ==========================================================================
operator                 what ``onnx.reference`` does
=======================  ==========================================================================
Conv                     right, but gathers columns by index: several times slower than this
MaxPool                  at stride 1 with asymmetric pads, gives another shape or raises; else
                         right, but loops over every element in Python: seconds for a LeNet
AveragePool              loops likewise; with ``ceil_mode`` splits missing padding between both
                         ends, which moves every window (1.16 also keeps windows that start past
                         the end)
GlobalMaxPool            right for maps alone: of a sequence [N, C, T] it takes the largest over
                         channels too
LRN                      loops over the batch where it means the channels: right only by accident
LSTM                     right for the plain forward case; ignores ``clip``, ``activations`` and
                         ``sequence_lens``; overflows in its sigmoid
BatchNormalization       right, with epsilon and momentum rounded to float32
LayerNormalization       likewise
Sigmoid                  right, with overflow warnings
HardSigmoid, HardSwish   compute with 1/6 rounded to float32
Erf                      rounds to float32
Gelu                     computes with constants rounded to float32
ReduceMean               1.13 ignores the axes of operator sets before 18
SoftmaxCrossEntropyLoss  takes the logarithm of a softmax that may have underflowed: infinite
                         for a logit 1000 below the largest; and loops in Python
=======================  ==========================================================================

Each follows https://onnx.ai/onnx/operators/ at opset 17 (and those from 9 on that an exporter
may write), computes in the type of its input, and reads real attributes through
:func:`dlb.graph.decimals.decimal`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import AttributeProto, helper
from onnx.reference.op_run import OpRun

from dlb.graph.decimals import decimal, is_sixth
from dlb.graph.windows import Window, padded, window_of, windows

__all__ = ["OPERATORS"]

Array = npt.NDArray[Any]

#: Elements of the columns that Conv makes at once; more would not fit a cache or a small memory.
_COLUMN_ELEMENTS = 1 << 24


class _Operator(OpRun):  # type: ignore[misc, unused-ignore]
    """An operator that reads its attributes from its node: how OpRun passes them has changed."""

    op_domain = ""

    def attribute(self, name: str, default: Any) -> Any:
        """The attribute as written, or its default; a real number as the decimal meant."""
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
    """Convolution of any number of axes as one matrix product a group, some samples at a time."""

    def _run(self, x: Array, w: Array, b: Array | None = None, **_: Any) -> tuple[Array]:
        window = self.window(x, w.shape[2:])
        groups = self.attribute("group", 1)
        taps = windows(padded(x, window, 0.0), window)
        count = len(window.kernel)
        samples, size = len(x), int(np.prod(window.output))
        y = np.empty((samples, w.shape[0], *window.output), x.dtype)
        filters, depth = w.shape[0] // groups, w.shape[1]
        matrix = w.reshape(groups, filters, -1)
        step = max(1, _COLUMN_ELEMENTS // max(1, matrix.shape[2] * size))
        for start in range(0, samples, step):
            some = slice(start, start + step)
            for group in range(groups):
                part = taps[some, group * depth : (group + 1) * depth]
                # [samples, depth, *output, *kernel] to [samples, depth * kernel, output]
                order = (0, 1, *range(2 + count, 2 + 2 * count), *range(2, 2 + count))
                columns = part.transpose(order).reshape(len(part), -1, size)
                made = y[some, group * filters : (group + 1) * filters]
                made[...] = (matrix[group] @ columns).reshape(made.shape)
        if b is not None:
            y += b.reshape(-1, *(1,) * count)
        return (y,)


class MaxPool(_Operator):
    """Largest of each window; padding never wins, a NaN always does."""

    def _run(self, x: Array, **_: Any) -> tuple[Array, ...]:
        if len(self.onnx_node.output) > 1:
            raise NotImplementedError("MaxPool with its second output, the indices")
        window = self.window(x, tuple(self.attribute("kernel_shape", ())))
        least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        return (_over_taps(np.maximum, padded(x, window, least), window),)


class AveragePool(_Operator):
    """Mean of each window, over what of it lies in the input, or in the padded input."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        window = self.window(x, tuple(self.attribute("kernel_shape", ())))
        inside = np.ones((1, 1, *x.shape[2:]), x.dtype)
        counted = padded(inside, window, 0.0)
        if self.attribute("count_include_pad", 0):
            within = (slice(None), slice(None), *window.declared)
            counted[within] = 1.0
        total = _over_taps(np.add, padded(x, window, 0.0), window)
        return ((total / _over_taps(np.add, counted, window)).astype(x.dtype),)


class GlobalMaxPool(_Operator):
    """Largest of each channel, over all axes behind it."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


def _over_taps(combine: np.ufunc, x: Array, window: Window) -> Array:
    """Every window of padded x combined to one number, one place of the kernel after the other:
    to reduce over the view of all windows takes several times longer."""
    taps = windows(x, window)
    first, *others = ((Ellipsis, *place) for place in np.ndindex(*window.kernel))
    y: Array = taps[first].copy()
    for place in others:
        combine(y, taps[place], out=y)
    return y


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
    """Inference and training of opset 14 on; earlier ones in inference."""

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
    """Normalisation over the axes from ``axis`` on; with its other outputs where they are read."""

    def _run(
        self, x: Array, scale: Array, bias: Array | None = None, **_: Any
    ) -> tuple[Array, ...]:
        axes = tuple(range(self.attribute("axis", -1) % x.ndim, x.ndim))
        mean = x.mean(axis=axes, keepdims=True)
        variance = x.var(axis=axes, keepdims=True)
        inverse = 1.0 / np.sqrt(variance + self.attribute("epsilon", 1e-5))
        y = (x - mean) * inverse * scale + (0.0 if bias is None else bias)
        found = (y.astype(x.dtype), mean, inverse.astype(x.dtype))
        return found[: len(self.onnx_node.output)]


class Sigmoid(_Operator):
    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (sigmoid(x),)


class HardSigmoid(_Operator):
    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        alpha, beta = self.attribute("alpha", 0.2), self.attribute("beta", 0.5)
        slope = 1 / 6 if is_sixth(alpha) else alpha
        return (np.clip(slope * x + beta, 0.0, 1.0).astype(x.dtype, copy=False),)


class HardSwish(_Operator):
    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return ((x * np.clip(x / 6 + 0.5, 0.0, 1.0)).astype(x.dtype, copy=False),)


class Erf(_Operator):
    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (_erf(x).astype(x.dtype, copy=False),)


class Gelu(_Operator):
    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        if self.attribute("approximate", "none") in ("tanh", b"tanh"):
            bent = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
        else:
            bent = _erf(x / math.sqrt(2))
        return ((0.5 * x * (1 + bent)).astype(x.dtype),)


class ReduceMean(_Operator):
    """Mean over axes that are an attribute (before opset 18) or an input."""

    def _run(self, x: Array, *axes: Array, **_: Any) -> tuple[Array]:
        over = axes[0].ravel().tolist() if axes else self.attribute("axes", ())
        if not over and self.attribute("noop_with_empty_axes", 0):
            return (x,)
        return (x.mean(axis=tuple(over) or None, keepdims=bool(self.attribute("keepdims", 1))),)


class LSTM(_Operator):
    """LSTM with ONNX's default activations, in any direction and either layout."""

    def _run(
        self,
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        h: Array | None = None,
        c: Array | None = None,
        p: Array | None = None,
        **_: Any,
    ) -> tuple[Array, ...]:
        direction = self.attribute("direction", "forward")
        batch_first = bool(self.attribute("layout", 0))
        if batch_first:
            x = x.swapaxes(0, 1)
            h, c = (None if state is None else state.swapaxes(0, 1) for state in (h, c))
        self._refuse(x, lengths, p, len(w))
        backwards = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        found = []
        for index, back in enumerate(backwards[direction]):
            gate_bias = 0.0 if b is None else sum(np.split(b[index], 2))
            zeros = np.zeros((x.shape[1], r.shape[2]), x.dtype)
            states = [zeros if state is None else state[index] for state in (h, c)]
            steps, last = _run_lstm(x[::-1] if back else x, w[index], r[index], gate_bias, states)
            found.append((steps[::-1] if back else steps, *last))
        y = np.stack([each[0] for each in found], axis=1)
        last_h, last_c = (np.stack([each[k] for each in found]) for k in (1, 2))
        if batch_first:
            y = y.transpose(2, 0, 1, 3)
            last_h, last_c = last_h.swapaxes(0, 1), last_c.swapaxes(0, 1)
        return (y, last_h, last_c)[: len(self.onnx_node.output)]

    def _refuse(self, x: Array, lengths: Array | None, p: Array | None, directions: int) -> None:
        names = [each.decode().lower() for each in self.attribute("activations", [])]
        unusual = [
            name
            for name, there in {
                "sequence_lens": lengths is not None and bool(np.any(lengths != len(x))),
                "peepholes": p is not None and bool(np.any(p)),
                "activations": names not in ([], ["sigmoid", "tanh", "tanh"] * directions),
                "clip": bool(self.attribute("clip", 0.0)),
                "input_forget": bool(self.attribute("input_forget", 0)),
            }.items()
            if there
        ]
        if unusual:
            raise NotImplementedError(f"LSTM with {', '.join(unusual)}")


def _run_lstm(
    x: Array, w: Array, r: Array, bias: Any, states: list[Array]
) -> tuple[Array, list[Array]]:
    """One direction: x [T, N, F] to hidden states [T, N, H] and the last hidden and cell state."""
    hidden, cell = states
    steps = []
    for gate_input in x @ w.T + bias:
        i, o, f, g = np.split(gate_input + hidden @ r.T, 4, axis=-1)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        steps.append(hidden)
    return np.stack(steps), [hidden, cell]


class SoftmaxCrossEntropyLoss(_Operator):
    """Minus the log-softmax over axis 1 at the labels, [N, C, ...] and [N, ...]."""

    def _run(
        self, scores: Array, labels: Array, weights: Array | None = None, **_: Any
    ) -> tuple[Array, ...]:
        shifted = scores - scores.max(axis=1, keepdims=True)
        logarithm = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        kept = labels != self.attribute("ignore_index", None)
        chosen = np.where(kept, labels, 0)
        picked = np.take_along_axis(logarithm, chosen[:, None], axis=1)[:, 0]
        each = kept * (np.ones_like(picked) if weights is None else weights[chosen])
        loss: Any = -picked * each
        reduction = self.attribute("reduction", "mean")
        if reduction != "none":
            loss = loss.sum() / (each.sum() if reduction == "mean" else 1.0)
        return (np.asarray(loss, scores.dtype), logarithm)[: len(self.onnx_node.output)]


def _erf(x: Array) -> Array:
    """The error function in float64; several times quicker than by numpy.vectorize."""
    return np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow at either end."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, small) / (1.0 + small), x.dtype)


#: What :mod:`dlb.graph.evaluate` puts in the place of the reference.
OPERATORS = (
    Conv,
    MaxPool,
    AveragePool,
    GlobalMaxPool,
    LRN,
    BatchNormalization,
    LayerNormalization,
    Sigmoid,
    HardSigmoid,
    HardSwish,
    Erf,
    Gelu,
    ReduceMean,
    LSTM,
    SoftmaxCrossEntropyLoss,
)
