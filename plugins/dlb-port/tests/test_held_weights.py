"""Weights that lie beside their graph: in memory, and in files beside the ONNX file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

from dlb.errors import RequestError
from dlb_graph.files.model_file import read_model_file
from dlb_graph.files.read import import_file
from dlb_graph.truth.evaluate import Evaluator
from dlb_graph.truth.held import HELD_BYTES, array_of, hold, is_held, weights_as_inputs
from dlb_graph.truth.runtime import run_model
from dlb_graph.truth.trace import trace
from dlb_port import compare_files

RANDOM = np.random.default_rng(0)
WIDTH = 200
WEIGHTS = {
    f"w{layer}": RANDOM.standard_normal((WIDTH, WIDTH)).astype(np.float32) for layer in range(3)
}
assert WEIGHTS["w0"].nbytes >= HELD_BYTES


def network(tensors: list[TensorProto]) -> onnx.ModelProto:
    """Three matrices, one after the other."""
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"]),
        helper.make_node("Gemm", ["a", "w1"], ["b"], transB=1),
        helper.make_node("MatMul", ["b", "w2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def inside(path: Path) -> Path:
    """A file that holds its weights itself."""
    tensors = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    path.write_bytes(network(tensors).SerializeToString())
    return path


def external(shard: Path, name: str) -> TensorProto:
    content = shard.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    entry = json.loads(content[8:start])[name]
    tensor = TensorProto(
        name=name,
        dims=entry["shape"],
        data_type=TensorProto.FLOAT,
        data_location=TensorProto.EXTERNAL,
    )
    first, last = entry["data_offsets"]
    for key, value in (
        ("location", shard.name),
        ("offset", start + first),
        ("length", last - first),
    ):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def in_shards(folder: Path) -> Path:
    """A file whose weights lie in two safetensors files beside it."""
    folder.mkdir()
    shards = {folder / "1-of-2.safetensors": ["w0", "w2"], folder / "2-of-2.safetensors": ["w1"]}
    tensors = []
    for shard, names in shards.items():
        save_file({name: WEIGHTS[name] for name in names}, shard)
        tensors += [external(shard, name) for name in names]
    path = folder / "model.onnx"
    path.write_bytes(network(tensors).SerializeToString())
    return path


def test_weights_in_shards_of_safetensors_are_those_of_the_file(tmp_path: Path) -> None:
    whole, sharded = inside(tmp_path / "model.onnx"), in_shards(tmp_path / "sharded")
    one, other = import_file(whole), import_file(sharded)
    assert other.workload.model == one.workload.model
    for name, array in one.weights.items():
        assert np.array_equal(other.weights[name], array), name
    certificate = compare_files(whole, sharded)
    assert [certificate.status(name) for name in certificate.judged_adapters] == ["proven"]


def test_the_digest_is_of_the_weights_beside_the_file_too(tmp_path: Path) -> None:
    path = in_shards(tmp_path / "sharded")
    before = read_model_file(path, "a").sha256
    assert read_model_file(path, "b").sha256 == before
    shard = path.parent / "2-of-2.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    assert read_model_file(path, "c").sha256 != before


def test_copies_of_a_graph_have_no_weights(tmp_path: Path) -> None:
    file = read_model_file(inside(tmp_path / "model.onnx"), "it")
    assert file.model.ByteSize() < HELD_BYTES and file.float64.ByteSize() < HELD_BYTES
    for tensor in file.float64.graph.initializer:
        assert is_held(tensor) and array_of(tensor).dtype == np.float64
        assert np.array_equal(array_of(tensor), WEIGHTS[tensor.name])
    sizes = [len(array.tobytes()) for array in file.held]
    assert sum(sizes) == sum(array.nbytes for array in WEIGHTS.values())


def test_held_weights_are_what_is_computed_with(tmp_path: Path) -> None:
    file = read_model_file(inside(tmp_path / "model.onnx"), "it")
    x = RANDOM.standard_normal((2, WIDTH))
    expected = x @ WEIGHTS["w0"] @ WEIGHTS["w1"].astype(float).T @ WEIGHTS["w2"]
    exact = Evaluator(file.float64).run({"x": x})["y"]
    assert np.allclose(exact, expected, rtol=1e-12)
    narrow = Evaluator(file.model).run({"x": x.astype(np.float32)})["y"]
    assert narrow.dtype == np.float32 and np.allclose(narrow, expected, rtol=1e-3)
    content = weights_as_inputs(file.model).SerializeToString()
    (run,) = run_model(content, {"x": x.astype(np.float32)}, weights=WEIGHTS)
    assert np.allclose(run, expected, rtol=1e-3)
    with pytest.raises(RequestError, match="the model reads x, but the caller passed nothing"):
        run_model(content, {}, weights=WEIGHTS)


def test_a_weight_that_is_given_is_not_the_held_one(tmp_path: Path) -> None:
    file = read_model_file(inside(tmp_path / "model.onnx"), "it")
    feeds = {"x": np.ones((1, WIDTH)), "w2": np.zeros((WIDTH, WIDTH))}
    assert not Evaluator(file.float64).run(feeds)["y"].any()
    assert not trace(file.float64, feeds).values["w2"].any()


def test_values_of_a_trace_are_a_mapping(tmp_path: Path) -> None:
    file = read_model_file(inside(tmp_path / "model.onnx"), "it")
    values = trace(file.float64, {"x": np.ones((2, WIDTH))}).values
    assert set(values) == {"x", "a", "b", "y", *WEIGHTS} and len(values) == 7
    assert values.shape("w0") == (WIDTH, WIDTH) and "w0" in values and "v" not in values
    assert dict(values)["w1"].dtype == np.float64
    changed = values.copy()
    changed["w0"] = np.zeros(1)
    del changed["w1"]
    assert changed["w0"].shape == (1,) and "w1" not in changed
    assert values["w0"].shape == (WIDTH, WIDTH) and "w1" in values


def test_a_file_names_no_array_of_another() -> None:
    """What stands for a path is drawn anew each time."""
    array = np.zeros(4)
    first, second = hold("a", array), hold("a", array)
    assert first.external_data[0].value != second.external_data[0].value
    del array
    with pytest.raises(RuntimeError, match="nothing kept it alive"):
        array_of(first)
