"""The conformance suite as its users run it: pytest in an adapter's environment, from any folder."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from dlb_process import TESTS

import dlb_conformance
from dlb.errors import RequestError
from dlb_conformance.expected_failures import read
from dlb_conformance.layer_cases import BY_LAYER, CASES, EVERY_LAYER, SHARED
from dlb_graph import workload as W
from dlb_graph.workload.strategy_cases import STRATEGY_CASES
from dlb_worker.contract import ASYNCHRONOUS_CASES

#: The environment with the test adapters has it from this one.
FOLDER = Path(dlb_conformance.__file__).parent
Ended = subprocess.CompletedProcess[str]
Pytest = Callable[..., Ended]
EXAMPLE = ("--pyargs", "dlb_conformance", "--adapter", "example")
#: Models that somebody wrote in the example's framework.
PORTS = ("--port-models", str(TESTS / "example_adapter" / "ports.toml"))
#: A handful of tests that take no time.
FEW = ("-k", "test_layers and linear-without-bias")
ENTRY = '[[expected_failures]]\ntest = "{test}"\nreason = "{reason}"\n'


@pytest.fixture
def run_pytest(dlb_command: Path, tmp_path: Path) -> Pytest:
    """pytest of the environment with the test adapters, in an empty folder.

    Without CI and BUILD_NUMBER, where pytest repeats whole reasons in its summary.
    """
    left_out = ("DLB_", "PYTHON", "PYTEST", "CI", "BUILD_NUMBER")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}

    def run(*words: str, **variables: str) -> Ended:
        python = dlb_command.parent / "python"
        return subprocess.run(
            [str(python), "-m", "pytest", "-p", "no:cacheprovider", *words],
            cwd=tmp_path,
            env={**inherited, **variables},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


def table(ended: Ended) -> dict[str, list[int]]:
    """Rows of the suite's table: passed, failed, expected failures, not described."""
    rows = re.findall(
        r"^(\w[\w :()]*?) +([\d-]+) +([\d-]+) +([\d-]+) +([\d-]+)$", ended.stdout, re.M
    )
    return {name: [int(cell.replace("-", "0")) for cell in cells] for name, *cells in rows}


# --- what is in it ---------------------------------------------------------------------------


def test_every_layer_type_has_cases() -> None:
    """A layer type that is added to the contract is added to the suite."""
    assert set(BY_LAYER) == set(W.LAYERS)
    for kind, models in BY_LAYER.items():
        assert models, kind
        for name, model in models.items():
            assert kind in {W.type_name(node.layer) for node in model.nodes}, name
    assert sum(map(len, (*BY_LAYER.values(), SHARED))) == len(CASES), "two cases of one name"


def test_whole_models_have_every_layer_type() -> None:
    met = {W.type_name(node.layer) for model in EVERY_LAYER.values() for node in model.nodes}
    assert met == set(W.LAYERS)


def test_every_case_is_met_forward_and_backward_in_float64(run_pytest: Pytest) -> None:
    listed = run_pytest(*EXAMPLE, "--collect-only", "-q").stdout.splitlines()
    ids = {line for line in listed if "::" in line}
    for name in CASES:
        for mode in ("evaluation", "training"):
            value = f"test_every_layer_value_is_the_canonical_one[{name}-float64-{mode}]"
            assert f"test_layers.py::{value}" in ids
        gradients = f"test_gradients_are_those_of_the_canonical_loss[{name}-float64]"
        assert f"test_layers.py::{gradients}" in ids
    assert {
        each for each in ids if not re.fullmatch(r"test_\w+\.py::test_\w+(\[[\w.:=-]+\])?", each)
    } == set()


# --- an adapter ------------------------------------------------------------------------------


