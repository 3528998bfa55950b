"""ONNX files of strangers: read within a limit that is said, or refused in one line; and 200 damaged ones.

One process reads them all, so that a file that ends it, or that never ends, is seen.
"""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from exported_models import EXPORTED_FILES
from onnx import TensorProto, helper, numpy_helper

#: Seconds of a processor that a file may take, and bytes of the process: two values of 2^27 numbers, and more.
SECONDS, MEMORY = 10.0, 5 << 29
#: Seconds after which it is said to have no end.
PATIENCE = 60.0
#: Reads `dlb WORDS`, or `compare` of two files, from each line; answers with a line.
READER = """
import contextlib, io, json, resource, sys, time
from dlb import cli
from dlb_graph import compare
from dlb.errors import DlbError
for line in sys.stdin:
    words, out, err, status = json.loads(line), io.StringIO(), io.StringIO(), 0
    began = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if words[0] != "compare":
            status = cli.call(words)
        else:
            try:
                compare(*words[1:])
            except DlbError as error:
                status = error.exit_status
                print(" ".join(str(error).split()), file=sys.stderr)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    took = time.process_time() - began
    print(json.dumps([status, out.getvalue(), err.getvalue(), most, took]), flush=True)
"""

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
Nodes = list[onnx.NodeProto]


def numbers(name: str, array: Any, dtype: Any = np.int64) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array, dtype), name)


def model(
    nodes: Nodes,
    held: list[onnx.TensorProto] | None = None,
    functions: list[onnx.FunctionProto] | None = None,
    shape: tuple[int | str, ...] = ("N", 4),
) -> onnx.ModelProto:
    """A model from ``x`` of some shape to ``y``."""
    values = [
        helper.make_tensor_value_info(name, FLOAT, size)
        for name, size in (("x", shape), ("y", None))
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], held or [])
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=sets, functions=functions or [], ir_version=8)


def function_bomb(depth: int, calls: int = 2) -> onnx.ModelProto:
    """Functions that each call the next some times."""

    def body(number: int) -> Nodes:
        operator, domain = (f"f{number + 1}", "own") if number + 1 < depth else ("Tanh", "")
        names = ["x", *(f"t{call}" for call in range(1, calls)), "y"]
        return [
            helper.make_node(operator, [before], [after], domain=domain)
            for before, after in pairwise(names)
        ]

    sets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function("own", f"f{number}", ["x"], ["y"], body(number), sets)
        for number in reversed(range(depth))
    ]
    return model([helper.make_node("f0", ["x"], ["y"], domain="own")], functions=functions)


def loop(rounds: int, *, goes_on: bool = False, depth: int = 1) -> onnx.ModelProto:
    """A Loop of so many rounds, or without an end; or loops within each other."""
    inner = [helper.make_node("Tanh", ["a"], ["b"])]
    if depth > 1:
        inner = list(loop(rounds, depth=depth - 1).graph.node)
        inner[-1].input[2], inner[-1].output[0] = "a", "b"
    body = helper.make_graph(
        [*inner, helper.make_node("Identity", ["c"], ["d"])],
        f"body{depth}",
        [
            helper.make_tensor_value_info("i", INT, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a", FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, []),
            helper.make_tensor_value_info("b", FLOAT, None),
        ],
    )
    most = "" if goes_on else f"most{depth}"
    nodes = [helper.make_node("Loop", [most, "", "x"], ["y"], body=body)]
    if most:
        nodes.insert(0, helper.make_node("Constant", [], [most], value=numbers("n", rounds)))
    return model(nodes)


def doubling(times: int, *, by_loop: bool = False) -> onnx.ModelProto:
    """A constant that is joined with itself, again and again."""
    if by_loop:
        made = loop(times)
        body = made.graph.node[-1].attribute[0].g
        body.node[0].CopyFrom(helper.make_node("Concat", ["a", "a"], ["b"], axis=0))
        made.graph.node[-1].input[2] = "w0"
        made.graph.initializer.append(numbers("w0", [1.0], np.float32))
        made.graph.node[-1].output[0] = "w"
        made.graph.node.append(helper.make_node("ReduceSum", ["w"], ["s"]))
        made.graph.node.append(helper.make_node("Add", ["x", "s"], ["y"]))
        return made
    nodes = [
        helper.make_node("Concat", [f"w{number}"] * 2, [f"w{number + 1}"], axis=0)
        for number in range(times)
    ]
    nodes += [
        helper.make_node("ReduceSum", [f"w{times}"], ["s"]),
        helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    return model(nodes, [numbers("w0", [1.0], np.float32)])


def chain(length: int) -> onnx.ModelProto:
    names = ["x", *(f"v{number}" for number in range(1, length)), "y"]
    return model([helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)])


def resize(size: int) -> onnx.ModelProto:
    held = [numbers("sizes", [1, 1, size, size])]
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest")
    return model([node], held, shape=(1, 1, 4, 4))


def expanded(numbers_: int) -> onnx.ModelProto:
    """A value whose size only a run shows: ONNX infers no shape behind a power."""
    held = [
        numbers("two", [2.0], np.float32),
        numbers("of", [float(np.log2(numbers_))], np.float32),
    ]
    nodes = [
        helper.make_node("Pow", ["two", "of"], ["size"]),
        helper.make_node("Cast", ["size"], ["shape"], to=INT),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["s"]),
        helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    return model(nodes, held)


def kept_at(place: str) -> onnx.ModelProto:
    """A weight that is kept in another file."""
    tensor = numbers("w", np.ones((4, 4)), np.float32)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=place)
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], [tensor])


