"""``dlb tune``: what is faster under proof, and what is not proven is left out."""

from __future__ import annotations

import pytest
from dlb_process import TESTS, Dlb

MLP = TESTS / "workloads" / "mlp.toml"
QUICK = ("--threads", 1, "--steps", 20, "--rounds", 1, "--repeats", 0)


def test_every_way_is_measured_next_to_the_default(dlb: Dlb) -> None:
    ended = dlb("tune", MLP, "--on", "example", *QUICK, "--out", dlb.out, "--json")
    assert ended.status == 0, ended.err
    told = ended.document
    assert told["left_out"] == [] and told["command"].endswith(
        " ".join(f"--variant={name}={value}" for name, value in told["best"]["variant"].items())
    )
    shown = dlb("results", "show", told["measurement"], "--in", dlb.out, "--json").document
    options = [cell["options"] for cell in shown["cells"]]
    assert options[0]["variant"] == {} == options[0]["variables"]
    assert {"layout": "columns"} in [each["variant"] for each in options]
    assert any("MALLOC_TRIM_THRESHOLD_" in each["variables"] for each in options)
    assert {cell["proof"] for cell in shown["cells"]} == {"proven"}
    table = dlb("results", "show", told["measurement"], "--in", dlb.out).out
    assert "times example" in table and "example (layout=columns" in table


def test_a_default_that_is_not_proven_ends_it(dlb: Dlb) -> None:
    ended = dlb("tune", MLP, "--on", "faulty", *QUICK, "--out", dlb.out, fault="wrong-gradient")
    assert ended.status == 1, ended.err
    assert "Left out: the default: deviates" in ended.out
    assert "The default was not proven" in ended.out
    assert not (dlb.out / "measurements").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((MLP,), "--on"),
        ((MLP, "--on", "exampel"), "did you mean 'example'"),
        ((MLP, "--on", "example", "--rounds", 0), "measures nothing"),
        ((MLP, "--on", "example", "--steps", 0), "--steps is 0"),
    ],
)
def test_bad_requests(dlb: Dlb, words: tuple[object, ...], says: str) -> None:
    ended = dlb("tune", *words)
    assert ended.status == 2 and says in ended.complaint
