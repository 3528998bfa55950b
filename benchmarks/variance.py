"""Where the time of a training step varies: between processes, between builds in a process, or between blocks.

    python benchmarks/variance.py [WORKLOAD] [--on ADAPTER ...] [--with NAME=VALUE ...]

Each process builds the same model several times, and its models take blocks of steps in turn, forwards and
backwards, so that a change of the machine's speed meets all of them alike. The time of a block is the median of
its steps. On the logarithms of these times, a nested analysis of variance (Kalibera and Jones, "Rigorous
benchmarking in reasonable time", ISMM 2013) tells the spread that each level adds, in percent of a step, with
a 95% interval by drawing whole processes again.

``--with`` sets environment variables in every second process, such as
``GLIBC_TUNABLES=glibc.malloc.hugetlb=1``, so that both are of the same minutes: a row with them and one
without. Prints CSV.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterator
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
LEVELS = ("process", "build", "block")
COLUMNS = (
    "workload",
    "adapter",
    "with",
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
    for name, default in (("processes", 6), ("builds", 3), ("blocks", 10), ("steps", 20)):
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
        for _ in range(asked.processes):
            for place, variables in enumerate(settings):
                times[place].append(_process(home, workload, variables, asked))
        for variables, measured in zip(settings, times, strict=True):
            seconds = np.array(measured)
            shown = " ".join(f"{name}={value}" for name, value in variables.items())
            counts = (asked.processes, asked.builds, asked.blocks, asked.steps)
            row = (*counts, f"{1e3 * np.median(seconds):.2f}", *_spreads(np.log(seconds)))
            table.writerow((workload.name, home.adapter, shown, *row))
            sys.stdout.flush()
    return 0


def _process(
    home: AdapterEnvironment,
    workload: Workload,
    variables: dict[str, str],
    asked: argparse.Namespace,
) -> Array:
    """Seconds of a step, float64 [builds, blocks], of a new process."""
    cores, weights = available_cores(), initial_weights(workload.model, 0)
    with tempfile.TemporaryDirectory() as folder:
        launch = Launch(home.adapter, home.python, Path(folder), threads=cores, variables=variables)
        data = Path(folder) / "data.npz"
        count = BATCHES * workload.batch_size
        labels = random_labels(workload.model, 0, count, workload.loss)
        np.savez(data, inputs=noise(workload.model, 0, count), labels=labels)
        orders = np.arange(count).reshape(BATCHES, -1)[np.arange(COLD + asked.steps) % BATCHES]
        with worker_group(launch) as group:
            start(group, threads=cores, device="cpu", seed=0)
            models = [
                RemoteModel(
                    group, workload, weights, dtype="float32", batch_size=workload.batch_size
                )
                for _ in range(asked.builds)
            ]
            for model in models:
                model.train(data, orders, input_mode="memory")
            ended: list[list[Array]] = [[] for _ in models]
            for block in range(asked.blocks):
                for place in range(asked.builds)[:: 1 if block % 2 == 0 else -1]:
                    trained = models[place].train(data, orders, input_mode="memory")
                    ended[place].append(trained.step_seconds[COLD:])
    return np.asarray(np.median(np.array(ended), axis=2))


def _spreads(logs: Array) -> Iterator[str]:
    """By level, the standard deviation that it adds, in percent, and its interval.

    Args:
        logs: float64 [processes, builds, blocks].
    """
    draw = np.random.RandomState(0)
    drawn = [logs[draw.randint(0, len(logs), len(logs))] for _ in range(DRAWS)]
    bounds = np.percentile([_components(each) for each in drawn], (2.5, 97.5), axis=0)
    for value, low, high in zip(_components(logs), *bounds, strict=True):
        yield f"{value:.2f} ({low:.2f} to {high:.2f})"


def _components(logs: Array) -> list[float]:
    _, builds, blocks = logs.shape
    within = logs.var(axis=2, ddof=1).mean()
    of_builds = logs.mean(axis=2)
    between = of_builds.var(axis=1, ddof=1).mean()
    across = of_builds.mean(axis=1).var(ddof=1)
    added = (across - between / builds, between - within / blocks, within)
    return [100 * float(np.sqrt(max(each, 0))) for each in added]


if __name__ == "__main__":
    sys.exit(told(main))
