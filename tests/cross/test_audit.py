"""Right runs of a user's own network, whose audit once called them different."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from conftest import ONE_THREAD, Dlb

WORKLOAD = """
name = "mine"
batch_size = 8
data = { name = "npz", path = "PATH" }
optimizer = { type = "adam" }

[model]
input = { shape = [3, 32, 32] }
nodes = [
  { name = "conv1", layer = { type = "conv", out_channels = 8, kernel = [3, 3], pads = [1, 1, 1, 1] } },
  { name = "bn1", layer = { type = "batch_norm" } },
  { name = "relu1", layer = { type = "relu" } },
  { name = "pool1", layer = { type = "max_pool", kernel = [2, 2], stride = [2, 2] } },
  { name = "conv2", layer = { type = "conv", out_channels = 16, kernel = [3, 3], pads = [1, 1, 1, 1] } },
  { name = "relu2", layer = { type = "relu" } },
  { name = "pool2", layer = { type = "max_pool", kernel = [2, 2], stride = [2, 2] } },
  { name = "flatten", layer = { type = "flatten" } },
  { name = "scores", layer = { type = "linear", out_features = 3 } },
]
"""


@pytest.mark.parametrize("seed", [0, 2])
def test_images_of_one_colour_each(dlb: Dlb, tmp_path: Path, seed: int) -> None:
    """The gradient of the convolution before the normalisation is a small difference of large sums."""
    random = np.random.RandomState(0)
    images = 2 * random.standard_normal((64, 3, 1, 1)) + 0.4 * random.standard_normal(
        (64, 3, 32, 32)
    )
    np.savez(tmp_path / "mine.npz", inputs=images, labels=np.arange(64) % 3)
    path, told = tmp_path / "mine.toml", tmp_path / "told.json"
    path.write_text(WORKLOAD.replace("PATH", str(tmp_path / "mine.npz")))
    words = ("--group", "audit", "--seed", str(seed), "--certificate", str(told))
    dlb("verify", str(path), "--on", "torch", *ONE_THREAD, *words)
    checks = {each["check"]: each for each in json.loads(told.read_text())["checks"]}
    assert checks["audit, steps"]["verdict"] == "passed", checks["audit, steps"]
    # Rounding may be more than some changes: what is compared is told in units of that.
    assert checks["audit, steps"]["tolerance"] < 1e-2


LEARNT = """
name = "apart"
batch_size = 16
data = { name = "npz", path = "PATH" }
optimizer = { type = "sgd", learning_rate = 0.1, momentum = 0.9 }

[model]
input = { shape = [1, 8, 8] }
nodes = [
  { name = "conv", layer = { type = "conv", out_channels = 4, kernel = [3, 3] } },
  { name = "relu", layer = { type = "relu" } },
  { name = "flatten", layer = { type = "flatten" } },
  { name = "hidden", layer = { type = "linear", out_features = 16 } },
  { name = "tanh", layer = { type = "tanh" } },
  { name = "scores", layer = { type = "linear", out_features = 3 } },
]
"""


@pytest.mark.parametrize("adapter", ["torch", "mxnet"])
def test_classes_that_are_learnt(dlb: Dlb, tmp_path: Path, adapter: str) -> None:
    """Once a loss is small, gradients are what is left of probabilities near 1, which float32 rounds."""
    random = np.random.RandomState(0)
    labels = np.arange(96) % 3
    images = 3 * random.standard_normal((3, 1, 8, 8))[labels]
    images += 0.3 * random.standard_normal((96, 1, 8, 8))
    np.savez(tmp_path / "apart.npz", inputs=images, labels=labels)
    path = tmp_path / "apart.toml"
    path.write_text(LEARNT.replace("PATH", str(tmp_path / "apart.npz")))
    words = ("--steps", "1500", "--rounds", "0", "--out", str(tmp_path), "--json")
    told = json.loads(dlb("run", str(path), "--on", adapter, *ONE_THREAD, *words).stdout)
    assert told["records"][0]["proof"] == "proven"
