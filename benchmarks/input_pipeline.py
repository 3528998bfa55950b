"""What an input pipeline gives, against what training takes.

    python benchmarks/input_pipeline.py WORKLOAD [--on ADAPTER ...] [--set FIELD=VALUE ...] [--pairs N]

Each adapter in its own environment: batches of the framework's own pipeline, as ``dlb run`` asks for
them (``--input pipeline``, augmentation included), are drawn and thrown away; and trained on, as in
a run. The two are measured in blocks that alternate, ten times as many batches in those that are
only drawn, which take so much less; which of the two goes first is drawn for each pair. A block
begins with a new pipeline, and its first steps are not counted, so that neither lives on batches
that were made ready while the other was measured.

The ratio is of the medians of the blocks, with a 95% interval by bootstrap over the pairs. Where it
is well above 1, and training waits little for its batches, the pipeline is not what limits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from commands import started, told
from rich.console import Console
from rich.progress import track
from step_overhead import SEED

from dlb.adapters import find_adapters
from dlb.catalogue import load_workload
from dlb.data.batches import draw_sample_schedule
from dlb.provenance import machine_facts
from dlb.samples import open_split, write_samples
from dlb_graph.workload import Workload
from dlb_graph.workload.changes import with_changes
from dlb_graph.workload.initial import initial_weights
from dlb_graph.workload.lower import lower
from dlb_worker.arrays import read_or_map
from dlb_worker.contract import BuildRequest, Clock, DataRequest, StartRequest
from dlb_worker.native import BuiltModel
from dlb_worker.plugins import load_plugins

#: Steps of a block before those that count.
WARM_UP = 4
#: Batches that are only drawn for each that is trained on.
DRAWN = 10

#: Of a bootstrap.
RESAMPLES = 5000


def main() -> int:
    """Measure, print, and tell by the exit status."""
    asked = _arguments()
    if asked.adapter:
        return _one(asked)
    rows, failed = [], False
    environments = find_adapters(asked.on)
    for home in track(environments, "measuring", console=Console(stderr=True)):
        words = [str(home.python), __file__, asked.workload, "--adapter", home.adapter]
        words += [word for change in asked.changes for word in ("--set", change)]
        for name in ("pairs", "block", "batch_size", "threads"):
            words += [f"--{name.replace('_', '-')}", str(getattr(asked, name))]
        with started(words, stdout=subprocess.PIPE, text=True) as process:
            printed, _ = process.communicate()
        failed |= process.returncode != 0
        rows += printed.splitlines()[-1:] if process.returncode == 0 else []
    machine = machine_facts()
    told = ", ".join([asked.workload, *asked.changes])
    print(f"{told}: {machine['cpu']}, {asked.threads} threads, {machine['system']}\n")
    print(
        "| adapter | pipeline | quartiles | training | quartiles | ratio | 95% interval | waits |"
    )
    print("|---|---|---|---|---|---|---|---|")
    print("\n".join(_row(**json.loads(row)) for row in rows))
    return 1 if failed else 0


def _row(
    framework: str, rates: list[list[float]], low: float, ratio: float, high: float, waits: float
) -> str:
    told = [f"{middle:,.0f}/s | {lower:,.0f} to {upper:,.0f}" for lower, middle, upper in rates]
    return (
        f"| {framework} | {' | '.join(told)} | {ratio:.3g} | {low:.3g} to {high:.3g} "
        f"| {waits:.1%} |"
    )


def _one(asked: argparse.Namespace) -> int:
    """The adapter of this environment; prints its figures as one line of JSON."""
    hook, name = load_plugins().hook, asked.adapter
    facts = hook.dlb_start(framework=name, request=StartRequest(threads=asked.threads))
    workload = with_changes(load_workload(asked.workload), asked.changes)
    size = asked.batch_size or workload.batch_size
    weights = initial_weights(workload.model, SEED)
    request = BuildRequest(lower(workload), weights, "float32", "cpu", size)
    model = hook.dlb_build_model(framework=name, request=request)
    model.set_learning_rate(workload.optimizer.learning_rate)
    clock = hook.dlb_clock(framework=name, device="cpu")
    steps = {0: WARM_UP + DRAWN * asked.block, 1: WARM_UP + asked.block}
    with tempfile.TemporaryDirectory() as folder:
        whole = _load_request(workload, size, asked.pairs * steps[0], Path(folder))
        seconds, waited = np.empty((2, asked.pairs)), np.empty(asked.pairs)
        first = np.random.default_rng(SEED).integers(0, 2, asked.pairs)
        for pair in range(asked.pairs):
            for which in (int(first[pair]), int(1 - first[pair])):
                load = _part(whole, pair * steps[0], steps[which])
                batches = iter(hook.dlb_load_data(framework=name, request=load))
                if which:
                    seconds[1, pair], waited[pair] = _train(batches, steps[1], model, clock)
                else:
                    seconds[0, pair] = _draw(batches, steps[0], clock) / DRAWN
    quartiles = np.percentile(asked.block * size / seconds, (25, 50, 75), axis=1).T
    low, ratio, high = ratio_of_medians([seconds[1]], [seconds[0]])
    figures = {"framework": f"{name} {facts.version}", "rates": quartiles.tolist()}
    figures |= {"low": low, "ratio": ratio, "high": high}
    print(json.dumps(figures | {"waits": float(waited.sum() / seconds[1].sum())}))
    return 0


def _load_request(workload: Workload, size: int, steps: int, folder: Path) -> DataRequest:
    """The first steps of a run, their samples in a file where a run would map them."""
    source, path = open_split(workload, "train"), folder / "train.npz"
    sample_schedule = draw_sample_schedule(
        workload.data.augmentation, source.count, size, steps, SEED
    )
    write_samples(
        workload, source, sample_schedule.samples, "float32", path, sample_schedule.resized_crops
    )
    arrays = read_or_map(path)
    given = (
        arrays["inputs"],
        arrays["labels"],
        sample_schedule.order,
        "pipeline",
        "cpu",
        "float32",
    )
    return DataRequest(*given, crops=sample_schedule.crops)  # type: ignore[arg-type]


def _part(request: DataRequest, first: int, count: int) -> DataRequest:
    steps = slice(first, first + count)
    crops = None if request.crops is None else request.crops[steps]
    return replace(request, order=request.order[steps], crops=crops)


def _draw(batches: Iterator[Any], steps: int, clock: Clock) -> float:
    """Seconds of a block's batches, each there before the next is asked for."""
    began = 0.0
    for step in range(steps):
        if step == WARM_UP:
            began = time.perf_counter()
        next(batches)
        clock.wait(None)
    return time.perf_counter() - began


