"""Steps, optimizer state, running statistics, data, start and export."""

import numpy as np
import pytest

import models as M
from dlb_cntk import libraries
from dlb_cntk.plugin import adapter
from dlb_worker.contract import ADDED, DataRequest, StartRequest
from dlb_worker.errors import UnsupportedError
from dlb_worker.model import Optimizer
from dlb_worker.updates import slots, updated, with_decay
from numpy_truth import values

MODEL = M.classifier(
    M.conv("conv", "input", (2, 6, 6), 3, (3, 3)),
    M.node("tanh", "tanh", ["conv"], [(3, 4, 4)], (3, 4, 4)),
)
OPTIMIZERS = {
    "sgd": {},
    "weight decay": {"weight_decay": 0.01},
    "weight decay, not of biases": {"weight_decay": 0.01, "weight_decay_on": "weights"},
    "momentum": {"momentum": 0.9},
    "momentum, weight decay": {"momentum": 0.9, "weight_decay": 0.01},
    "nesterov": {"momentum": 0.8, "nesterov": True},
    "nesterov, weight decay": {"momentum": 0.8, "nesterov": True, "weight_decay": 0.01},
    "nesterov without momentum": {"nesterov": True},
    "clipped": {"clip_norm": 0.05},
    "clipped, momentum": {"clip_norm": 0.05, "momentum": 0.9, "weight_decay": 0.01},
    "not clipped": {"clip_norm": 1e3, "momentum": 0.9, "nesterov": True},
    "adam": {"kind": "adam"},
    "adam, weight decay, clipped": {"kind": "adam", "weight_decay": 0.1, "clip_norm": 0.05},
    "adam, weight decay, not of biases": {
        "kind": "adam",
        "weight_decay": 0.1,
        "weight_decay_on": "weights",
    },
    "adam, large epsilon": {"kind": "adam", "epsilon": 0.01, "beta2": 0.9},
}
RATES = [0.1, 0.1, 0.03, 0.03, 0.06, 0.0, 0.05]


def clipped(optimizer, gradients):
    if not optimizer.clip_norm:
        return gradients
    norm = np.sqrt(sum(np.sum(each**2) for each in gradients.values()))
    return {
        name: g * optimizer.clip_norm / max(norm, optimizer.clip_norm)
        for name, g in gradients.items()
    }


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@pytest.mark.parametrize("dtype, near", [("float64", 1e-12), ("float32", 2e-4)])
def test_steps_are_those_of_the_definition(name, dtype, near):
    """Also when the rate changes, is 0, and when a batch has another size."""
    work = M.workload(MODEL, **OPTIMIZERS[name])
    optimizer = work.optimizer
    weights = M.random_weights(MODEL)
    built = M.build(work, weights, dtype)
    state = {
        each: {slot: np.zeros(w.shape) for slot in slots(optimizer)} for each, w in weights.items()
    }
    assert built.optimizer_state() == {}
    for step, rate in enumerate(RATES, 1):
        inputs, labels = M.random_batch(MODEL, samples=3 if step == 4 else 4, seed=step)
        before = built.weights()
        found = built.gradients(inputs, labels)
        built.set_learning_rate(rate)
        (batch,) = load(inputs.astype(dtype), labels)
        loss = float(built.train_step(*batch))
        assert abs(loss - found.loss) < 1e-6
        after, kept = built.weights(), built.optimizer_state()
        gradients = clipped(optimizer, {k: np.float64(v) for k, v in found.parameters.items()})
        for each, gradient in gradients.items():
            own = optimizer
            if optimizer.weight_decay_on == "weights" and each.endswith("bias"):
                own = with_decay(optimizer, 0.0)
            weight, state[each] = updated(
                own, np.float64(before[each]), gradient, state[each], rate, step, np.sqrt
            )
            moved = np.float64(after[each]) - np.float64(before[each])
            if rate:
                assert M.distance(moved, weight - before[each]) < near, (step, each)
            else:
                assert np.array_equal(after[each], before[each])
            for slot, truth in state[each].items():
                assert M.distance(kept[f"{each}.{slot}"], truth) < near, (step, each, slot)
    assert len(kept) == len(slots(optimizer)) * len(MODEL.parameters)


def load(inputs, labels, mode="memory", rows=1, **given):
    order = np.tile(np.arange(len(inputs)), (rows, 1))
    return list(
        adapter.load_data(
            DataRequest(inputs, labels, order, mode, "cpu", str(inputs.dtype), **given)
        )
    )


