"""dlb-pytest as its users have it: pytest with tests that prove, in an environment with adapters."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from dlb_process import TESTS, Dlb

MLP = str(TESTS / "workloads" / "mlp.toml")
NETS = """
from dlb_example.native import *

def make():
    return Net(shape=(4,), fc=Linear(4, 3))

def wrong():
    return Net(shape=(4,), fc=Linear(4, 3), tanh=Tanh())
"""
Ended = subprocess.CompletedProcess[str]
Run = Callable[..., Ended]


@pytest.fixture
def run(dlb: Dlb) -> Run:
    """pytest of the environment with the test adapters, on one module of tests."""

    def run(code: str, *words: str, fault: str = "") -> Ended:
        (dlb.folder / "nets.py").write_text(NETS)
        (dlb.folder / "test_mine.py").write_text(f"import pytest\n\nMLP = {MLP!r}\n\n{code}")
        python = str(dlb.command.with_name("python"))
        command = [python, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", *words]
        ended = subprocess.run(
            command,
            cwd=dlb.folder,
            env=dlb.environment(fault),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert dlb.left() == []
        return ended

    return run


PROVEN = """
@pytest.mark.dlb("example", groups=["layers"])
def test_workload(dlb_proof):
    assert dlb_proof.workload(MLP).passed("example")

def test_port(dlb_proof):
    assert dlb_proof.port({"example": "nets:make", "faulty": "nets:make"}, threads=1).proven
"""


def test_a_workload_and_a_port_are_proven_and_kept(dlb: Dlb, run: Run) -> None:
    ended = run(PROVEN, "--dlb-certificates", "kept", "--junitxml", "junit.xml")
    assert ended.returncode == 0, ended.stdout
    kept = {path.name: json.loads(path.read_bytes()) for path in (dlb.folder / "kept").iterdir()}
    assert set(kept) == {"test_mine.py-test_workload.json", "test_mine.py-test_port.json"}
    assert kept["test_mine.py-test_workload.json"]["workload"] == "mlp"
    properties = [
        (each.get("name"), each.get("value"))
        for each in ElementTree.parse(dlb.folder / "junit.xml").iter("property")
    ]
    assert ("dlb", "example=nets:make faulty=nets:make: faulty proven") in properties
    explained = dlb("explain", dlb.folder / "kept" / "test_mine.py-test_port.json")
    assert explained.status == 0 and "faulty: proven" in explained.out


FAILED = """
def test_workload(dlb_proof):
    dlb_proof.workload(MLP, ["faulty"], groups=["layers"])

def test_port(dlb_proof):
    dlb_proof.port({"example": "nets:make", "faulty": "nets:wrong"}, threads=1)

def test_no_port(dlb_proof):
    dlb_proof.port({"example": "nets:made", "faulty": "nets:make"})
"""


def test_what_differs_fails_with_the_reason_and_nothing_of_the_plugin(dlb: Dlb, run: Run) -> None:
    ended = run(FAILED, "--dlb-certificates", "kept", fault="wrong-forward")
    assert ended.returncode == 1 and "3 failed" in ended.stdout
    assert "NotProven: mlp: faulty deviates" in ended.stdout
    assert "faulty differs first in isolated layers: layer flatten" in ended.stdout
    assert "NotProven: example=nets:make faulty=nets:wrong: faulty deviates" in ended.stdout
    assert "dlb_proof: example: 'nets' has no 'made'; it has make, wrong" in ended.stdout
    assert not {"plugin.py", "During handling", "hidden"} & {*ended.stdout.split()}, ended.stdout
    shown = [line for line in ended.stdout.splitlines() if line.endswith(("NotProven", ".py"))]
    assert shown == ["test_mine.py:7: NotProven", "test_mine.py:10: NotProven"], ended.stdout
    assert len(list((dlb.folder / "kept").iterdir())) == 2


#: What proves nothing, and what pytest says of it. Each is an error or a failure, none is skipped.
NOTHING = {
    "a missing adapter of a marker": (
        '@pytest.mark.dlb("example", "tf")\ndef test_it(dlb_proof):\n    dlb_proof.workload(MLP)\n',
        "1 error",
        "@pytest.mark.dlb: adapter 'tf' has no environment; make it with: dlb env create tf",
    ),
    "a missing adapter, without the fixture": (
        '@pytest.mark.dlb("tf")\ndef test_it():\n    pass\n',
        "1 error",
        "@pytest.mark.dlb: adapter 'tf' has no environment; make it with: dlb env create tf",
    ),
    "a missing adapter of a proof": (
        'def test_it(dlb_proof):\n    dlb_proof.workload(MLP, ["tf"])\n',
        "1 failed",
        "dlb_proof: adapter 'tf' has no environment; make it with: dlb env create tf",
    ),
    "a missing adapter of a port": (
        'def test_it(dlb_proof):\n    dlb_proof.port({"example": "nets:make", "tf": "nets:make"})\n',
        "1 failed",
        "dlb_proof: adapter 'tf' has no environment; make it with: dlb env create tf",
    ),
    "no adapter": (
        "def test_it(dlb_proof):\n    dlb_proof.workload(MLP)\n",
        "1 failed",
        "dlb_proof: no adapters; name them with on=[...], or @pytest.mark.dlb('torch', 'tf')",
    ),
    "no proof": (
        "def test_it(dlb_proof):\n    pass\n",
        "1 failed",
        "dlb_proof: the test proved nothing",
    ),
    "a setting that there is not": (
        '@pytest.mark.dlb("example", stpes=3)\ndef test_it(dlb_proof):\n    dlb_proof.workload(MLP)\n',
        "1 failed",
        "dlb_proof: unknown assert_proven() argument 'stpes'; did you mean 'steps'?",
    ),
    "a file that there is not": (
        'def test_it(dlb_proof):\n    dlb_proof.same_file("a.onnx", "b.onnx")\n',
        "1 failed",
        "dlb_proof: a.onnx: ",
    ),
}


@pytest.mark.parametrize("case", NOTHING)
def test_what_proves_nothing_never_passes_and_is_never_skipped(run: Run, case: str) -> None:
    code, count, says = NOTHING[case]
    ended = run(code)
    assert ended.returncode == 1 and count in ended.stdout and "skipped" not in ended.stdout
    assert sum(line.startswith(says) for line in ended.stdout.splitlines()) == 1, ended.stdout
    assert "Traceback" not in ended.stdout


def test_the_plugin_leaves_other_tests_alone(run: Run, dlb: Dlb) -> None:
    ended = run(
        "import sys\n\ndef test_it():\n    assert not {'dlb', 'numpy', 'dlb_port'} & set(sys.modules)\n"
        "\ndef test_skipped(dlb_proof):\n    pytest.skip('not today')\n"
    )
    assert "1 passed, 1 skipped" in ended.stdout, ended.stdout
