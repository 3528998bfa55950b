"""What dlb writes to trackers and model cards is read back by their own libraries."""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from example_results import HARMS, HOSTILE, certificate, hostile, options, ordinary, run

from dlb import record
from dlb.cli import call
from dlb.proof.certificate import read as read_certificate
from dlb_measure.results.compared import compared_cells
from dlb_measure.results.measurement import read as read_measurement


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLB_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ordinary(tmp_path_factory.mktemp("ordinary") / "results")


@pytest.fixture(scope="module")
def harmful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = hostile(tmp_path_factory.mktemp("hostile") / "results")
    for number, text in enumerate(HOSTILE, 10):
        run(
            folder, "torch", certificate(["torch"], name=text), number,
            framework=text, framework_version=text, workload_name=text, started=text,
            data={"name": text, "from": text}, options=options(variant={text: text}, batch_size=number),
            machine={"cpu": text}, core={"version": text},
            observed={text: {"series": {text: [1.0, None, 3.0]}}},
        )  # fmt: skip
    return folder


def export(folder: Path, form: str, *words: str) -> int:
    return call(["results", "export", "--in", str(folder), "--format", form, *words])


def run_of(folder: Path, adapter: str) -> record.Record:
    """The first run of an adapter."""
    return record.read(sorted(folder.glob(f"*-{adapter}-*.json"))[0])


def logged(content: bytes) -> Iterator[bytes]:
    """The records of wandb's file, which has the form of LevelDB's logs after 7 bytes of its own."""
    place, parts = 7, b""
    while place + 7 <= len(content):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield parts
            parts = b""


def ratio_of(folder: Path) -> tuple[float, float, float]:
    measurement = read_measurement(next((folder / "measurements").glob("*.json")))
    ratio = compared_cells(measurement)[1].ratio
    assert ratio is not None
    return ratio.ratio, ratio.low, ratio.high


