"""Shape inference, with errors that name the layer, its attributes and the shapes.

Shapes in this module are those of one sample, without the batch axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec

from dlb.errors import ShapeError, WorkloadError
from dlb.workload import layers as L
from dlb.workload.model import Model, Node
from dlb.workload.primitives import (
    Primitive,
    elementwise_fault,
    mask_fault,
    primitive_shape,
    resize_fault,
    where_fault,
)

__all__ = [
    "Shape",
    "infer_shapes",
    "is_dilated_pool",
    "layer_shape",
    "multiply_adds",
    "of_three_axes",
    "parameter_shapes",
    "places_along",
    "state_names",
    "tied_to",
    "trained_names",
]

Shape = tuple[int, ...]
#: Axes of a sample at most.
MOST_AXES = 5
#: How many axes windows may have.
WINDOW_AXES: Mapping[type, tuple[int, ...]] = {
    L.Conv: (2, 3),
    L.ConvTranspose: (2, 3),
    L.MaxPool: (2, 3),
    L.AveragePool: (2, 3),
}
#: Layers that know channels, or the places after them, from each other.
_OF_CHANNELS = (L.BatchNorm, L.GlobalAveragePool, L.GroupNorm, L.PReLU)
#: The largest size of an axis: frameworks index with 32 bits.
LARGEST_SIZE = 2**31 - 1

#: Parameters that training updates by their own rule, not by gradients.
_STATE: Mapping[type, tuple[str, ...]] = {L.BatchNorm: ("mean", "variance")}
#: Layers whose epsilon is checked.
_POSITIVE_EPSILON = (L.GroupNorm, L.RMSNorm)


def infer_shapes(model: Model) -> dict[str, Shape]:
    """The shapes of the model's input and of every node's output, by name, in order.

    Raises:
        WorkloadError: a name is repeated, empty or unknown, or an attribute is out of range.
        ShapeError: a layer cannot take the shapes of its inputs.
    """
    if not model.nodes:
        raise WorkloadError("the model has no layers; give at least one node under model.nodes")
    shapes: dict[str, Shape] = {model.input.name: model.input.shape}
    if not model.input.shape or min(model.input.shape) < 1:
        raise ShapeError(
            f"input '{model.input.name}': shape {model.input.shape} needs sizes of at least 1"
        )
    for node in model.wired():
        if not node.name or node.name in shapes or "." in node.name or "/" in node.name:
            raise WorkloadError(
                f"layer '{node.name}': a name must be unique, not be empty, and hold no '.' or '/'"
            )
        for name in node.inputs:
            if name not in shapes:
                raise WorkloadError(
                    f"layer '{node.name}': its input '{name}' is not a layer before it; "
                    f"before it are {', '.join(shapes)}"
                )
        _check_attributes(node)
        shapes[node.name] = _infer(node, [shapes[name] for name in node.inputs], model)
        _check_tied(node, shapes, model)
        _check_shared(node, shapes, model)
    return shapes


def layer_shape(layer: L.Layer, shape: Shape) -> Shape:
    """The shape of a layer's output for one input of ``shape``, which the layer must accept."""
    return _RULES.get(type(layer), _same_shape)(layer, [shape])


def parameter_shapes(model: Model) -> dict[str, Shape]:
    """The shape of every parameter and state in canonical layout, by ``layer.parameter``, in order.

    A weight that two layers share occurs once, under the layer that owns it.
    """
    shapes = infer_shapes(model)
    parameters: dict[str, Shape] = {}
    for node in model.wired():
        if node.weights_of:
            continue
        tied = tied_to(node)
        for name, shape in _parameters(node.layer, shapes[node.inputs[0]]).items():
            if not (tied and name == "weight"):
                parameters[f"{node.name}.{name}"] = shape
    return parameters


def tied_to(node: Node) -> str:
    """The layer whose ``weight`` a node shares; "" if it has its own."""
    return str(getattr(node.layer, "tied_to", ""))


