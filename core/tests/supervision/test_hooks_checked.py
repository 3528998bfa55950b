"""What is right in a plugin; tests/hostile has what is wrong."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import pytest

from dlb.errors import PluginError
from dlb_worker import hookimpl
from dlb_worker.contract import CONTRACT, AdapterDescription
from dlb_worker.plugins import check_description, check_hooks

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
