"""A run as the core drives it, call by call, with the NumPy adapter."""

import time

import numpy as np
import pytest

import numpy_adapter
from dlb_worker import DlbError, UnsupportedError, hookimpl
from dlb_worker.arrays import read_arrays, write_arrays
from dlb_worker.calls import Calls
from dlb_worker.contract import Clock
from dlb_worker.errors import PluginError
from dlb_worker.plugins import plugins_of
from dlb_worker.updates import slots

RANDOM = np.random.RandomState(7)
INPUTS, LABELS = RANDOM.standard_normal((12, 4)), RANDOM.randint(0, 3, 12)
ORDER = RANDOM.randint(0, 12, (5, 3))
RATES = np.array([0.1, 0.1, 0.05, 0.05, 0.1])


@pytest.fixture()
def calls():
    reported = []
    made = Calls(0, lambda **event: reported.append(event))
    made.plugins, made.reported = plugins_of(numpy_adapter.adapter, "numpy"), reported
    made.answer(
        "start",
        {
            "framework": "numpy",
            "threads": 1,
            "device": "cpu",
            "seed": 0,
            "strategy": "",
            "workers": 1,
        },
    )
    return made


def build(calls, tmp_path, work, **given):
    write_arrays(tmp_path / "weights.npz", numpy_adapter.weights().items())
    arguments = {
        "workload": work.document(),
        "weights": str(tmp_path / "weights.npz"),
        "dtype": "float64",
        "batch_size": 3,
        "masks": "",
        "variant": {},
        "seed": 0,
    }
    arguments.update(given)
    return calls.answer("build", arguments)["model"]


def train(calls, tmp_path, model, mode="pipeline", observe=False):
    write_arrays(tmp_path / "data.npz", [("inputs", INPUTS), ("labels", LABELS)])
    write_arrays(tmp_path / "order.npz", [("order", ORDER), ("rates", RATES)])
    return calls.answer(
        "train",
        {
            "model": model,
            "data": str(tmp_path / "data.npz"),
            "order": str(tmp_path / "order.npz"),
            "input_mode": mode,
            "first_step": 10,
            "observe": observe,
            "to": str(tmp_path / "costs.npz"),
        },
    )


def weights(calls, tmp_path, model):
    calls.answer("weights", {"model": model, "to": str(tmp_path / "out.npz")})
    return read_arrays(str(tmp_path / "out.npz"))


@pytest.mark.parametrize("mode", ["pipeline", "memory"])
@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_training_takes_every_step_at_its_rate(calls, tmp_path, mode, kind):
    work = numpy_adapter.workload(kind, **({"momentum": 0.9} if kind == "sgd" else {}))
    model = build(calls, tmp_path, work)
    train(calls, tmp_path, model, mode)
    costs = read_arrays(str(tmp_path / "costs.npz"))
    twin = calls.models[build(calls, tmp_path, work)]
    for row, rate, loss in zip(ORDER, RATES, costs["losses"]):
        twin.set_learning_rate(rate)
        assert float(twin.train_step(INPUTS[row], LABELS[row])) == loss
    found = weights(calls, tmp_path, model)
    assert set(found) == {"scores.weight", "scores.bias"} | {
        f"optimizer/scores.{role}.{slot}"
        for role in ("weight", "bias")
        for slot in slots(work.optimizer)
    }
    assert np.array_equal(found["scores.weight"], twin.weights()["scores.weight"])
    assert found["scores.weight"].shape == (3, 4)
    assert calls.models[model].rates == [0.1, 0.05, 0.1], "told at a change only"
    assert calls.reported[-1] == {"step": 5, "loss": costs["losses"][-1]}


def test_a_step_is_timed_until_its_result_is_there(calls, tmp_path):
    result = train(calls, tmp_path, build(calls, tmp_path, numpy_adapter.workload()))
    costs = read_arrays(str(tmp_path / "costs.npz"))
    assert costs["step_seconds"].shape == (5,)
    assert (costs["step_seconds"] >= numpy_adapter.DEVICE_SECONDS * 0.99).all()
    assert (costs["data_seconds"] < numpy_adapter.DEVICE_SECONDS * 0.9).sum() >= 3
    assert result["seconds"] >= costs["step_seconds"].sum()
    assert result["cpu_seconds"] >= 0 and result["observed"] == {}


def test_a_clock_waits_before_it_starts_and_for_the_result():
    seen = []
    clock = Clock(seen.append)
    clock.start()
    time.sleep(0.01)
    assert 0.01 <= clock.stop("loss") < 5
    assert seen == [None, "loss"]


class Observer:
    def __init__(self):
        self.steps = []

    @hookimpl
    def dlb_observe_run(self, framework, context):
        seen = {"before": context["steps"]}
        yield seen
        seen["after"] = len(self.steps)

    @hookimpl
    def dlb_observe_step(self, step, loss):
        self.steps.append(step)


def test_observers_see_the_run_and_its_steps(calls, tmp_path):
    observer = Observer()
    calls.plugins.manager.register(observer, name="watch")
    model = build(calls, tmp_path, numpy_adapter.workload())
    assert train(calls, tmp_path, model)["observed"] == {}
    assert train(calls, tmp_path, model, observe=True)["observed"] == {
        "watch": {"before": 5, "after": 5}
    }
    assert observer.steps == [10, 11, 12, 13, 14]


