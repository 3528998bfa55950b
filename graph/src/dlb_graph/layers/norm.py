"""Normalisations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dlb_graph.layers.base import Gradients, Graph, Layer, Pass, Shape, ShapeMismatch, check_rank
from dlb_graph.layers.numbers import Array, np

__all__ = ["LRN", "BatchNorm", "GroupNorm", "LayerNorm", "RMSNorm"]


_SCALE_AND_BIAS: tuple[str, ...] = ("scale", "bias")


class _Norm(Layer, frozen=True):
    """A normalisation by what it measures of its input, with a trained scale."""

    linear_roles = _SCALE_AND_BIAS
    growing_roles = ("scale",)
    normalises = True
    subtracts_mean = True
    reads_input_again = True


class BatchNorm(_Norm, tag="batch_norm", kw_only=True, frozen=True):
    """Batch normalisation over every axis but the second, ONNX BatchNormalization.

    In training, the batch's mean and biased variance normalise. The running statistics become
    ``momentum * running + (1 - momentum) * batch``. The running variance uses the *biased* variance,
    as in ONNX (Ioffe and Szegedy, arXiv:1502.03167, use the unbiased one).

    Parameters: ``scale``, ``bias`` [C]. State, not trained: ``mean``, ``variance`` [C].
    """

    epsilon: float = 1e-5
    momentum: float = 0.9

    ranks = (1, 3, 4)
    of_channels = True
    states = ("mean", "variance")
    mistakes = "epsilon, swapped or unloaded running statistics, or scale and bias left out"
    training_mistakes = (
        "the batch's variance (biased or not), epsilon, or running statistics used in training"
    )

    def field_fault(self, name: str, value: Any) -> str:
        if name == "momentum" and not 0 <= value <= 1:
            return f"momentum = {value} must be in [0, 1]"
        return ""

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        return dict.fromkeys(("scale", "bias", "mean", "variance"), shape[:1])

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        outputs = [name]
        if graph.training:
            outputs += [f"{name}.mean/running", f"{name}.variance/running"]
            graph.running.update(dict.fromkeys(outputs[1:], (shapes[0][0],)))
        graph.node(
            "BatchNormalization",
            inputs + [f"{name}.{parameter}" for parameter in ("scale", "bias", "mean", "variance")],
            outputs,
            epsilon=self.epsilon,
            momentum=self.momentum,
            training_mode=int(graph.training),
        )

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        axes = (0, *range(2, cotangent.ndim))
        shape = (1, -1, *(1,) * (cotangent.ndim - 2))
        return _normalisation(read, cotangent, axes, axes, shape, self.epsilon)


class LayerNorm(_Norm, tag="layer_norm", kw_only=True, frozen=True):
    """Layer normalisation over the last axis, ONNX LayerNormalization with axis -1.

    [..., features]: ``scale * (x - mean) / sqrt(variance + epsilon) + bias`` with each row's own
    mean and biased variance (Ba et al. 2016, arXiv:1607.06450).

    Parameters: ``scale``, ``bias`` [features].
    """

    epsilon: float = 1e-5

    ranks = (1, 2)
    operator = "LayerNormalization"
    operator_fields = ("epsilon",)
    operator_attributes = {"axis": -1}
    mistakes = "epsilon and its place, the variance (biased or not), or which axes are normalised"

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        return dict.fromkeys(("scale", "bias"), shape[-1:])

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        others = tuple(range(cotangent.ndim - 1))
        return _normalisation(read, cotangent, (-1,), others, (-1,), self.epsilon)


class GroupNorm(_Norm, tag="group_norm", kw_only=True, frozen=True):
    """Group normalisation of [N, C, H, W], [N, C, D, H, W] or [N, C] (Wu and He, arXiv:1803.08494).

    ``scale * (x - mean) / sqrt(variance + epsilon) + bias``, with mean and biased variance of each group
    of a sample: C / groups consecutive channels with all their places. With a group for each channel it
    is instance normalisation (Ulyanov et al., arXiv:1607.08022), ONNX InstanceNormalization. Otherwise
    ONNX Reshape, InstanceNormalization, Reshape, Mul and Add.

    Parameters: ``scale``, ``bias`` [C].

    Attributes:
        groups: number of groups that channels are divided into; each has 2 numbers or more.
        epsilon: under the root; above 0.
    """

    groups: int
    epsilon: float = 1e-5

    of_channels = True
    mistakes = (
        "epsilon and its place, the number of groups, a scale for each group (not channel), or "
        "the variance (biased or not)"
    )

    def field_fault(self, name: str, value: Any) -> str:
        return _epsilon_fault(name, value)

    def output_shape(self, inputs: list[Shape]) -> Shape:
        check_rank(inputs[0], 1, 3, 4)
        channels = inputs[0][0]
        if channels % self.groups:
            raise ShapeMismatch(f"groups = {self.groups} must divide {channels} channels")
        if math.prod(inputs[0]) == self.groups:
            raise ShapeMismatch(
                f"each of {self.groups} groups has one number, which is normalised to 0; it needs fewer groups"
            )
        return inputs[0]

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        return dict.fromkeys(("scale", "bias"), shape[:1])

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        """Groups as channels, then a scale and a bias for each channel: opset 17 has no GroupNormalization."""
        channels, *sizes = shapes[0]
        scale, bias = f"{name}.scale", f"{name}.bias"
        if self.groups == channels:
            inputs = [*inputs, scale, bias]
            graph.node("InstanceNormalization", inputs, name, epsilon=self.epsilon)
            return
        within = graph.within(name)
        add, held = within.add, within.held
        groups = add("Reshape", *inputs, held([0, self.groups, -1]))
        plain = held(np.ones(self.groups)), held(np.zeros(self.groups))
        normal = add("InstanceNormalization", groups, *plain, epsilon=self.epsilon)
        joined = add("Reshape", normal, held([0, channels, *sizes]))
        if sizes:
            axes = held(np.arange(1, 1 + len(sizes)))
            scale, bias = (add("Unsqueeze", role, axes) for role in (scale, bias))
        within.end("Add", add("Mul", joined, scale), bias)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        x, groups = read.input, self.groups
        shape = (len(x), groups, x.shape[1] // groups, math.prod(x.shape[2:]))
        parts = replace(read, inputs=(x.reshape(shape),))
        of_channels = (1, groups, shape[2], 1)
        (of_parts,), gradients = _normalisation(
            parts, cotangent.reshape(shape), (2, 3), (0, 3), of_channels, self.epsilon
        )
        assert of_parts is not None
        return (of_parts.reshape(x.shape),), {
            role: array.ravel() for role, array in gradients.items()
        }


class RMSNorm(_Norm, tag="rms_norm", kw_only=True, frozen=True):
    """Normalisation by the root mean square over the last axis (Zhang and Sennrich, arXiv:1910.07467).

    [..., features]: ``scale * x / sqrt(mean of x * x + epsilon)`` with each row's own mean. ONNX
    RMSNormalization of operator set 23; before it Mul, ReduceMean, Add, Sqrt, Div and Mul.

    Parameters: ``scale`` [features].

    Attributes:
        epsilon: under the root; above 0.
    """

    epsilon: float = 1e-5

    ranks = (1, 2)
    linear_roles = ("scale",)
    subtracts_mean = False
    mistakes = (
        "epsilon and its place, a mean that is taken off, or the norm for the root of the mean"
    )

    def field_fault(self, name: str, value: Any) -> str:
        return _epsilon_fault(name, value)

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        return {"scale": shape[-1:]}

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        """RMSNormalization is of operator set 23."""
        (x,), within = inputs, graph.within(name)
        mean = within.add("ReduceMean", within.add("Mul", x, x), axes=[-1])
        root = within.add("Sqrt", within.add("Add", mean, within.held(self.epsilon)))
        within.end("Mul", within.add("Div", x, root), f"{name}.scale")

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        x = read.input
        mean = (x * x).mean(axis=-1, keepdims=True)
        inverse = (1 / np.sqrt(mean + x.dtype.type(self.epsilon))).astype(x.dtype)
        normal, of_normal = x * inverse, cotangent * read.parameters["scale"]
        of_input = inverse * (
            of_normal - normal * (of_normal * normal).mean(axis=-1, keepdims=True)
        )
        others = tuple(range(x.ndim - 1))
        return (of_input,), {"scale": (cotangent * normal).sum(axis=others)}


class LRN(Layer, tag="lrn", kw_only=True, frozen=True):
    """Local response normalisation across channels, ONNX LRN.

    ``x / (bias + alpha / size * sum of squares over size channels) ** beta``
    (Krizhevsky et al. 2012, section 3.3, whose alpha is not divided by the size).
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    ranks = (3,)
    operator = "LRN"
    operator_fields = ("alpha", "beta", "bias", "size")
    bounded = True
    reads_input_again = True
    mistakes = "alpha (divided by the size or not), the constant k, or the window's alignment"

    def field_fault(self, name: str, value: Any) -> str:
        """With an even window, frameworks differ in the side of the extra channel."""
        return f"size = {value} must be odd" if name == "size" and value % 2 == 0 else ""

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        x, reach = read.input, self.size // 2

        def summed(values: Array) -> Array:
            around = np.pad(values, [(0, 0), (reach, reach), *[(0, 0)] * (values.ndim - 2)])
            return sum(
                (around[:, start : start + values.shape[1]] for start in range(self.size)),
                np.zeros_like(values),
            )

        factor = self.alpha / self.size
        scale = self.bias + factor * summed(x * x)
        power = scale**-self.beta
        inner = summed(cotangent * x * power / scale)
        return (cotangent * power - 2 * factor * self.beta * x * inner,), {}


def _epsilon_fault(name: str, value: Any) -> str:
    return f"epsilon = {value} must be above 0" if name == "epsilon" and not value > 0 else ""


def _normalisation(
    read: Pass,
    cotangent: Array,
    axes: tuple[int, ...],
    others: tuple[int, ...],
    shape: tuple[int, ...],
    epsilon: float,
) -> Gradients:
    """Gradients of a normalisation over ``axes``; its parameters' are sums over ``others``."""
    x, scale = read.input, read.parameters["scale"].reshape(shape)
    centred = x - x.mean(axis=axes, keepdims=True)
    variance = (centred * centred).mean(axis=axes, keepdims=True)
    inverse = (1 / np.sqrt(variance + x.dtype.type(epsilon))).astype(x.dtype)
    normal = centred * inverse
    of_normal = cotangent * scale
    of_input = inverse * (
        of_normal
        - of_normal.mean(axis=axes, keepdims=True)
        - normal * (of_normal * normal).mean(axis=axes, keepdims=True)
    )
    parameters = {
        "scale": (cotangent * normal).sum(axis=others),
        "bias": cotangent.sum(axis=others),
    }
    return (of_input,), parameters
