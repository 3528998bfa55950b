"""Every planted difference is found, by its check and at its layer; without one, nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest
from dlb_planted.__main__ import find, is_right
from dlb_planted.plants import PLANTS

import dlb
from dlb.report.explanations import place_text

WORKLOADS = Path(__file__).parent / "workloads"


@pytest.mark.parametrize("name", PLANTS, ids=lambda name: name.replace(" ", "_"))
def test_a_planted_difference_is_found(name: str) -> None:
    found = find(PLANTS[name], WORKLOADS)
    assert is_right(PLANTS[name], found), found


@pytest.mark.parametrize("workload", ["pictures", "words", "sequences", "parts", "deep"])
def test_without_a_difference_nothing_is_found(workload: str) -> None:
    certificate = dlb.assert_proven(WORKLOADS / f"{workload}.toml", ["planted"])
    assert certificate.status("planted") == "proven"


def test_the_culprit_is_named_as_described_and_as_built() -> None:
    found = find(PLANTS["batch norm's epsilon 1e-3 for 1e-5"], WORKLOADS)
    assert found is not None
    assert place_text(found) == "layer norm, batch_norm(epsilon=1e-05, momentum=0.9)"
    assert found.finding is not None and found.finding.layer is not None
    layer = found.finding.layer
    assert layer.attributes == {"epsilon": 1e-05, "momentum": 0.9}
    assert layer.built.startswith("BatchNorm2d(8, eps=0.001, momentum=")
