"""Models in a worker: what is left of them on the disk and in memory."""

from __future__ import annotations

from pathlib import Path

import psutil

from dlb.supervision.group import Launch, worker_group
from dlb.supervision.remote import RemoteModel, start
from dlb_graph import workload as W
from dlb_graph.workload.initial import initial_weights

#: Its weights are 160 MB.
WIDE = W.Workload(
    name="wide",
    batch_size=2,
    data=W.Data(name="synthetic"),
    optimizer=W.SGD(learning_rate=0.1),
    model=W.Model(
        input=W.Input(shape=(40_000,)),
        nodes=(W.Node(name="fc", layer=W.Linear(out_features=1000)),),
    ),
)


def test_models_that_are_dropped_leave_nothing(dlb_command: Path, tmp_path: Path) -> None:
    weights = initial_weights(WIDE.model, 0)
    size = sum(array.nbytes for array in weights.values())
    launch = Launch("example", dlb_command.parent / "python", tmp_path)
    with worker_group(launch) as group:
        start(group, threads=1, device="cpu", seed=0)
        worker = psutil.Process(group.members[0].pid)
        before = worker.memory_info().rss
        for _ in range(4):
            model = RemoteModel(group, WIDE, weights, dtype="float32", batch_size=2)
            assert not [*tmp_path.glob("*.npz")]
            model.drop()
        assert worker.memory_info().rss - before < size
