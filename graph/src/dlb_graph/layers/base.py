"""What a layer is to dlb: the class that every kind derives from.

A kind is one class in the file of its family. To add one:

- Give it a tag, which names it in workload files, and fields: every attribute explicit, none from a
  framework's default. The docstring has the formula, the ONNX operator, the shapes and the parameters.
- Write :meth:`Layer.output_shape`, :meth:`Layer.parameters`, :meth:`Layer.nodes` and
  :meth:`Layer.gradients`, where what they do here is not what the kind does.
- Go through the facts of :class:`Layer`, and set those whose default is wrong for it.
- Name it in ``__all__`` of its file. :data:`dlb_graph.layers.LAYERS` then has it, and all else reads from it.

Shapes are those of one sample, without the batch axis. Arrays have it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from dlb_graph.layers.initializers import Distribution, Initializer
from dlb_graph.layers.numbers import Array
from dlb_worker import model as resolved

if TYPE_CHECKING:
    from dlb_graph.truth.layer_nodes import Graph
else:  # which imports onnx
    Graph = Any

__all__ = [
    "Gradients",
    "Graph",
    "Layer",
    "Pass",
    "Shape",
    "ShapeMismatch",
    "attributes_fault",
    "check_rank",
    "fields_of",
    "kinds_of",
    "type_name",
]

Kind = TypeVar("Kind", bound=msgspec.Struct)
Shape = tuple[int, ...]
#: The gradients of the inputs, in order (None for integers), and those of the parameters by role.
Gradients = tuple[tuple["Array | None", ...], dict[str, "Array"]]
#: Fields that a worker does not need, since it receives the initial weights.
_INITIALISERS = ("init", "bias_init")
#: Fields whose numbers are at least 1, whatever the kind.
_AT_LEAST_ONE = frozenset(
    ("out_channels", "out_features", "kernel", "stride", "dilation", "groups", "size")
    + ("entries", "features", "hidden", "shape", "heads")
)
#: Fields that are never empty.
_NEVER_EMPTY = frozenset(("shape", "axes", "pads", "starts", "indices"))


# Facts have no annotations, which msgspec would evaluate for each kind.
_NO_NUMBERS: tuple[int, ...] = ()
_NO_NAMES: tuple[str, ...] = ()
_NOTHING: Mapping[str, Any] = {}


class ShapeMismatch(Exception):
    """Why a layer cannot take a shape; the text names the attribute, not the layer."""


@dataclass(frozen=True)
class Pass:
    """What a layer read.

    Attributes:
        inputs: values of its inputs, [batch, ...].
        parameters: by role, in canonical layout.
        mask: zeros and ones [rows, ...] of a dropout; None if it is the identity.
    """

    inputs: tuple[Array, ...]
    parameters: dict[str, Array]
    mask: Array | None = None

    @property
    def input(self) -> Array:
        """The value of the only input."""
        return self.inputs[0]


class Layer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """A layer: immutable, compared by value, unknown fields are rejected.

    Class attributes are facts of a kind, and no fields. Those of one line:

    Inputs:
        ranks: how many axes a sample of its input may have; any number if empty.
        joins: it reads two inputs or more.
        looks_up: it reads integers, and its value is rows of a table.
        window_axes: how many axes its windows may have; none if it has no windows.
        of_channels: it knows channels, or the places after them, from each other.

    ONNX:
        operator: the operator that alone is the layer; "" if :meth:`nodes` writes another graph.
        operator_fields: its fields that are attributes of that operator, of the same names.
        operator_attributes: the operator's other attributes.
        constant_numbers: its real fields are constants of a graph, and no attributes of an operator, which
            are float32.

    Parameters, by role:
        states: those that training moves by a rule of their own, not by gradients.
        linear_roles: those that its output is linear in.
        input_roles: the weights through which alone it reads its input.
        growing_roles: those that make its values larger.
        summand: the one that is added to its values, if it has it.

    Values:
        homogeneous: a multiple of its input makes the same multiple of its output.
        keeps_means: its output has a large mean if its input has one, where no zeros are around it.
        bounded: its values are bounded, or nearly so, whatever it reads.
        normalises: it divides by what it measures of its input.
        subtracts_mean: it also subtracts a mean.
        rows_of_channels: a row of ``weight`` and a number of ``bias`` make a channel.

    Work:
        rearranges: its value is its input's numbers, elsewhere; who reads it reads those.
        elementwise: it computes each number by itself, and may do so in place.
        reads_input_again, reads_output_again: for the backward pass.
        keeps_input_apart: in place, it must keep a copy of its input for the backward pass.
        numbers_within: numbers that it keeps between its parts, for each of its output.

    Text:
        mistakes: what ports usually do wrong.
        training_mistakes: what they do wrong in training only.
        empty_reason: why an axis of its output would have no size.
    """

    ranks = _NO_NUMBERS
    joins = False
    looks_up = False
    window_axes = _NO_NUMBERS
    of_channels = False

    operator = ""
    operator_fields = _NO_NAMES
    operator_attributes = _NOTHING
    constant_numbers = False

    states = _NO_NAMES
    linear_roles = _NO_NAMES
    input_roles = _NO_NAMES
    growing_roles = _NO_NAMES
    summand = "bias"

    homogeneous = False
    keeps_means = False
    bounded = False
    normalises = False
    subtracts_mean = False
    rows_of_channels = False

    rearranges = False
    elementwise = False
    reads_input_again = False
    reads_output_again = False
    keeps_input_apart = False
    numbers_within = 0

    mistakes = ""
    training_mistakes = ""
    empty_reason = "the kernel is larger than the padded input"

    def fault(self) -> str:
        """What is wrong with its attributes together, whatever it reads; "" if nothing is."""
        return ""

    def field_fault(self, name: str, value: Any) -> str:
        """What is wrong with one attribute, beyond what :func:`attributes_fault` checks of all kinds."""
        return ""

    def output_shape(self, inputs: list[Shape]) -> Shape:
        """The shape of its value; that of its input, with as many axes as :attr:`ranks` says.

        Raises:
            ShapeMismatch: it cannot take these inputs.
        """
        if self.ranks:
            check_rank(inputs[0], *self.ranks)
        return inputs[0]

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        """The shapes of its parameters and states by role, in canonical layout and order.

        Args:
            shape: of its first input, which it accepts.
        """
        return {}

    def initializer(self, role: str) -> Initializer:
        """How a parameter starts."""
        if role in ("scale", "variance"):
            return "ones"
        if role.endswith("_bias") or role == "mean":
            return "zeros"
        if role == "bias":
            scheme: Initializer = getattr(self, "bias_init", "zeros")
        else:
            scheme = getattr(self, "init", "glorot_uniform")
        return scheme

    def attributes(self, shape: Shape) -> dict[str, Any]:
        """What a worker is given: its attributes, with indices from the start alone.

        Args:
            shape: of its first input.
        """
        fields = msgspec.structs.asdict(self)
        return {name: value for name, value in fields.items() if name not in _INITIALISERS}

    def resolved(self, shape: Shape) -> resolved.Node:
        """The layer for an input of ``shape``, without its parameters."""
        return resolved.Node(
            name="layer",
            kind=type_name(self),
            attributes=self.attributes(shape),
            inputs=("input",),
            input_shapes=(shape,),
            shape=self.output_shape([shape]),
        )

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        """Add its ONNX nodes of opset 17: one :attr:`operator`, which also reads its parameters in order.

        Args:
            name: of its value and of the node that computes it. Names of what lies between start with
                ``name/``; its parameters are ``name.role``.
            inputs: the names of its inputs.
            shapes: of its inputs.
        """
        read = [*inputs, *(f"{name}.{role}" for role in self.parameters(shapes[0]))]
        graph.node(self.operator, read, name, **self.onnx_attributes())

    def onnx_attributes(self) -> dict[str, Any]:
        """The attributes of its :attr:`operator`."""
        fields = {field: getattr(self, field) for field in self.operator_fields}
        return {**fields, **self.operator_attributes}

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        """The gradients of its inputs (None for integers), and of its parameters by role.

        Where it has no derivative, :doc:`/reference/workloads` says which number counts. A batch
        normalisation is in training mode.

        Args:
            cotangent: the gradient of its output, [batch, ...], in whose type all is computed.
        """
        raise NotImplementedError

    def multiply_adds(self, inputs: list[Shape], output: Shape) -> int:
        """Multiply-adds of its matrix products for one sample; 0 if it has none."""
        return 0

    def input_products(self, inputs: list[Shape], output: Shape) -> int:
        """Multiply-adds of those products that have its input itself as a factor."""
        return self.multiply_adds(inputs, output)

    def first_products(self) -> int:
        """Multiply-adds with the state before the first step, which needs no gradient."""
        return 0

    def is_bounded(self) -> bool:
        """Whether its values are bounded; :attr:`bounded`, unless that depends on attributes."""
        return self.bounded

    def has_limited_domain(self) -> bool:
        """Whether it is not finite, or has no finite derivative, for some finite inputs."""
        return False

    def has_finite_gradient(self, x: Array) -> bool:
        """Whether the derivative at every number of ``x`` is finite."""
        return True


@functools.cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a class; msgspec reads its annotations anew each time."""
    return msgspec.structs.fields(kind)


