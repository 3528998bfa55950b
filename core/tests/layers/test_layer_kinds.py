"""What is said of a kind of layer agrees with what it computes."""

from __future__ import annotations

import pytest

from dlb_conformance.layer_cases import BY_LAYER
from dlb_graph import workload as W
from dlb_graph.layers import LAYERS, Layer


def test_every_class_with_a_tag_is_registered() -> None:
    def below(kind: type[Layer]) -> set[type[Layer]]:
        return {kind}.union(*map(below, kind.__subclasses__()))

    tagged = {kind for kind in below(Layer) if W.type_name(kind) != kind.__name__}
    assert tagged == set(LAYERS.values())


@pytest.mark.parametrize("name", LAYERS)
def test_a_kind_has_its_parts(name: str) -> None:
    kind = LAYERS[name]
    assert kind.__doc__ and kind.__doc__ != Layer.__doc__
    assert kind.operator or kind.nodes is not Layer.nodes
    assert kind.gradients is not Layer.gradients


@pytest.mark.parametrize("name", LAYERS)
def test_roles_are_those_of_parameters(name: str) -> None:
    kind, roles = LAYERS[name], set[str]()
    for model in BY_LAYER[name].values():
        shapes = W.infer_shapes(model)
        for node in model.wired():
            if type(node.layer) is kind:
                roles |= set(node.layer.parameters(shapes[node.inputs[0]]))
    named = {*kind.states, *kind.linear_roles, *kind.input_roles, *kind.growing_roles}
    assert named <= roles
