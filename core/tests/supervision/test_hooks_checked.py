"""What is checked of a plugin as it is loaded."""

from __future__ import annotations

import dataclasses
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dlb import catalogue, cli, observers
from dlb.errors import DlbError, PluginError
from dlb_worker import hookimpl
from dlb_worker.contract import CONTRACT, AdapterDescription
from dlb_worker.plugins import (
    check_answer,
    check_description,
    check_hooks,
    load_plugins,
    plugins_of,
)

DESCRIPTION = AdapterDescription(
    name="one", title="One", distribution="dlb-one", framework=("one",), contract=CONTRACT,
    layers={}, optimizers={},
)  # fmt: skip


def plugin(**functions: Any) -> ModuleType:
    module = ModuleType("plugin")
    vars(module).update(functions)
    return module


def test_hooks_may_leave_out_arguments() -> None:
    found = check_hooks(
        plugin(
            dlb_start=hookimpl(lambda framework: None),
            dlb_describe=hookimpl(lambda: DESCRIPTION),
            dlb_version="not a function",
            helper=lambda: None,
        )
    )
    assert found == ("dlb_describe", "dlb_start")


#: A plugin's functions, and what is said.
BROKEN = {
    "none": (
        {"helper": lambda: None},
        "this module answers no hook; name an Adapter or a Strategy",
    ),
    "misspelt": ({"dlb_strat": hookimpl(lambda: None)}, "did you mean 'dlb_start'?"),
    "unknown": ({"dlb_zzz": hookimpl(lambda: None)}, "'dlb_zzz' is not a hook of contract"),
    "unmarked": ({"dlb_start": lambda framework: None}, "put @dlb_worker.hookimpl above it"),
    "argument": (
        {"dlb_clock": hookimpl(lambda framework, gpu: None)},
        "takes gpu, which the contract does not pass; it passes device, framework",
    ),
}


@pytest.mark.parametrize(("functions", "says"), BROKEN.values(), ids=list(BROKEN))
def test_broken_hooks_are_refused(functions: dict[str, Any], says: str) -> None:
    with pytest.raises(PluginError, match=says):
        check_hooks(plugin(**functions))


@pytest.mark.parametrize(
    ("contract", "fits"),
    [
        (CONTRACT, True),
        ((CONTRACT[0], CONTRACT[1] + 1), False),
        ((CONTRACT[0] + 1, 0), False),
        ((CONTRACT[0] - 1, 0), False),
    ],
)
def test_contract_versions(contract: tuple[int, int], fits: bool) -> None:
    described = dataclasses.replace(DESCRIPTION, contract=contract)
    if fits:
        check_description(described)
    else:
        with pytest.raises(PluginError, match="install versions that go together"):
            check_description(described)


@pytest.mark.parametrize(
    ("hook", "answer", "fits"),
    [
        ("dlb_workloads", {}, True),
        ("dlb_workloads", [], False),
        ("dlb_studies", {}, True),
        ("dlb_studies", (), False),
        ("dlb_strategies", (), True),
        ("dlb_commands", [], True),
        ("dlb_datasets", None, False),
        ("dlb_strategies", "ddp", False),
        ("dlb_workloads", {"mine": "x.toml"}, True),
        ("dlb_workloads", {1: "x.toml"}, False),
        ("dlb_workloads", {"mine": 2}, False),
        ("dlb_studies", {1: 2}, False),
        ("dlb_executors", {"mine": 2}, False),
        ("dlb_executors", {"mine": print}, True),
        ("dlb_datasets", [1], False),
        ("dlb_commands", [42], False),
        ("dlb_strategies", ["ddp"], False),
    ],
)
def test_answers_are_of_their_kind(hook: str, answer: Any, fits: bool) -> None:
    if fits:
        check_answer(hook, answer)
    else:
        with pytest.raises(PluginError, match=f"{hook} returned a "):
            check_answer(hook, answer)


#: What ``evil`` is in its package's metadata.
POINTS = b"[dlb]\nevil = evil_plugin\n"
METADATA = b"Metadata-Version: 2.1\nName: dlb-evil\nVersion: 1.0\n"