@pytest.mark.parametrize("dtype, near", [("float64", 1e-13), ("float32", 1e-6)])
@pytest.mark.parametrize("shape", [(3, 4, 4), (6,)])
def test_running_statistics_keep_onnx_share_of_a_biased_variance(dtype, near, shape):
    own = {"scale": shape[:1], "bias": shape[:1]}
    states = {"mean": shape[:1], "variance": shape[:1]}
    norm = M.node(
        "norm", "batch_norm", ["input"], [shape], shape, own, states, epsilon=1e-3, momentum=0.8
    )
    model = M.classifier(norm)
    built = M.build(M.workload(model, momentum=0.9), M.random_weights(model), dtype)
    for samples in (4, 4, 7):
        before = built.states()
        inputs, labels = M.random_batch(model, samples, seed=samples)
        built.forward(inputs, training=True)
        built.gradients(inputs, labels)
        assert all(np.array_equal(built.states()[name], before[name]) for name in before)
        ((x, y),) = load(inputs.astype(dtype), labels)
        built.train_step(x, y)
        axes = (0,) + tuple(range(2, inputs.ndim))
        for name, batch in (("mean", inputs.mean(axes)), ("variance", inputs.var(axes))):
            truth = 0.8 * before["norm." + name] + 0.2 * batch
            assert M.distance(built.states()["norm." + name], truth) < near
        found = built.forward(inputs, layers=["norm"])["norm"]
        weights = {name: np.float64(each) for name, each in built.weights().items()}
        assert M.distance(found, values(model, weights, inputs)["norm"]) < max(
            near, 1e-6 * (dtype == "float32")
        )


def test_weights_come_back_as_they_went_and_models_share_nothing():
    work, weights = M.workload(MODEL), M.random_weights(MODEL)
    built, other = M.build(work, weights), M.build(work, weights, "float32")
    copies = built.weights()
    for name, each in weights.items():
        assert np.array_equal(copies[name], each) and copies[name].dtype == np.float64
        assert other.weights()[name].dtype == np.float32
    built.load_weights({"conv.bias": np.ones(3)})
    assert np.array_equal(built.weights()["conv.bias"], np.ones(3))
    assert np.array_equal(copies["conv.bias"], weights["conv.bias"])
    assert np.array_equal(other.weights()["conv.bias"], weights["conv.bias"])


@pytest.mark.parametrize("mode", ["memory", "pipeline"])
def test_batches_come_in_the_order_that_was_asked_for(mode):
    inputs = np.arange(6 * 4, dtype=np.float32).reshape(6, 1, 2, 2)
    labels = np.arange(6)
    order = np.array([[5, 0, 0], [1, 2, 3]])
    request = DataRequest(inputs, labels, order, mode, "cpu", "float32")
    for row, (x, y) in zip(order, adapter.load_data(request)):
        assert np.array_equal(x.asarray(), inputs[row])
        assert np.array_equal(y.asarray(), labels[row])


def test_crops_are_cut():
    inputs = np.random.RandomState(0).random_sample((3, 2, 4, 4)).astype(np.float32)
    crops = np.array([[[0, 0, 1], [1, 0, 0], [0, -1, 0]]], np.int32)
    ((x, _),) = load(inputs, np.zeros(3, int), "pipeline", crops=crops)
    assert np.array_equal(x.asarray()[0], inputs[0, :, :, ::-1])
    assert np.array_equal(x.asarray()[1][:, :3], inputs[1, :, 1:])


def test_threads_are_set_and_read_back():
    for threads in (1, 2):
        assert adapter.start(StartRequest(threads=threads)).threads == threads
    facts = adapter.start(StartRequest(threads=2))
    assert facts.version.startswith("2.7")
    assert facts.build["mpi"].startswith("libmpi.so")


def test_a_gpu_is_refused():
    with pytest.raises(UnsupportedError, match="--device cpu"):
        adapter.start(StartRequest(threads=2, device="cuda"))


def test_a_machine_without_open_mpi_says_what_to_install(monkeypatch):
    monkeypatch.setattr(libraries, "NAMES", {"libmpi.so.none": ()})
    with pytest.raises(UnsupportedError, match="apt-get install libopenmpi3") as caught:
        libraries.load_mpi()
    assert "\n" not in str(caught.value)


def test_layers_describe_themselves_by_what_cntk_made():
    found = M.build(M.workload(MODEL), M.random_weights(MODEL)).describe_layers()
    assert list(found) == [node.name for node in MODEL.nodes]
    assert "Convolution(" in found["conv"] and "strides" in found["conv"]
    assert found["tanh"].startswith("Tanh")


def test_the_export_is_a_file_of_cntk(tmp_path):
    built = M.build(M.workload(MODEL), M.random_weights(MODEL), "float32")
    path = tmp_path / "model.onnx"
    assert "ModelFormat.ONNX" in adapter.export_onnx(built, path)
    assert b"CNTK" in path.read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]


def test_what_the_exporter_leaves_out_is_refused_by_name(tmp_path):
    ranges = ((0, 2, 1), (0, 6, 2), (0, 6, 1))
    strided = M.node("rows", "slice", ["input"], [(2, 6, 6)], (2, 3, 6), ranges=ranges)
    model = M.classifier(strided)
    built = M.build(M.workload(model), M.random_weights(model), "float32")
    with pytest.raises(UnsupportedError, match="steps of slice 'rows'"):
        adapter.export_onnx(built, tmp_path / "model.onnx")


def test_what_is_not_described_is_refused():
    work = M.workload(MODEL)
    other = Optimizer("lamb", {})
    with pytest.raises(UnsupportedError, match="no optimizer lamb"):
        M.build(type(work)(work.name, work.model, work.loss, other), {})


def test_it_declares_the_contract_that_it_uses():
    from dlb_cntk.model import CntkModel

    used = set(adapter.features) | set(vars(CntkModel)) | set(vars(type(adapter)))
    for version, names in ADDED.items():
        assert adapter.contract >= version or not used & names