def test_the_example_adapter_passes(run_pytest: Pytest, tmp_path: Path) -> None:
    ended = run_pytest(*EXAMPLE, *PORTS, "--junitxml=results.xml")
    assert ended.returncode == 0, ended.stdout[-4000:]
    cases = list(ElementTree.parse(tmp_path / "results.xml").iter("testcase"))
    skipped = [each.get("message", "") for case in cases for each in case.iter("skipped")]
    assert all("adapter 'example'" in each and "describe" in each for each in skipped)

    found = table(ended)
    strategies = {name: each for name, each in found.items() if name.startswith("example_sync: ")}
    assert len(strategies) == len(STRATEGY_CASES.keys() - {*ASYNCHRONOUS_CASES})
    for name, cells in strategies.items():
        assert cells == ([0, 0, 0, 1] if name.endswith(" (not claimed)") else [1, 0, 0, 0]), name
    assert set(found) == {*W.LAYERS, "other tests", *strategies}
    assert sum(map(sum, found.values())) == len(cases)
    for kind, (passed, failed, expected, missing) in found.items():
        assert not failed and not expected, kind
        if kind in ("linear", "relu", "tanh"):
            assert passed >= 20 and not missing, kind
        elif kind not in ("dropout", "flatten", "other tests", *strategies):
            assert missing and not passed, kind
    rows = Counter(each.get("value") for case in cases for each in case.iter("property"))
    assert rows == {kind: sum(cells) for kind, cells in found.items()}


def test_a_wrong_adapter_fails(run_pytest: Pytest) -> None:
    words = ("--pyargs", "dlb_conformance", "--adapter", "faulty")
    ended = run_pytest(*words, *FEW, DLB_FAULT="wrong-forward")
    assert ended.returncode == 1
    passed, failed, expected, missing = table(ended)["linear"]
    # Forward in two modes, of the logits and of every layer, in float64; float32 is not so fine.
    assert (passed, failed, expected, missing) == (8, 2, 0, 0)


def test_an_adapter_that_keeps_models_fails(run_pytest: Pytest) -> None:
    words = ("--pyargs", "dlb_conformance.test_memory", "--adapter", "faulty")
    ended = run_pytest(*words, DLB_FAULT="keeps-models")
    assert ended.returncode == 1
    assert "something still refers to them" in ended.stdout
    assert run_pytest(*words).returncode == 0


@pytest.mark.long
def test_an_adapter_that_raises_while_models_are_collected_fails(run_pytest: Pytest) -> None:
    words = ("--pyargs", "dlb_conformance", "--adapter", "faulty", *FEW)
    ended = run_pytest(*words, DLB_FAULT="release-raise")
    assert ended.returncode == 1
    assert "could not give the memory back" in ended.stdout
    assert run_pytest(*words).returncode == 0


#: The example's adapter, were it to train by a loss of its own.
PLAIN_LOSS = """
from dataclasses import replace

from dlb_example.plugin import ExampleAdapter
from dlb_worker.model import Loss

class Plain(ExampleAdapter):
    def build_model(self, request, **variant):
        loss = Loss("softmax_cross_entropy", {"label_smoothing": 0.0})
        plain = replace(request.workload, loss=loss)
        return super().build_model(replace(request, workload=plain), **variant)

adapter = Plain()
"""


def test_an_adapter_that_does_not_smooth_labels_fails(run_pytest: Pytest, tmp_path: Path) -> None:
    (tmp_path / "plain_loss.py").write_text(PLAIN_LOSS)
    words = ("--pyargs", "dlb_conformance.test_losses")
    ended = run_pytest(*words, "--adapter-plugin", "plain_loss:adapter")
    assert ended.returncode == 1
    passed, failed, *_ = table(ended)["other tests"]
    assert passed == 0 and failed > 0, ended.stdout
    assert run_pytest(*words, "--adapter", "example").returncode == 0


# --- models that the adapter's author wrote -----------------------------------------------------

