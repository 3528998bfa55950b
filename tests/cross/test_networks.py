"""Named networks are the same on every adapter, nearer than any gate asks."""

from __future__ import annotations

import json

import pytest

from conftest import ADAPTERS, Dlb
from dlb.catalogue import load_workload
from dlb.workload import SGD, Adam, Step, layer_types, type_name
from networks import FLOAT64, NETWORKS, STEPS, words, worst

#: Followed over where there is no time for all of them.
FEW_STEPS = 20
#: A figure is the middle one of an adapter's distances to the three others; so every pair of
#: adapters is within twice this.
NEAR = {"forward": 1e-12, "gradient": 5e-13, f"{STEPS} steps": 5e-11}


def test_the_networks_have_every_layer_and_every_way_of_training() -> None:
    read = [load_workload(path) for path in NETWORKS.values()]
    used = {type_name(node.layer) for one in read for node in one.model.nodes}
    assert used == set(layer_types()) - ELSEWHERE
    trained = [one.optimizer for one in read]
    sgd = [one for one in trained if isinstance(one, SGD)]
    adam = [one for one in trained if isinstance(one, Adam)]
    assert any(one.momentum and not one.nesterov for one in sgd)
    assert any(one.momentum and one.nesterov for one in sgd)
    assert any(one.weight_decay for one in sgd) and any(one.weight_decay for one in adam)
    assert any(not one.weight_decay for one in adam)
    for kind in (SGD, Adam):
        assert any(
            isinstance(one.optimizer, kind) and isinstance(one.schedule, Step) for one in read
        )


#: Layers that no network here has; the conformance suite has them.
ELSEWHERE = {
    "binary",
    "conv_transpose",
    "elementwise",
    "gather_elements",
    "group_norm",
    "gru",
    "mask",
    "matmul",
    "prelu",
    "reduce",
    "resize",
    "rms_norm",
    "rnn",
    "scale",
    "shift",
    "softmax",
    "top_k",
    "where",
}
#: The default run has one; the random models have every kind of layer.
CASES = [
    ("transformer", FEW_STEPS),
    pytest.param("mobile network", FEW_STEPS, marks=pytest.mark.long),
    *(pytest.param(each, STEPS, marks=pytest.mark.long) for each in NETWORKS),
]


@pytest.mark.parametrize(("network", "steps"), CASES, ids=lambda each: str(each).replace(" ", "_"))
def test_a_network_is_the_same_on_every_adapter(dlb: Dlb, network: str, steps: int) -> None:
    done = dlb(*words(network, steps))
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    document = json.loads(done.stdout)
    assert document["proven"] is True
    for adapter in ADAPTERS:
        for what, checks in FLOAT64.items():
            assert worst(document, adapter, checks) <= NEAR[what], (adapter, what)
