"""Arguments of public functions that are of another kind are refused in a sentence, before anything runs."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dlb
import dlb_graph
import dlb_measure
import dlb_port
import dlb_report
from dlb.errors import RequestError, SettingError, UnknownNameError
from dlb_measure import frames

PACKAGES = (dlb, dlb_graph, dlb_measure, dlb_port, dlb_report, frames)
FUNCTIONS = {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in PACKAGES
    for name in package.__all__
    if inspect.isfunction(getattr(package, name))
}
MODELS = {"torch": "nets:make", "tf": "nets:make"}

REFUSED = {
    "a text for a list": (
        dlb.verify,
        ("lenet5", "torch"),
        {},
        "on is 'torch'; it must be list[str], such as ['torch']",
    ),
    "a number in a list": (dlb.run, ("lenet5", [1]), {}, "on is [1]; it must be list[str]"),
    "a text for a dict": (
        dlb_port.verify_port,
        (MODELS,),
        {"layouts": "NHWC"},
        "layouts is 'NHWC'; it must be dict[str, str] | None",
    ),
    "a number in a dict": (
        dlb_port.assert_port_proven,
        (MODELS,),
        {"layouts": {"tf": 3}},
        "layouts is {'tf': 3}; it must be dict[str, str] | None",
    ),
    "a dict for a list": (
        dlb_port.verify_port,
        (MODELS,),
        {"trainers": ["a:b"]},
        "trainers is ['a:b']; it must be dict[",
    ),
    "layouts of files": (
        dlb_port.assert_same_file,
        ("a.onnx", "b.onnx"),
        {"layouts": "NHWC"},
        "layouts is 'NHWC'",
    ),
    "a shape as text": (
        dlb_port.verify_port,
        (MODELS,),
        {"input_shape": "3,4"},
        "input_shape is '3,4'; it must be list[int] |",
    ),
    "a number as text": (
        dlb_port.capture,
        ("a", "torch", "a:b"),
        {"seed": "0"},
        "seed is '0'; it must be int",
    ),
    "a truth for a number": (
        dlb_port.verify_port,
        (MODELS,),
        {"threads": True},
        "threads is True; it must be int",
    ),
    "another word": (
        dlb_port.onnx_backend,
        ("torch",),
        {"dtype": "half"},
        "dtype is 'half'; it must be Optional[Literal['float32', 'float64']]",
    ),
    "no measurement": (
        dlb_measure.compare,
        ("results",),
        {},
        "measurement is 'results'; it must be Measurement",
    ),
    "no plan": (dlb_measure.run, ("lenet5",), {"plan": 5}, "plan is 5; it must be Plan | None"),
    "no path": (dlb.read_records, (3,), {}, "path is 3; it must be str | Path"),
    "nothing": (dlb.verify, (), {}, "verify(): missing a required argument: 'workload'"),
    "a plan": (dlb_measure.Plan, (), {"rounds": "5"}, "rounds is '5'; it must be int"),
    "an order of a plan": (
        dlb_measure.Plan,
        (),
        {"order": "random"},
        "order is 'random'; it must be Optional[Literal['interleaved', 'alternating', ",
    ),
    "rounds of a plan": (dlb_measure.Plan, (), {"rounds": 0}, "rounds is 0; it must be 1 or more"),
    "sizes of a file": (
        dlb.Reading,
        ("batch=3",),
        {},
        "sizes is 'batch=3'; it must be dict[str, int]",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_argument_of_another_type_is_refused(case: str) -> None:
    function, args, kwargs, says = REFUSED[case]
    with pytest.raises(RequestError) as refused:
        function(*args, **kwargs)
    assert str(refused.value).startswith(says)
    lines = "".join(traceback.format_exception(refused.value)).splitlines()
    assert len(lines) < 15, "frames of dlb say nothing to whoever called it"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_function_refuses_what_it_has_no_argument_for(name: str) -> None:
    function: Callable[..., Any] = FUNCTIONS[name]
    required = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.default is each.empty and each.kind != each.VAR_KEYWORD
    ]
    with pytest.raises(RequestError, match="it must be"):
        function(**{each.name: object() for each in required})
    given = {each.name: MODELS if each.name == "models" else "a" for each in required}
    with pytest.raises(RequestError, match=r"unknown .*argument 'tokenz'|it must be"):
        function(**given, tokenz=1)


def test_an_argument_is_proposed() -> None:
    with pytest.raises(UnknownNameError, match="argument 'layout'; did you mean 'layouts'"):
        dlb_port.verify_port(MODELS, layout="NHWC")


@pytest.mark.parametrize(
    ("setting", "says"),
    [({"threads": 0}, "threads is 0; it must be 1 or more"),
     ({"device": "tpu"}, "device is tpu; it must be one of cpu, cuda"),
     ({"dtype": "half"}, "dtype is half; it must be one of"),
     ({"seed": -1}, "seed is -1; it must be 0 or more")],
)  # fmt: skip
def test_a_port_refuses_settings_as_a_run_does(setting: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        dlb_port.verify_port(MODELS, **setting)


def test_what_fits_is_accepted(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no model 'jax'"):
        dlb_port.verify_port(
            MODELS, layouts={"jax": "NHWC"}, input_shape=(3, 4), folder=tmp_path, call_seconds=10
        )
    with pytest.raises(RequestError, match=r"has no environment|unknown adapter"):
        dlb.verify("lenet5", ("nothing-like-it",))
