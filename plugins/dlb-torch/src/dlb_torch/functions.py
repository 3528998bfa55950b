"""Functions without weights: torch's own, and those that are composed."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlb_torch.modules import Operator
from dlb_worker.interpolation import products
from dlb_worker.masks import kept_places
from dlb_worker.model import Node


def affine(inputs: Tensor, alpha: float, beta: float) -> Tensor:
    scaled = inputs if alpha == 1 else inputs * alpha
    return scaled if beta == 0 else scaled + beta


def celu(inputs: Tensor, alpha: float) -> Tensor:
    """torch's own, and its composition in float64, for its gradient has 1 / alpha in float32."""
    if inputs.dtype == torch.float64:
        return F.elu(inputs / alpha) * alpha
    return F.celu(inputs, alpha)


def hard_sigmoid(inputs: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.clamp(inputs * alpha + beta, 0, 1)


def hard_swish(inputs: Tensor) -> Tensor:
    """torch's own, and its composition in float64, for its gradient has the slope in float32."""
    if inputs.dtype == torch.float64:
        return inputs * F.relu6(inputs + 3) / 6
    return F.hardswish(inputs)


def power(inputs: Tensor, alpha: float) -> Tensor:
    return inputs**alpha


def softplus(inputs: Tensor) -> Tensor:
    """Beyond the threshold torch returns the input; at its default, 20, that is 2e-9 off."""
    return F.softplus(inputs, threshold=36)


def straight_through_round(inputs: Tensor) -> Tensor:
    """Exported as a rounding."""
    rounded = torch.round(inputs)
    return rounded if torch.onnx.is_in_onnx_export() else inputs + (rounded - inputs).detach()


#: By the function's name.
FUNCTIONS = {
    "abs": torch.abs,
    "acos": torch.acos,
    "acosh": torch.acosh,
    "affine": affine,
    "asin": torch.asin,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "atanh": torch.atanh,
    "ceil": torch.ceil,
    "celu": celu,
    "clip": torch.clamp,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "elu": F.elu,
    "erf": torch.erf,
    "exp": torch.exp,
    "floor": torch.floor,
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": hard_swish,
    "leaky_relu": F.leaky_relu,
    "log": torch.log,
    "mish": F.mish,
    "neg": torch.neg,
    "pow": power,
    "reciprocal": torch.reciprocal,
    "round": torch.round,
    "selu": F.selu,
    "sign": torch.sign,
    "silu": F.silu,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "softplus": softplus,
    "softsign": F.softsign,
    "sqrt": torch.sqrt,
    "straight_through_round": straight_through_round,
    "tan": torch.tan,
}
#: torch's names of a function's numbers, where they are others.
RENAMED = {("leaky_relu", "alpha"): "negative_slope"}


class Elementwise(nn.Module):
    def __init__(self, node: Node) -> None:
        super().__init__()
        numbers = dict(node.attributes)
        self.function = numbers.pop("function")
        self.numbers = {RENAMED.get((self.function, k), k): v for k, v in numbers.items()}

    def forward(self, inputs: Tensor) -> Tensor:
        return FUNCTIONS[self.function](inputs, **self.numbers)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.numbers.items())
        return f"{self.function}({shown})"


def binary(node: Node) -> nn.Module:
    return Operator({"max": "maximum", "min": "minimum"}.get(node.function, node.function))


class Where(Operator):
    """Of two values by a third; one of both may be a number."""

    def forward(self, condition: Tensor, *values: Tensor) -> Tensor:
        rest = iter(values)
        numbers = self.arguments["first"], self.arguments["second"]
        first, second = (next(rest) if each is None else each for each in numbers)
        return torch.where(condition.bool(), first, second)


def reduce(node: Node) -> nn.Module:
    """``amax`` and ``amin`` share a gradient among equal numbers; ``max`` and ``min`` do not."""
    name = {"max": "amax", "min": "amin"}.get(node.function, node.function)
    return Operator(name, dim=node.axes, keepdim=node.keepdims)


class TopK(Operator):
    """Indices of the largest or smallest numbers; of equal ones, ``topk`` may put any first."""

    def forward(self, inputs: Tensor) -> Tensor:
        axis, k, largest = (self.arguments[name] for name in ("axis", "k", "largest"))
        if torch.onnx.is_in_onnx_export():
            found = torch.topk(inputs, k, axis, largest).indices
        elif k == 1:
            found = (torch.argmax if largest else torch.argmin)(inputs, axis, keepdim=True)
        else:
            order = torch.sort(inputs, dim=axis, descending=largest, stable=True)
            found = order.indices.narrow(axis, 0, k)
        return found.to(inputs.dtype)


class GatherElements(Operator):
    """Numbers in places along an axis; the operator reads values of one shape along the others."""

    def forward(self, inputs: Tensor, places: Tensor) -> Tensor:
        axis = self.arguments["axis"]
        size, count = inputs.shape[axis], places.shape[axis]
        # As one operator: the exporter orders what it makes of two bounds wrongly.
        indices = F.hardtanh(places, 0, size - 1).long()
        shape = list(
            torch.broadcast_shapes(inputs.select(axis, 0).shape, places.select(axis, 0).shape)
        )
        shape.insert(axis, size)
        inputs = inputs.expand(shape)
        shape[axis] = count
        return torch.gather(inputs, axis, indices.expand(shape))


class Mask(Operator):
    def __init__(self, node: Node) -> None:
        super().__init__(sizes=node.sizes, value=node.value)
        self.register_buffer("kept", torch.from_numpy(kept_places(node)), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        bounds = torch.finfo(inputs.dtype)  # fewer numbers are finite in bfloat16
        value = min(max(self.arguments["value"], bounds.min), bounds.max)
        return torch.where(self.kept, inputs, value)


class Resize(Operator):
    """A product with a constant matrix along each axis that changes."""

    def __init__(self, node: Node) -> None:
        super().__init__(sizes=node.sizes, mode=node.mode)
        self.shapes: list[Any] = []
        for place, product in enumerate(products(node)):
            self.shapes.append((product.size, product.after, product.shape))
            self.register_buffer(
                f"weights{place}", torch.from_numpy(product.matrix), persistent=False
            )

    def forward(self, inputs: Tensor) -> Tensor:
        for place, (size, after, shape) in enumerate(self.shapes):
            weights = getattr(self, f"weights{place}")
            if after == 1:
                product = F.linear(inputs.reshape(-1, size), weights)
            else:
                product = torch.matmul(weights, inputs.reshape(-1, size, after))
            inputs = product.reshape(-1, *shape)
        return inputs
