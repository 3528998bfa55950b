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

With ``--strategy``, a cell is ``--workers`` processes as the adapter lays them out; those by hand join as their
``native`` file says. The times are those of worker 0.

Before that, the losses of the first steps are compared, dropout left out, and of ``fit`` that of
the first: all must be the same network. Ends with 1 when a whole interval lies above 1.02, with a strategy
above 1.05, and with 2 when they are not alike.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
from commands import ran, started, told

from dlb.adapters import find_adapters
from dlb.data.batches import sample_order
from dlb.errors import RequestError
from dlb.provenance import machine_facts
from dlb.samples import random_labels
from dlb.supervision.processes import free_ports
from dlb_graph.workload import Dropout, Model, Workload
from dlb_graph.workload.files import load as load_workload
from dlb_graph.workload.initial import initial_weights
from dlb_graph.workload.lower import lower
from dlb_graph.workload.noise import noise
from dlb_measure.comparison import compare, own_ratio
from dlb_measure.schedule import rounds
from dlb_measure.steady import find_steady, warmup_steps
from dlb_worker.contract import BuildRequest, DataRequest, PlanRequest, StartRequest
from dlb_worker.plugins import load_plugins

#: What a process may train.
KINDS = ("adapter", "by_hand", "fit")
#: Steps that are taken at once, and steps of a process that it takes however long they are.
BLOCK, LEAST_STEPS = 5, 30
LIMIT, STRATEGY_LIMIT = 1.02, 1.05
#: Where the processes of a strategy meet.
HOST = "127.0.0.1"
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
    "strategy",
    "workers",
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
                for option in ("steps", "seconds", "threads", "batch_size", "strategy", "workers"):
                    command += [f"--{option.replace('_', '-')}", str(getattr(asked, option))]
                kinds_file = Path(folder) / "kinds.json"
                statuses.append(ran([*command, "--process", "kinds", "--to", kinds_file]))
                if statuses[-1]:
                    continue
                kinds = json.loads(kinds_file.read_text())
                statuses.append(_are_alike(command, kinds, asked, Path(folder)))
                if statuses[-1]:
                    continue
                row, slower = _measured(command, kinds, asked, Path(folder))
                statuses.append(int(slower))
                batch = asked.batch_size or load_workload(name).batch_size
                what = (name, batch, home.adapter, asked.strategy, asked.workers, asked.rounds)
                table.writerow([*what, *row])
                sys.stdout.flush()
    return max(map(abs, statuses))


def _are_alike(
    command: list[Any], kinds: Sequence[str], asked: argparse.Namespace, folder: Path
) -> int:
    made = []
    for kind in kinds:
        file = folder / "losses.npy"
        _train([*command, "--process", kind, "--alike", "--to", str(file)], {}, asked, folder)
        made.append(np.load(file, allow_pickle=False))
    # Of Keras' own loop the first alone: its Adam has epsilon elsewhere.
    relative = np.abs(np.array(made) / made[1] - 1)
    apart = float(max(relative[:2].max(), relative[:, 0].max()))
    print(
        f"losses apart by {apart:.1e} in the first {ALIKE_STEPS} steps, without dropout",
        file=sys.stderr,
    )
    if not apart <= ALIKE:
        print(f"they have not trained alike: more than {ALIKE} apart", file=sys.stderr)
        return 2
    return 0


def _train(
    words: list[Any], variables: Mapping[str, str], asked: argparse.Namespace, folder: Path
) -> None:
    """Run a process to its end, or all those that a strategy lays out.

    Raises:
        RequestError: one of them failed.
    """
    plan: dict[str, Any] = {"processes": [{"role": "worker", "rank": 0, "environment": {}}]}
    if asked.strategy:
        file = folder / "plan.json"
        if ran([*words[:-1], str(file), "--role", "planner"]):
            raise RequestError(f"there is no plan of '{asked.strategy}'; the output is above")
        plan = json.loads(file.read_text())
    launcher = plan.get("launcher")
    with ExitStack() as stack:
        workers, others = [], []
        for each in plan["processes"]:
            own = [*words, "--role", each["role"], "--rank", str(each["rank"])]
            if each["role"] == "worker" and launcher:
                if each["rank"]:
                    continue
                own = [*launcher, *words, "--role", "worker", "--rank", plan["rank_variables"][0]]
            environment = {**os.environ, **variables, **each["environment"]}
            process = stack.enter_context(started(own, stdout=sys.stderr, env=environment))
            (workers if each["role"] == "worker" else others).append(process)
        while any(each.poll() is None for each in workers):
            if any(each.poll() for each in workers):
                for each in workers:
                    each.kill()
            time.sleep(0.05)
        for each in others:
            each.kill()
    if any(each.returncode for each in workers):
        raise RequestError("a process that trains failed; its output is above")


