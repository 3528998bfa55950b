"""A small data set, a home of its own for each test, archives, and a model of words."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dlb.data.description import DataFile, DataSetDescription, PackageSource, SplitDescription
from dlb.data.idx import encode_idx
from dlb_graph.workload import Workload
from dlb_graph.workload.files import from_document


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty DLB_HOME, no DLB_DATA_DIR, and no proxy between the test and its server."""
    folder = tmp_path / "home"
    monkeypatch.setenv("DLB_HOME", str(folder))
    monkeypatch.delenv("DLB_DATA_DIR", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return folder


def tiny_contents() -> dict[str, bytes]:
    """The IDX bytes of a data set of 40 + 20 images, 6 x 5 pixels, 4 classes."""
    draw = np.random.RandomState(0)  # the legacy generator's stream is frozen
    contents = {}
    for split, count in (("train", 40), ("t10k", 20)):
        images = draw.randint(0, 256, (count, 6, 5)).astype(np.uint8)
        contents[f"{split}-images"] = encode_idx(images)
        contents[f"{split}-labels"] = encode_idx((np.arange(count) % 4).astype(np.uint8))
    return contents


def make_description(
    contents: dict[str, bytes],
    bases: tuple[str, ...] = (),
    packages: tuple[PackageSource, ...] = (),
    name: str = "tiny",
) -> DataSetDescription:
    files = []
    for file_name, content in contents.items():
        compressed = gzip.compress(content, mtime=0)
        files.append(
            DataFile(
                name=file_name,
                size=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
                urls=tuple(f"{base}{file_name}.gz" for base in bases),
                compressed_size=len(compressed),
                compressed_sha256=hashlib.sha256(compressed).hexdigest(),
            )
        )
    return DataSetDescription(
        name=name,
        title="Tiny",
        licence="none",
        source="https://example.invalid/tiny",
        sample_shape=(1, 6, 5),
        classes=("a", "b", "c", "d"),
        splits=(
            SplitDescription("train", 40, "train-images", "train-labels"),
            SplitDescription("test", 20, "t10k-images", "t10k-labels"),
        ),
        files=tuple(files),
        packages=packages,
    )


@pytest.fixture
def tiny() -> dict[str, bytes]:
    return tiny_contents()


@pytest.fixture
def describe_tiny() -> Callable[..., DataSetDescription]:
    return make_description


def pack(members: dict[str, bytes | tarfile.TarInfo], mode: str = "w:gz") -> bytes:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            if isinstance(content, bytes):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                tar.addfile(content)
    return output.getvalue()


def link(name: str, to: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, to
    return info


def language_model(
    data: dict[str, object], length: int, entries: int, steps: bool = True
) -> Workload:
    nodes = [
        {
            "name": "table",
            "layer": {"type": "embedding", "entries": entries, "features": 4},
        },
        {"name": "lstm", "layer": {"type": "lstm", "hidden": 5}},
        {"name": "scores", "layer": {"type": "linear", "out_features": entries}},
    ]
    return from_document(
        {
            "name": "words",
            "batch_size": 1,
            "data": data,
            "optimizer": {"type": "sgd", "learning_rate": 1.0},
            "model": {"input": {"shape": [length], "kind": "index"}, "nodes": nodes},
        }
    )
