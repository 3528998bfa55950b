"""What is proven where a workload's data set is not on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlb.errors import UnknownNameError
from dlb.samples import replace_missing_data, with_data
from dlb_graph.workload import files, workload_hash
from dlb_graph.workload.model import SYNTHETIC

LENET = files.load("lenet5")


@pytest.fixture(autouse=True)
def nothing_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLB_HOME", str(tmp_path))
    monkeypatch.delenv("DLB_DATA_DIR", raising=False)


@pytest.mark.parametrize("named", ["fashion-mnist-subset", SYNTHETIC, "npz:elsewhere.npz"])
def test_data_that_are_here_or_have_a_path_are_kept(named: str) -> None:
    told: list[str] = []
    workload = with_data(LENET, named)
    assert replace_missing_data(workload, told.append) is workload
    assert not told


@pytest.mark.parametrize("name", ["cifar-10", "penn-treebank", "imagenet"])
def test_others_are_made_up_and_it_is_said(name: str) -> None:
    told: list[str] = []
    workload = with_data(LENET, name)
    found = replace_missing_data(workload, told.append)
    assert found.data.name == SYNTHETIC and found.model == workload.model
    assert workload_hash(found) != workload_hash(workload)
    (line,) = told
    assert name in line and "synthetic" in line


def test_a_name_that_nothing_has_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="cifar-11"):
        replace_missing_data(with_data(LENET, "cifar-11"), print)
