"""A model of torch against the file that its exporter wrote of it, in both orders, and against a wrong file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conftest import Dlb

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6, eps=eps)
        self.conv2 = nn.Conv2d(6, 8, 3, stride=2, bias=False)
        self.lstm = nn.LSTM(8, 7, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(14, 5, batch_first=True)
        self.fc = nn.Linear(5, 5)
        self.ln = nn.LayerNorm(5)
        self.out = nn.Linear(5, 4)

    def forward(self, x):
        x = self.conv2(torch.relu(self.bn(self.conv(x))))
        x, _ = self.lstm(x.flatten(2).transpose(1, 2))
        x, _ = self.gru(x)
        return self.out(torch.nn.functional.gelu(self.ln(self.fc(x)))[:, -1])

def make():
    return Net()

def wrong():
    return Net(eps=1e-3)
"""
EXPORT = """
import torch, net
torch.onnx.export(
    net.make().eval(), (torch.randn(2, 3, 9, 9),), "net.onnx", dynamo=False, input_names=["x"],
    dynamic_axes={"x": {0: "n"}}, **MORE,
)
"""
UNFOLDED = EXPORT.replace("MORE", "dict(training=torch.onnx.TrainingMode.PRESERVE)")


@pytest.fixture
def export(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "net.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)

    def run(program: str) -> None:
        python = home / "environments" / "torch" / "bin" / "python"
        subprocess.run([python, "-W", "ignore", "-c", program], cwd=tmp_path, check=True)

    return run


@pytest.mark.parametrize("models", [("torch=net:make", "net.onnx"), ("net.onnx", "torch=net:make")])
def test_a_model_and_its_file_are_proven(dlb: Dlb, export: Any, models: tuple[str, str]) -> None:
    export(UNFOLDED)
    done = dlb("port", *models, "--threads", "1", "--json")
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    checks = {one["check"]: one for one in json.loads(done.stdout)["certificate"]["checks"]}
    assert list(checks) == ["weights", "forward", "layers", "forward float32"]
    assert {one["verdict"] for one in checks.values()} == {"passed"}


def test_another_epsilon_is_named(dlb: Dlb, export: Any) -> None:
    export(UNFOLDED)
    done = dlb("port", "torch=net:wrong", "net.onnx", "--threads", "1")
    assert done.returncode == 1, done.stderr
    assert "first layer past the tolerance: bn, batch_norm" in " ".join(done.stdout.split())


def test_a_folded_normalisation_is_told(dlb: Dlb, export: Any) -> None:
    export(EXPORT.replace("MORE", "{}"))
    done = dlb("port", "torch=net:make", "net.onnx", "--threads", "1")
    assert done.returncode == 2, done.stdout
    assert "net.onnx has 0 batch normalisations of 1: its exporter folded them" in done.stderr
