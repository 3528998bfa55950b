"""What a training step costs through an adapter, against the same step written by hand.

One command measures every adapter that dlb finds, each in its own environment, and prints a table as CSV::

    python benchmarks/step_overhead.py [WORKLOAD ...]

Without a name it is LeNet-5. Each adapter's environment needs dlb-core as well, which dlb does not put there:
``uv pip install --python ENVIRONMENT/bin/python ./core``.

It is measured as ``dlb run`` measures adapters (docs/explanation/measuring.md): in rounds of new processes, in
an order that is drawn, with one of them twice. A cell is the adapter's model, built through its hooks, or the
network and loop that ``benchmarks/native/NAME.py`` writes with nothing of dlb. A native file may have a class
``Fit`` as well, with the loop of Keras: a third cell. On PyTorch that needs Keras beside it, in the adapter's
environment: ``pip install keras``. All train from the same weights on the same batches of made-up samples, and
the adapter's clock times their steps.

Before that, the losses of the first steps are compared, dropout left out, and of ``fit`` that of
the first: all must be the same network. Ends with 1 when a whole interval lies above 1.02, and with
2 when they are not alike.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.util
import itertools
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
from commands import ran, told

from dlb.adapters import find_adapters
from dlb.data.batches import sample_order
from dlb.errors import RequestError
from dlb.provenance import machine_facts
from dlb.samples import random_labels
from dlb_graph.workload import Dropout, Model, Workload
from dlb_graph.workload.files import load as load_workload
from dlb_graph.workload.initial import initial_weights
from dlb_graph.workload.lower import lower
from dlb_graph.workload.noise import noise
from dlb_measure.comparison import compare, own_ratio
from dlb_measure.schedule import rounds
from dlb_measure.steady import find_steady, warmup_steps
from dlb_worker.contract import BuildRequest, DataRequest, StartRequest
from dlb_worker.plugins import load_plugins

#: What a process may train.
KINDS = ("adapter", "by_hand", "fit")
#: Steps that are taken at once, and steps of a process that it takes however long they are.
BLOCK, LEAST_STEPS = 5, 30
LIMIT = 1.02
#: How far losses may be apart, relative, in the first steps. Later, training in float32 is chaotic,
#: and the least difference in the order of a sum grows.
ALIKE, ALIKE_STEPS = 1e-4, 3
#: Batches that there are samples for.
BATCHES = 8
#: Steps whose batches an adapter is asked for at once, as a run asks for those of all its steps: to
#: bring the samples to the framework is no part of a step, and the caches are cold after it.
AHEAD = 2000
SEED = 0
#: Of docs/explanation/benchmarks/step-overhead.csv.
COLUMNS = (
    "workload",
    "batch_size",
    "adapter",
    "rounds",
    "adapter_ms",
    "by_hand_ms",
    "ratio",
    "ratio_low",
    "ratio_high",
    "word",
    "own_ratio",
    "fit_ms",
    "fit_ratio",
)


@dataclass(frozen=True)
class Timed:
    """The median of the steady steps of a process; None where there are none."""

    round: int
    cell: int
    again: bool
    median: float | None


def main() -> int:
    """Measure, print, and tell by the exit status."""
    asked = _arguments()
    return _one(asked) if asked.process else _each(asked)


def _each(asked: argparse.Namespace) -> int:
    """Every adapter, one after another; a table that grows as they end."""
    machine, statuses, environments = machine_facts(), [0], find_adapters(asked.on)
    print(f"{machine['cpu']}, {asked.threads} threads, {machine['system']}", file=sys.stderr)
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    for name in asked.workloads or ["lenet5"]:
        for home in environments:
            with tempfile.TemporaryDirectory() as folder:
                command = [home.python, __file__, name, "--adapter", home.adapter]
                for option in ("steps", "seconds", "threads", "batch_size"):
                    command += [f"--{option.replace('_', '-')}", str(getattr(asked, option))]
                kinds_file = Path(folder) / "kinds.json"
                alike = [*command, "--process", "alike", "--to", str(kinds_file)]
                statuses.append(ran(alike, stdout=sys.stderr))
                if statuses[-1]:
                    continue
                kinds = json.loads(kinds_file.read_text())
                row, slower = _measured(command, kinds, asked, Path(folder))
                statuses.append(int(slower))
                batch = asked.batch_size or load_workload(name).batch_size
                table.writerow([name, batch, home.adapter, asked.rounds, *row])
                sys.stdout.flush()
    return max(map(abs, statuses))


def _measured(
    command: list[Any], kinds: Sequence[str], asked: argparse.Namespace, folder: Path
) -> tuple[list[str], bool]:
    """The rest of a row, and whether the adapter's interval is above what is aimed at."""
    trials = []
    for trial in rounds(len(kinds), secrets.randbits(32), asked.rounds):
        file = folder / "seconds.npy"
        variables = {"PYTHONHASHSEED": str(trial.hash_seed), "DLB_PADDING": "x" * trial.padding}
        words = [*command, "--process", kinds[trial.cell], "--to", str(file)]
        if ran(words, stdout=sys.stderr, env={**os.environ, **variables}):
            raise RequestError(f"the process of {kinds[trial.cell]} failed; its output is above")
        seconds = np.load(file, allow_pickle=False)
        seconds = seconds[warmup_steps(seconds) :]
        steady = find_steady(seconds)
        median = None if steady.kind == "no steady state" else np.median(seconds[steady.start :])
        trials.append(Timed(trial.round, trial.cell, trial.again, median and float(median)))
    baseline = kinds.index("by_hand")
    compared = compare(trials, len(kinds), baseline=baseline, margin=LIMIT - 1)
    own = own_ratio(trials, len(kinds))
    ratio = compared[0].ratio
    figures = [compared[0].seconds, compared[baseline].seconds]
    row = ["" if each is None else f"{each * 1e3:.2f}" for each in figures]
    bounds = [None] * 3 if ratio is None else [ratio.ratio, ratio.low, ratio.high]
    row += ["" if each is None else f"{each:.3f}" for each in bounds]
    row += [compared[0].word or "", "" if own is None else f"{own.ratio:.3f}"]
    for each in compared[2:]:
        row += ["" if each.seconds is None else f"{each.seconds * 1e3:.2f}"]
        row += ["" if each.ratio is None else f"{each.ratio.ratio:.3f}"]
    return row, ratio is not None and ratio.low > LIMIT


