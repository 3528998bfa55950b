"""Where the time of a training step varies: between processes, between builds in a process, or with time.

    python benchmarks/variance.py [WORKLOAD] [--on ADAPTER ...] [--with NAME=VALUE ...]

Several processes are alive at once, and each builds the same model several times. All these models take
blocks of steps in turns, forwards and backwards: a pass is a block of each. So a change of the machine's
speed meets all of them alike, and is no difference between processes. The time of a block is the median of
its steps. On the logarithms of these times, an analysis of variance (Kalibera and Jones, "Rigorous
benchmarking in reasonable time", ISMM 2013) tells the spread that each level adds, in percent of a step, with
a 95% interval by drawing whole groups of processes again:

- ``process``: processes that run at the same time differ by it throughout;
- ``build``: so do models of one process;
- ``pass``: what all of them have in common at a time, such as the machine's speed;
- ``block``: the rest, which is another one in each block.

``--with`` sets environment variables in every second group, such as
``GLIBC_TUNABLES=glibc.malloc.hugetlb=1``, so that both are of the same minutes: a row with them and one
without. Prints CSV.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from commands import told

from dlb.adapters import AdapterEnvironment, find_adapters
from dlb.provenance import available_cores, machine_facts
from dlb.samples import random_labels
from dlb.supervision.group import Launch, worker_group
from dlb.supervision.remote import RemoteModel, start
from dlb_graph.workload import Workload
from dlb_graph.workload.files import load as load_workload
from dlb_graph.workload.initial import initial_weights
from dlb_graph.workload.noise import noise

Array = npt.NDArray[Any]
#: First steps of a block, whose samples are still brought to the framework; batches that there are samples for.
COLD, BATCHES = 5, 8
DRAWS = 2000
LEVELS = ("process", "build", "pass", "block")
COLUMNS = (
    "workload",
    "adapter",
    "with",
    "groups",
    "processes",
    "builds",
    "blocks",
    "steps",
    "median_ms",
    *LEVELS,
)


def main() -> int:
    """Measure and print, a row each time an adapter is through."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload", nargs="?", default="lenet5")
    parser.add_argument("--on", action="append", default=[], metavar="ADAPTER")
    parser.add_argument(
        "--with", action="append", default=[], dest="variables", metavar="NAME=VALUE"
    )
    sizes = {"groups": 6, "processes": 3, "builds": 2, "blocks": 40, "steps": 5}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    machine, workload = machine_facts(), load_workload(asked.workload)
    print(f"{machine['cpu']}, {available_cores()} cores, {machine['system']}", file=sys.stderr)
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    settings = [{}, dict(each.split("=", 1) for each in asked.variables)]
    settings = settings if asked.variables else settings[:1]
    for home in find_adapters(asked.on):
        times: list[list[Array]] = [[] for _ in settings]
        for _ in range(asked.groups):
            for place, variables in enumerate(settings):
                times[place].append(_group(home, workload, variables, asked))
        for variables, measured in zip(settings, times, strict=True):
            seconds = np.array(measured)
            shown = " ".join(f"{name}={value}" for name, value in variables.items())
            counts = [getattr(asked, name) for name in sizes]
            row = (*counts, f"{1e3 * np.median(seconds):.2f}", *_spreads(np.log(seconds)))
            table.writerow((workload.name, home.adapter, shown, *row))
            sys.stdout.flush()
    return 0


def _group(
    home: AdapterEnvironment,
    workload: Workload,
    variables: dict[str, str],
    asked: argparse.Namespace,
) -> Array:
    """Seconds of a step, float64 [processes, builds, blocks], of new processes that are alive at once."""
    cores, weights = available_cores(), initial_weights(workload.model, 0)
    batch = workload.batch_size
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        data = Path(folder) / "data.npz"
        count = BATCHES * batch
        labels = random_labels(workload.model, 0, count, workload.loss)
        np.savez(data, inputs=noise(workload.model, 0, count), labels=labels)
        orders = np.arange(count).reshape(BATCHES, -1)[np.arange(COLD + asked.steps) % BATCHES]
        models = []
        for process in range(asked.processes):
            scratch = Path(folder) / str(process)
            scratch.mkdir()
            launch = Launch(home.adapter, home.python, scratch, threads=cores, variables=variables)
            group = stack.enter_context(worker_group(launch))
            start(group, threads=cores, device="cpu", seed=0)
            models += [
                RemoteModel(group, workload, weights, dtype="float32", batch_size=batch)
                for _ in range(asked.builds)
            ]
        for model in models:
            model.train(data, orders, input_mode="memory")
        ended: list[list[Array]] = [[] for _ in models]
        for block in range(asked.blocks):
            for place in range(len(models))[:: 1 if block % 2 == 0 else -1]:
                trained = models[place].train(data, orders, input_mode="memory")
                ended[place].append(trained.step_seconds[COLD:])
    seconds = np.median(np.array(ended), axis=2)
    return np.asarray(seconds.reshape(asked.processes, asked.builds, asked.blocks))


def _spreads(logs: Array) -> Iterator[str]:
    """By level, the standard deviation that it adds, in percent, and its interval.

    Args:
        logs: float64 [groups, processes, builds, blocks].
    """
    draw = np.random.RandomState(0)
    drawn = [logs[draw.randint(0, len(logs), len(logs))] for _ in range(DRAWS)]
    bounds = np.percentile([_components(each) for each in drawn], (2.5, 97.5), axis=0)
    for value, low, high in zip(_components(logs), *bounds, strict=True):
        yield f"{value:.2f} ({low:.2f} to {high:.2f})"


def _components(logs: Array) -> list[float]:
    groups, processes, builds, blocks = logs.shape
    models = processes * builds
    passes = logs.mean(axis=(1, 2), keepdims=True)
    of_models = logs.mean(axis=3, keepdims=True)
    of_processes = logs.mean(axis=(2, 3), keepdims=True)
    of_groups = logs.mean(axis=(1, 2, 3), keepdims=True)
    rest = (logs - passes - of_models + of_groups) ** 2
    block = rest.sum() / (groups * (models - 1) * (blocks - 1))
    build = block  # where there is one build of a process, its spread is that of the process
    if builds > 1:
        spread = ((of_models - of_processes) ** 2).sum()
        build = blocks * spread / (groups * processes * (builds - 1))
    process = ((of_processes - of_groups) ** 2).sum() * builds * blocks
    process /= groups * (processes - 1)
    common = ((passes - of_groups) ** 2).sum() * models / (groups * (blocks - 1))
    added = (
        (process - build) / (builds * blocks),
        (build - block) / blocks,
        (common - block) / models,
        block,
    )
    return [100 * float(np.sqrt(max(each, 0))) for each in added]


if __name__ == "__main__":
    sys.exit(told(main))
