"""Every fault of a strategy of one process is found in its case, with the parameters and the replicas."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import faulty_tf
import pytest

from dlb.execution.workers import start_workers
from dlb.supervision.group import Group, Launch
from dlb_conformance.test_strategies import differences

_ALL = "fc.weight, fc.bias, logits.weight, logits.bias on rank 0, 1, 2: gradients "
#: By fault, the case in which it must be found, and a finding of three replicas.
FAULTS = {
    "gradients are not added": ("equal_shares", f"{_ALL}are not added over the ranks"),
    "gradients are added again": (
        "unequal_shares",
        f"{_ALL}are 3 times the mean: added over 3 ranks and not divided",
    ),
    "one replica's weight is not updated": (
        "equal_shares",
        "fc.weight on rank 1: the first step does not move them",
    ),
    "replicas have equal masks": (
        "dropout",
        f"{_ALL}have the dropout masks of rank 0 on every rank",
    ),
    "shares of replicas overlap": (
        "equal_shares",
        "step 0: rank 1 trains on samples [1, 3] of the batch; its share is [2, 3]",
    ),
}
#: Where replicas have one set of variables: all of them miss its update, and the first one's gradients move it.
OF_ONE_SET = {
    "gradients are not added": f"{_ALL.replace(', 1, 2', '')}are not added over the ranks",
    "one replica's weight is not updated": "fc.weight on rank 0, 1, 2: the first step does not move them",
}
#: The same of a server, and the workers that push.
PUSHES = {
    "one worker's pushes count twice": ("stale_gradients", "pushes of rank 1 count twice"),
    "one push is lost": ("stale_gradients", "push 0 of rank 2 counts for nothing"),
    "a push is lost while all train as they will": (
        "every_push_counts",
        "fc.weight is not moved by the sum of all pushes",
    ),
}
Start = Callable[[str], tuple[Group, Group, Path]]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Three replicas of a strategy, one worker without a fault, and the file that names the fault."""
    folder, python = tmp_path_factory.mktemp("faulty"), Path(sys.executable)
    about = folder / "faulty_tf-1.0.dist-info"
    about.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {faulty_tf.NAME}\nVersion: 1.0\n"
    (about / "METADATA").write_text(metadata, encoding="utf-8")
    points = f"[dlb]\n{faulty_tf.NAME} = faulty_tf:adapter\n"
    (about / "entry_points.txt").write_text(points, encoding="utf-8")
    fault = folder / "fault"
    fault.touch()
    path = os.pathsep.join([str(Path(__file__).parent), str(folder)])
    variables = {"DLB_SEEDED_FAULT": str(fault), "PYTHONPATH": path}
    with ExitStack() as running:

        @cache
        def group(adapter: str, strategy: str, workers: int) -> Group:
            scratch = tmp_path_factory.mktemp("workers")
            launch = Launch(
                adapter, python, scratch, strategy=strategy, workers=workers, variables=variables
            )
            return running.enter_context(start_workers(launch, seed=0)).group

        yield lambda strategy: (group(faulty_tf.NAME, strategy, 3), group("tf", "", 1), fault)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("strategy", ["mirrored", "central_storage"])
def test_a_fault_between_replicas_is_named(strategy: str, name: str, start: Start) -> None:
    workers, single, file = start(strategy)
    file.write_text(name, encoding="utf-8")
    case, says = FAULTS[name]
    if strategy == "central_storage":
        says = OF_ONE_SET.get(name, says)
    assert says in differences(workers, single, case)


@pytest.mark.parametrize("name", PUSHES)
def test_a_fault_of_pushes_is_named(name: str, start: Start) -> None:
    workers, single, file = start("parameter_server")
    file.write_text(name, encoding="utf-8")
    case, says = PUSHES[name]
    assert any(says in each for each in differences(workers, single, case))


@pytest.mark.parametrize("strategy", ["mirrored", "central_storage", "parameter_server"])
def test_without_a_fault_nothing_is_named(strategy: str, start: Start) -> None:
    workers, single, file = start(strategy)
    file.write_text("", encoding="utf-8")
    faults = PUSHES if strategy == "parameter_server" else FAULTS
    for case in sorted({case for case, _ in faults.values()}):
        assert differences(workers, single, case) == []