#: What is wrong on purpose, and what is said of it.
HOSTILE: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "functions, 2^14 nodes": (lambda: function_bomb(14), "16384 nodes"),
    "functions, 2^30 nodes": (lambda: function_bomb(30), "at most 10000 are read"),
    "functions, 9^60 nodes": (lambda: function_bomb(60, 9), "at most 10000 are read"),
    "a loop of 10^12 rounds": (lambda: loop(10**12), "more than 50000 nodes"),
    "an endless loop": (lambda: loop(0, goes_on=True), "more than 50000 nodes"),
    "loops in loops": (lambda: loop(1000, depth=4), "more than 50000 nodes"),
    "2^30 numbers by doubling": (lambda: doubling(30), "at most 134217728 are computed"),
    "2^62 numbers by doubling": (lambda: doubling(62), "at most 134217728 are computed"),
    "2^40 numbers in a loop": (lambda: doubling(40, by_loop=True), "more than"),
    "10001 nodes": (lambda: chain(10001), "has 10001 nodes"),
    "50000 nodes": (lambda: chain(50000), "has 50000 nodes"),
    "a map of 10^9": (lambda: resize(31623), "at most 134217728 are computed"),
    "a map of 10^12": (lambda: resize(10**6), "at most 134217728 are computed"),
    "10^9 numbers": (lambda: expanded(10**9), "has more than 134217728 numbers"),
    "10^10 numbers": (lambda: expanded(10**10), "has more than 134217728 numbers"),
    "NUL": (lambda: kept_at("w\0.bin"), "outside the model's folder"),
    "NUL alone": (lambda: kept_at("\0"), "outside the model's folder"),
    "a name too long": (lambda: kept_at("w" * 5000), "outside the model's folder"),
}


class Reader:
    """A process that reads one file after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", READER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.folder,
            env={**os.environ, "TMPDIR": str(self.folder), "DLB_HOME": str(self.folder)},
            text=True,
            start_new_session=True,
        )

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """The status, output and complaint of a command, of which status 2 has one line."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        ready = select.select([self._process.stdout], [], [], PATIENCE)[0]
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self.close()
            self._process = self._start()
            pytest.fail(f"{words}: " + ("it ended the process" if ready else "no end"))
        status, out, err, most, took = json.loads(line)
        assert "a fault of dlb" not in err and "Traceback" not in err, (words, err)
        assert status in (0, 1, 2), (words, err)
        assert status != 2 or len(err.splitlines()) == 1, (words, err)
        assert took < SECONDS and most < MEMORY, (words, took, most)
        return status, out, err

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    running = Reader(tmp_path_factory.mktemp("reader"))
    running("show", "lenet5")
    yield running
    running.close()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_limit_is_said(name: str, reader: Reader, tmp_path: Path) -> None:
    make, says = HOSTILE[name]
    path = str(tmp_path / "model.onnx")
    Path(path).write_bytes(make().SerializeToString())
    before = sorted(reader.folder.iterdir())
    assert reader("show", path)[0] == 2
    assert reader("verify", path)[0] == 2
    status, out, err = reader("diff", path, path)
    assert status != 0 and says in out + err, out + err
    status, _, err = reader("compare", path, path)
    assert status == 2 and says in err, err
    assert sorted(reader.folder.iterdir()) == before


def small_files() -> dict[str, bytes]:
    names = ("torch-script-tokens", "torch-script-lenet", "chainer-lenet")
    files = {name: (EXPORTED_FILES / f"{name}.onnx").read_bytes() for name in names}
    made = {
        "functions": function_bomb(3),
        "loop": loop(3),
        "doubling": doubling(3),
        "map": resize(8),
    }
    return {**files, **{name: one.SerializeToString() for name, one in made.items()}}


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Some bytes changed, left out, doubled, or all after one."""
    content, place, length = bytearray(content), draw.randrange(len(content)), draw.randint(1, 8)
    kind = draw.randrange(5)
    if kind == 0:
        content[place] ^= 1 << draw.randrange(8)
    elif kind == 1:
        content[place : place + length] = draw.randbytes(length)
    elif kind == 2:
        del content[place : place + length]
    elif kind == 3:
        content[place:place] = content[place : place + length * 8]
    else:
        del content[place:]
    return bytes(content)


def test_damaged_files(reader: Reader, tmp_path: Path) -> None:
    draw, files = random.Random(0), small_files()
    before = sorted(reader.folder.iterdir())
    whole, path = tmp_path / "whole.onnx", tmp_path / "damaged.onnx"
    read = 0
    for number in range(200):
        content = list(files.values())[number % len(files)]
        whole.write_bytes(content)
        path.write_bytes(damaged(content, draw))
        read += reader("show", str(path))[0] == 0
        reader("compare", str(whole), str(path))
    assert 0 < read < 200
    assert sorted(reader.folder.iterdir()) == before
    assert sorted(tmp_path.iterdir()) == [path, whole]
