"""What rounding alone may do is shown by the first adapter that works and is right by itself."""

from __future__ import annotations

from typing import Any

import pytest
from dlb_process import TESTS, Dlb

MLP = TESTS / "workloads" / "mlp.toml"
#: What is wrong with the first adapter, and what is then known of it.
FIRST = {
    "raise@build": "unproven",
    "die-sigkill@gradients": "unproven",
    "wrong-forward": "deviates",
}


def bands(document: Any) -> dict[str, int]:
    """Perturbed runs by adapter."""
    divergences = document["certificate"]["divergences"]
    return {one["adapter"]: len(one["perturbed"]) for one in divergences}


@pytest.mark.parametrize("fault", FIRST)
def test_the_next_adapter_shows_it_where_the_first_cannot(dlb: Dlb, fault: str) -> None:
    on = ("--on", "faulty", "--on", "example", "--threads", 1)
    ended = dlb("verify", MLP, *on, "--json", fault=fault)
    assert ended.status == 1
    found = bands(ended.document)
    assert found.pop("example") > 2 and set(found.values()) <= {0}
    proofs = {one["adapter"]: one["proof"] for one in ended.document["records"]}
    assert proofs == {"faulty": FIRST[fault], "example": "proven"}
    assert "example: calibrating" in ended.err.splitlines()


def test_the_first_adapter_shows_it_in_its_own_run(dlb: Dlb) -> None:
    ended = dlb("verify", MLP, "--on", "faulty", "--on", "example", "--threads", 1, "--json")
    assert ended.status == 0, ended.err
    found = bands(ended.document)
    assert found["faulty"] > 2 and found["example"] == 0
    assert ended.err.splitlines().count("faulty: calibrating") == 1
    assert "example: calibrating" not in ended.err