def _one(asked: argparse.Namespace) -> int:
    """A process of the adapter's environment: compares the networks, or times one."""
    (name,) = asked.workloads
    hook = load_plugins().hook
    facts = hook.dlb_start(framework=asked.adapter, request=StartRequest(threads=asked.threads))
    workload = load_workload(name)
    if asked.batch_size:
        workload = msgspec.structs.replace(workload, batch_size=asked.batch_size)
    clock = hook.dlb_clock(framework=asked.adapter, device="cpu")
    if asked.process == "alike":
        print(f"{name}: {asked.adapter} {facts.version}, {facts.threads} threads, {facts.device}")
        kinds = [kind for kind in KINDS if kind != "fit" or hasattr(by_hand(asked.adapter), "Fit")]
        Path(asked.to).write_text(json.dumps(kinds))
        return _are_alike(kinds, asked.adapter, hook, workload, clock)
    drops = any(isinstance(node.layer, Dropout) for node in workload.model.nodes)
    contestant = _contestant(asked.process, asked.adapter, hook, workload, drop=drops)
    seconds: list[float] = []
    until = time.monotonic() + asked.seconds
    while len(seconds) < LEAST_STEPS or (len(seconds) < asked.steps and time.monotonic() < until):
        seconds += contestant.block(clock, BLOCK)
    np.save(asked.to, np.array(seconds))
    return 0


def _are_alike(
    kinds: Sequence[str], adapter: str, hook: Any, workload: Workload, clock: Any
) -> int:
    made = [_contestant(kind, adapter, hook, workload, drop=False) for kind in kinds]
    losses = np.array([[each.timed(clock)[1] for _ in range(ALIKE_STEPS)] for each in made])
    # Of Keras' own loop the first alone: its Adam has epsilon elsewhere.
    relative = np.abs(losses / losses[1] - 1)
    apart = float(max(relative[:2].max(), relative[:, 0].max()))
    print(f"losses apart by {apart:.1e} in the first {ALIKE_STEPS} steps, without dropout")
    if not apart <= ALIKE:
        print(f"they have not trained alike: more than {ALIKE} apart", file=sys.stderr)
        return 2
    return 0


