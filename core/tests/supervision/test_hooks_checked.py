"""What is checked of a plugin as it is loaded."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import pytest

from dlb.errors import PluginError
from dlb_worker import hookimpl
from dlb_worker.contract import CONTRACT, AdapterDescription
from dlb_worker.plugins import check_answer, check_description, check_hooks

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
    ],
)
def test_answers_are_of_their_kind(hook: str, answer: Any, fits: bool) -> None:
    if fits:
        check_answer(hook, answer)
    else:
        with pytest.raises(PluginError, match=f"{hook} returned a "):
            check_answer(hook, answer)