#: What an adapter may get wrong of somebody's model, in a subclass of the example's.
WRONG_PORT = """
from dataclasses import replace

from dlb_example.plugin import ExampleAdapter
from dlb_example.user_model import UserNet

class Wrong(UserNet):
{wrong}

class WrongAdapter(ExampleAdapter):
    features = (*ExampleAdapter.features, "export_user_models")

    def export_onnx(self, model, path):
        import onnx
        from onnx import helper

        value = [helper.make_tensor_value_info(name, 1, ["batch", 6]) for name in ("input", "output")]
        node = helper.make_node("Relu", ["input"], ["output"])
        graph = helper.make_graph([node], "wrong", value[:1], value[1:])
        opsets = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
        return "wrong"

    def load_user_model(self, request):
        return Wrong(request)

adapter = WrongAdapter()
"""
WRONGS = {
    "gradients_are_the_slopes": """
    def vjp(self, *given, **more):
        found = super().vjp(*given, **more)
        return replace(found, inputs=found.inputs * 1.001)
""",
    "every_parameter_is_told": """
    def __init__(self, request):
        super().__init__(request)
        self.parameters = self.parameters[:1] + self.parameters[2:]
""",
    "weights_that_are_told_are_the_whole_model": """
    def __init__(self, request):
        super().__init__(request)
        self.parameters = [one for one in self.parameters if one.name != "mix.table"]
""",
    "a_pass_leaves_the_model_as_it_was": """
    def forward(self, inputs, **more):
        found = super().forward(inputs, **more)
        if more.get("training"):
            self.write(self.parameters[0].natives[0], self.read(self.parameters[0].natives[0]) * 1.001)
        return found
""",
    "values_of_linear_layers": """
    def forward(self, inputs, **more):
        found = super().forward(inputs, **more)
        return replace(found, calls=tuple(reversed([
            replace(one, output=two.output) for one, two in zip(found.calls, found.calls[1:])
        ])) + found.calls[-1:])
""",
    "in_float32_it_computes_the_same": """
    def forward(self, inputs, **more):
        return super().forward(inputs.astype("float64"), **more)
""",
    "what_is_exported_computes_the_same": """
    pass  # the exporter is wrong
""",
    "round_trip": """
    def load_weights(self, weights):
        super().load_weights({name: each.astype("float32") for name, each in weights.items()})
""",
}


@pytest.mark.parametrize("test", WRONGS)
def test_an_adapter_that_takes_models_in_wrongly_fails(
    run_pytest: Pytest, tmp_path: Path, test: str
) -> None:
    (tmp_path / "wrong_port.py").write_text(WRONG_PORT.format(wrong=WRONGS[test]))
    words = ("--pyargs", "dlb_conformance.test_ports", "--adapter-plugin", "wrong_port:adapter")
    ended = run_pytest(*words, *PORTS, "-k", test)
    assert ended.returncode == 1, ended.stdout
    assert "test_ports.py" in ended.stdout and "FAILED" in ended.stdout
    assert "Error: " in ended.stdout and "ERROR" not in ended.stdout


def test_models_of_ports_have_to_be_given(run_pytest: Pytest) -> None:
    """For they cannot be skipped: the adapter implements the hook."""
    ended = run_pytest("--pyargs", "dlb_conformance.test_ports", "--adapter", "example")
    assert ended.returncode == 1
    assert "give them with --port-models FILE" in ended.stdout
    assert table(ended) == {"other tests": [0, 17, 0, 0]}


def test_an_adapter_that_loads_no_user_models_is_skipped(
    run_pytest: Pytest, tmp_path: Path
) -> None:
    (tmp_path / "plain.py").write_text(
        "from dlb_example.plugin import ExampleAdapter\n\n"
        "class Plain(ExampleAdapter):\n    features = ('export',)\n\n"
        "adapter = Plain()\n"
    )
    words = ("--pyargs", "dlb_conformance.test_ports", "--adapter-plugin", "plain:adapter", "-rs")
    ended = run_pytest(*words, *PORTS)
    assert ended.returncode == 0
    assert table(ended) == {"other tests": [0, 0, 0, 34]}
    assert "adapter 'example' describes no feature user_models" in ended.stdout


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "at least one"),
        ("[[port_models]]\nfactory = 'a:b'", "missing required field"),
        ("[[port_models]]\nfactory = 'a:b'\ninput = ['x']\ntrained = 1", "Expected `int`"),
        ("[[models]]\nfactory = 'a:b'\ninput = [1]\ntrained = 1", "[[port_models]] entries only"),
        ("port_models = 1", "Expected `array`"),
        ("=", "not TOML"),
    ],
)
def test_a_file_of_port_models_that_is_none_is_refused(
    run_pytest: Pytest, tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "ports.toml").write_text(text)
    ended = run_pytest(*EXAMPLE, "--port-models", "ports.toml")
    refused(ended, f"{tmp_path / 'ports.toml'}: ", complaint)