class _Contestant:
    """A model that trains, and its batches."""

    def __init__(self, step: Any, batches: Iterator[Any]) -> None:
        self.step, self.batches = step, batches

    def timed(self, clock: Any) -> tuple[float, float]:
        """Seconds and loss of one step."""
        inputs, labels = next(self.batches)
        clock.wait(None)
        clock.start()
        loss = self.step(inputs, labels)
        seconds = clock.stop()
        return seconds, float(loss)

    def block(self, clock: Any, steps: int) -> list[float]:
        """Seconds of so many steps."""
        return [self.timed(clock)[0] for _ in range(steps)]


class _Fit:
    """A framework's own ``fit``, which draws its batches itself."""

    def __init__(self, model: Any, workload: Workload) -> None:
        self.model, self.rows = model, (row for order in _orders(workload) for row in order)

    def timed(self, clock: Any) -> tuple[float, float]:
        """Seconds and loss of one step."""
        ((seconds,), (loss,)) = self.model.fit(next(self.rows)[None])
        return seconds, loss

    def block(self, clock: Any, steps: int) -> list[float]:
        """Seconds of so many steps."""
        found: list[float] = self.model.fit(np.stack([next(self.rows) for _ in range(steps)]))[0]
        return found


def _orders(workload: Workload) -> Iterator[np.ndarray]:
    """The batches of AHEAD steps as sample numbers, int64 [AHEAD, N], without an end."""
    count = BATCHES * workload.batch_size
    for seed in itertools.count(SEED):
        yield sample_order(count, workload.batch_size, AHEAD, seed)


def _samples(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    count = BATCHES * workload.batch_size
    return noise(workload.model, SEED, count), random_labels(workload.model, SEED, count)


def _trained(made: Any, workload: Workload, *, drop: bool) -> Any:
    """A hand-written training of a workload, of the class that a native file has."""
    settings = msgspec.structs.asdict(workload.optimizer)
    weights = initial_weights(workload.model, SEED)
    inputs, labels = _samples(workload)
    return made(workload.name, weights, workload.batch_size, settings, inputs, labels, drop=drop)


def _without_dropout(model: Model) -> Model:
    """The model with every dropout at rate 0."""
    replace = msgspec.structs.replace
    nodes = tuple(
        replace(node, layer=Dropout(rate=0.0)) if isinstance(node.layer, Dropout) else node
        for node in model.nodes
    )
    return replace(model, nodes=nodes)


def _contestant(kind: str, name: str, hook: Any, workload: Workload, *, drop: bool) -> Any:
    """The adapter's model, the hand-written one or that of ``fit``, from the same weights."""
    if not drop:
        workload = msgspec.structs.replace(workload, model=_without_dropout(workload.model))
    if kind == "fit":
        return _Fit(_trained(by_hand(name).Fit, workload, drop=drop), workload)
    if kind == "by_hand":
        native = _trained(by_hand(name).Native, workload, drop=drop)
        drawn = (batch for order in _orders(workload) for batch in native.batches(order))
        return _Contestant(native.step, drawn)
    inputs, labels = _samples(workload)
    weights = initial_weights(workload.model, SEED)
    request = BuildRequest(lower(workload), weights, "float32", "cpu", workload.batch_size)
    built = hook.dlb_build_model(framework=name, request=request)
    built.set_learning_rate(workload.optimizer.learning_rate)

    def batches() -> Iterator[Any]:
        for order in _orders(workload):
            request = DataRequest(inputs, labels, order, "memory", "cpu", "float32")
            yield from hook.dlb_load_data(framework=name, request=request)

    return _Contestant(built.train_step, batches())


def by_hand(name: str) -> ModuleType:
    """``native/NAME.py``, under a name that does not hide the framework's own."""
    path = Path(__file__).parent / "native" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"native_{name}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SystemExit(f"{path}: not there; write the class Native as in native/torch.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What a step costs through an adapter.")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="default: lenet5")
    parser.add_argument(
        "--on", action="append", default=[], metavar="ADAPTER", help="default: every one found"
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200, help="most steps of a process")
    parser.add_argument("--seconds", type=float, default=4.0, help="most seconds of a process")
    parser.add_argument("--batch-size", type=int, default=0, help="default: the workload's")
    parser.add_argument("--threads", type=int, default=2)
    for option in ("--adapter", "--process", "--to"):  # of a process that the command starts
        parser.add_argument(option, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(told(main))
