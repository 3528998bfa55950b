"""Bringing the framework up, and its clock."""

from __future__ import annotations

import time
from typing import Any

import pytest

from dlb.errors import UnsupportedError
from dlb_graph import workload as W
from dlb_worker.native import BuiltModel

from .models import busy_model, chain, random_batch, random_weights
from .processes import run_python
from .subject import Adapter

_DEVICE_MISSING = """
import json, sys
from {package}.subject import find
from dlb_worker.native import BuiltModel
from dlb.errors import UnsupportedError
try:
    find({name!r}, {module!r}).start(1, device="cuda")
    print(json.dumps("started"))
except UnsupportedError as error:
    print(json.dumps(str(error)))
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_the_framework_uses_as_many_threads_as_it_is_asked_to(
    adapter: Adapter, adapter_names: tuple[str, str], threads: int
) -> None:
    """In processes of their own, since most frameworks take the number only once."""
    adapter.require(busy_model(adapter.described.layers))
    facts = run_python(["-m", f"{__package__}.start_alone", *adapter_names, str(threads)])
    assert facts["threads"] == threads
    assert facts["version"] and facts["device"]
    assert all(isinstance(value, str) for value in facts["build"].values())
    # A thread works for one second in each second; what feeds and watches it, for little more.
    assert facts["cores"] <= threads + 0.25, "more threads worked than were asked for"


def test_a_device_that_is_not_there_is_refused(
    adapter: Adapter, adapter_names: tuple[str, str]
) -> None:
    """Where there is one, an adapter that describes it starts on it."""
    said = _start_on_cuda(adapter_names)
    if said == "started":
        assert "cuda" in adapter.described.devices, "it started on a device it does not describe"
    else:
        assert "cuda" in said.lower() or "gpu" in said.lower(), said


def _start_on_cuda(adapter_names: tuple[str, str]) -> str:
    name, module = adapter_names
    script = _DEVICE_MISSING.format(package=__package__, name=name, module=module)
    return str(run_python(["-c", script]))


def test_a_variant_that_it_does_not_offer_is_refused_by_name(adapter: Adapter) -> None:
    model = chain((6,), W.Linear(out_features=3))
    adapter.require(model, "float64")
    with pytest.raises(UnsupportedError, match="no-such-variant"):
        adapter.build(model, random_weights(model), variant={"no-such-variant": "on"})


def test_a_value_that_a_variant_does_not_have_is_refused_by_name(adapter: Adapter) -> None:
    model = chain((6,), W.Linear(out_features=3))
    adapter.require(model, "float64")
    for name in adapter.described.variants:
        with pytest.raises(UnsupportedError, match="no-such-value"):
            adapter.build(model, random_weights(model), variant={name: "no-such-value"})


def _busy(adapter: Adapter) -> tuple[BuiltModel, tuple[Any, Any]]:
    model, dtype = busy_model(adapter.described.layers), adapter.described.dtypes[0]
    adapter.require(model)
    inputs, labels = random_batch(model, dtype, samples=64)
    built = adapter.build(model, random_weights(model), dtype, batch_size=64)
    batch = adapter.native(inputs, labels)
    for _ in range(3):
        float(built.train_step(*batch))
    return built, batch


def test_the_clock_gives_the_seconds_that_passed(adapter: Adapter) -> None:
    clock = adapter.clock()
    for asked in (0.0, 0.01, 0.05):
        began = time.perf_counter()
        clock.start()
        time.sleep(asked)
        found = clock.stop()
        passed = time.perf_counter() - began
        assert asked <= found <= passed


def test_steps_take_time_and_no_more_than_passed(adapter: Adapter) -> None:
    built, batch = _busy(adapter)
    clock, seconds = adapter.clock(), []
    began = time.perf_counter()
    for _ in range(10):
        clock.start()
        built.train_step(*batch)
        seconds.append(clock.stop())
    passed = time.perf_counter() - began
    assert min(seconds) > 0
    assert sum(seconds) <= passed


def test_the_clock_stops_only_when_the_step_is_done(adapter: Adapter) -> None:
    """What is left to wait for, reading the loss and the weights, is nothing beside the step."""
    built, batch = _busy(adapter)
    clock, steps, waits = adapter.clock(), [], []
    for _ in range(9):
        clock.start()
        loss = built.train_step(*batch)
        steps.append(clock.stop())
        began = time.perf_counter()
        float(loss)
        waits.append(time.perf_counter() - began)
    assert sorted(waits)[4] <= 0.1 * sorted(steps)[4]
