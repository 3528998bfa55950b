"""No false alarms: random models that four frameworks were given alike are found alike by every check."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from conftest import ADAPTERS, Prove
from dlb.execution.workers import Workers
from dlb.proof.certificate import CHECK_GROUPS, Certificate, CheckGroup
from dlb.report.sentences import describe
from dlb_conformance.models import CLASSES, chain
from dlb_conformance.random_models import models
from dlb_graph import workload as W
from dlb_graph.workload.files import to_document
from dlb_graph.workload.model import SYNTHETIC

STEPS = 5
#: These take many seconds a model, and have fewer.
SLOW: frozenset[CheckGroup] = frozenset({"structure", "export"})
#: What is run, and on how many models in a long run and otherwise.
COMPUTED = frozenset(CHECK_GROUPS) - SLOW
#: Checks, and how many models; the few are the same in each run.
RUNS = [
    pytest.param(COMPUTED, 4, True, id="computed"),
    pytest.param(SLOW, 2, True, id="exported"),
    pytest.param(COMPUTED, 200, False, id="many computed", marks=pytest.mark.long),
    pytest.param(SLOW, 20, False, id="many exported", marks=pytest.mark.long),
]
RATES = st.sampled_from([0.1, 0.05, 0.01])
DECAYS = st.sampled_from([0.0, 0.0, 5e-4, 0.1])
OPTIMIZERS = st.one_of(
    st.builds(
        W.SGD,
        learning_rate=RATES,
        momentum=st.sampled_from([0.0, 0.5, 0.9]),
        nesterov=st.booleans(),
        weight_decay=DECAYS,
    ),
    st.builds(
        W.Adam,
        learning_rate=st.sampled_from([0.01, 0.001]),
        beta1=st.sampled_from([0.9, 0.5]),
        beta2=st.sampled_from([0.999, 0.9]),
        epsilon=st.sampled_from([1e-8, 1e-3]),
        weight_decay=DECAYS,
    ),
)
SCHEDULES = st.one_of(
    st.just(W.Constant()),
    st.builds(
        W.Step,
        milestones=st.lists(st.integers(1, STEPS), max_size=2, unique=True).map(
            lambda steps: tuple(sorted(steps))
        ),
        gamma=st.sampled_from([0.1, 0.5]),
    ),
)


def layer_types(workers: dict[str, Workers]) -> frozenset[str]:
    """Types of layers that every adapter has."""
    described = [
        one["layers"]
        for adapter, some in workers.items()
        for one in some.described["adapters"]
        if one["name"] == adapter
    ]
    return frozenset(described[0]).intersection(*described)


@pytest.mark.parametrize(("groups", "count", "derandomize"), RUNS)
def test_random_models_are_the_same(
    groups: frozenset[CheckGroup],
    count: int,
    derandomize: bool,
    prove: Prove,
    workers: dict[str, Workers],
    capsys: pytest.CaptureFixture[str],
) -> None:
    types = layer_types(workers)
    assert types == set(W.LAYERS)
    found: list[Certificate] = []
    began = time.monotonic()

    @settings(
        max_examples=count,
        derandomize=derandomize,
        deadline=None,
        database=None,
        # A model costs seconds: to shrink one would take many minutes.
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(
        model=models(types),
        optimizer=OPTIMIZERS,
        schedule=SCHEDULES,
        seed=st.integers(0, 2**16),
    )
    def prove_one(model: W.Model, optimizer: W.Optimizer, schedule: W.Schedule, seed: int) -> None:
        found.append(proven(model, optimizer, schedule, seed, groups, prove))

    prove_one()
    assert len(found) >= count
    with capsys.disabled():
        print(f"\n{len(found)} models in {time.monotonic() - began:.0f} s; worst")
        for name in dict.fromkeys(one.check for one in found[0].checks):
            print(f"  {name}: {worst(found, name):.1e}")


def pooled_up() -> W.Model:
    """Its last window would start in the padding, and ONNX Runtime refuses its graph."""
    pool = W.MaxPool(kernel=(2, 2), stride=(2, 1), pads=(1, 0, 1, 1), ceil_mode=True)
    return chain((2, 5, 8), pool, W.Flatten(), W.Linear(out_features=CLASSES))


def normalised() -> W.Model:
    """The gradient of the first bias is zero but for rounding."""
    conv = W.Conv(out_channels=8, kernel=(3, 3))
    layers = (conv, W.BatchNorm(), W.ReLU(), W.GlobalAveragePool(), W.Flatten())
    return chain((3, 8, 8), *layers, W.Linear(out_features=CLASSES))


def narrow() -> W.Model:
    """The loss hardly depends on the input: differences of it are mostly rounding."""
    number = W.Linear(out_features=1)
    layers = (number, W.Sigmoid(), number, W.Sigmoid(), number)
    return chain((4, 6), *layers, W.Linear(out_features=CLASSES))


def normalised_responses() -> W.Model:
    """Eight channels, which oneDNN keeps in a layout of its own."""
    conv = W.Conv(out_channels=8, kernel=(3, 3))
    layers = (conv, W.LRN(size=5, alpha=0.1, bias=2.0), conv, W.Flatten())
    return chain((3, 9, 9), *layers, W.Linear(out_features=CLASSES))


def added_to_itself() -> W.Model:
    """MXNet's hard sigmoid writes its gradient over that of the sum."""
    return W.Model(
        input=W.Input(shape=(4, 6)),
        nodes=(
            W.Node(name="bounded", layer=W.HardSigmoid(), inputs=("input",)),
            W.Node(name="sum", layer=W.Add(), inputs=("input", "bounded")),
            W.Node(name="part", layer=W.Gather(axis=1, indices=(1,)), inputs=("sum",)),
            W.Node(name="flat", layer=W.Flatten(), inputs=("part",)),
            W.Node(name="logits", layer=W.Linear(out_features=CLASSES), inputs=("flat",)),
        ),
    )


@pytest.mark.parametrize(
    "make", [pooled_up, normalised, narrow, normalised_responses, added_to_itself]
)
def test_models_that_once_looked_different_are_the_same(
    make: Callable[[], W.Model], prove: Prove
) -> None:
    proven(make(), W.Adam(), W.Constant(), 0, COMPUTED, prove)


def proven(
    model: W.Model,
    optimizer: W.Optimizer,
    schedule: W.Schedule,
    seed: int,
    groups: frozenset[CheckGroup],
    prove: Prove,
) -> Certificate:
    """What was compared on every adapter, all of which passed."""
    workload = W.Workload(
        name="random",
        batch_size=4,
        data=W.Data(name=SYNTHETIC),
        optimizer=optimizer,
        schedule=schedule,
        model=model,
    )
    certificate = prove(workload, groups=groups, steps=2, trajectory_steps=STEPS, seed=seed)
    what = f"seed {seed} of {json.dumps(to_document(workload))}"
    assert not certificate.failures, f"{certificate.failures}: {what}"
    wrong = [one for one in certificate.checks if one.verdict != "passed"]
    told = [(one.adapter, one.check, one.verdict, one.worst, describe(one)) for one in wrong]
    assert not wrong, f"{told}: {what}"
    assert certificate.judged_adapters == ADAPTERS
    return certificate


def worst(found: list[Certificate], name: str) -> float:
    """The largest distance of any tensor of a check."""
    figures = [
        one.worst.relative_l2
        for certificate in found
        for one in certificate.checks
        if one.check == name and one.worst is not None
    ]
    return max((size for size in figures if size is not None), default=0.0)