def _measured(
    command: list[Any], kinds: Sequence[str], asked: argparse.Namespace, folder: Path
) -> tuple[list[str], bool]:
    """The rest of a row, and whether the adapter's interval is above what is aimed at."""
    trials = []
    for trial in rounds(len(kinds), secrets.randbits(32), asked.rounds):
        file = folder / "seconds.npy"
        variables = {"PYTHONHASHSEED": str(trial.hash_seed), "DLB_PADDING": "x" * trial.padding}
        words = [*command, "--process", kinds[trial.cell], "--to", str(file)]
        _train(words, variables, asked, folder)
        seconds = np.load(file, allow_pickle=False)
        seconds = seconds[warmup_steps(seconds) :]
        steady = find_steady(seconds)
        median = None if steady.kind == "no steady state" else np.median(seconds[steady.start :])
        trials.append(Timed(trial.round, trial.cell, trial.again, median and float(median)))
    baseline, limit = kinds.index("by_hand"), STRATEGY_LIMIT if asked.strategy else LIMIT
    compared = compare(trials, len(kinds), baseline=baseline, margin=limit - 1)
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
    return row, ratio is not None and ratio.low > limit


def _one(asked: argparse.Namespace) -> int:
    """A process of the adapter's environment: tells what there is, is a part of a strategy, or trains."""
    (name,), (strategy, workers) = asked.workloads, (asked.strategy, asked.workers)
    hook = load_plugins().hook
    if asked.role == "planner":
        with free_ports(4 + 2 * workers, HOST) as ports:
            request = PlanRequest(strategy, workers, HOST, tuple(ports))
        plan = hook.dlb_plan(framework=asked.adapter, request=request)
        Path(asked.to).write_text(json.dumps(asdict(plan)))
        return 0
    if asked.role != "worker":
        hook.dlb_serve(
            framework=asked.adapter, strategy=strategy, role=asked.role, rank=int(asked.rank)
        )
        return 0
    # Where a launcher starts the workers, it tells each its rank by a variable.
    rank = int(os.environ.get(asked.rank, asked.rank))
    request = StartRequest(asked.threads, strategy=strategy, workers=workers)
    facts = hook.dlb_start(framework=asked.adapter, request=request)
    if asked.process == "kinds":
        print(
            f"{name}: {asked.adapter} {facts.version}, {facts.threads} threads, {facts.device}",
            file=sys.stderr,
        )
        fits = hasattr(by_hand(asked.adapter), "Fit") and not strategy
        Path(asked.to).write_text(json.dumps([*KINDS[: 3 if fits else 2]]))
        return 0
    workload = load_workload(name)
    if asked.batch_size:
        workload = msgspec.structs.replace(workload, batch_size=asked.batch_size)
    peers = None
    if strategy and asked.process == "by_hand":
        peers = by_hand(asked.adapter).join(rank, workers)
    elif strategy:
        peers = hook.dlb_join(
            framework=asked.adapter, strategy=strategy, rank=rank, workers=workers
        )
    clock = hook.dlb_clock(framework=asked.adapter, device="cpu")
    drops = any(isinstance(node.layer, Dropout) for node in workload.model.nodes)
    place = _Place(rank, workers, peers)
    drop = drops and not asked.alike
    contestant = _contestant(asked.process, asked.adapter, hook, workload, place, drop=drop)
    found: list[float] = []
    if asked.alike:
        found = [contestant.timed(clock)[1] for _ in range(ALIKE_STEPS)]
    until = time.monotonic() + asked.seconds
    # Workers take as many steps as one another.
    while not asked.alike and (
        len(found) < LEAST_STEPS
        or (len(found) < asked.steps and (strategy or time.monotonic() < until))
    ):
        found += contestant.block(clock, BLOCK)
    if rank == 0:
        np.save(asked.to, np.array(found))
    if strategy and asked.process == "adapter":
        del contestant
        peers.leave()
    return 0


