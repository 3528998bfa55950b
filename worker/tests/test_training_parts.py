"""A training in parts takes the same steps; an audited step writes what it got and what it changed."""

import numpy as np
import pytest

import numpy_adapter
from dlb_worker.arrays import read_arrays, write_arrays
from dlb_worker.errors import PluginError
from dlb_worker.native import StrategySession
from dlb_worker.placement import of_replica
from dlb_worker.sampling import drawn
from test_calls import INPUTS, LABELS, ORDER, RATES, build, calls, train, weights

__all__ = ["calls"]


def begin(calls, tmp_path, model):
    write_arrays(tmp_path / "data.npz", [("inputs", INPUTS), ("labels", LABELS)])
    write_arrays(tmp_path / "order.npz", [("order", ORDER), ("rates", RATES)])
    run = {
        "model": model,
        "data": str(tmp_path / "data.npz"),
        "order": str(tmp_path / "order.npz"),
        "input_mode": "pipeline",
        "first_step": 0,
        "observe": False,
    }
    return calls.answer("begin_training", run)["clock"]


def audit(calls, tmp_path, elements=None, seed=3):
    path = tmp_path / "audited.npz"
    asked = {"to": str(path), "dropout_seed": None, "elements": elements, "seed": seed}
    result = calls.answer("audit_step", dict(asked, whole=True))
    return result, read_arrays(str(path))


@pytest.fixture()
def work():
    return numpy_adapter.workload("sgd", momentum=0.9)


def test_parts_end_as_the_whole_does(calls, tmp_path, work):
    whole, parts = build(calls, tmp_path, work), build(calls, tmp_path, work)
    train(calls, tmp_path, whole)
    losses = read_arrays(str(tmp_path / "costs.npz"))["losses"]
    began = begin(calls, tmp_path, parts)
    calls.answer("train_steps", {"steps": 2})
    audit(calls, tmp_path)
    calls.answer("train_steps", {"steps": 2})
    facts = calls.answer("end_training", {"to": str(tmp_path / "parts.npz")})
    costs = read_arrays(str(tmp_path / "parts.npz"))
    assert np.array_equal(costs["losses"], losses)
    assert (costs["step_seconds"] >= numpy_adapter.DEVICE_SECONDS * 0.99).all()
    assert (np.abs(costs["untold_seconds"]) < numpy_adapter.DEVICE_SECONDS).all()
    assert facts["clock"] - began >= facts["seconds"] >= costs["step_seconds"].sum()
    first, second = (weights(calls, tmp_path, model) for model in (whole, parts))
    assert all(np.array_equal(array, second[name]) for name, array in first.items())


def test_a_step_in_its_parts_moves_weights_in_the_last_one(calls, tmp_path, work):
    whole, parts = build(calls, tmp_path, work), build(calls, tmp_path, work)
    train(calls, tmp_path, whole)
    model, started = calls.models[parts], weights(calls, tmp_path, parts)

    def phases(inputs, labels):
        yield "forward", None
        yield "backward", None
        yield "update", model.train_step(inputs, labels)

    model.step_phases = phases
    begin(calls, tmp_path, parts)
    assert [calls.answer("advance", {})["phase"] for _ in range(2)] == ["forward", "backward"]
    now = weights(calls, tmp_path, parts)
    assert all(np.array_equal(array, now[name]) for name, array in started.items())
    taken = [calls.answer("advance", {})["phase"] for _ in range(3 * len(ORDER) - 2)]
    assert taken[::3] == ["update"] * len(ORDER)
    facts = calls.answer("end_training", {"to": str(tmp_path / "parts.npz")})
    costs = read_arrays(str(tmp_path / "parts.npz"))
    assert facts["staleness"] == []
    assert np.array_equal(costs["losses"], read_arrays(str(tmp_path / "costs.npz"))["losses"])
    assert (costs["step_seconds"] > 0).all()
    first, second = (weights(calls, tmp_path, model) for model in (whole, parts))
    assert all(np.array_equal(array, second[name]) for name, array in first.items())


