"""The table of settings, and what is made of it: options, arguments, axes, jobs, records, keys, refusals."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
import pytest

import dlb
import dlb_measure
from dlb import cli, samples
from dlb.adapters import AdapterEnvironment
from dlb.catalogue import load_with_file
from dlb.errors import RequestError, SettingError, UnknownNameError
from dlb.execution.kept_proofs import proof_key
from dlb.prepared import prepare
from dlb.record import Options
from dlb.request import Request
from dlb.resolver import Resolver
from dlb.settings import AXES, SETTINGS, Setting, Settings, in_command, settings_of
from dlb_graph.workload import workload_hash
from dlb_measure.matrix import Axis, SweepCell, axes_of, make_cells
from dlb_measure.remote_cell import job_of
from dlb_studies.plan import plan_study
from dlb_studies.study import Part, Quantity, Study

MLP = Path(__file__).parent / "workloads" / "mlp.toml"
HERE = AdapterEnvironment("example", Path(sys.executable), "this environment")
COMMANDS = ("run", "verify", "tune", "sweep", "scale")
#: Another value than the default of each setting.
OTHER: dict[str, Any] = {
    "changes": ("batch_size=32",),
    "batch_size": 32,
    "dtype": "float64",
    "strategy": "example_sync",
    "workers": 2,
    "hosts": ("127.0.0.1",),
    "variants": ("layout=columns",),
    "data": "synthetic",
    "variables": {"OMP_WAIT_POLICY": "passive"},
    "seed": 2,
    "device": "cuda",
    "threads": 3,
    "call_seconds": 20.0,
    "prove_again": True,
    "groups": frozenset({"forward"}),
    "steps": 30,
    "epochs": 2,
    "warmup": 1,
    "input": "memory",
    "test_steps": 5,
    "test_seconds": 5.0,
}


def resolver(**more: Any) -> Resolver:
    return Resolver(*load_with_file(str(MLP)), **more)


def resolved(**settings: Any) -> Request:
    return resolver().resolve(Settings(**settings), [HERE])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_the_options_of_its_settings_alone(command: str) -> None:
    context = click.Context(cli.dlb)
    shown = cli.dlb.get_command(context, command)
    assert shown is not None
    options = {word: each for each in shown.params for word in each.opts}
    for setting in SETTINGS.values():
        flag = in_command(setting.name)
        own = command == "scale" and setting.name in ("batch_size", "strategy", "workers")
        assert (flag in options) == (setting in settings_of(command) or own), flag
        if flag in options and setting.plain and not own and flag != "--test-every":
            default = 60 if (command, setting.name) == ("tune", "steps") else setting.default
            assert (options[flag].name, options[flag].default) == (setting.name, default)


@pytest.mark.parametrize("function", [dlb.run, dlb.verify, dlb.assert_proven, dlb_measure.sweep])
def test_a_function_takes_the_settings_of_its_command(function: Any) -> None:
    command = "verify" if function is dlb.assert_proven else function.__name__
    arguments = inspect.signature(function).parameters
    names = [name for name in arguments if name in SETTINGS]
    assert names == [each.name for each in settings_of(command)]
    assert all(arguments[name].default == SETTINGS[name].default for name in names)
    with pytest.raises(UnknownNameError, match="did you mean 'threads'"):
        function(MLP, ["example"], thread=2, **({"vary": {}} if command == "sweep" else {}))


def test_every_setting_has_another_value_here() -> None:
    assert OTHER.keys() == SETTINGS.keys()
    for name, value in OTHER.items():
        assert getattr(Settings(**{name: value}), name) == value != SETTINGS[name].default


#: Settings that are refused, and the sentence, in which {name} stands for a setting as its reader writes it.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "batch above the data": (
        {"batch_size": 100000},
        "{batch_size} is 100000; it must be from 1 to the 2000 training samples of "
        "'fashion-mnist-subset'",
    ),
    "batch above the data, with steps": (
        {"steps": 5, "batch_size": 100000},
        "{batch_size} is 100000; it must be from 1 to the 2000 training samples of "
        "'fashion-mnist-subset'",
    ),
    "no batch": ({"batch_size": 0}, "{batch_size} is 0; it must be 1 or more"),
    "no steps": ({"steps": 0}, "{steps} is 0; it must be 1 or more"),
    "no epochs": ({"epochs": 0}, "{epochs} is 0; it must be 1 or more"),
    "no threads": ({"threads": 0}, "{threads} is 0; it must be 1 or more"),
    "seed": ({"seed": -1}, "{seed} is -1; it must be 0 or more"),
    "too large": ({"threads": 2**31}, "{threads} is 2147483648; it must be 2,147,483,647 or less"),
    "workers without strategy": (
        {"workers": 2},
        "{workers} 2 needs a {strategy}; see: dlb list strategies",
    ),
    "workers without a sample": (
        {"workers": 3, "strategy": "example_sync", "batch_size": 2},
        "{batch_size} 2 is too small for 3 workers; each needs a sample in every part of a step",
    ),
    "both": ({"steps": 5, "epochs": 5}, "{steps} and {epochs} exclude each other"),
}


def written(sentence: str, names: dict[str, str]) -> str:
    return sentence.format(**names)


@pytest.mark.parametrize(("settings", "sentence"), REFUSED.values(), ids=list(REFUSED))
def test_one_sentence_refuses_wherever_it_is_asked(
    settings: dict[str, Any], sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    flags = {name: in_command(name) for name in SETTINGS}
    plain = {name: name for name in SETTINGS}
    words = [str(word) for name, value in settings.items() for word in (flags[name], value)]
    out = ("--out", str(tmp_path / "results"))
    assert cli.call(["run", str(MLP), *words, *out]) == 2
    assert capsys.readouterr().err == f"dlb: {written(sentence, flags)}\n"
    with pytest.raises(SettingError) as refused:
        dlb.run(MLP, ["example"], out=tmp_path, **settings)
    assert str(refused.value) == written(sentence, plain)

    # In a sweep, what varies is called what --vary calls it.
    with pytest.raises(SettingError) as refused:
        axes = axes_of({name: [value] for name, value in settings.items()})
        make_cells(resolver(), [HERE], axes, Settings())
    varied = {**flags, **{name: name for name in settings}}
    for error, names in ((refused.value.sentence(in_command), varied), (str(refused.value), plain)):
        assert written(sentence, names) in error


def test_a_study_says_it_too(tmp_path: Path) -> None:
    part = Part(workload=str(MLP), vary={"batch_size": (100000,)})
    study = Study(
        name="own",
        title="",
        source="",
        rows=("tool",),
        columns=("batch_size",),
        quantities=(Quantity(name="s", kind="seconds_per_batch"),),
        parts=(part,),
    )
    with pytest.raises(RequestError, match="batch_size is 100000; it must be from 1 to the 2000"):
        plan_study(study, tmp_path / "own.toml", [HERE], tmp_path, quick=False)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"batch_size": 2.0}, "batch_size is 2.0; it must be a whole number, 1 or more"),
        ({"steps": True}, "steps is True; it must be a whole number"),
        ({"call_seconds": float("nan")}, "call_seconds is nan; it must be 1 or more"),
        ({"device": "tpu"}, "device is tpu; it must be one of cpu, cuda"),
        ({"groups": ["sideways"]}, "groups is sideways; it must be one of weights, "),
        ({"groups": []}, "groups is empty"),
        ({"variants": "layout=rows"}, "variants is layout=rows; it must be a list"),
        ({"changes": ["optimizer.rate=1"]}, "changes optimizer.rate=1: not a valid workload"),
        ({"steps": 5, "warmup": 5}, "warmup is 5; it must be from 0 to less than the 5 steps"),
    ],
)
def test_values_of_another_kind_are_refused_in_python(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError) as refused:
        resolved(**settings)
    assert says in str(refused.value)


def test_trial_steps_must_be_more_than_the_warmup() -> None:
    with pytest.raises(SettingError, match="trial_steps is 3; it must be more than the 4 steps of"):
        resolver(trial_steps=3).resolve(Settings(warmup=4), [HERE])


def test_adapters_are_looked_for_when_all_else_is_right() -> None:
    def find() -> list[AdapterEnvironment]:
        raise AssertionError("they were looked for")

    with pytest.raises(SettingError):
        resolver().resolve(Settings(batch_size=100000), find)


def test_rules_fill_in_what_is_left_out() -> None:
    request = resolved()
    assert (request.batch_size, request.steps, request.warmup) == (64, 2000 // 64, 3)
    assert (resolved(epochs=7).steps, resolved(epochs=7).warmup) == (7 * 31, 10)
    proof = resolver(command="verify").resolve(Settings(steps=7), [HERE])
    assert (proof.steps, proof.warmup, proof.trajectory_steps, proof.out) == (5, 0, 7, None)


@pytest.mark.parametrize("name", [each.axis for each in SETTINGS.values()])
def test_what_varies_is_an_axis(name: str) -> None:
    values = [OTHER.get(name, "layout=columns")]
    axes = [Axis(name, tuple(values))]
    if name in AXES:
        assert axes_of({name: values}) == axes
        command = cli.dlb.get_command(click.Context(cli.dlb), "sweep")
        assert command is not None and re.search(rf"\b{name}\b", command.help or "")
    else:
        with pytest.raises(UnknownNameError, match=f"unknown setting or field .*'{name}'"):
            make_cells(resolver(), [HERE], axes, Settings())


def test_records_have_what_is_recorded() -> None:
    recorded = {name for name, setting in SETTINGS.items() if setting.recorded}
    assert {*Options.__struct_fields__} == recorded | {"variant"}


def test_a_job_makes_the_same_request() -> None:
    names = ("dtype", "seed", "threads", "call_seconds", "steps", "warmup", "input", "variables")
    request = resolved(**{name: OTHER[name] for name in names}, test_steps=5, changes=["epochs=3"])
    request = replace(request, choices={"example": {"layout": "columns"}})
    document = msgspec.json.decode(job_of(SweepCell(request, {}), None))
    settings = Settings(**document["settings"])
    assert settings.variants == ("layout=columns",)
    again = Resolver(request.workload).resolve(replace(settings, variants=()), [HERE])
    assert replace(again, choices=request.choices) == request


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=list(SETTINGS))
def test_the_key_of_a_proof_depends_on_what_a_proof_depends_on(setting: Setting) -> None:
    name, value = setting.name, OTHER[setting.name]
    base = replace(resolved(), environments=())
    if name == "variants":
        other = replace(base, choices={"example": {"layout": "columns"}})
    elif name not in ("changes", "data", "epochs"):
        other = replace(base, **{name: value})
    else:
        other = replace(resolved(**{name: value}), environments=())
    same = workload_hash(other.workload) == workload_hash(base.workload)
    differs = setting.proven or name == "changes"
    assert same == (name not in ("changes", "data"))
    assert (proof_key(other) != proof_key(base)) == differs


def test_the_key_of_a_proof_does_not_depend_on_what_an_interrupted_import_leaves() -> None:
    request = replace(resolved(), environments=())
    folder = Path(dlb.__file__).parent / "__pycache__"
    folder.mkdir(exist_ok=True)
    key = proof_key(request)
    left = folder / "left.cpython-311.pyc.140234"
    left.write_bytes(b"half of a file")
    try:
        assert proof_key(request) == key
    finally:
        left.unlink()


def test_data_are_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).integers(0, 255, (100, 1, 28, 28), np.uint8)
    np.savez(tmp_path / "own.npz", inputs=rows, labels=np.arange(100) % 10)
    opened, open_split = [], samples.open_split

    def counted(workload: Any, split: str) -> Any:
        opened.append(split)
        return open_split(workload, split)

    monkeypatch.setattr(samples, "open_split", counted)
    request = resolved(data=f"npz:{tmp_path / 'own.npz'}", steps=2, batch_size=8)
    assert request.splits.count == 90 and opened == ["train"]
    prepared = prepare(request, tmp_path)
    assert prepared.data.epoch == 11 and opened == ["train", "test"]