#: Entry points, metadata and code of a package, and what is said of it; nothing of what is nobody's business.
PACKAGES: dict[str, tuple[bytes, bytes | None, str, str]] = {
    "no metadata": (POINTS, None, "", "its metadata cannot be read"),
    "no name": (POINTS, METADATA.replace(b"Name: dlb-evil\n", b""), "", "cannot be read"),
    "no version": (POINTS, METADATA.replace(b"Version: 1.0\n", b""), "", "cannot be read"),
    "metadata is no text": (POINTS, METADATA + b"Author: \xff\n", "", "cannot be read"),
    "a point is no text": (b"[dlb]\nevil = \xff\n", METADATA, "", "cannot be read"),
    "a point without =": (b"[dlb]\nevil\n", METADATA, "", "cannot be read"),
    "another's is no text": (b"[other]\nevil = \xff\n", METADATA, "", ""),
    "another's without =": (b"[other]\nevil\n", METADATA, "", ""),
    "another's without metadata": (b"[other]\nevil = x\n", None, "", ""),
    "an interrupt": (POINTS, METADATA, "raise KeyboardInterrupt", "KeyboardInterrupt"),
    "no exception": (POINTS, METADATA, "class E(BaseException): pass\nraise E(1)", "E: 1"),
    "no text": (
        POINTS,
        METADATA,
        "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
        "E: its text cannot be made",
    ),
    "a long text": (POINTS, METADATA, "raise ValueError('x' * 10**7)", "ValueError: xxx"),
}


@pytest.mark.parametrize(
    ("points", "metadata", "code", "says"), PACKAGES.values(), ids=list(PACKAGES)
)
def test_a_damaged_package_costs_only_itself(
    points: bytes,
    metadata: bytes | None,
    code: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "dlb_evil-1.0.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_bytes(points)
    if metadata is not None:
        (folder / "METADATA").write_bytes(metadata)
    (tmp_path / "evil_plugin.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "evil_plugin", raising=False)
    handler = signal.getsignal(signal.SIGINT)
    plugins = load_plugins.__wrapped__()
    assert signal.getsignal(signal.SIGINT) is handler
    lines = [str(each) for each in plugins.broken if "evil" in str(each)]
    assert len(lines) == bool(says)
    assert all(says in line for line in lines)
    assert all(len(line) < 1500 for line in lines)
    assert "resources" in {each.name for each in plugins.loaded}


@pytest.mark.parametrize(
    "changes",
    [
        {"variants": {"compile": 7}},
        {"variants": ["compile"]},
        {"layers": "linear"},
        {"layers": {1: "native"}},
        {"optimizers": None},
        {"dtypes": "float32"},
        {"features": (1,)},
        {"title": 5},
    ],
)
def test_a_description_of_other_types_is_refused(changes: dict[str, Any]) -> None:
    check_description(dataclasses.replace(DESCRIPTION, variants={"compile": ("no", "yes")}))
    with pytest.raises(PluginError, match=f"a wrong '{next(iter(changes))}'"):
        check_description(dataclasses.replace(DESCRIPTION, **changes))


@pytest.mark.parametrize(
    "name", ["../escaped", "a/b", "a" * 65, "", "a\0b", "Evil", "-a", "a b", "a\n", 5, None]
)
def test_a_name_that_is_no_file_name_is_refused(name: Any) -> None:
    check_description(dataclasses.replace(DESCRIPTION, name="a-b_2"))
    with pytest.raises(PluginError, match="use lowercase letters"):
        check_description(dataclasses.replace(DESCRIPTION, name=name))


#: What an observer of processes yields or does, and what is said of it.
OBSERVED: list[tuple[str, str]] = [
    ("yield {'a': object()}", "observer 'evil' failed: TypeError"),
    ("yield {'a': 10**30}", "observer 'evil' failed: ValidationError: an integer"),
    ("yield {'a': '\\ud800'}", "observer 'evil' failed: UnicodeEncodeError"),
    ("yield {'a': 'x' * (1 << 25)}", "at most 16777216 are kept"),
    ("yield {}; import sys; sys.exit(3)", "observer 'evil' failed: SystemExit: 3"),
    ("import sys; sys.exit(3); yield", "observer 'evil' failed: SystemExit: 3"),
]


@pytest.mark.parametrize(("body", "says"), OBSERVED)
def test_an_observer_that_fails_is_named(
    body: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {}
    exec(f"def observe(framework):\n    {body}", names)
    evil = plugins_of(plugin(dlb_observe_processes=hookimpl(names["observe"])), "evil")
    monkeypatch.setattr(observers, "load_plugins", lambda: evil)
    with (
        pytest.raises(DlbError, match=says),
        observers.observe_processes("example", list, "cpu"),
    ):
        pass


def test_workloads_of_plugins_replace_none_and_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {"lenet5": "/nowhere/5.toml", "mine": "/nowhere/mine.toml"}
    evil = plugins_of(plugin(dlb_workloads=hookimpl(lambda: paths)), "evil")
    monkeypatch.setattr(catalogue, "load_plugins", lambda: evil)
    assert catalogue.load_workload("lenet5").model.nodes
    assert cli.call(["list", "workloads"]) == 0
    out = capsys.readouterr().out
    assert "cannot be read: /nowhere/mine.toml: No such file" in out and "lenet5" in out
