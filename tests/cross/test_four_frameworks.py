"""The same LeNet-5 in four frameworks: trained, timed, exported, proven."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import onnxruntime
import pytest

from conftest import ADAPTERS, ONE_THREAD, Dlb
from dlb import record

ON = [word for adapter in ADAPTERS for word in ("--on", adapter)]
FLOAT64_CHECKS = ("forward float64", "forward float64, training", "gradients")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def document(dlb: Dlb, out: Path) -> dict:
    done = dlb("run", "lenet5", *ON, *ONE_THREAD, "--epochs", "2", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def records(document: dict) -> dict[str, record.Record]:
    read = [record.read(Path(path)) for path in document["files"]]
    return {one.adapter: one for one in read}


def test_every_adapter_is_proven(document: dict) -> None:
    assert document["proven"] is True
    assert [one["adapter"] for one in document["records"]] == list(ADAPTERS)
    assert {one["proof"] for one in document["records"]} == {"proven"}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_float64_agrees_to_rounding(records: dict[str, record.Record], adapter: str) -> None:
    certificate = records[adapter].certificate
    assert certificate is not None
    by_name = {result.check: result for result in certificate.results_of(adapter)}
    for name in FLOAT64_CHECKS:
        worst = by_name[name].worst
        assert worst is not None and worst.relative_l2 is not None
        assert worst.relative_l2 < 1e-13, (name, worst)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_record_holds_what_it_should(records: dict[str, record.Record], adapter: str) -> None:
    one = records[adapter]
    assert one.timing is not None and one.quality is not None
    assert len(one.timing.step_seconds) == len(one.quality.losses) == one.options.steps == 62
    assert min(one.timing.step_seconds) > 0
    assert one.quality.test_accuracy > 0.6
    assert one.worker["threads"] == one.options.threads
    assert one.worker["packages"]["dlb-worker"]
    assert one.machine["cpu"] and one.core["version"]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_record_fits_the_shipped_schema(document: dict, adapter: str) -> None:
    path = next(path for path in document["files"] if f"-{adapter}-" in path)
    jsonschema.validate(json.loads(Path(path).read_text()), json.loads(record.schema()))


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_exported_model_reaches_the_recorded_accuracy(
    records: dict[str, record.Record], out: Path, adapter: str
) -> None:
    from dlb.data.load import load_described, normalise
    from dlb.data.registry import data_set
    from dlb_graph.workload import files

    one = records[adapter]
    assert one.exported is not None and one.quality is not None
    path = out / "models" / f"{one.exported.sha256}.onnx"
    onnx.checker.check_model(onnx.load(str(path)), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    described = files.load("lenet5").data
    test = load_described(data_set(described.name), "test")
    inputs = normalise(test.images, described.mean, described.std, "float32")
    name, batch = session.get_inputs()[0].name, one.options.batch_size
    padded = np.resize(inputs, (-(-len(inputs) // batch) * batch, *inputs.shape[1:]))
    logits = [session.run(None, {name: part})[0] for part in np.split(padded, len(padded) // batch)]
    found = np.concatenate(logits)[: len(inputs)].argmax(1)
    # One image in a thousand may sit on the line between two classes.
    assert abs((found == test.labels).mean() - one.quality.test_accuracy) <= 0.001


def test_the_first_losses_agree(records: dict[str, record.Record]) -> None:
    first = [one.quality.losses[0] for one in records.values() if one.quality]
    assert np.ptp(np.array(first, dtype=float)) < 1e-5


@pytest.mark.long
def test_verify_proves_all_four_from_memory(dlb: Dlb) -> None:
    done = dlb("verify", "lenet5", *ON, *ONE_THREAD, "--seed", "3", "--json")
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    assert json.loads(done.stdout)["proven"] is True


@pytest.mark.parametrize(
    "adapter", ["torch", *(pytest.param(each, marks=pytest.mark.long) for each in ADAPTERS[1:])]
)
def test_a_float64_run_is_proven(dlb: Dlb, tmp_path: Path, adapter: str) -> None:
    words = ("--dtype", "float64", "--steps", "3", "--batch-size", "16", "--input", "memory")
    done = dlb("run", "lenet5", "--on", adapter, *words, *ONE_THREAD, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr + done.stdout


def test_lists_name_what_is_installed(dlb: Dlb) -> None:
    adapters = json.loads(dlb("list", "adapters", "--json").stdout)["adapters"]
    assert {one["adapter"] for one in adapters if one["state"] == "installed"} == set(ADAPTERS)
    assert all(one["version"] for one in adapters if one["state"] == "installed")
    strategies = json.loads(dlb("list", "strategies", "--json").stdout)["strategies"]
    names = {one["strategy"] for one in strategies}
    assert {"ddp", "multi_worker_mirrored", "dist_sync", "chainermn"} <= names


def test_environments_are_healthy(dlb: Dlb) -> None:
    done = dlb("env", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr


REPEATED = """
name = "repeated-words"
batch_size = 32
data = { name = "synthetic" }
optimizer = { type = "sgd", learning_rate = 0.01 }

[model]
input = { shape = [16], kind = "index" }
nodes = [
  { name = "table", layer = { type = "embedding", entries = 12, features = 16, init = "ones" } },
  { name = "mean", layer = { type = "reduce_mean", axis = 1 } },
  { name = "scores", layer = { type = "linear", out_features = 5 } },
]
"""


@pytest.mark.long
def test_a_table_whose_rows_are_read_many_times_in_a_step(dlb: Dlb, tmp_path: Path) -> None:
    """TensorFlow adds to a row once for each time, and rounds each time: no other work."""
    path = tmp_path / "repeated.toml"
    path.write_text(REPEATED)
    done = dlb(
        "run",
        str(path),
        *ON,
        *ONE_THREAD,
        "--steps",
        "30",
        "--out",
        str(tmp_path / "out"),
        "--json",
    )
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    assert json.loads(done.stdout)["proven"] is True