def _train(
    batches: Iterator[Any], steps: int, model: BuiltModel, clock: Clock
) -> tuple[float, float]:
    """Seconds of a block's steps, and of them those that a batch was waited for."""
    began = waited = 0.0
    for step in range(steps):
        if step == WARM_UP:
            began, waited = time.perf_counter(), 0.0
        asked = time.perf_counter()
        inputs, labels = next(batches)
        waited += time.perf_counter() - asked
        clock.start()
        loss = model.train_step(inputs, labels)
        clock.stop()
        float(loss)
    return time.perf_counter() - began, waited


def ratio_of_medians(one: list[np.ndarray], other: list[np.ndarray]) -> tuple[float, float, float]:
    """Median of one over median of the other, between the bounds of its 95% interval.

    Builds are drawn, and pairs of each. Of one build the interval does not know what others would
    give.

    Args:
        one, other: of each build, seconds [pairs, steps], measured in pairs of blocks. The ratio is
            the geometric mean of the builds'.
    """
    generator, resampled, found = np.random.default_rng(SEED), [], []
    for first, second in zip(one, other):
        drawn = generator.integers(0, len(first), (RESAMPLES, len(first)))
        resampled.append([np.median(first[some]) / np.median(second[some]) for some in drawn])
        found.append(np.median(first) / np.median(second))
    apiece = np.log(resampled)
    builds = generator.integers(0, len(apiece), apiece.shape)
    # Of a build that is drawn twice, other pairs each time.
    pairs = generator.permuted(np.tile(np.arange(RESAMPLES), (len(apiece), 1)), axis=1)
    low, high = np.percentile(np.exp(apiece[builds, pairs].mean(0)), [2.5, 97.5])
    return float(low), float(np.exp(np.log(found).mean())), float(high)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload")
    parser.add_argument("--on", action="append", default=[])
    parser.add_argument("--adapter", help=argparse.SUPPRESS)
    parser.add_argument("--set", action="append", default=[], dest="changes")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--block", type=int, default=20, help="steps that count in a block")
    parser.add_argument("--batch-size", type=int, default=0, help="instead of the workload's")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(told(main))
