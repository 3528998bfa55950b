"""No false alarms: random models that four frameworks were given alike are found alike by every rung."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import ADAPTERS
from dlb import workload as W
from dlb.adapter_run import Workers, start_workers
from dlb.adapters import Home, find_adapters
from dlb.conformance.random_models import models
from dlb.progress import Silent
from dlb.proof.certificate import LEVELS, Certificate, Level
from dlb.request import Request
from dlb.run import run
from dlb.samples import SYNTHETIC
from dlb.supervision import Launch
from dlb.workload.files import to_document

#: Models that are climbed with, in a long run and otherwise.
MANY, FEW = 200, 8
STEPS = 5
#: These take seconds a model: one model in so many.
SLOW: frozenset[Level] = frozenset({"structure", "export"})
EXPORTED = 10
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


@pytest.fixture(scope="module")
def homes(home: Path) -> list[Home]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLB_HOME", str(home))
        return find_adapters(ADAPTERS)


@pytest.fixture(scope="module")
def workers(
    homes: list[Home], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Workers]]:
    """Workers of every adapter, for one model after the other."""
    with ExitStack() as stack:
        started = {}
        for one in homes:
            launch = Launch(one.adapter, one.python, tmp_path_factory.mktemp(one.adapter))
            started[one.adapter] = stack.enter_context(start_workers(launch, seed=0))
        yield started


def layer_types(workers: dict[str, Workers]) -> frozenset[str]:
    """Types of layers that every adapter has."""
    described = [
        one["layers"]
        for adapter, some in workers.items()
        for one in some.described["adapters"]
        if one["name"] == adapter
    ]
    return frozenset(described[0]).intersection(*described)


def test_random_models_are_proven_the_same(
    homes: list[Home],
    workers: dict[str, Workers],
    pytestconfig: pytest.Config,
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = pytestconfig.getoption("--long")
    types = layer_types(workers)
    assert types == set(W.layer_types())
    found: list[Certificate] = []
    began = time.monotonic()

    @settings(
        max_examples=MANY if long else FEW,
        derandomize=not long,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        model=models(types),
        optimizer=OPTIMIZERS,
        schedule=SCHEDULES,
        seed=st.integers(0, 2**16),
    )
    def climb(model: W.Model, optimizer: W.Optimizer, schedule: W.Schedule, seed: int) -> None:
        workload = W.Workload(
            name="random",
            batch_size=4,
            data=W.Data(name=SYNTHETIC),
            optimizer=optimizer,
            schedule=schedule,
            model=model,
        )
        levels = frozenset(LEVELS) - SLOW
        if long and len(found) % EXPORTED == 0:
            levels |= SLOW
        request = Request(
            workload=workload,
            homes=homes,
            out=None,
            batch_size=workload.batch_size,
            steps=2,
            warmup=0,
            threads=1,
            seed=seed,
            command="verify",
            levels=levels,
            trajectory_steps=STEPS,
        )
        certificate = run(request, Silent(), workers).certificate
        found.append(certificate)
        assert not certificate.failures, (certificate.failures, to_document(workload), seed)
        wrong = [one for one in certificate.rungs if one.verdict != "passed"]
        assert not wrong, (wrong, to_document(workload), seed)
        assert {one.adapter for one in certificate.rungs if one.name == "gradients"} == set(
            ADAPTERS
        )

    climb()
    assert len(found) >= (MANY if long else FEW)
    with capsys.disabled():
        print(f"\n{len(found)} models in {time.monotonic() - began:.0f} s; worst")
        for name in dict.fromkeys(one.name for one in found[0].rungs):
            print(f"  {name}: {worst(found, name):.1e}")


def worst(found: list[Certificate], name: str) -> float:
    """The largest distance of any tensor on a rung."""
    return max(
        one.worst.relative_l2 or 0.0
        for certificate in found
        for one in certificate.rungs
        if one.name == name and one.worst is not None
    )