# --- how it is called -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--adapter", "exampel"), "unknown adapter 'exampel'; did you mean 'example'?"),
        ((), "name the adapter with --adapter; installed here: example, faulty"),
        (("--adapter-plugin", "no_such"), "plugin no_such: ModuleNotFoundError"),
        (
            ("--adapter", "other", "--adapter-plugin", "dlb_example.plugin:adapter"),
            "module dlb_example.plugin:adapter is adapter 'example', not 'other'",
        ),
    ],
)
def test_an_adapter_that_is_not_there_is_a_usage_error(
    run_pytest: Pytest, words: tuple[str, ...], complaint: str
) -> None:
    refused(run_pytest("--pyargs", "dlb_conformance", *words), complaint)


def refused(ended: Ended, *complaints: str) -> None:
    """pytest's own status and form of a usage error."""
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    (line,) = (line for line in ended.stderr.splitlines() if line.strip())
    for complaint in complaints:
        assert line.startswith("ERROR: ") and complaint in line
    assert "Traceback" not in ended.stdout


# --- expected failures -----------------------------------------------------------------------


def test_expected_failures_fail_no_run(run_pytest: Pytest, tmp_path: Path) -> None:
    tests = (
        "test_the_logits_*-float64-*",
        "test_every_layer_value*[linear-without-bias-float64-*]",
    )
    entries = (ENTRY.format(test=f"test_layers.py::{test}", reason="it is off") for test in tests)
    (tmp_path / "known.toml").write_text("".join(entries))
    words = ("--pyargs", "dlb_conformance", "--adapter", "faulty", *FEW)
    ended = run_pytest(
        *words, "--expected-failures", "known.toml", "-rx", DLB_FAULT="wrong-forward"
    )
    assert ended.returncode == 0, ended.stdout
    assert table(ended) == {"linear": [8, 0, 2, 0]}
    assert ended.stdout.count("it is off") >= 2


def test_an_expected_failure_that_passes_fails(run_pytest: Pytest, tmp_path: Path) -> None:
    entry = ENTRY.format(test="*loss*[linear-without-bias-float64]", reason="it was off")
    (tmp_path / "known.toml").write_text(entry)
    ended = run_pytest(*EXAMPLE, *FEW, "--expected-failures", "known.toml")
    assert ended.returncode == 1
    assert table(ended) == {"linear": [8, 2, 0, 0]}
    assert ended.stdout.count("passes now: remove its entry\n") == 2
    place = f"{tmp_path / 'known.toml'}: entry 1 ('*loss*[linear-without-bias-float64]')"
    assert f"{place}: it was off" in ended.stdout


def test_an_entry_of_no_test_is_a_usage_error(run_pytest: Pytest, tmp_path: Path) -> None:
    good = ENTRY.format(test="test_layers.py::*[conv-float64*]", reason="a")
    stale = ENTRY.format(test="test_layers.py::*[convolution-*]", reason="b")
    (tmp_path / "known.toml").write_text(good + stale)
    refused(
        run_pytest(*EXAMPLE, *FEW, "--expected-failures", "known.toml"),
        "known.toml: entry 2 ('test_layers.py::*[convolution-*]') matches no test",
    )


