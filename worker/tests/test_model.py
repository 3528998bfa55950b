"""The resolved workload on the wire, and its attributes as fields."""

import copy
import dataclasses
import json
import pickle

import pytest

import numpy_adapter
from dlb_worker.model import Input, Model, Node, Parameter, read_workload


def test_a_workload_comes_back_through_json():
    sent = numpy_adapter.workload("adam", clip_norm=0.5)
    assert read_workload(json.loads(json.dumps(sent.document()))) == sent


def test_lists_of_json_become_tuples():
    sent = numpy_adapter.workload().document()
    sent["model"]["nodes"][0]["attributes"]["ranges"] = [[0, 1], [2, [3]]]
    node = read_workload(json.loads(json.dumps(sent))).model.nodes[0]
    assert node.ranges == ((0, 1), (2, (3,)))


def test_what_is_no_workload_is_refused():
    document = numpy_adapter.workload().document()
    with pytest.raises(TypeError):
        read_workload(dict(document, loss={"kind": "hinge", "other": 1}))
    with pytest.raises(KeyError):
        read_workload({"name": "nothing"})


def test_attributes_are_read_as_fields():
    node = numpy_adapter.workload().model.nodes[0]
    assert node.out_features == 3 and node.tied_to == "" and node.input_shape == (4,)
    with pytest.raises(AttributeError, match="'linear' has no attribute 'kernel'; it has bias"):
        node.kernel
    assert not hasattr(node, "kernel")


def pickled(node):
    return pickle.loads(pickle.dumps(node))


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickled])
def test_nodes_can_be_copied(again):
    node = numpy_adapter.workload().model.nodes[0]
    assert again(node) == node


def chosen(*nodes, last):
    """A model of (name, kind, inputs), each with a parameter, and what the last reads."""
    made = [
        Node(
            name,
            kind,
            {},
            inputs,
            ((4,),) * len(inputs),
            (4,),
            {"w": Parameter(name + ".w", (4,), True)},
        )
        for name, kind, inputs in (*nodes, ("last", "linear", last))
    ]
    return Model(Input("input", (4,), "real"), tuple(made))


def test_what_is_only_chosen_by_is_not_reached():
    scores, other = ("scores", "linear", ("input",)), ("other", "linear", ("input",))
    best = ("best", "top_k", ("scores",))
    found = ("found", "gather_elements", ("other", "best"))
    assert chosen(scores, other, best, found, last=("found",)).unreached == {"scores", "best"}
    both = chosen(scores, other, best, found, last=("found", "scores"))
    assert both.unreached == {"best"}
    where = ("where", "where", ("scores", "other", "other"))
    assert chosen(scores, other, where, last=("where",)).unreached == {"scores"}
    again = dataclasses.replace(
        chosen(scores, last=("scores",)).nodes[0], name="again", weights_of="last"
    )
    model = chosen(scores, last=("scores",))
    assert dataclasses.replace(model, nodes=(*model.nodes, again)).unreached == {"scores"}
    assert numpy_adapter.workload().model.unreached == frozenset()


def test_parameters_and_readers_by_name():
    model = numpy_adapter.workload().model
    assert list(model.parameters) == ["scores.weight", "scores.bias"]
    assert model.readers("input") == model.nodes and model.readers("scores") == ()
    assert isinstance(model.nodes[0], Node) and model.last == "scores"
