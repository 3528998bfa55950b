"""Initial weights, bit for bit and as a distribution; learning rates over time."""

from __future__ import annotations

import hashlib
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from workload_strategies import models

from dlb.errors import WorkloadError
from dlb_graph import workload as W
from dlb_graph.workload import files, learning_rate
from dlb_graph.workload.initial import initial_weights
from dlb_graph.workload.training import with_epoch

LENET = files.load("lenet5").model

#: Of seed 0, each tensor's first two values and the start of the SHA-256 of its bytes.
GOLDEN = {
    "conv1.weight": (["0x1.7e86ca0000000p-5", "-0x1.4103fa0000000p-5"], "b068660dc0456920"),
    "conv2.weight": (["-0x1.65d9a00000000p-8", "-0x1.5ee5a60000000p-5"], "3e1df9cd1b6ebd1c"),
    "fc1.weight": (["-0x1.7c85b00000000p-6", "0x1.2eb0480000000p-10"], "0ff8af833ee7eff1"),
    "fc2.weight": (["-0x1.e440080000000p-5", "0x1.8aff1e0000000p-6"], "0a967b509e405417"),
}


@pytest.mark.parametrize(("name", "golden"), GOLDEN.items())
def test_initial_weights_never_change(name: str, golden: tuple[list[str], str]) -> None:
    found = initial_weights(LENET, 0)[name]
    assert [float(value).hex() for value in found.ravel()[:2]] == golden[0]
    assert hashlib.sha256(found.astype("<f4").tobytes()).hexdigest()[:16] == golden[1]


def test_seeds_and_names_have_streams_of_their_own() -> None:
    one, other = initial_weights(LENET, 0), initial_weights(LENET, 1)
    assert all((one[name] != other[name]).any() for name in GOLDEN)
    shorter = W.Model(input=LENET.input, nodes=LENET.nodes[:4])
    np.testing.assert_array_equal(initial_weights(shorter, 0)["conv2.weight"], one["conv2.weight"])


@given(models())
@settings(max_examples=30)
def test_every_parameter_is_there(model: W.Model) -> None:
    found = initial_weights(model, 3)
    assert {name: array.shape for name, array in found.items()} == W.parameter_shapes(model)
    assert all(array.dtype == np.float32 and np.isfinite(array).all() for array in found.values())


#: Scheme, and the variance it should have with 400 inputs and 300 outputs.
SCHEMES = {
    "glorot_uniform": 2 / 700,
    "glorot_normal": 2 / 700,
    "he_uniform": 2 / 400,
    "he_normal": 2 / 400,
    "lecun_uniform": 1 / 400,
    "lecun_normal": 1 / 400,
}


@pytest.mark.parametrize(("scheme", "variance"), SCHEMES.items())
def test_distribution(scheme: str, variance: float) -> None:
    layer = W.Linear(out_features=300, init=scheme)  # type: ignore[arg-type]
    model = W.Model(input=W.Input(shape=(400,)), nodes=(W.Node(name="fc", layer=layer),))
    weights = initial_weights(model, 0)
    drawn = weights["fc.weight"].astype(np.float64).ravel()
    # 120 000 values: four standard errors of the mean and of the variance.
    assert abs(drawn.mean()) < 4 * math.sqrt(variance / drawn.size)
    assert drawn.var() == pytest.approx(variance, rel=4 * math.sqrt(2 / drawn.size))
    limit = math.sqrt(3 * variance)
    if scheme.endswith("uniform"):
        assert 0.999 * limit < np.abs(drawn).max() <= limit * (1 + 1e-7)
    else:
        assert np.mean(np.abs(drawn) > limit) == pytest.approx(math.erfc(math.sqrt(1.5)), rel=0.05)
    assert not weights["fc.bias"].any()


#: Initialiser with a number, and the mean, variance and largest size it should have.
NUMBERED = [
    (W.Normal(std=0.01), 0.0, 1e-4, math.inf),
    # Of what is kept of a Gaussian cut at two standard deviations.
    (W.TruncatedNormal(std=0.1), 0.0, 0.01 * 0.7737413, 0.2),
    (W.Uniform(limit=0.1), 0.0, 0.01 / 3, 0.1),
    (W.Fill(value=0.2), 0.2, 0.0, 0.2),
    ("fan_in", 0.0, 1 / 400 / 3, 0.05),
]


