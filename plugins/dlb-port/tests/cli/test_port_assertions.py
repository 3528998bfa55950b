"""Ports and files in users' tests: assertions, and factories that are given themselves."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from dlb_process import Dlb
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import RequestError
from dlb_port import assert_same_file
from dlb_port.words import name_functions

OURS = """
from dlb_example.native import *

def make():
    return Net(shape=(6,), fc1=Linear(6, 5, seed=1), act=ReLU(), fc2=Linear(5, 3, seed=2))

alone = lambda: make()

def inner():
    def make():
        pass
    return make

class Port:
    @staticmethod
    def make():
        return Net(a=Linear(6, 5, seed=4), b=ReLU(), c=Linear(5, 3, seed=5))
"""
WRONG = OURS.replace("b=ReLU()", "b=ReLU(slope=0.1)")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def python(dlb: Dlb) -> Run:
    """Runs code beside ``nets/ours.py`` and ``nets/wrong.py``, in a folder of its own."""
    nets = dlb.folder / "src" / "nets"
    nets.mkdir(parents=True)
    (nets / "__init__.py").touch()
    (nets / "ours.py").write_text(OURS)
    (nets / "wrong.py").write_text(WRONG)
    elsewhere = dlb.folder / "elsewhere"
    elsewhere.mkdir()

    def run(code: str) -> subprocess.CompletedProcess[str]:
        head = (
            f"import sys; sys.path.insert(0, {str(nets.parent)!r})\n"
            "from dlb_port import assert_port_proven\nfrom nets import ours, wrong\n"
        )
        (elsewhere / "script.py").write_text(head + code)
        return subprocess.run(
            [str(dlb.command.with_name("python")), "script.py"],
            cwd=elsewhere,
            env=dlb.environment(),
            capture_output=True,
            text=True,
        )

    return run


def test_a_port_of_factories_that_are_objects_is_proven_from_any_folder(
    dlb: Dlb, python: Run
) -> None:
    done = python(
        "port = assert_port_proven({'example': ours.make, 'faulty': ours.Port.make})\n"
        "print(port.proven, port.certificate.workload)\n"
    )
    assert done.stdout == "True example=nets.ours:make faulty=nets.ours:Port.make\n", done.stderr
    assert dlb.left() == []


def test_a_port_that_differs_fails_with_the_reason_first(dlb: Dlb, python: Run) -> None:
    done = python("assert_port_proven({'example': ours.make, 'faulty': wrong.Port.make})\n")
    assert done.returncode == 1
    page = done.stderr.partition("NotProven: ")[2].splitlines()
    assert page[0] == ("example=nets.ours:make faulty=nets.wrong:Port.make: faulty deviates")
    assert page[1].startswith("faulty differs first in layers: what is between 'fc1' and 'fc2'")
    assert page[2].startswith("  failed too, and mostly follows: ")
    assert page[3] == "" and page[5].split() == ["check", "tolerance", "faulty"]
    assert page[-1].split() == ["proof", "deviates"] and len(page) < 30
    assert dlb.left() == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("ours.alone", "example=<lambda>: another process cannot import it as"),
        ("lambda: ours.make()", "example=<lambda>: what a notebook or a script defines"),
        ("(lambda: ours.make)()", None),
        ("functools.partial(ours.make)", "example=partial: another process cannot import it as"),
        ("here", "example=here: what a notebook or a script defines cannot be imported"),
        ("ours.inner()", "example=inner.<locals>.make: another process cannot import it as"),
    ],
)
def test_a_factory_that_no_worker_can_import_is_refused_in_one_line(
    python: Run, given: str, says: str | None
) -> None:
    done = python(
        "import functools\nfrom dlb.errors import DlbError\nhere = lambda: None\n"
        "here.__qualname__ = here.__name__ = 'here'\n"
        f"try:\n    print(assert_port_proven({{'example': {given}, 'faulty': ours.Port.make}}).proven)\n"
        "except DlbError as error:\n    print(error)\n"
    )
    (line,) = done.stdout.splitlines()
    assert line == "True" if says is None else line.startswith(says), done.stderr


def test_a_name_that_is_another_object_now_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"cannot import it as .*:_original'"):
        name_functions({"torch": _replaced}, None)


def _original() -> None: ...


_replaced: Any = _original
_original = print  # type: ignore[assignment]


def test_the_folder_of_a_factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its package begins; an explicit one goes before; what is installed is the worker's own."""
    (tmp_path / "package" / "inner").mkdir(parents=True)
    (tmp_path / "package" / "inner" / "__init__.py").write_text("def make(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from package.inner import make  # type: ignore[import-not-found]

    names, folders = name_functions({"torch": make, "tf": onnx.load, "chainer": "mine:make"}, None)
    assert names == {
        "torch": "package.inner:make",
        "tf": "onnx:load_model",
        "chainer": "mine:make",
    }
    assert folders == {"torch": tmp_path, "tf": Path.cwd(), "chainer": Path.cwd()}
    assert name_functions({"torch": make}, "other")[1] == {"torch": Path("other")}


def file_of(path: Path, weight: float) -> Path:
    """An ONNX file of one product with a constant."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    w = numpy_helper.from_array(np.full((3, 3), weight, np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "mul")], "g", [x], [y], [w]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_files_as_an_assertion(tmp_path: Path) -> None:
    first, same = (file_of(tmp_path / name, 0.5) for name in ("a.onnx", "b.onnx"))
    certificate = assert_same_file(first, same)
    assert certificate.status("b.onnx") == "proven"
    other = file_of(tmp_path / "c.onnx", 0.75)
    with pytest.raises(AssertionError) as raised:
        assert_same_file(first, other)
    page = str(raised.value).splitlines()
    assert page[0] == "a.onnx and c.onnx: c.onnx deviates"
    of = "9 of 9 elements of 'w' [3, 3] of MatMul 'mul'"
    assert (
        page[1]
        == f"c.onnx differs first in weights: {of} differ, worst at [0, 0] by 0.25, 5.0e-01 apart"
    )
    assert page[2].startswith("  failed too")
    assert page[-1].split() == ["proof", "deviates"]
