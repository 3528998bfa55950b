"""Models in ONNX Runtime: results, and one clear line for each way that a file can be bad."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from exported_models import MODELS

from dlb.errors import DataError, DlbError, RequestError, UnsupportedError
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.truth.evaluate import evaluate
from dlb_graph.truth.exported import with_opset
from dlb_graph.truth.runtime import run_model
from dlb_graph.workload import LRN, Input, Model, Node
from dlb_graph.workload.initial import initial_weights

LENET = canonical_graph(MODELS["lenet"], initial_weights(MODELS["lenet"], 0))
X = np.random.default_rng(0).normal(size=(2, 1, 12, 12)).astype(np.float32)


@pytest.mark.parametrize("name", ["lenet", "residual", "branches"])
def test_a_path_and_its_bytes_give_what_the_evaluator_does(name, tmp_path):
    model = MODELS[name]
    weights = initial_weights(model, 0)
    graph = canonical_graph(model, weights)
    x = np.random.default_rng(0).normal(size=(2, *model.input.shape)).astype(np.float32)
    onnx.save(graph, str(tmp_path / "model.onnx"))
    (by_path,) = run_model(tmp_path / "model.onnx", {"input": x}, threads=1)
    (by_bytes,) = run_model(graph.SerializeToString(), {"input": x}, threads=1)
    (truth,) = evaluate(canonical_graph(model, weights, dtype="float64"), {"input": x}).values()
    assert np.array_equal(by_path, by_bytes)
    np.testing.assert_allclose(by_path, truth, rtol=1e-4, atol=1e-5)


def test_a_batch_is_run_in_parts_where_the_model_fixes_fewer_samples():
    one = onnx.ModelProto()
    one.CopyFrom(LENET)
    one.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    x = np.concatenate([X, X[::-1]])
    (free,) = run_model(LENET.SerializeToString(), {"input": x}, threads=1)
    (parts,) = run_model(one.SerializeToString(), {"input": x}, threads=1)
    np.testing.assert_allclose(parts, free, rtol=1e-5, atol=1e-6)
    one.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
    refused(RequestError, "invalid dimensions", one.SerializeToString(), {"input": x})


@pytest.mark.parametrize("attributes", [{"alpha": 0.0}, {"beta": 0.0}, {"alpha": 0.0, "beta": 0.0}])
def test_what_it_alone_refuses_is_run_as_what_it_is(attributes):
    layer = LRN(**{"size": 3, "alpha": 0.5, "beta": 0.75, "bias": 3.0, **attributes})
    model = Model(input=Input(shape=(4, 2, 2)), nodes=(Node(name="n", layer=layer),))
    x = np.random.default_rng(0).normal(size=(2, 4, 2, 2)).astype(np.float32)
    graph = canonical_graph(model, {})
    (truth,) = evaluate(canonical_graph(model, {}, dtype="float64"), {"input": x}).values()
    (found,) = run_model(graph.SerializeToString(), {"input": x}, threads=1)
    np.testing.assert_allclose(found, truth, rtol=1e-6)


def refused(error: type[DlbError], message: str, *given) -> None:
    with pytest.raises(error, match=message) as caught:
        run_model(*given)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_models(tmp_path):
    refused(DataError, "give the path of a .onnx file", tmp_path / "none.onnx", {})
    refused(DataError, "give the path of a .onnx file", tmp_path, {})
    for content in (b"", b"\x80\x04garbage", b"PK\x03\x04" * 100):
        (tmp_path / "bad.onnx").write_bytes(content)
        refused(DataError, "not an ONNX model", tmp_path / "bad.onnx", {})
        refused(DataError, "not an ONNX model", content, {})


def test_models_that_onnx_runtime_cannot_run():
    strange = onnx.ModelProto()
    strange.CopyFrom(LENET)
    strange.graph.node[1].op_type = "Reluctant"
    refused(UnsupportedError, "Reluctant", strange.SerializeToString(), {"input": X})
    newest = with_opset(LENET, 999).SerializeToString()
    refused(UnsupportedError, "Opset 999", newest, {"input": X})


def test_sessions_in_threads_leave_standard_output_alone(capfd):
    """One that fails would be told by ONNX Runtime on it, and threads that turn it away at once
    may leave it turned away."""
    before, good = sys.stdout, LENET.SerializeToString()
    bad = onnx.ModelProto()
    bad.CopyFrom(LENET)
    bad.graph.node[1].op_type = "Reluctant"

    def opened(number: int) -> bool:
        try:
            run_model(bad.SerializeToString() if number % 2 else good, {"input": X}, threads=1)
        except UnsupportedError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(opened, range(64)))
    assert found == [True, False] * 32
    assert sys.stdout is before
    assert capfd.readouterr().out == ""


def test_inputs_that_do_not_fit():
    content = LENET.SerializeToString()
    refused(RequestError, "reads input, but the caller passed x", content, {"x": X})
    refused(RequestError, "float", content, {"input": X.astype(np.float64)})
    refused(RequestError, "12", content, {"input": X[:, :, :5]})


@pytest.mark.parametrize("place", ["../weights.bin", "/etc/hostname", "link.bin", "..\\w.bin", ""])
def test_weights_outside_the_models_folder_are_not_followed(place, tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "weights.bin").write_bytes(bytes(4096))
    (inside / "link.bin").symlink_to(tmp_path / "weights.bin")
    refused(DataError, "outside the model's folder", with_weights_at(place, inside), {"input": X})


def test_weights_inside_the_models_folder_are_followed(tmp_path):
    (tmp_path / "weights.bin").write_bytes(bytes(4096))
    path = with_weights_at("weights.bin", tmp_path)
    assert run_model(path, {"input": X})[0].shape == (2, 5)
    refused(DataError, "give the model's path", path.read_bytes(), {"input": X})
    refused(DataError, "put that file next to", with_weights_at("no.bin", tmp_path), {"input": X})


def with_weights_at(place, folder):
    model = onnx.ModelProto()
    model.CopyFrom(LENET)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", place), ("offset", "0"), ("length", "400")):
        tensor.external_data.add(key=key, value=value)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"
