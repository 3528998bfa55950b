"""Users' models: the parameters of their layers by role, and what their factories return."""

import numpy as np
import pytest

from dlb_worker import UnsupportedError
from dlb_worker.adapter import lazy_method
from dlb_worker.contract import UserModelRequest
from dlb_worker.parameters import location, summed
from dlb_worker.user_layers import LayeredUserModel, first_tensor, make_model, needed_inputs


class Dense:
    def __init__(self, **values):
        self.values = values


class Norm(Dense):
    pass


class Tree(LayeredUserModel):
    dtype = "float64"
    kinds = {
        Norm: ("batch_norm", {"scale": location("gamma")}),
        Dense: (
            "linear",
            {
                "weight": location("W", np.transpose, np.transpose),
                "bias": summed("b", "c", location("")),
            },
        ),
    }

    def __init__(self, names):
        self.names = names
        self.parameters = self.find_parameters()

    def native(self, array):
        return array

    def own_parameters(self, layer):
        return layer.values

    def is_trained(self, native):
        return native.ndim > 0

    def attributes(self, layer):
        return {"size": str(len(layer.values))}

    def momentum(self, layer):
        return 0.9 if isinstance(layer, Norm) else None

    def read(self, native):
        return native.copy()

    def write(self, native, array):
        native[...] = array

    def forward(self, inputs, *, training=False, layers=()):
        raise NotImplementedError

    def vjp(self, inputs, cotangents, *, training=False):
        raise NotImplementedError


def ones(*shape):
    return np.ones(shape)


def test_parameters_have_roles_where_the_kind_is_known():
    model = Tree({Dense(W=ones(2, 3), b=ones(3), c=ones(3), extra=ones(5)): "head"})
    found = {each.name: (each.layer, each.role, each.trained) for each in model.parameters}
    assert found == {
        "head.W": ("head", "weight", True),
        "head.b + head.c": ("head", "bias", True),
        "head.extra": ("head", "", True),
    }
    assert model.weights()["head.W"].shape == (3, 2)
    assert model.weights()["head.b + head.c"].tolist() == [2, 2, 2]


def test_a_role_without_all_of_its_attributes_is_left_out():
    model = Tree({Dense(W=ones(2, 3), b=ones(3)): ""})
    assert [(each.name, each.role) for each in model.parameters] == [("W", "weight"), ("b", "")]


def test_a_shared_parameter_belongs_to_the_first_layer():
    shared = ones(2, 3)
    model = Tree({Dense(W=shared): "first", Dense(W=shared, b=ones(3)): "second"})
    assert [each.name for each in model.parameters] == ["first.W", "second.b"]


def test_what_is_trained_is_listed_in_order():
    weight, count = ones(2, 3), np.zeros(())
    model = Tree({Dense(count=count, W=weight): "head"})
    assert [each is weight for each in model.trained_natives()] == [True]
    assert list(model.states()) == ["head.count"]


def test_layers_are_described_by_kind():
    model = Tree({Dense(): "", Norm(gamma=ones(2)): "norm"})
    described = [(each.name, each.type, each.kind, each.momentum) for each in model.layers()]
    assert described == [("", "Dense", "linear", None), ("norm", "Norm", "batch_norm", 0.9)]
    assert model.layers()[1].attributes == {"size": "1"}


def test_a_factory_returns_the_expected_type():
    def request(model):
        return UserModelRequest(lambda: model, None, "float64", "cpu")

    layer = Dense()
    assert make_model(request(layer), Dense, "a Dense") is layer
    with pytest.raises(UnsupportedError, match="returned a int; it must return a Dense"):
        make_model(request(3), Dense, "a Dense")


def test_shapes_need_an_input():
    batch = ones(2, 3)
    assert needed_inputs(batch, "'head' has no shape") is batch
    with pytest.raises(UnsupportedError, match="'head' has no shape before .* give --input"):
        needed_inputs(None, "'head' has no shape")


@pytest.mark.parametrize("value", [7, (7, 8), [(7, 8), 9], ([7],)])
def test_the_first_tensor_stands_for_all(value):
    assert first_tensor(value) == 7


def test_a_lazy_method_imports_when_it_is_called():
    class Loud:
        shout = lazy_method("string", "capwords")
        missing = lazy_method("no_such_module", "anything")

    assert Loud().shout("a b", sep=" ") == "A B"
    with pytest.raises(ImportError, match="no_such_module"):
        Loud().missing()