class Failing:
    @hookimpl
    def dlb_observe_run(self, framework, context):
        raise OSError("no counters here")
        yield {}


def test_an_observer_that_fails_is_named(calls, tmp_path):
    calls.plugins.manager.register(Failing(), name="counters")
    model = build(calls, tmp_path, numpy_adapter.workload())
    with pytest.raises(DlbError, match="observer 'counters' failed: OSError: no counters here"):
        train(calls, tmp_path, model, observe=True)


def test_forward_gradients_and_predictions_are_written(calls, tmp_path):
    model = build(calls, tmp_path, numpy_adapter.workload())
    held = calls.models[model]
    write_arrays(tmp_path / "in.npz", [("inputs", INPUTS), ("labels", LABELS)])
    given = {"model": model, "inputs": str(tmp_path / "in.npz"), "to": str(tmp_path / "to.npz")}
    result = calls.answer("forward", dict(given, training=False, layers=["scores"]))
    assert result == {
        "outputs": [0],
        "calls": [{"layer": "scores", "inputs": None, "output": 0, "others": [], "dropout": None}],
        "names": [],
    }
    logits = held.forward(INPUTS)["scores"]
    assert np.array_equal(read_arrays(given["to"])["values/0"], logits)
    calls.answer("gradients", dict(given, training=True))
    found, truth = read_arrays(given["to"]), held.gradients(INPUTS, LABELS)
    assert np.array_equal(found["parameters/scores.weight"], truth.parameters["scores.weight"])
    assert found["parameters/scores.weight"].shape == (3, 4)
    assert np.array_equal(found["inputs"], truth.inputs) and found["loss"] == truth.loss
    calls.answer(
        "predict", {"model": model, "data": given["inputs"], "batch_size": 5, "to": given["to"]}
    )
    assert np.allclose(read_arrays(given["to"])["logits"], logits, rtol=1e-14)


def test_weights_are_set_by_name_and_kept_apart(calls, tmp_path):
    first, second = (build(calls, tmp_path, numpy_adapter.workload()) for _ in range(2))
    write_arrays(tmp_path / "new.npz", [("scores.bias", np.ones(3))])
    calls.answer("set_weights", {"model": first, "weights": str(tmp_path / "new.npz")})
    assert weights(calls, tmp_path, first)["scores.bias"].tolist() == [1, 1, 1]
    kept = numpy_adapter.weights()
    assert np.array_equal(weights(calls, tmp_path, second)["scores.bias"], kept["scores.bias"])
    assert np.array_equal(weights(calls, tmp_path, first)["scores.weight"], kept["scores.weight"])
    calls.answer("drop", {"model": first})
    with pytest.raises(KeyError):
        weights(calls, tmp_path, first)


@pytest.mark.parametrize(
    "given, words",
    [
        ({"dtype": "float16"}, r"has no dtype float16; it has float32, float64"),
        ({"variant": {"compile": "yes"}}, "no variant 'compile'; it offers layout"),
        ({"variant": {"layout": "tiles"}}, r"no variant 'layout=tiles'.*rows, columns"),
    ],
)
def test_what_is_not_described_is_refused(calls, tmp_path, given, words):
    with pytest.raises(UnsupportedError, match=words):
        build(calls, tmp_path, numpy_adapter.workload(), **given)


def test_layers_that_are_not_described_are_named(calls, tmp_path):
    document = numpy_adapter.workload().document()
    document["model"]["nodes"][0]["kind"] = "fold"
    with pytest.raises(UnsupportedError, match=r"cannot build layer 'scores'.*has no fold"):
        build(calls, tmp_path, numpy_adapter.workload(), workload=document)


def test_a_loss_that_is_not_described_is_refused(calls, tmp_path):
    document = numpy_adapter.workload().document()
    document["loss"] = {"kind": "huber", "attributes": {"delta": 1.0}}
    with pytest.raises(UnsupportedError, match="no loss huber; it has softmax_cross_entropy"):
        build(calls, tmp_path, numpy_adapter.workload(), workload=document)


def test_variants_reach_the_adapter_with_their_defaults(calls, tmp_path):
    build(calls, tmp_path, numpy_adapter.workload())
    assert numpy_adapter.adapter.layout == "rows"
    build(calls, tmp_path, numpy_adapter.workload(), variant={"layout": "columns"})
    assert numpy_adapter.adapter.layout == "columns"


def test_what_an_adapter_does_not_do_it_says(calls, tmp_path):
    model = build(calls, tmp_path, numpy_adapter.workload())
    with pytest.raises(UnsupportedError, match="adapter 'numpy' exports no ONNX"):
        calls.answer("export", {"model": model, "to": str(tmp_path / "model.onnx")})
    with pytest.raises(PluginError, match="does not know the call 'sing'"):
        calls.answer("sing", {})


def test_a_seed_and_facts_are_reported(calls):
    facts = calls.answer(
        "start",
        {
            "framework": "numpy",
            "threads": 2,
            "device": "cpu",
            "seed": 3,
            "strategy": "",
            "workers": 1,
        },
    )
    assert facts["framework"] == "NumPy" and facts["threads"] == 2
    assert facts["packages"]["numpy"] == np.__version__
    with pytest.raises(UnsupportedError, match="no device cuda"):
        calls.answer(
            "start",
            {
                "framework": "numpy",
                "threads": 2,
                "device": "cuda",
                "seed": 3,
                "strategy": "",
                "workers": 1,
            },
        )
