"""What an adapter exports, read as a workload, is proven on every adapter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import ADAPTERS, ONE_THREAD, Dlb
from dlb.catalogue import load_workload
from dlb.imported import import_file
from dlb.workload import Attention, type_name


def test_an_export_comes_back_and_is_proven_on_every_adapter(dlb: Dlb, tmp_path: Path) -> None:
    """TensorFlow's, whose weights and maps lie in an order of their own."""
    path = tmp_path / "lenet5.onnx"
    done = dlb("export", "lenet5", str(path), "--from", "tf", "--seed", "3")
    assert done.returncode == 0, done.stderr
    found = [each.layer for each in import_file(path).workload.model.nodes]
    wanted = [each.layer for each in load_workload("lenet5").model.nodes]
    assert list(map(type_name, found)) == list(map(type_name, wanted))
    on = [word for adapter in ADAPTERS for word in ("--on", adapter)]
    words = (*on, *ONE_THREAD, "--steps", "3", "--batch-size", "8", "--json")
    done = dlb("verify", str(path), *words)
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    document = json.loads(done.stdout)
    assert document["proven"] is True
    first = [each for each in document["certificate"]["checks"] if each["check"] == "file"]
    assert [each["adapter"] for each in first] == list(ADAPTERS)
    assert {each["verdict"] for each in first} == {"passed"}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_layers_of_transformers_come_back_however_they_are_written_out(
    adapter: str, dlb: Dlb, tmp_path: Path
) -> None:
    workload = Path(__file__).parent / "workloads" / "patches.toml"
    path = tmp_path / "patches.onnx"
    done = dlb("export", str(workload), str(path), "--from", adapter)
    assert done.returncode == 0, done.stderr
    found = import_file(path)
    assert found.file_check.verdict == "passed"
    wanted = load_workload(str(workload)).model.nodes
    assert [type_name(each.layer) for each in found.workload.model.nodes] == [
        type_name(each.layer) for each in wanted
    ]
    heads = [each.layer for each in found.workload.model.nodes if isinstance(each.layer, Attention)]
    assert [(each.heads, each.causal, each.bias) for each in heads] == [
        (3, False, True),
        (2, True, False),
    ]