def test_replicas_take_parts_of_their_own_steps(calls, tmp_path, work):
    number = build(calls, tmp_path, work)
    model, seen = calls.models[number], []

    class Session(StrategySession):
        rank, workers, replicas = 0, 2, 2

        def distribute(self, native):
            return native

        def staleness(self):
            return [self.replica] * len(ORDER)

        def leave(self):
            pass

    def phases(inputs, labels):
        replica = model.replica
        yield "forward", None
        yield "backward", None
        loss = model.train_step(inputs, labels)
        seen.append((replica, inputs.tolist(), float(loss)))
        yield "update", loss

    calls.session = model.session = Session()
    model.step_phases = phases
    begin(calls, tmp_path, number)

    def advance(replica, steps):
        return [calls.answer("advance", {"replica": replica})["phase"] for _ in range(3 * steps)]

    # One replica may be steps ahead, and both get every batch.
    assert advance(1, 2)[2::3] == ["update"] * 2
    assert advance(0, len(ORDER))[2::3] == ["update"] * len(ORDER)
    assert advance(1, len(ORDER) - 2)[2::3] == ["update"] * (len(ORDER) - 2)
    batches = [[each[1] for each in seen if each[0] == replica] for replica in (0, 1)]
    assert batches[0] == batches[1] == [INPUTS[row].tolist() for row in ORDER]
    facts = calls.answer("end_training", {"to": str(tmp_path / "parts.npz")})
    assert facts["staleness"] == [0] * len(ORDER) + [1] * len(ORDER)
    told = read_arrays(str(tmp_path / "parts.npz"))["losses"]
    by_replica = [[each[2] for each in seen if each[0] == replica] for replica in (0, 1)]
    assert np.allclose(told, np.mean(by_replica, axis=0), rtol=1e-14)
    assert model.replica == 0


def test_an_audited_step_writes_what_it_got_and_changed(calls, tmp_path, work):
    model = build(calls, tmp_path, work)
    twin = calls.models[build(calls, tmp_path, work)]
    begin(calls, tmp_path, model)
    calls.answer("train_steps", {"steps": 1})
    result, found = audit(calls, tmp_path)
    assert result["masks_unknown"] == "" and result["read_before"] >= 0 <= result["read_after"]
    assert result["waited_before"] >= 0 <= result["waited_after"]
    assert result["read_again"] > 0 <= result["waited_again"]
    for row, rate in zip(ORDER[:1], RATES):
        twin.set_learning_rate(rate)
        twin.train_step(INPUTS[row], LABELS[row])
    before = dict(
        twin.weights(), **{"optimizer/" + k: v for k, v in twin.optimizer_state().items()}
    )
    loss = float(twin.train_step(INPUTS[ORDER[1]], LABELS[ORDER[1]]))
    after = dict(twin.weights(), **{"optimizer/" + k: v for k, v in twin.optimizer_state().items()})
    assert np.array_equal(found["inputs"], INPUTS[ORDER[1]])
    assert np.array_equal(found["labels"], LABELS[ORDER[1]])
    assert found["loss"] == loss
    for when, state in (("before", before), ("after", after)):
        kept = {name for name in found if name.startswith(when)}
        assert kept == {when + "/" + name for name in state}
        for name, array in state.items():
            assert np.array_equal(found[when + "/" + name], array.ravel())
    assert np.array_equal(found["weights/scores.weight"], before["scores.weight"])


class TwoReplicas(StrategySession):
    """One process that holds the replicas of two workers."""

    rank, workers, replicas = 0, 2, 2

    def distribute(self, native):
        return native

    def gradient_after_reduction(self, native):
        return native.array + self.replica

    def leave(self):
        pass


def test_each_replica_of_a_process_is_written(calls, tmp_path, work):
    number = build(calls, tmp_path, work)
    model = calls.models[number]
    model.session = calls.session = TwoReplicas()
    plain = weights(calls, tmp_path, number)
    read = model.read
    model.read = lambda native: read(native) + model.replica
    model.read_batch = lambda *batch: [each[model.replica :: 2] for each in batch]
    asked = {"model": number, "to": str(tmp_path / "weights.npz")}
    assert calls.answer("weights", asked) == {"replicas": 2}
    begin(calls, tmp_path, number)
    result, _ = audit(calls, tmp_path)
    assert result["replicas"] == 2
    for replica in range(2):
        held = read_arrays(str(of_replica(tmp_path / "weights.npz", replica)))
        audited = read_arrays(str(of_replica(tmp_path / "audited.npz", replica)))
        assert np.array_equal(audited["inputs"], INPUTS[ORDER[0]][replica::2])
        assert audited["loss"] == calls.training.losses[0]
        for name in model.weights():
            assert np.array_equal(held[name], plain[name] + replica)
            assert np.array_equal(audited["before/" + name], held[name].ravel())
            assert np.array_equal(audited["reduced/" + name], audited["after/" + name])
    assert model.replica == 0