@pytest.mark.parametrize(("init", "mean", "variance", "largest"), NUMBERED)
def test_initialisers_with_a_number(
    init: W.layers.Initializer, mean: float, variance: float, largest: float
) -> None:
    layer = W.Linear(out_features=300, init=init, bias_init=init)
    model = W.Model(input=W.Input(shape=(400,)), nodes=(W.Node(name="fc", layer=layer),))
    found = initial_weights(model, 0)
    for name, slack in (("fc.weight", 1), ("fc.bias", 20)):
        drawn = found[name].astype(np.float64).ravel()
        assert drawn.mean() == pytest.approx(mean, abs=4 * math.sqrt(variance / drawn.size) + 1e-7)
        assert drawn.var() == pytest.approx(variance, rel=0.02 * slack, abs=1e-12)
        assert np.abs(drawn).max() <= largest * (1 + 1e-6)
    if variance:
        assert len(np.unique(found["fc.weight"])) > 100_000


def test_zeros_ones_and_batch_norm() -> None:
    nodes = (
        W.Node(name="norm", layer=W.BatchNorm()),
        W.Node(name="zero", layer=W.Linear(out_features=2, init="zeros")),
        W.Node(name="one", layer=W.Linear(out_features=2, init="ones")),
    )
    found = initial_weights(W.Model(input=W.Input(shape=(3,)), nodes=nodes), 0)
    ones = {name for name, array in found.items() if (array == 1).all()}
    zeros = {name for name, array in found.items() if (array == 0).all()}
    assert ones == {"norm.scale", "norm.variance", "one.weight"}
    assert zeros == {"norm.bias", "norm.mean", "zero.weight", "zero.bias", "one.bias"}


#: Schedule, step, and the rate where the optimizer's is 0.5.
RATES = [
    (W.Constant(), 0, 0.5),
    (W.Constant(), 10**9, 0.5),
    (W.Step(milestones=()), 7, 0.5),
    (W.Step(milestones=(0,)), 0, 0.05),
    (W.Step(milestones=(10, 20)), 9, 0.5),
    (W.Step(milestones=(10, 20)), 10, 0.05),
    (W.Step(milestones=(10, 20)), 19, 0.05),
    (W.Step(milestones=(10, 20)), 20, 0.005),
    (W.Step(milestones=(10, 20), gamma=0.5), 10**6, 0.125),
    (W.Step(milestones=(10, 10)), 10, 0.005),
    (W.Decay(start=4, every=2), 3, 0.5),
    (W.Decay(start=4, every=2), 4, 0.25),
    (W.Decay(start=4, every=2), 5, 0.25),
    (W.Decay(start=4, every=2), 6, 0.125),
    (W.Decay(start=0, every=1, gamma=0.1), 2, 0.0005),
    (W.Inverse(gamma=1e-4, power=0.75), 0, 0.5),
    # Caffe's LeNet, after its 10,000 steps: 0.01 has become 0.00594604.
    (W.Inverse(gamma=1e-4, power=0.75), 10_000, 0.5 * 0.594603557501361),
    (W.WarmupCosine(warmup=4, steps=14), 0, 0.125),
    (W.WarmupCosine(warmup=4, steps=14), 3, 0.5),
    (W.WarmupCosine(warmup=4, steps=14), 4, 0.5),
    (W.WarmupCosine(warmup=4, steps=14), 9, 0.25),
    (W.WarmupCosine(warmup=4, steps=14, end=0.1), 14, 0.05),
    (W.WarmupCosine(warmup=0, steps=10, end=0.1), 10**6, 0.05),
    (W.WarmupLinear(warmup=4, steps=14), 0, 0.125),
    (W.WarmupLinear(warmup=4, steps=14), 4, 0.5),
    (W.WarmupLinear(warmup=4, steps=14, end=0.2), 9, 0.3),
    (W.WarmupLinear(warmup=4, steps=14), 13, 0.05),
    (W.WarmupLinear(warmup=0, steps=10, end=0.1), 10**6, 0.05),
    (W.Polynomial(steps=10), 5, 0.25),
    (W.Polynomial(steps=10, power=2.0), 4, 0.18),
    (W.Polynomial(warmup=4, steps=14, power=2.0), 0, 0.125),
    (W.Polynomial(warmup=4, steps=14, power=2.0, end=0.2), 9, 0.2),
    (W.Polynomial(steps=10, power=0.9, end=0.1), 10**6, 0.05),
    (W.CosineRestarts(period=10), 0, 0.5),
    (W.CosineRestarts(period=10), 5, 0.25),
    (W.CosineRestarts(period=10), 10**6, 0.5),
    (W.CosineRestarts(period=10), 10**6 + 5, 0.25),
    # Half cosines of 10, 20 and 40 steps.
    (W.CosineRestarts(period=10, growth=2, end=0.2), 20, 0.3),
    (W.CosineRestarts(period=10, growth=2), 30, 0.5),
    (W.CosineRestarts(period=10, growth=2, end=0.2), 50, 0.3),
]