def state_names(model: Model) -> tuple[str, ...]:
    """The names of states, which are stored with the weights but not trained (batch-norm statistics)."""
    return tuple(
        f"{node.name}.{name}" for node in model.nodes for name in _STATE.get(type(node.layer), ())
    )


def trained_names(model: Model) -> tuple[str, ...]:
    """The names of the trained parameters, in order."""
    states = set(state_names(model))
    return tuple(name for name in parameter_shapes(model) if name not in states)


def of_three_axes(layer: L.Layer, shape: Shape) -> bool:
    """Whether a layer has windows of three axes, or knows the channels of a value [C, D, H, W].

    Args:
        shape: of its first input.
    """
    return len(shape) == 4 and (type(layer) in WINDOW_AXES or isinstance(layer, _OF_CHANNELS))


def is_dilated_pool(layer: L.Layer) -> bool:
    """Whether a layer is a max pooling whose windows have gaps."""
    return isinstance(layer, L.MaxPool) and max(layer.dilation) > 1


def multiply_adds(model: Model) -> dict[str, int]:
    """Multiply-adds of one sample's forward pass, by layer, for layers with a matrix product.

    These are convolutions, linear, recurrent and attention layers, and products of two values. Each
    weight counts once for each position (a pixel, a time step) that it is applied to. Attention also
    counts the products of every step with every other. Biases, activations, pooling and normalisation
    do not count, as usual (He et al. 2015, arXiv:1512.03385, table 1).
    """
    shapes = infer_shapes(model)
    counts = {}
    for node in model.wired():
        if isinstance(node.layer, L.MatMul):
            counts[node.name] = math.prod(shapes[node.name]) * shapes[node.inputs[0]][-1]
        if isinstance(node.layer, (L.Conv, L.ConvTranspose, L.Linear, L.Attention, *L.RECURRENT)):
            # Channels come first in a map, and last in a sequence.
            output = shapes[node.name]
            positions = output[1:] if isinstance(node.layer, L.Conv) else output[:-1]
            if isinstance(node.layer, L.ConvTranspose):  # applied to each place of the input
                positions = shapes[node.inputs[0]][1:]
            weights = _parameters(node.layer, shapes[node.inputs[0]])
            matrices = sum(math.prod(shape) for role, shape in weights.items() if "weight" in role)
            counts[node.name] = math.prod(positions) * matrices
            if isinstance(node.layer, L.Attention):
                counts[node.name] += 2 * math.prod(output) * output[0]
    return counts