@dataclass(frozen=True)
class _Place:
    """Of a worker: its rank, how many there are, and what its framework knows of its peers."""

    rank: int
    workers: int
    peers: Any

    def share(self, rows: np.ndarray) -> np.ndarray:
        """Of batches of sample numbers [S, N], those of this worker."""
        return np.split(rows, self.workers, axis=1)[self.rank]


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

    def __init__(self, model: Any, workload: Workload, place: _Place) -> None:
        self.model, self.rows = model, (row for order in _orders(workload, place) for row in order)

    def timed(self, clock: Any) -> tuple[float, float]:
        """Seconds and loss of one step."""
        ((seconds,), (loss,)) = self.model.fit(next(self.rows)[None])
        return seconds, loss

    def block(self, clock: Any, steps: int) -> list[float]:
        """Seconds of so many steps."""
        found: list[float] = self.model.fit(np.stack([next(self.rows) for _ in range(steps)]))[0]
        return found


def _orders(workload: Workload, place: _Place) -> Iterator[np.ndarray]:
    """A worker's batches of AHEAD steps as sample numbers, int64 [AHEAD, N], without an end."""
    count = BATCHES * workload.batch_size
    for seed in itertools.count(SEED):
        yield place.share(sample_order(count, workload.batch_size, AHEAD, seed))


def _samples(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    count = BATCHES * workload.batch_size
    return noise(workload.model, SEED, count), random_labels(workload.model, SEED, count)


def _trained(made: Any, workload: Workload, place: _Place, *, drop: bool) -> Any:
    """A hand-written training of a workload, of the class that a native file has."""
    settings = msgspec.structs.asdict(workload.optimizer)
    weights = initial_weights(workload.model, SEED)
    inputs, labels = _samples(workload)
    batch, peers = (
        workload.batch_size // place.workers,
        {"peers": place.peers} if place.peers else {},
    )
    return made(workload.name, weights, batch, settings, inputs, labels, drop=drop, **peers)


def _without_dropout(model: Model) -> Model:
    """The model with every dropout at rate 0."""
    replace = msgspec.structs.replace
    nodes = tuple(
        replace(node, layer=Dropout(rate=0.0)) if isinstance(node.layer, Dropout) else node
        for node in model.nodes
    )
    return replace(model, nodes=nodes)


def _contestant(
    kind: str, name: str, hook: Any, workload: Workload, place: _Place, *, drop: bool
) -> Any:
    """The adapter's model, the hand-written one or that of ``fit``, from the same weights."""
    if not drop:
        workload = msgspec.structs.replace(workload, model=_without_dropout(workload.model))
    if kind == "fit":
        return _Fit(_trained(by_hand(name).Fit, workload, place, drop=drop), workload, place)
    orders = _orders(workload, place)
    if kind == "by_hand":
        native = _trained(by_hand(name).Native, workload, place, drop=drop)
        drawn = (batch for order in orders for batch in native.batches(order))
        return _Contestant(native.step, drawn)
    inputs, labels = _samples(workload)
    weights = initial_weights(workload.model, SEED)
    batch = workload.batch_size // place.workers
    lowered = lower(workload)
    request = BuildRequest(lowered, weights, "float32", "cpu", batch, session=place.peers)
    built = hook.dlb_build_model(framework=name, request=request)
    built.set_learning_rate(workload.optimizer.learning_rate)

    def batches() -> Iterator[Any]:
        for order in orders:
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
    parser.add_argument("--strategy", default="", help="of an adapter that is named by --on")
    parser.add_argument("--workers", type=int, default=1)
    # Of a process that the command starts.
    for option, default in (("adapter", ""), ("process", ""), ("to", ""), ("role", "worker")):
        parser.add_argument(f"--{option}", default=default, help=argparse.SUPPRESS)
    parser.add_argument("--rank", default="0", help=argparse.SUPPRESS)
    parser.add_argument("--alike", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(told(main))
