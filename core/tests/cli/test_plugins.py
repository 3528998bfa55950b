"""Plugins that break: named with distribution and version, left out, and nothing else suffers."""

from __future__ import annotations

import pytest
from dlb_process import Dlb

#: How dlb-faulty is broken, and what must be said of it.
BROKEN = {
    "import-raise": "RuntimeError: no such library: libfaulty.so.3",
    "import-exit": "SystemExit: cannot go on",
    "misspelt-hook": "did you mean 'dlb_build_model'?",
    "unmarked-hook": "hook 'dlb_serve' is not marked; put @dlb_worker.hookimpl above it",
    "unknown-argument": "hook 'dlb_serve' takes colour, which the contract does not pass",
    "contract": "it is made for contract 99.0",
    "no-description": "dlb_describe returned a str, not an AdapterDescription",
    "strategies-raise": "OSError: no network",
    "twice": "has an adapter 'example' too",
}


@pytest.mark.parametrize(("fault", "reason"), BROKEN.items(), ids=list(BROKEN))
def test_broken_plugin_is_left_out(dlb: Dlb, fault: str, reason: str) -> None:
    ended = dlb("list", "plugins", "--json", fault=fault)
    assert ended.status == 0
    (line,) = ended.err.splitlines()
    assert line.startswith("dlb: plugin 'faulty' of dlb-faulty 0.0.7 left out: "), line
    assert reason in line
    states = {row["plugin"]: row["state"] for row in ended.document["plugins"]}
    assert states["faulty"] == "left out" and states["example"] == "loaded"


def test_strict_plugins_are_fatal(dlb: Dlb) -> None:
    ended = dlb("list", "plugins", fault="import-raise", more={"DLB_STRICT_PLUGINS": "1"})
    assert ended.status == 1
    assert "dlb-faulty 0.0.7" in ended.complaint and "DLB_STRICT_PLUGINS" in ended.complaint


def test_broken_plugin_asked_for(dlb: Dlb) -> None:
    ended = dlb.run("--on", "faulty", fault="import-raise")
    assert ended.status == 1
    assert "adapter 'faulty' cannot be used" in ended.complaint
    assert "libfaulty.so.3" in ended.complaint


def test_others_run_beside_a_broken_plugin(dlb: Dlb) -> None:
    ended = dlb.run("--json", fault="misspelt-hook")
    assert ended.status == 0 and ended.document["proven"]
    assert "left out" in ended.err


def test_what_a_plugin_prints_is_kept_out_of_the_document(dlb: Dlb) -> None:
    ended = dlb("list", "adapters", "--json", fault="import-print")
    names = [row["adapter"] for row in ended.document["adapters"]]
    assert {"example", "faulty", "torch"} <= set(names)
    assert "welcome to faulty!" in ended.err
