"""How often a large network's weights are in memory while it is built, and while it is exported.

    python benchmarks/weights_memory.py [WORKLOAD] [--on ADAPTER ...]

The network (VGG-19 if none is named) is built and exported in each adapter's own worker process, one
adapter after the other, for a batch of 1. Before, LeNet-5 is, so that what is imported on the way does
not count. What counts is the most memory that the process ever held meanwhile (``VmHWM`` in
``/proc/PID/status``, which is set back before: Linux alone has it) beyond what it held before the
build, in copies of the weights in float32. Exporting counts what the built model holds as well.

Ends with 1 when it is more than three copies.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
from pathlib import Path

from commands import told
from rich.console import Console
from rich.table import Table

from dlb.adapters import AdapterEnvironment, find_adapters
from dlb.provenance import available_cores
from dlb.supervision.group import Group, Launch, worker_group
from dlb.supervision.remote import RemoteModel, start
from dlb_graph.workload import Workload, parameter_shapes
from dlb_graph.workload.files import load as load_workload
from dlb_graph.workload.initial import initial_weights

BATCH = 1
COPIES = 3.0


def main() -> int:
    """Measure, print, and tell by the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload", nargs="?", default="vgg-19")
    parser.add_argument("--on", action="append", default=[], metavar="ADAPTER")
    asked = parser.parse_args()
    workload = load_workload(asked.workload)
    weights = 4 * sum(math.prod(shape) for shape in parameter_shapes(workload.model).values())
    table = Table(title=f"{workload.name}, {weights / 1e9:.3f} GB of weights: copies held at most")
    for name in ("adapter", "building", "built", "exporting"):
        table.add_column(name)
    most = 0.0
    for home in find_adapters(asked.on):
        copies = [held / weights for held in _held(home, workload)]
        most = max(most, *copies)
        table.add_row(home.adapter, *(f"{each:.2f}" for each in copies))
    Console(width=100).print(table)
    return 0 if most <= COPIES else 1


def _held(home: AdapterEnvironment, workload: Workload) -> tuple[int, int, int]:
    """Bytes beyond those before: at most while building, when built, at most while exporting."""
    with tempfile.TemporaryDirectory() as folder:
        launch = Launch(home.adapter, home.python, Path(folder), threads=available_cores())
        with worker_group(launch) as group:
            start(group, threads=available_cores(), device="cpu", seed=0)
            small = _built(group, load_workload("lenet5"))
            small.export(Path(folder) / "small.onnx")
            small.drop()
            process = Path("/proc") / str(group.members[0].pid)
            before = _status(process, "VmRSS")
            _forget_peak(process)
            model = _built(group, workload)
            building, built = _status(process, "VmHWM"), _status(process, "VmRSS")
            _forget_peak(process)
            model.export(Path(folder) / "large.onnx")
            exporting = _status(process, "VmHWM")
    return building - before, built - before, exporting - before


def _built(group: Group, workload: Workload) -> RemoteModel:
    weights = initial_weights(workload.model, 0)
    return RemoteModel(group, workload, weights, dtype="float32", batch_size=BATCH)


def _status(process: Path, name: str) -> int:
    """Bytes that the kernel tells of a process."""
    found = re.search(rf"^{name}:\s*(\d+) kB$", (process / "status").read_text(), re.M)
    assert found is not None
    return 1024 * int(found[1])


def _forget_peak(process: Path) -> None:
    (process / "clear_refs").write_text("5")


if __name__ == "__main__":
    sys.exit(told(main))
