"""``dlb port`` with an ONNX file as one side: proven, named, and every file that is bad."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlb_process import Dlb, Ended, said
from onnx import TensorProto, helper, numpy_helper, save

MODEL = """
from dlb_example.native import *

def make():
    return Net(
        shape=(6,), fc1=Linear(6, 5, seed=1), act=ReLU(), fc2=Linear(5, 5, seed=2),
        tanh=Tanh(), fc3=Linear(5, 3, seed=3),
    )
"""
Verify = Callable[..., Ended]


def write_file(path: Path, activation: str = "Relu", domain: str = "", batch: Any = "n") -> Path:
    """The model as an exporter writes it: a Gemm, and products with a transposed matrix and a sum."""
    random = np.random.default_rng(7)
    numbers = {
        "fc1.weight": random.standard_normal((5, 6)),
        "fc1.bias": random.standard_normal(5),
        "onnx::MatMul_9": random.standard_normal((5, 5)),
        "fc2.bias": random.standard_normal(5),
        "fc3.weight": random.standard_normal((3, 5)),
        "fc3.bias": random.standard_normal(3),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["a"], "gemm", transB=1),
        helper.make_node(activation, ["a"], ["b"], "act", domain=domain),
        helper.make_node("MatMul", ["b", "onnx::MatMul_9"], ["c"], "product"),
        helper.make_node("Add", ["fc2.bias", "c"], ["d"], "sum"),
        helper.make_node("Tanh", ["d"], ["e"], "tanh"),
        helper.make_node("Gemm", ["e", "fc3.weight", "fc3.bias"], ["y"], "last", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 3])],
        [
            numpy_helper.from_array(array.astype(np.float32), name)
            for name, array in numbers.items()
        ],
    )
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.fixture
def verify(dlb: Dlb) -> Verify:
    """A port of the model in ``ours.py`` and files in the current folder."""
    (dlb.folder / "ours.py").write_text(MODEL)

    def run(*words: object) -> Ended:
        return dlb("port", *words, "--threads", 1)

    return run


def checks(ended: Ended) -> dict[str, dict[str, Any]]:
    return {result["check"]: result for result in ended.document["certificate"]["checks"]}


@pytest.mark.parametrize("file_first", [False, True])
def test_a_right_port_is_proven_in_evaluation_mode(
    dlb: Dlb, verify: Verify, file_first: bool
) -> None:
    # Drawn by another seed: only the weights that are carried make both the same.
    write_file(dlb.folder / "net.onnx", batch=4 if file_first else "n")
    models = ["example=ours:make", "net.onnx"]
    ended = verify(*(reversed(models) if file_first else models), "--json")
    assert ended.status == 0, ended.err
    assert list(ended.document["models"]) == (
        ["net", "example"] if file_first else ["example", "net"]
    )
    found = checks(ended)
    assert list(found) == ["weights", "forward", "layers", "forward float32"]
    assert {result["verdict"] for result in found.values()} == {"passed"}
    assert len(found["forward"]["figures"]) == 3
    assert len(found["layers"]["figures"]) == 3
    reasons = ended.document["certificate"]["inapplicable"]
    assert reasons["gradients"] == reasons["trajectory"] == "evaluation_only"
    assert ended.document["certificate"]["adapters"]["net"].startswith("ONNX file, ")
    pairs = {each["from"]: each["to"] for each in next(iter(ended.document["weights"].values()))}
    assert "onnx::MatMul_9" in (pairs if file_first else pairs.values())


def test_the_first_layer_that_differs_is_named(dlb: Dlb, verify: Verify) -> None:
    write_file(dlb.folder / "net.onnx", activation="LeakyRelu")
    ended = verify("example=ours:make", "old=net.onnx", "--export", "out")
    assert ended.status == 1
    assert "between 'fc1' and 'fc2': 'act' ReLU(slope=0.0) of example, 'act' LeakyRelu of old" in (
        " ".join(ended.out.split())
    )
    assert "gradients, trajectory, since a file holds no training" in ended.out
    assert not (dlb.folder / "out" / "old.onnx").exists()


def test_weights_in_the_wrong_order_are_found(dlb: Dlb, verify: Verify) -> None:
    write_file(dlb.folder / "net.onnx")
    assert verify("example=ours:make", "net.onnx").status == 0
    proposed = (dlb.folder / "dlb-map.toml").read_text()
    right = '{ from = "fc2.weight", to = "onnx::MatMul_9" }'
    entry = next(line for line in proposed.splitlines() if "onnx::MatMul_9" in line)
    wrong = entry.replace('"onnx::MatMul_9"', '"onnx::MatMul_9", transpose = [1, 0]')
    assert right in entry
    (dlb.folder / "map.toml").write_text(proposed.replace(entry, wrong))
    ended = verify("example=ours:make", "net.onnx", "--map", "map.toml", "--json")
    assert ended.status == 1
    assert said(checks(ended)["layers"]).startswith("first layer past the tolerance: fc2, linear(")


#: What is in a file or asked of it, words of the command, and what the line must say.
BAD = {
    "missing": (None, ("none.onnx",), ("none.onnx", "give the path of a .onnx file")),
    "no model": (b"\x01\x02\x03", ("net.onnx",), ("net.onnx: not an ONNX model",)),
    "domain": ("com.microsoft", ("net.onnx",), ("'act'", "com.microsoft::Relu", "ONNX's own")),
    "batch": (5, ("net.onnx",), ("fixes its batch at 5 samples", "--batch-size 5")),
    "twice": ("", ("net.onnx", "--trainer", "net=a:b"), ("a file has no training program",)),
}


@pytest.mark.parametrize(("content", "words", "says"), BAD.values(), ids=list(BAD))
def test_a_file_that_cannot_be_used_is_refused_in_one_line(
    dlb: Dlb, verify: Verify, content: Any, words: tuple[str, ...], says: tuple[str, ...]
) -> None:
    path = dlb.folder / "net.onnx"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        batch = content if isinstance(content, int) else "n"
        write_file(path, domain="" if isinstance(content, int) else content, batch=batch)
    ended = verify("example=ours:make", *words)
    assert ended.status == 2, ended.err
    assert all(part in ended.complaint for part in says), ended.complaint
    assert "Traceback" not in ended.err


def test_two_files_are_compared_by_another_command(dlb: Dlb, verify: Verify) -> None:
    ended = verify("a.onnx", "b.onnx")
    assert ended.status == 2
    assert "dlb diff a.onnx b.onnx" in ended.complaint


def test_a_weight_without_a_counterpart_is_named(dlb: Dlb, verify: Verify) -> None:
    (dlb.folder / "ours.py").write_text(
        MODEL.replace("tanh=Tanh(),", "tanh=Tanh(), mix=Mix(5, 5),")
    )
    write_file(dlb.folder / "net.onnx")
    ended = verify("example=ours:make", "net.onnx")
    assert ended.status == 2
    assert "example: mix.table of Mix, [5, 5]" in ended.complaint
