"""What an adapter exports, read as a workload, is proven on every adapter."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from msgspec.structs import replace

from conftest import ADAPTERS, Dlb, Prove
from dlb.catalogue import load_with_file, load_workload
from dlb.proof.checks.file import check_file
from dlb_graph.files.read import import_file
from dlb_graph.workload import Attention, type_name


def test_an_export_comes_back_and_is_proven_on_every_adapter(
    dlb: Dlb, prove: Prove, tmp_path: Path
) -> None:
    """TensorFlow's, whose weights and maps lie in an order of their own."""
    path = tmp_path / "lenet5.onnx"
    done = dlb("export", "lenet5", str(path), "--from", "tf", "--seed", "3")
    assert done.returncode == 0, done.stderr
    workload, imported = load_with_file(str(path))
    found = [each.layer for each in workload.model.nodes]
    wanted = [each.layer for each in load_workload("lenet5").model.nodes]
    assert list(map(type_name, found)) == list(map(type_name, wanted))
    workload = replace(workload, batch_size=8)
    certificate = prove(workload, imported, trajectory_steps=3)
    assert {certificate.status(adapter) for adapter in ADAPTERS} == {"proven"}
    first = [each for each in certificate.checks if each.check == "file"]
    assert [each.adapter for each in first] == list(ADAPTERS)
    assert {each.verdict for each in first} == {"passed"}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_layers_of_transformers_come_back_however_they_are_written_out(
    adapter: str, dlb: Dlb, tmp_path: Path
) -> None:
    workload = Path(__file__).parent / "workloads" / "patches.toml"
    path = tmp_path / "patches.onnx"
    done = dlb("export", str(workload), str(path), "--from", adapter)
    assert done.returncode == 0, done.stderr
    onnx.checker.check_model(onnx.load(str(path)), full_check=True)
    found = import_file(path)
    assert check_file(found).verdict == "passed"
    wanted = load_workload(str(workload)).model.nodes
    assert [type_name(each.layer) for each in found.workload.model.nodes] == [
        type_name(each.layer) for each in wanted
    ]
    heads = [each.layer for each in found.workload.model.nodes if isinstance(each.layer, Attention)]
    assert [(each.heads, each.causal, each.bias) for each in heads] == [
        (3, False, True),
        (2, True, False),
    ]
