"""An ONNX file as a workload, through the real command."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from dlb_process import TESTS, Dlb, said
from onnx import numpy_helper

MLP = TESTS / "workloads" / "mlp.toml"


@pytest.fixture
def exported(dlb: Dlb, tmp_path: Path) -> Path:
    """The small workload's canonical graph, with weights that no seed gives, and a softmax."""
    path = tmp_path / "net.onnx"
    assert dlb("export", MLP, path, "--seed", 5).status == 0
    model = onnx.load(str(path))
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor) * np.float32(0.75)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    last = model.graph.output[0]
    model.graph.node.append(onnx.helper.make_node("Softmax", [last.name], ["p"], name="prob"))
    last.name = "p"
    path.write_bytes(model.SerializeToString())
    return path


def test_a_file_is_verified_and_that_is_told(dlb: Dlb, exported: Path) -> None:
    words = ("--on", "example", "--threads", 1, "--steps", 3, "--batch-size", 16)
    ended = dlb("verify", exported, *words, "--json")
    assert ended.status == 0, ended.err
    certificate = ended.document["certificate"]
    first = certificate["checks"][0]
    assert (first["check"], first["group"], first["adapter"]) == ("file", "file", "example")
    assert first["verdict"] == "passed" and "'prob' (Softmax)" in said(first)
    digest = hashlib.sha256(exported.read_bytes()).hexdigest()
    assert first["baseline"]["sha256"] == digest and first["baseline"]["kind"] == "onnx_file"
    assert ended.document["proven"] is True
    shown = dlb("verify", exported, *words, "--group", "weights")
    assert shown.status == 0 and "file: node 'prob' (Softmax) is what the loss" in shown.out


def test_a_run_starts_from_the_files_weights_and_records_its_hash(dlb: Dlb, exported: Path) -> None:
    words = ("--batch-size", 16, "--steps", 3)
    assert dlb.run(*words, workload=exported).status == 0
    (record,) = dlb.records().values()
    assert record["proof"] == "proven"
    assert record["workload"]["onnx"] == hashlib.sha256(exported.read_bytes()).hexdigest()
    assert record["data"]["name"] == "synthetic"
    again = dlb.run(*words, "--seed", 5, "--json", workload=exported)
    hashes = {record["workload_hash"], again.document["records"][0]["workload_hash"]}
    assert len(hashes) == 1


def test_weights_are_the_files_whatever_the_seed(dlb: Dlb, exported: Path, tmp_path: Path) -> None:
    written = onnx.load(str(exported)).graph.initializer
    for words in ((), ("--from", "example"), ("--seed", 9)):
        assert dlb("export", exported, tmp_path / "again.onnx", *words).status == 0
        found = onnx.load(str(tmp_path / "again.onnx")).graph.initializer
        arrays = {numpy_helper.to_array(each).tobytes() for each in found}
        assert {numpy_helper.to_array(each).tobytes() for each in written} <= arrays


def test_a_layer_that_the_adapter_computes_wrongly_is_found(dlb: Dlb, exported: Path) -> None:
    words = ("--on", "faulty", "--threads", 1, "--steps", 3, "--batch-size", 16, "--json")
    ended = dlb("verify", exported, *words, fault="wrong-forward")
    assert ended.status == 1
    verdicts = {each["check"]: each["verdict"] for each in ended.document["certificate"]["checks"]}
    assert verdicts["file"] == "passed" and verdicts["forward float64"] == "failed"