def test_tensorboard(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    logs = tmp_path / "logs"
    for _ in range(2):
        assert export(results, "tensorboard", "-o", str(logs)) == 0
        assert f"5 runs in {logs}" in capsys.readouterr().out
    assert len(list(logs.iterdir())) == 5
    assert all(len(list(folder.glob("events.*"))) == 1 for folder in logs.iterdir())
    made = run_of(results, "tf")
    assert made.timing and made.quality and made.quality.losses[3]
    read = EventAccumulator(str(logs / made.name), {"scalars": 0})
    read.Reload()
    steps = read.Scalars("steps/step_seconds")
    assert [each.step for each in steps] == list(range(80))
    assert steps[7].value == pytest.approx(made.timing.step_seconds[7])
    assert read.Scalars("steps/loss")[3].value == pytest.approx(made.quality.losses[3])
    assert read.Scalars("figures/test_accuracy")[0].value == pytest.approx(0.8)
    assert [each.step for each in read.Scalars("steps/test_accuracy")] == [20, 40, 60]
    started = read.summary_metadata[metadata.SESSION_START_INFO_TAG].plugin_data.content
    told = metadata.parse_session_start_info_plugin_data(started).hparams
    assert told["proof"].string_value == "proven" and told["batch_size"].number_value == 64
    assert told["workload_hash"].string_value == made.workload_hash
    assert read_certificate(logs / made.name / "certificate.json") == made.certificate
    (cell,) = logs.glob("*-aaaaaa-1-tf")
    read = EventAccumulator(str(cell))
    read.Reload()
    told_ratio = [
        read.Scalars(f"figures/{each}")[0].value for each in ("ratio", "ratio_low", "ratio_high")
    ]
    assert told_ratio == pytest.approx(ratio_of(results), rel=1e-6)


def test_mlflow(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mlflow import MlflowClient
    from mlflow.artifacts import download_artifacts

    store = f"sqlite:///{tmp_path}/mlflow.db"
    assert export(results, "mlflow", "-o", store) == 0
    assert "5 runs in" in capsys.readouterr().out
    assert export(results, "mlflow", "-o", store) == 0
    assert "0 runs in" in (said := capsys.readouterr().out) and "5 were there already" in said
    client = MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("dlb")
    runs = {each.info.run_name: each for each in client.search_runs([experiment.experiment_id])}
    assert len(runs) == 5
    made = run_of(results, "tf")
    assert made.timing and made.quality
    found = runs[made.name]
    assert found.info.status == "FINISHED"
    assert found.data.params["workload_hash"] == made.workload_hash
    assert found.data.params["framework"] == "TensorFlow 2.0"
    assert found.data.tags["dlb.proof"] == "proven"
    assert found.data.metrics["test_accuracy"] == 0.8
    history = client.get_metric_history(found.info.run_id, "step_seconds")
    values = [each.value for each in sorted(history, key=lambda each: each.step)]
    assert values == list(made.timing.step_seconds)
    losses = client.get_metric_history(found.info.run_id, "loss")
    assert sorted(each.value for each in losses) == sorted(filter(None, made.quality.losses))
    folder = download_artifacts(run_id=found.info.run_id, tracking_uri=store)
    assert read_certificate(Path(folder) / "certificate.json") == made.certificate
    (cell,) = (each for name, each in runs.items() if name.endswith("-aaaaaa-1-tf"))
    metrics = cell.data.metrics
    told = metrics["ratio"], metrics["ratio_low"], metrics["ratio_high"]
    assert told == pytest.approx(ratio_of(results))
    assert cell.data.tags["dlb.next_to_baseline"] == "slower"


def test_a_store_that_cannot_be_written(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for form in ("tensorboard", "wandb"):
        assert export(results, form, "-o", str(tmp_path / "file")) == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert "cannot write" in said and "file" in said
    assert export(results, "mlflow", "-o", f"sqlite:///{tmp_path}/file/mlflow.db") == 2
    assert "MLflow cannot write" in capsys.readouterr().err.splitlines()[-1]
    assert export(results, "mlflow", "-o", "odd://me:secret@host/db") == 2
    assert "secret" not in capsys.readouterr().err.splitlines()[-1]


def test_wandb_offline(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    assert export(results, "wandb", "-o", str(tmp_path), "--filter", "adapter=tf") == 0
    assert "1 runs in" in capsys.readouterr().out
    assert export(results, "wandb", "-o", str(tmp_path), "--filter", "adapter=tf") == 0
    assert "1 were there already" in capsys.readouterr().out
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    told = [Record.FromString(content) for content in logged(file.read_bytes())]
    made = run_of(results, "tf")
    assert made.timing is not None
    (begun,) = (each.run for each in told if each.WhichOneof("record_type") == "run")
    config = {each.key: json.loads(each.value_json) for each in begun.config.update}
    assert config["proof"] == "proven" and config["workload_hash"] == made.workload_hash
    rows = [
        {each.key or each.nested_key[0]: json.loads(each.value_json) for each in entry.history.item}
        for entry in told
        if entry.WhichOneof("record_type") == "history"
    ]
    assert [row["step_seconds"] for row in rows] == list(made.timing.step_seconds)
    (ended,) = (each.exit for each in told if each.WhichOneof("record_type") == "exit")
    assert ended.exit_code == 0
    (artifact,) = (each.artifact for each in told if each.WhichOneof("record_type") == "artifact")
    assert {each.path for each in artifact.manifest.contents} == {"record.json", "certificate.json"}


def test_a_model_card(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from huggingface_hub import ModelCard

    card = tmp_path / "README.md"
    assert export(results, "model-card", "-o", str(card), "--filter", "batch_size=64") == 0
    read = ModelCard.load(card)
    (first, second) = read.data.eval_results
    assert first.metric_value == 0.8 and first.dataset_type == "fashion-mnist-subset"
    assert "torch 2.0, proven" in first.metric_name and "tf" in second.metric_name
    ratio, low, high = ratio_of(results)
    assert f"| {ratio:.2f} ({low:.2f} to {high:.2f}) |" in read.text
    assert "proved that these frameworks train the same model: torch, tf." in read.text
    assert "0" * 64 in read.text
    capsys.readouterr()
    assert export(results, "model-card", "--filter", "adapter=nobody") == 2
    assert "a model card needs a run" in capsys.readouterr().err


def test_a_model_card_of_what_deviates(tmp_path: Path) -> None:
    from huggingface_hub import ModelCard

    folder = ordinary(tmp_path / "results", deviates="tf")
    assert export(folder, "model-card", "-o", "card.md", "--filter", "batch_size=64") == 0
    read = ModelCard.load(tmp_path / "card.md")
    assert "the same model: " not in read.text and "**deviates**" in read.text
    assert any("deviates" in each.metric_name for each in read.data.eval_results)


@pytest.mark.parametrize("form", ["tensorboard", "mlflow", "wandb"])
def test_what_strangers_wrote(harmful: Path, tmp_path: Path, form: str) -> None:
    place = f"sqlite:///{tmp_path}/m.db" if form == "mlflow" else str(tmp_path / "out")
    assert export(harmful, form, "-o", place) == 0
    if form == "tensorboard":
        from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

        read = EventMultiplexer().AddRunsFromDirectory(place).Reload()
        names = [*read.Runs(), *(tag for run in read.Runs().values() for tag in run["scalars"])]
        assert len(read.Runs()) > len(HOSTILE)
        assert not any(set(name) & set("<>\"'\x1b\u202e") for name in names)
        assert all((tmp_path / "out" / name).is_dir() for name in read.Runs())
        shown = [
            each.tensor_proto.string_val[0].decode()
            for run in read.Runs()
            for each in read.Tensors(run, "dlb/text_summary")
        ]
        assert any("harmed" in each for each in shown)
        assert not any("<script" in each for each in shown)
    elif form == "mlflow":
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=place)
        (experiment,) = (each for each in client.search_experiments() if each.name == "dlb")
        runs = client.search_runs([experiment.experiment_id])
        assert len(runs) > len(HOSTILE)
        words = [
            text for run in runs for text in (*run.data.params.values(), *run.data.tags.values())
        ]
        assert any(HARMS in each for each in words) and max(map(len, words)) < 1000
        assert not any("\x1b" in each or "\u202e" in each for each in words)
    else:
        assert len(list((tmp_path / "out" / "wandb").glob("offline-run-*"))) > len(HOSTILE)
    assert {each.name for each in tmp_path.iterdir()} <= {
        "out",
        "home",
        "m.db",
        "mlruns",
        "mlartifacts",
    }


def test_a_model_card_of_strangers(harmful: Path, tmp_path: Path) -> None:
    from huggingface_hub import ModelCard

    for number in range(10, 10 + len(HOSTILE)):
        words = ("-o", f"{number}.md", "--filter", f"batch_size={number} and kind=run")
        assert export(harmful, "model-card", *words) == 0
        read = ModelCard.load(tmp_path / f"{number}.md")
        assert read.data.eval_results[0].metric_value == 0.8
        assert "<script>" not in read.text and "<img" not in read.text
        assert not any(each in read.content for each in ("\x1b", "\u202e"))
        assert len([line for line in read.text.splitlines() if line.startswith("# ")]) == 0


@pytest.mark.parametrize(
    ("form", "module"),
    [("tensorboard", "tensorboard"), ("mlflow", "mlflow"), ("wandb", "wandb"),
     ("model-card", "huggingface_hub")],
)  # fmt: skip
def test_a_library_that_is_not_there(
    results: Path, form: str, module: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name in [each for each in sys.modules if each.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    assert export(results, form) == 2
    assert f"pip install 'dlb-track[{form}]'" in capsys.readouterr().err


def test_losses_that_are_not_finite_are_not_numbers(tmp_path: Path) -> None:
    from dlb_track.tracked import tracked_runs

    (tmp_path / "r").mkdir()
    quality = record.Quality(test_accuracy=None, test_samples=1, losses=(1.0, None))
    made = run(tmp_path / "r", "torch", certificate(["torch"]), quality=quality)
    row = {"kind": "run", "file": f"{made.name}.json"}
    (tracked,) = tracked_runs(tmp_path / "r", [row])
    assert tracked.series["loss"][0].value == 1.0 and math.isnan(tracked.series["loss"][1].value)
