"""Named networks are the same on every adapter, nearer than any gate asks."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from conftest import ADAPTERS, Prove
from dlb.catalogue import load_workload
from dlb_graph.workload import SGD, Adam, Step, Workload, type_name
from dlb_graph.workload.files import shipped_names
from networks import FLOAT64, NETWORKS, STEPS, worst

#: Followed over where there is no time for all of them.
FEW_STEPS = 20
#: A figure is the middle one of an adapter's distances to the three others; so every pair of
#: adapters is within twice this.
NEAR = {"forward": 1e-12, "gradient": 5e-13, f"{STEPS} steps": 5e-11}


def layers_of(workloads: Iterable[Workload]) -> set[str]:
    return {type_name(node.layer) for one in workloads for node in one.model.nodes}


def test_the_networks_have_every_shipped_layer_and_every_way_of_training() -> None:
    read = [load_workload(path) for path in NETWORKS.values()]
    assert layers_of(read) >= layers_of(map(load_workload, shipped_names()))
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


#: The default run has one; the random models have every kind of layer.
CASES = [
    ("transformer", FEW_STEPS),
    pytest.param("mobile network", FEW_STEPS, marks=pytest.mark.long),
    *(pytest.param(each, STEPS, marks=pytest.mark.long) for each in NETWORKS),
]


@pytest.mark.parametrize(("network", "steps"), CASES, ids=lambda each: str(each).replace(" ", "_"))
def test_a_network_is_the_same_on_every_adapter(prove: Prove, network: str, steps: int) -> None:
    certificate = prove(load_workload(NETWORKS[network]), trajectory_steps=steps)
    assert {certificate.status(adapter) for adapter in ADAPTERS} == {"proven"}
    document = {"certificate": msgspec.to_builtins(certificate)}
    for adapter in ADAPTERS:
        for what, checks in FLOAT64.items():
            assert worst(document, adapter, checks) <= NEAR[what], (adapter, what)
