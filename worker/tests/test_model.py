"""The resolved workload on the wire, and its attributes as fields."""

import copy
import json
import pickle

import pytest

import numpy_adapter
from dlb_worker.model import Node, read_workload


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


def test_parameters_and_readers_by_name():
    model = numpy_adapter.workload().model
    assert list(model.parameters) == ["scores.weight", "scores.bias"]
    assert model.readers("input") == model.nodes and model.readers("scores") == ()
    assert isinstance(model.nodes[0], Node) and model.last == "scores"
