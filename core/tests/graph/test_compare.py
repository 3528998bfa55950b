"""``dlb_graph.compare``: two files of exporters, without a core."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import dlb_graph
from dlb_graph.errors import DataError, RequestError

EXPORTED = Path(__file__).parents[1] / "exported"


def test_two_exporters_of_one_network_wrote_the_same() -> None:
    found = dlb_graph.compare(EXPORTED / "torch-lenet.onnx", EXPORTED / "torch-script-lenet.onnx")
    assert found.equal and not found.differences and not found.numbers
    assert max(found.distances.values()) < 1e-12


def test_another_weight_moves_the_outputs_alone(tmp_path: Path) -> None:
    model = onnx.load(str(EXPORTED / "torch-residual.onnx"))
    conv = next(node for node in model.graph.node if node.op_type == "Conv")
    weight = next(one for one in model.graph.initializer if one.name == conv.input[1])
    values = onnx.numpy_helper.to_array(weight).copy()
    values.flat[0] += 0.5
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    onnx.save(model, str(tmp_path / "other.onnx"))
    found = dlb_graph.compare(EXPORTED / "torch-residual.onnx", tmp_path / "other.onnx")
    assert not found.equal and max(found.distances.values()) > 1e-4
    assert not found.differences  # of the layers


def test_what_cannot_be_compared_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        dlb_graph.compare(EXPORTED / "torch-lenet.onnx", tmp_path / "none.onnx")
    with pytest.raises(RequestError, match="tokens"):
        dlb_graph.compare(EXPORTED / "torch-lenet.onnx", EXPORTED / "torch-tokens.onnx")


def test_another_operator_is_named(tmp_path: Path) -> None:
    model = onnx.load(str(EXPORTED / "torch-lenet.onnx"))
    pool = next(node for node in model.graph.node if node.op_type == "MaxPool")
    pool.op_type = "AveragePool"
    kept = [one for one in pool.attribute if one.name in ("kernel_shape", "strides", "pads")]
    del pool.attribute[:]
    pool.attribute.extend(kept)
    onnx.save(model, str(tmp_path / "other.onnx"))
    found = dlb_graph.compare(EXPORTED / "torch-lenet.onnx", tmp_path / "other.onnx")
    assert not found.equal and "AveragePool" in " ".join(map(str, found.differences))
