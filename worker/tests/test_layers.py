"""The registry: where a built model holds its parameters."""

from types import SimpleNamespace

import pytest

from dlb_worker.layers import Layer, native_parameters
from dlb_worker.model import Input, Model, Node, Parameter
from dlb_worker.parameters import gru_mappings, location

TWO = gru_mappings(("w", "r"), ("b", "c"), (1, 0, 2))
REGISTRY = {
    "linear": Layer("native", SimpleNamespace, {"weight": location("parts.kernel")}),
    "gru": Layer(
        "native",
        SimpleNamespace,
        mappings=lambda node: TWO if node.linear_before_reset else {"bias": location("bias")},
    ),
}


@pytest.mark.parametrize(
    "kind, role, attributes, natives",
    [
        ("linear", "weight", {}, (1,)),
        ("gru", "bias", {"linear_before_reset": True}, (2, 3)),
        ("gru", "bias", {"linear_before_reset": False}, (4,)),
    ],
)
def test_a_parameter_is_found_by_the_attributes_that_hold_it(kind, role, attributes, natives):
    native = SimpleNamespace(parts=SimpleNamespace(kernel=1), b=2, c=3, bias=4)
    node = Node(
        name="one",
        kind=kind,
        attributes=attributes,
        inputs=("input",),
        input_shapes=((3,),),
        shape=(3,),
        parameters={role: Parameter(name="one." + role, shape=(3,), trained=True)},
    )
    model = Model(input=Input(name="input", shape=(3,), kind="real"), nodes=(node,))
    (found,) = native_parameters(model, REGISTRY, lambda node: native)
    assert (found.name, found.role, found.natives) == ("one." + role, role, natives)