#: Schedules that make no sense, and the field that is named.
FAULTS = [
    (W.Decay(start=-1, every=1), "start"),
    (W.Decay(start=0, every=0), "every"),
    (W.Step(milestones=(1,), gamma=-1.0), "gamma"),
    (W.Inverse(gamma=math.inf, power=1.0), "gamma"),
    (W.Inverse(gamma=1.0, power=math.nan), "power"),
    (W.WarmupCosine(warmup=5, steps=5), "steps"),
    (W.WarmupCosine(warmup=-1, steps=5), "warmup"),
    (W.WarmupCosine(warmup=1, steps=5, end=-0.1), "end"),
    (W.WarmupLinear(warmup=5, steps=5), "steps"),
    (W.Polynomial(warmup=5, steps=5), "steps"),
    (W.Polynomial(steps=5, power=0.0), "power"),
    (W.CosineRestarts(period=1), "period"),
    (W.CosineRestarts(period=0, unit="epoch"), "period"),
    (W.Step(milestones=(1,), unit="epoch", epoch_steps=3), "epoch_steps"),
    (W.CosineRestarts(period=2, growth=0), "growth"),
]


@pytest.mark.parametrize(("schedule", "field"), FAULTS)
def test_schedules_out_of_range(schedule: W.Schedule, field: str) -> None:
    changed = msgspec.structs.replace(files.load("lenet5"), schedule=schedule)
    with pytest.raises(WorkloadError, match=rf"here: schedule\.{field} "):
        files.check(changed, "here")


@pytest.mark.parametrize(("schedule", "step", "rate"), RATES)
@pytest.mark.parametrize("optimizer", [W.SGD(learning_rate=0.5), W.Adam(learning_rate=0.5)])
def test_learning_rate(
    optimizer: W.Optimizer, schedule: W.Schedule, step: int, rate: float
) -> None:
    assert learning_rate(optimizer, schedule, step) == pytest.approx(rate, rel=1e-12)


BY_EPOCHS = [
    (W.Step(milestones=(2, 3), unit="epoch"), W.Step(milestones=(20, 30))),
    (W.Decay(start=4, every=1, unit="epoch"), W.Decay(start=40, every=10)),
    (W.WarmupCosine(warmup=1, steps=5, unit="epoch"), W.WarmupCosine(warmup=10, steps=50)),
    (W.Polynomial(steps=3, unit="epoch"), W.Polynomial(steps=30)),
    (W.CosineRestarts(period=1, unit="epoch"), W.CosineRestarts(period=10)),
]


@pytest.mark.parametrize(("by_epochs", "by_steps"), BY_EPOCHS)
def test_epochs_of_ten_steps(by_epochs: W.Schedule, by_steps: W.Schedule) -> None:
    optimizer, known = W.SGD(learning_rate=0.5), with_epoch(by_epochs, 10)
    for step in range(60):
        assert learning_rate(optimizer, known, step) == learning_rate(optimizer, by_steps, step)


def test_the_steps_of_an_epoch_are_no_part_of_the_hash() -> None:
    described = msgspec.structs.replace(files.load("lenet5"), schedule=BY_EPOCHS[0][0])
    known = msgspec.structs.replace(described, schedule=with_epoch(described.schedule, 10))
    assert W.workload_hash(known) == W.workload_hash(described)


def test_an_epoch_of_unknown_length_has_no_rates() -> None:
    with pytest.raises(ValueError, match="epoch"):
        learning_rate(W.SGD(learning_rate=0.5), BY_EPOCHS[0][0], 0)