def _parameters(layer: L.Layer, input_shape: Shape) -> dict[str, Shape]:
    if isinstance(layer, L.Conv):
        weight = (layer.out_channels, input_shape[0] // layer.groups, *layer.kernel)
        return _with_bias(weight, layer.bias)
    if isinstance(layer, L.ConvTranspose):
        weight = (input_shape[0], layer.out_channels // layer.groups, *layer.kernel)
        bias = {"bias": (layer.out_channels,)} if layer.bias else {}
        return {"weight": weight, **bias}
    if isinstance(layer, L.Linear):
        return _with_bias((layer.out_features, input_shape[-1]), layer.bias)
    if isinstance(layer, L.BatchNorm):
        return dict.fromkeys(("scale", "bias", "mean", "variance"), (input_shape[0],))
    if isinstance(layer, L.LayerNorm):
        return dict.fromkeys(("scale", "bias"), input_shape[-1:])
    if isinstance(layer, L.GroupNorm):
        return dict.fromkeys(("scale", "bias"), input_shape[:1])
    if isinstance(layer, L.RMSNorm):
        return {"scale": input_shape[-1:]}
    if isinstance(layer, L.PReLU):
        return {"slope": (1,) if layer.shared else input_shape[:1]}
    if isinstance(layer, L.Embedding):
        return {"weight": (layer.entries, layer.features)}
    if isinstance(layer, L.PositionEmbedding):
        return {"weight": input_shape}
    if isinstance(layer, L.Scale):
        return {"scale": layer.sizes}
    if isinstance(layer, L.Shift):
        return {"bias": layer.sizes}
    if isinstance(layer, L.Attention):
        return _attention_parameters(layer, input_shape[-1])
    if isinstance(layer, L.RECURRENT):
        rows = L.GATES[type(layer)] * layer.hidden
        return {
            "input_weight": (rows, input_shape[-1]),
            "recurrent_weight": (rows, layer.hidden),
            "bias": (2, rows) if L.has_two_biases(layer) else (rows,),
        }
    return {}


def _attention_parameters(layer: L.Attention, features: int) -> dict[str, Shape]:
    kinds = {"weight": (features, features)} | ({"bias": (features,)} if layer.bias else {})
    return {f"{name}_{kind}": kinds[kind] for kind in kinds for name in L.ATTENTION_MAPS}


def _with_bias(weight: Shape, bias: bool) -> dict[str, Shape]:
    return {"weight": weight, "bias": weight[:1]} if bias else {"weight": weight}


def _check_attributes(node: Node) -> None:
    """Check the ranges of attributes that do not depend on shapes."""
    at_least_one = {
        "out_channels",
        "out_features",
        "kernel",
        "stride",
        "dilation",
        "groups",
        "size",
    }
    at_least_one |= {"entries", "features", "hidden", "shape", "heads"}
    for name in node.layer.__struct_fields__:
        value = getattr(node.layer, name)
        if isinstance(value, (L.Normal, L.TruncatedNormal, L.Uniform, L.Fill)):
            (number,) = msgspec.structs.astuple(value)
            if not math.isfinite(number) or (number < 0 and not isinstance(value, L.Fill)):
                raise WorkloadError(
                    f"layer '{node.name}': {name} = {value} needs a finite number, not below 0"
                )
            continue
        numbers = value if isinstance(value, tuple) else (value,)
        if name in ("shape", "axes", "pads", "starts", "indices") and not value:
            raise WorkloadError(f"layer '{node.name}': {name} is empty; give it numbers")
        if name in at_least_one and min(numbers) < 1:
            raise WorkloadError(f"layer '{node.name}': {name} = {value} must be at least 1")
        if name == "size" and value % 2 == 0:
            # With an even window, frameworks differ in the side of the extra channel.
            raise WorkloadError(f"layer '{node.name}': size = {value} must be odd")
        if name == "kernel":
            _check_windows(node)
        if name == "pads" and min(numbers) < 0:
            raise WorkloadError(f"layer '{node.name}': pads = {value} must not be negative")
        if name == "output_padding":
            _check_output_padding(node)
        if name == "steps" and value and min(value) < 1:
            raise WorkloadError(
                f"layer '{node.name}': steps = {value} must be at least 1; a gather takes places "
                "in any other order"
            )
        if name == "rate" and not 0 <= value < 1:
            raise WorkloadError(f"layer '{node.name}': rate = {value} must be in [0, 1)")
        if name == "momentum" and not 0 <= value <= 1:
            raise WorkloadError(f"layer '{node.name}': momentum = {value} must be in [0, 1]")
        if name == "epsilon" and isinstance(node.layer, _POSITIVE_EPSILON) and not value > 0:
            raise WorkloadError(f"layer '{node.name}': epsilon = {value} must be above 0")
        if isinstance(value, float) and not math.isfinite(value):
            raise WorkloadError(f"layer '{node.name}': {name} = {value} must be finite")
    fault = _FAULTS.get(type(node.layer), lambda layer: "")(node.layer)
    if fault:
        raise WorkloadError(f"layer '{node.name}': {fault}")
    pads = getattr(node.layer, "pads", None)
    if pads and isinstance(node.layer, (L.MaxPool, L.AveragePool)):
        kernel = node.layer.kernel
        if any(pad >= kernel[axis % len(kernel)] for axis, pad in enumerate(pads)):
            raise WorkloadError(
                f"layer '{node.name}': pads = {pads} must be smaller than kernel = {kernel}"
            )


#: What is wrong with the attributes of a layer together, by its type.
_FAULTS: Mapping[type, Callable[[Any], str]] = {
    L.Elementwise: elementwise_fault,
    L.Mask: mask_fault,
    L.Resize: resize_fault,
    L.Where: where_fault,
}


def _check_windows(node: Node) -> None:
    """Check that there are as many numbers as the windows have axes."""
    kernel: Shape = node.layer.kernel  # type: ignore[union-attr]
    accepted = WINDOW_AXES[type(node.layer)]
    if len(kernel) not in accepted:
        counts = " or ".join(str(count) for count in accepted)
        raise WorkloadError(f"layer '{node.name}': kernel = {kernel} must have {counts} numbers")
    for name in ("stride", "pads", "output_padding", "dilation"):
        numbers = getattr(node.layer, name, None)
        needed = len(kernel) * (2 if name == "pads" else 1)
        if numbers is not None and len(numbers) != needed:
            raise WorkloadError(
                f"layer '{node.name}': {name} = {numbers} needs {needed} numbers, "
                f"for kernel = {kernel} has {len(kernel)} axes"
            )


def _check_output_padding(node: Node) -> None:
    padding, stride = node.layer.output_padding, node.layer.stride  # type: ignore[union-attr]
    if any(not 0 <= more < step for more, step in zip(padding, stride)):
        raise WorkloadError(
            f"layer '{node.name}': output_padding = {padding} must be at least 0 and below "
            f"stride = {stride}"
        )


def _infer(node: Node, inputs: list[Shape], model: Model) -> Shape:
    kind = type(node.layer)
    multiple_inputs = (*(L.Add, L.Mul, L.Binary, L.Where, L.MatMul, L.GatherElements, L.Concat),)
    if len(inputs) != 1 and kind not in multiple_inputs:
        raise ShapeError(
            f"layer '{node.name}' ({L.type_name(kind)}) takes one input, not {len(inputs)}"
        )
    rule = _RULES.get(kind, _same_shape)
    if kind is not L.Embedding and model.input.kind == "index" and model.input.name in node.inputs:
        raise ShapeError(
            f"layer '{node.name}' ({L.type_name(kind)}) reads the integer input "
            f"'{model.input.name}'; put an embedding between them"
        )
    try:
        shape = rule(node.layer, inputs)
    except _ShapeMismatch as mismatch:
        shown = " and ".join(str(list(shape)) for shape in inputs)
        raise ShapeError(
            f"layer '{node.name}' ({L.type_name(kind)}) cannot take shape {shown}: {mismatch}"
        ) from None
    if min(shape) < 1:
        raise ShapeError(
            f"layer '{node.name}' ({L.type_name(kind)}) would make shape {list(shape)} from "
            f"{list(inputs[0])}: {_empty_reason(node.layer)}"
        )
    if max(shape) > LARGEST_SIZE:
        raise ShapeError(
            f"layer '{node.name}' ({L.type_name(kind)}) would make shape {list(shape)}; "
            f"no size may be above {LARGEST_SIZE}"
        )
    return shape


def _empty_reason(layer: L.Layer) -> str:
    if isinstance(layer, L.ConvTranspose):
        return "the pads leave out all that there is"
    return "the kernel is larger than the padded input"


def _check_shared(node: Node, shapes: Mapping[str, Shape], model: Model) -> None:
    """Check that the node whose parameters a node computes with is another of its kind, before it."""
    if not node.weights_of:
        return
    nodes = {other.name: other for other in model.wired() if other.name in shapes}
    owner = nodes.get(node.weights_of)
    if owner is None or owner.name == node.name:
        raise WorkloadError(
            f"layer '{node.name}': weights_of = '{node.weights_of}' is not a layer before it"
        )
    own, others = ([shapes[name] for name in each.inputs] for each in (node, owner))
    reasons = {
        "computes with those of another itself; name that one": bool(owner.weights_of),
        "is another layer; both must be the same in all attributes": owner.layer != node.layer,
        "reads another number of axes": [len(shape) for shape in own]
        != [len(shape) for shape in others],
        "has parameters of other shapes": _parameters(node.layer, own[0])
        != _parameters(owner.layer, others[0]),
        "has no parameters": not _parameters(node.layer, own[0]),
        "has running statistics, which are of one layer": type(node.layer) in _STATE,
        "is tied to an embedding; tie both": bool(tied_to(node)),
    }
    for reason, holds in reasons.items():
        if holds:
            raise WorkloadError(f"layer '{node.name}': weights_of = '{owner.name}', which {reason}")


def _check_tied(node: Node, shapes: Mapping[str, Shape], model: Model) -> None:
    """Check that the weight that a node shares exists and has the right shape."""
    tied = tied_to(node)
    if not tied:
        return
    tables = {
        other.name: (other.layer.entries, other.layer.features)
        for other in model.nodes
        if isinstance(other.layer, L.Embedding) and other.name in shapes
    }
    if tied not in tables:
        raise WorkloadError(
            f"layer '{node.name}': tied_to = '{tied}' is not an embedding before it; "
            f"before it are {', '.join(tables) or 'none'}"
        )
    weight = _parameters(node.layer, shapes[node.inputs[0]])["weight"]
    if weight != tables[tied]:
        raise ShapeError(
            f"layer '{node.name}' ({L.type_name(node.layer)}) needs a weight {list(weight)}, and "
            f"that of '{tied}', to which it is tied, is {list(tables[tied])}"
        )


class _ShapeMismatch(Exception):
    """Why a layer cannot take a shape."""


def _check_rank(shape: Shape, *ranks: int) -> None:
    if len(shape) not in ranks:
        accepted = " or ".join(str(rank) for rank in ranks)
        raise _ShapeMismatch(f"it needs {accepted} axes besides the batch, not {len(shape)}")


def _conv(layer: L.Conv, inputs: list[Shape]) -> Shape:
    _check_rank(inputs[0], 1 + len(layer.kernel))
    _check_groups(layer, inputs[0][0])
    sizes = window_sizes(inputs[0][1:], layer.kernel, layer.stride, layer.pads, layer.dilation)
    return (layer.out_channels, *sizes)


def _conv_transpose(layer: L.ConvTranspose, inputs: list[Shape]) -> Shape:
    _check_rank(inputs[0], 1 + len(layer.kernel))
    _check_groups(layer, inputs[0][0])
    return (layer.out_channels, *transposed_sizes(inputs[0][1:], layer))


def _check_groups(layer: L.Conv | L.ConvTranspose, channels: int) -> None:
    if channels % layer.groups or layer.out_channels % layer.groups:
        raise _ShapeMismatch(
            f"groups = {layer.groups} must divide {channels} input and {layer.out_channels} output channels"
        )


def transposed_sizes(size: Shape, layer: L.ConvTranspose) -> Shape:
    """Output sizes of a transposed convolution, as ONNX ConvTranspose defines them."""
    axes = range(len(size))
    return tuple(
        (size[axis] - 1) * layer.stride[axis]
        + layer.dilation[axis] * (layer.kernel[axis] - 1)
        + 1
        + layer.output_padding[axis]
        - layer.pads[axis]
        - layer.pads[axis + len(size)]
        for axis in axes
    )


def _group_norm(layer: L.GroupNorm, inputs: list[Shape]) -> Shape:
    _check_rank(inputs[0], 1, 3, 4)
    channels = inputs[0][0]
    if channels % layer.groups:
        raise _ShapeMismatch(f"groups = {layer.groups} must divide {channels} channels")
    if math.prod(inputs[0]) == layer.groups:
        raise _ShapeMismatch(
            f"each of {layer.groups} groups has one number, which is normalised to 0; it needs fewer groups"
        )
    return inputs[0]


def _prelu(layer: L.PReLU, inputs: list[Shape]) -> Shape:
    if not layer.shared and len(inputs[0]) not in (1, 3, 4):
        raise _ShapeMismatch(
            "a slope for each channel is of features or a map; any shape has shared = true"
        )
    return inputs[0]


def _pool(layer: L.MaxPool | L.AveragePool, inputs: list[Shape]) -> Shape:
    _check_rank(inputs[0], 1 + len(layer.kernel))
    dilation = layer.dilation if isinstance(layer, L.MaxPool) else (1,) * len(layer.kernel)
    sizes = window_sizes(
        inputs[0][1:], layer.kernel, layer.stride, layer.pads, dilation, ceil=layer.ceil_mode
    )
    for axis, (size, windows) in enumerate(zip(inputs[0][1:], sizes)):
        if isinstance(layer, L.MaxPool) and dilation[axis] > 1:
            _check_gaps(layer, axis, dilation[axis], size, windows)
    return (inputs[0][0], *sizes)


def _check_gaps(layer: L.MaxPool, axis: int, dilation: int, size: int, windows: int) -> None:
    """Check that windows with gaps read some of the input, and reach no further than ONNX Runtime's may."""
    starts = [number * layer.stride[axis] - layer.pads[axis] for number in range(windows)]
    taps = range(0, dilation * layer.kernel[axis], dilation)
    if not all(any(0 <= start + tap < size for tap in taps) for start in starts):
        raise _ShapeMismatch("a window would read nothing but padding")
    if starts and starts[-1] + taps[-1] - size + 1 >= layer.kernel[axis]:
        raise _ShapeMismatch(
            f"its last window would reach {starts[-1] + taps[-1] - size + 1} places past the end, "
            f"which must be fewer than the kernel's {layer.kernel[axis]}"
        )


def _global_average_pool(layer: L.GlobalAveragePool, inputs: list[Shape]) -> Shape:
    _check_rank(inputs[0], 3, 4)
    return (inputs[0][0], *(1 for _ in inputs[0][1:]))


def window_sizes(
    size: Shape,
    kernel: Shape,
    stride: Shape,
    pads: Shape,
    dilation: Shape = (),
    ceil: bool = False,
) -> Shape:
    """Output sizes of a sliding window along its axes, as ONNX Conv and MaxPool define them.

    With ``ceil``, a last window that would start in the padding after the end is dropped.
    """
    sizes, axes = [], len(kernel)
    dilation = dilation or (1,) * axes
    for axis in range(axes):
        before, after = pads[axis], pads[axis + axes]
        span = size[axis] + before + after - dilation[axis] * (kernel[axis] - 1) - 1
        if span < 0:
            sizes.append(0)
            continue
        steps = -(-span // stride[axis]) if ceil else span // stride[axis]
        if ceil and steps * stride[axis] >= size[axis] + before:
            steps -= 1
        sizes.append(steps + 1)
    return tuple(sizes)


def _same_shape(layer: L.Layer, inputs: list[Shape]) -> Shape:
    return inputs[0]


def _linear(layer: L.Linear, inputs: list[Shape]) -> Shape:
    if len(inputs[0]) not in (1, 2):
        raise _ShapeMismatch(
            "it needs features last and at most a time axis before them; put a flatten before it"
        )
    return (*inputs[0][:-1], layer.out_features)


def _checked_shape(layer: L.Layer, inputs: list[Shape], *ranks: int) -> Shape:
    _check_rank(inputs[0], *ranks)
    return inputs[0]


def _add(layer: L.Add, inputs: list[Shape]) -> Shape:
    if len(inputs) != 2 or inputs[0] != inputs[1]:
        raise _ShapeMismatch("it needs two inputs of one shape")
    return inputs[0]


def _mul(layer: L.Mul, inputs: list[Shape]) -> Shape:
    gate = (
        len(inputs) == 2
        and len(inputs[0]) in (3, 4)
        and inputs[1] == (inputs[0][0], *(1 for _ in inputs[0][1:]))
    )
    if not gate and (len(inputs) != 2 or inputs[0] != inputs[1]):
        raise _ShapeMismatch(
            "it needs two inputs of one shape, or a map [C, H, W] or [C, D, H, W] and after it a number "
            "for each of its channels, [C, 1, 1] or [C, 1, 1, 1]"
        )
    return inputs[0]


def _primitive(layer: Primitive, inputs: list[Shape]) -> Shape:
    found = primitive_shape(layer, inputs)
    if isinstance(found, str):
        raise _ShapeMismatch(found)
    return found


def _concat(layer: L.Concat, inputs: list[Shape]) -> Shape:
    axis = layer.axis - 1
    if len(inputs) < 2 or len({len(shape) for shape in inputs}) > 1:
        raise _ShapeMismatch("it needs two inputs or more, with the same number of axes")
    if not 0 <= axis < len(inputs[0]):
        raise _ShapeMismatch(
            f"axis = {layer.axis} must be from 1 (the batch is 0) to {len(inputs[0])}"
        )
    if len({shape[:axis] + shape[axis + 1 :] for shape in inputs}) > 1:
        raise _ShapeMismatch(f"all axes except {layer.axis} must agree")
    return inputs[0][:axis] + (sum(shape[axis] for shape in inputs),) + inputs[0][axis + 1 :]


def _reshape(layer: L.Reshape, inputs: list[Shape]) -> Shape:
    if len(layer.shape) > MOST_AXES:
        raise _ShapeMismatch(f"it can make at most {MOST_AXES} axes besides the batch")
    if math.prod(layer.shape) != math.prod(inputs[0]):
        raise _ShapeMismatch(
            f"shape = {layer.shape} holds {math.prod(layer.shape)} numbers, not {math.prod(inputs[0])}"
        )
    return layer.shape


def _transpose(layer: L.Transpose, inputs: list[Shape]) -> Shape:
    rank = len(inputs[0])
    if sorted(layer.axes) != list(range(1, rank + 1)):
        raise _ShapeMismatch(f"axes = {layer.axes} must be 1 (the batch is 0) to {rank}, each once")
    return tuple(inputs[0][axis - 1] for axis in layer.axes)


def _reduce_axis(layer: L.ReduceMean | L.Select, inputs: list[Shape]) -> Shape:
    _check_rank(inputs[0], 2)
    if layer.axis not in (1, 2):
        raise _ShapeMismatch(f"axis = {layer.axis} must be 1 (the batch is 0) or 2")
    size = inputs[0][layer.axis - 1]
    if isinstance(layer, L.Select) and not -size <= layer.index < size:
        raise _ShapeMismatch(f"index = {layer.index} is not one of {size} along axis {layer.axis}")
    return (inputs[0][2 - layer.axis],)


def _pad(layer: L.Pad, inputs: list[Shape]) -> Shape:
    _check_rank(inputs[0], 1, 2, 3)
    rank = len(inputs[0])
    if len(layer.pads) != 2 * rank:
        raise _ShapeMismatch(
            f"pads = {layer.pads} needs {2 * rank} numbers: before each of {rank} axes, then after each"
        )
    return tuple(
        before + size + after
        for size, before, after in zip(inputs[0], layer.pads[:rank], layer.pads[rank:])
    )


def _slice(layer: L.Slice, inputs: list[Shape]) -> Shape:
    _check_rank(inputs[0], *range(1, MOST_AXES + 1))
    rank = len(inputs[0])
    for name in ("starts", "ends", "steps"):
        numbers = getattr(layer, name)
        if len(numbers) != rank and (numbers or name != "steps"):
            raise _ShapeMismatch(f"{name} = {numbers} needs {rank} numbers, one per axis")
    for axis, size in enumerate(inputs[0]):
        start, end = layer.starts[axis], layer.ends[axis]
        within = -size <= start < size and -size <= end <= size
        if not within or not places_along(layer, inputs[0])[axis]:
            raise _ShapeMismatch(
                f"from {start} to {end} is not a range in axis {axis + 1}, which has size {size}"
            )
    return tuple(len(places) for places in places_along(layer, inputs[0]))


def _gather(layer: L.Gather, inputs: list[Shape]) -> Shape:
    _check_rank(inputs[0], *range(1, MOST_AXES + 1))
    axis, rank = layer.axis - 1, len(inputs[0])
    if not 0 <= axis < rank:
        raise _ShapeMismatch(f"axis = {layer.axis} must be from 1 (the batch is 0) to {rank}")
    size = inputs[0][axis]
    invalid = [index for index in layer.indices if not -size <= index < size]
    if invalid:
        raise _ShapeMismatch(f"index {invalid[0]} is not one of {size} along axis {layer.axis}")
    return (*inputs[0][:axis], len(layer.indices), *inputs[0][axis + 1 :])


def places_along(layer: L.Slice, shape: Shape) -> tuple[range, ...]:
    """The indices that a slice takes from every axis of a sample, counted from 0."""
    steps = layer.steps or (1,) * len(shape)
    return tuple(
        range(*slice(start, end, step).indices(size))
        for start, end, step, size in zip(layer.starts, layer.ends, steps, shape)
    )


def _embedding(layer: L.Embedding, inputs: list[Shape]) -> Shape:
    _check_rank(inputs[0], 1)
    return (*inputs[0], layer.features)


def _recurrent(layer: L.LSTM | L.GRU | L.RNN, inputs: list[Shape]) -> Shape:
    _check_rank(inputs[0], 2)
    return (inputs[0][0], layer.hidden)


def _attention(layer: L.Attention, inputs: list[Shape]) -> Shape:
    _check_rank(inputs[0], 2)
    if inputs[0][1] % layer.heads:
        raise _ShapeMismatch(f"heads = {layer.heads} must divide {inputs[0][1]} features")
    return inputs[0]


_RULES: Mapping[type, Callable[[Any, list[Shape]], Shape]] = {
    L.Conv: _conv,
    L.ConvTranspose: _conv_transpose,
    L.Linear: _linear,
    L.BatchNorm: lambda layer, inputs: _checked_shape(layer, inputs, 1, 3, 4),
    L.LayerNorm: lambda layer, inputs: _checked_shape(layer, inputs, 1, 2),
    L.GroupNorm: _group_norm,
    L.RMSNorm: lambda layer, inputs: _checked_shape(layer, inputs, 1, 2),
    L.PReLU: _prelu,
    L.LRN: lambda layer, inputs: _checked_shape(layer, inputs, 3),
    L.MaxPool: _pool,
    L.AveragePool: _pool,
    L.GlobalAveragePool: _global_average_pool,
    L.Add: _add,
    L.Mul: _mul,
    **dict.fromkeys(get_args(Primitive), _primitive),
    L.Concat: _concat,
    L.Flatten: lambda layer, inputs: (math.prod(inputs[0]),),
    L.Reshape: _reshape,
    L.Transpose: _transpose,
    L.ReduceMean: _reduce_axis,
    L.Select: _reduce_axis,
    L.Pad: _pad,
    L.Slice: _slice,
    L.Gather: _gather,
    L.Embedding: _embedding,
    L.PositionEmbedding: lambda layer, inputs: _checked_shape(layer, inputs, 2),
    **dict.fromkeys(L.RECURRENT, _recurrent),
    L.Attention: _attention,
}