def kinds_of(base: type[Kind], names: Mapping[str, object]) -> dict[str, type[Kind]]:
    """The kinds among names of a module, by type name. Base classes have no tag of their own."""
    classes = (kind for kind in names.values() if isinstance(kind, type) and issubclass(kind, base))
    return {type_name(kind): kind for kind in classes if type_name(kind) != kind.__name__}


def type_name(part: Any) -> str:
    """The type name of a layer, a loss or an optimizer in workload files, such as ``max_pool``."""
    return str(part.__struct_config__.tag)


def check_rank(shape: Shape, *ranks: int) -> None:
    """Check the number of axes of a sample.

    Raises:
        ShapeMismatch: it is none of ``ranks``.
    """
    if len(shape) not in ranks:
        accepted = " or ".join(str(rank) for rank in ranks)
        raise ShapeMismatch(f"it needs {accepted} axes besides the batch, not {len(shape)}")


def attributes_fault(layer: Layer) -> str:
    """What is wrong with a layer's attributes, whatever it reads; "" if nothing is."""
    for name in layer.__struct_fields__:
        value = getattr(layer, name)
        if isinstance(value, Distribution):
            if fault := value.fault():
                return f"{name} = {value} {fault}"
            continue
        numbers = value if isinstance(value, tuple) else (value,)
        if name in _NEVER_EMPTY and not value:
            return f"{name} is empty; give it numbers"
        if name in _AT_LEAST_ONE and min(numbers) < 1:
            return f"{name} = {value} must be at least 1"
        if name == "pads" and min(numbers) < 0:
            return f"pads = {value} must not be negative"
        if fault := layer.field_fault(name, value):
            return fault
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name} = {value} must be finite"
    return layer.fault()
