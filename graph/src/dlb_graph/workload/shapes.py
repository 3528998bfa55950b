"""Shape inference, with errors that name the layer, its attributes and the shapes.

Shapes in this module are those of one sample, without the batch axis.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlb_graph.errors import ShapeError, WorkloadError
from dlb_graph.layers import (
    Embedding,
    Layer,
    MaxPool,
    Shape,
    ShapeMismatch,
    attributes_fault,
    type_name,
)
from dlb_graph.workload.model import Model, Node

__all__ = [
    "infer_shapes",
    "is_dilated_pool",
    "multiply_adds",
    "of_three_axes",
    "parameter_shapes",
    "state_names",
    "tied_to",
    "trained_names",
]

#: The largest size of an axis: frameworks index with 32 bits.
LARGEST_SIZE = 2**31 - 1


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
    for place, node in enumerate(model.wired()):
        try:
            _check_names(node, shapes)
            shapes[node.name] = _infer(node, [shapes[name] for name in node.inputs], model)
            _check_tied(node, shapes, model)
            _check_shared(node, shapes, model)
        except WorkloadError as error:
            error.place = ("model", "nodes", place)
            raise
    return shapes


def _check_names(node: Node, shapes: Mapping[str, Shape]) -> None:
    """Check the name of a node, those of its inputs, and its attributes."""
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
    if fault := attributes_fault(node.layer):
        raise WorkloadError(f"layer '{node.name}': {fault}")


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
        for name, shape in node.layer.parameters(shapes[node.inputs[0]]).items():
            if not (tied and name == "weight"):
                parameters[f"{node.name}.{name}"] = shape
    return parameters


def tied_to(node: Node) -> str:
    """The layer whose ``weight`` a node shares; "" if it has its own."""
    return str(getattr(node.layer, "tied_to", ""))


def state_names(model: Model) -> tuple[str, ...]:
    """The names of states, which are stored with the weights but not trained (batch-norm statistics)."""
    return tuple(f"{node.name}.{name}" for node in model.nodes for name in node.layer.states)


def trained_names(model: Model) -> tuple[str, ...]:
    """The names of the trained parameters, in order."""
    states = set(state_names(model))
    return tuple(name for name in parameter_shapes(model) if name not in states)


def of_three_axes(layer: Layer, shape: Shape) -> bool:
    """Whether a layer has windows of three axes, or knows the channels of a value [C, D, H, W].

    Args:
        shape: of its first input.
    """
    return len(shape) == 4 and (bool(layer.window_axes) or layer.of_channels)


def is_dilated_pool(layer: Layer) -> bool:
    """Whether a layer is a max pooling whose windows have gaps."""
    return isinstance(layer, MaxPool) and max(layer.dilation) > 1


def multiply_adds(model: Model) -> dict[str, int]:
    """Multiply-adds of one sample's forward pass, by layer, for layers with a matrix product.

    These are convolutions, linear, recurrent and attention layers, and products of two values. Each
    weight counts once for each position (a pixel, a time step) that it is applied to. Attention also
    counts the products of every step with every other. Biases, activations, pooling and normalisation
    do not count, as usual (He et al. 2015, arXiv:1512.03385, table 1).
    """
    shapes = infer_shapes(model)
    counts = {
        node.name: node.layer.multiply_adds(
            [shapes[name] for name in node.inputs], shapes[node.name]
        )
        for node in model.wired()
    }
    return {name: count for name, count in counts.items() if count}


def _infer(node: Node, inputs: list[Shape], model: Model) -> Shape:
    layer, label = node.layer, f"layer '{node.name}' ({type_name(node.layer)})"
    if len(inputs) != 1 and not layer.joins:
        raise ShapeError(f"{label} takes one input, not {len(inputs)}")
    if not layer.looks_up and model.input.kind == "index" and model.input.name in node.inputs:
        raise ShapeError(
            f"{label} reads the integer input '{model.input.name}'; put an embedding between them"
        )
    try:
        shape = layer.output_shape(inputs)
    except ShapeMismatch as mismatch:
        shown = " and ".join(str(list(shape)) for shape in inputs)
        raise ShapeError(f"{label} cannot take shape {shown}: {mismatch}") from None
    if min(shape) < 1:
        raise ShapeError(
            f"{label} would make shape {list(shape)} from {list(inputs[0])}: {layer.empty_reason}"
        )
    if max(shape) > LARGEST_SIZE:
        raise ShapeError(
            f"{label} would make shape {list(shape)}; no size may be above {LARGEST_SIZE}"
        )
    return shape


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
        "has parameters of other shapes": node.layer.parameters(own[0])
        != owner.layer.parameters(others[0]),
        "has no parameters": not node.layer.parameters(own[0]),
        "has running statistics, which are of one layer": bool(node.layer.states),
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
        if isinstance(other.layer, Embedding) and other.name in shapes
    }
    if tied not in tables:
        raise WorkloadError(
            f"layer '{node.name}': tied_to = '{tied}' is not an embedding before it; "
            f"before it are {', '.join(tables) or 'none'}"
        )
    weight = node.layer.parameters(shapes[node.inputs[0]])["weight"]
    if weight != tables[tied]:
        raise ShapeError(
            f"layer '{node.name}' ({type_name(node.layer)}) needs a weight {list(weight)}, and "
            f"that of '{tied}', to which it is tied, is {list(tables[tied])}"
        )