def move(model, name):
    """Move one number of a weight by the least there is, after which no sum changes."""
    held = dict(model.weights())
    held[name] = held[name].copy()
    held[name].flat[-1] = np.nextafter(held[name].flat[-1], 9)
    model.load_weights(held)


def test_what_changes_between_two_steps_is_told(calls, tmp_path, work):
    number = build(calls, tmp_path, work)
    model = calls.models[number]
    begin(calls, tmp_path, number)
    assert audit(calls, tmp_path)[0]["changed"] == []
    move(model, "scores.bias")  # after an audited step, before the next one
    assert audit(calls, tmp_path)[0]["changed"] == ["scores.bias"]
    move(model, "scores.bias")  # before steps that nobody looks at
    calls.answer("train_steps", {"steps": 1})
    right = model.set_learning_rate
    model.set_learning_rate = lambda rate: [right(rate), move(model, "scores.weight")]
    calls.training._rate = None
    assert audit(calls, tmp_path)[0]["changed"] == ["scores.weight"]


def test_a_test_that_changes_a_model_in_training_is_told(calls, tmp_path, work):
    number = build(calls, tmp_path, work)
    model = calls.models[number]
    begin(calls, tmp_path, number)
    asked = {"model": number, "data": str(tmp_path / "data.npz"), "batch_size": 3}
    asked["to"] = str(tmp_path / "logits.npz")
    assert calls.answer("predict", asked)["changed"] == []
    right = model.forward
    model.forward = lambda *given, **how: [move(model, "scores.bias"), right(*given, **how)][1]
    assert calls.answer("predict", asked)["changed"] == ["scores.bias"]


def test_elements_of_a_weight_and_its_state_are_the_same_ones(calls, tmp_path, work):
    begin(calls, tmp_path, build(calls, tmp_path, work))
    calls.answer("train_steps", {"steps": 1})
    _, found = audit(calls, tmp_path, elements=5)
    weight = found["weights/scores.weight"]
    assert np.array_equal(found["before/scores.weight"], drawn("scores.weight", weight, 5, 3))
    places = drawn("scores.weight", np.arange(weight.size), 5, 3)
    state = drawn("optimizer/scores.weight.velocity", np.arange(weight.size), 5, 3)
    assert np.array_equal(places, state)
    assert found["before/optimizer/scores.weight.velocity"].shape == (5,)
    assert found["before/scores.bias"].shape == (3,), "it has no more"


def test_gradients_of_an_audited_step(calls, tmp_path, work):
    model, referee = build(calls, tmp_path, work), build(calls, tmp_path, work)
    begin(calls, tmp_path, model)
    calls.answer("train_steps", {"steps": 3})
    _, step = audit(calls, tmp_path)
    asked = {"model": referee, "steps": [str(tmp_path / "audited.npz")], "weights": ""}
    asked.update(elements=4, seed=9, to=str(tmp_path / "gradients.npz"))
    calls.answer("audit_gradients", asked)
    found = read_arrays(str(tmp_path / "gradients.npz"))
    twin = calls.models[build(calls, tmp_path, work)]
    twin.load_weights({name: step["weights/" + name] for name in ("scores.weight", "scores.bias")})
    true = twin.gradients(step["inputs"], step["labels"])
    assert found["loss"] == true.loss == step["loss"]
    gradient = true.parameters["scores.weight"]
    assert np.array_equal(found["gradients/scores.weight"], drawn("scores.weight", gradient, 4, 9))
    assert found["norms/scores.weight"] == pytest.approx(np.linalg.norm(gradient))


def test_steps_without_a_training_are_refused(calls):
    with pytest.raises(PluginError, match="call begin_training first"):
        calls.answer("train_steps", {"steps": 1})