def test_where_a_part_is_run_entries_of_the_rest_are_left_alone(
    run_pytest: Pytest, tmp_path: Path
) -> None:
    (tmp_path / "known.toml").write_text(ENTRY.format(test="test_export.py::*", reason="a"))
    words = ("--pyargs", "dlb_conformance.test_layers", "--adapter", "example")
    ended = run_pytest(*words, *FEW, "--expected-failures", "known.toml")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b'[[expected_failures]]\ntest = "a"\n', "entry 1 ('a'): Object missing required field"),
        (ENTRY.format(test="a", reason=" ").encode(), "entry 1 ('a'): 'reason' is empty"),
        (ENTRY.format(test="", reason="b").encode(), "entry 1 (''): 'test' is empty"),
        (
            ENTRY.format(test="a", reason="b").encode() + b'when = "c"\n',
            "entry 1 ('a'): Object contains unknown field `when`",
        ),
        (b"[[expected_failures]]\ntest = 1\nreason = 'b'\n", "entry 1: Expected `str`"),
        (b"expected_failures = [1]", "entry 1: Expected `object`"),
        (b"[expected_failures]\ntest = 'a'\n", "'expected_failures' is no list"),
        (b"[[expected]]\ntest = 'a'\n", "unknown key 'expected'"),
        (b"[[expected_failures]\n", "not TOML"),
        (b"\xff", "not TOML"),
        (b"a = " + b"[" * 20_000, "not TOML"),
        (b"#" * 2**21, "larger than"),
        (None, "No such file or directory"),
    ],
)
def test_a_bad_file_is_refused_by_name_and_entry(
    tmp_path: Path, text: bytes | None, complaint: str
) -> None:
    path = tmp_path / "known.toml"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(RequestError) as refusal:
        read(path)
    assert str(refusal.value).startswith(f"{path}: {complaint}")


def test_a_bad_file_is_a_usage_error(run_pytest: Pytest, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text('[[expected_failures]]\ntest = "a"\n')
    ended = run_pytest(*EXAMPLE, "--expected-failures", "known.toml")
    refused(ended, f"{tmp_path / 'known.toml'}: entry 1 ('a'): ", "`reason`")


# --- other projects --------------------------------------------------------------------------


def test_other_projects_do_not_notice_it(run_pytest: Pytest, tmp_path: Path) -> None:
    """No option of the suite is taken, and nothing is imported that takes time."""
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n"
        "    for name in ('--adapter', '--adapter-plugin', '--expected-failures', '--long'):\n"
        "        parser.addoption(name)\n"
    )
    (tmp_path / "test_own.py").write_text(
        "import sys\n\n\n"
        "def test_own(pytestconfig):\n"
        "    assert pytestconfig.getoption('--adapter') == 'mine'\n"
        "    named = ('numpy', 'onnx', 'onnxruntime', 'msgspec', 'click', 'dlb_example')\n"
        "    assert [name for name in named if name in sys.modules] == []\n"
        "    own = {name for name in sys.modules if name.partition('.')[0] in ('dlb', 'dlb_conformance')}\n"
        "    assert own == {'dlb_conformance', 'dlb_conformance.entry_point'}\n"
    )
    ended = run_pytest("--adapter", "mine", "--strict-markers", "-W", "error")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "adapter '" not in ended.stdout


LOSS = "test_the_loss_is_the_mean_over_the_batch"


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("--pyargs", "dlb_conformance.test_layers"), 10),
        (("--pyargs", f"dlb_conformance.test_layers::{LOSS}"), 2),
        ((str(FOLDER),), 10),
        (("--long", "--pyargs", "dlb_conformance"), 10),
        ((f"{FOLDER}/test_layers.py::{LOSS}[linear-without-bias-float64]",), 1),
    ],
)
def test_a_part_is_asked_for_by_name_or_by_path(
    run_pytest: Pytest, words: tuple[str, ...], count: int
) -> None:
    ended = run_pytest("--adapter", "example", *words, *FEW)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert table(ended) == {"linear": [count, 0, 0, 0]}


def test_settings_of_the_project_around_it_do_not_hide_its_tests(
    run_pytest: Pytest, tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npython_files = check_*.py\npython_functions = check_own_*\n"
        "testpaths = elsewhere\naddopts = --strict-markers --strict-config\n"
    )
    (tmp_path / "elsewhere").mkdir()
    for mode in ("prepend", "importlib"):
        ended = run_pytest(*EXAMPLE, *FEW, f"--import-mode={mode}")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert table(ended) == {"linear": [10, 0, 0, 0]}
