"""What a training step costs through an adapter, against the same step written by hand.

One command measures every adapter that dlb finds, each in its own environment, and prints a table as CSV::

    python benchmarks/step_overhead.py [WORKLOAD ...]

Without a name it is LeNet-5. ``--adapter NAME`` measures that one in the environment it is called in.

Each adapter's environment needs dlb-core as well, which dlb does not put there:
``uv pip install --python ENVIRONMENT/bin/python ./core``.

The network is built twice in the adapter's process, from the same weights: through the adapter's
hooks, and as ``benchmarks/native/NAME.py`` writes it, with nothing of dlb. Which of them was built
first can make several percent, for the memory that it got: so both are built anew ``--builds``
times, the first time one of them first, the next time the other. Both train on the same
batches of made-up samples, in blocks of steps that alternate; which of the two goes first is drawn
for each pair of blocks, so that neither always finds the machine warmer. Steps are timed by the
adapter's clock, for both. A native file may have a class ``Fit`` as well, with the loop of Keras: it
trains a model of its own in blocks between the others. On PyTorch that needs Keras beside it, in
the adapter's environment: ``pip install keras``.

Times are medians, of several builds the geometric mean of theirs; the figure is their ratio, with a
95% interval by bootstrap over builds, and over each build's pairs (Efron and Tibshirani 1993, section
13.3, percentiles; in two stages, Davison and Hinkley 1997, section 3.8): builds, since the memory that
one got makes it several percent faster or slower for as long as it lasts; pairs, not steps, since those
next to each other share the machine's state.

Before that, the losses of the first steps are compared, dropout left out, and of ``fit`` that of
the first: all must be the same network. Ends with 1 when a whole interval lies above 1.02, and with
2 when they are not alike.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
from commands import ran, told

from dlb.adapters import find_adapters
from dlb.data.batches import sample_order
from dlb.provenance import machine_facts
from dlb.samples import noise, random_labels
from dlb.workload import Dropout, Model, Workload
from dlb.workload.files import load as load_workload
from dlb.workload.initial import initial_weights
from dlb.workload.lower import lower
from dlb_worker.contract import BuildRequest, DataRequest, StartRequest
from dlb_worker.plugins import load_plugin, load_plugins

#: A block has so many steps at most, and takes about so many seconds; but one step at least.
BLOCK, BLOCK_SECONDS = 10, 0.5
#: Pairs of blocks before any that counts: compilation, first allocations, caches.
WARM_UP = 3
#: Pairs of each build that are measured however long they take.
LEAST_PAIRS = 3
RESAMPLES = 5000
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
    "steps",
    "adapter_ms",
    "by_hand_ms",
    "ratio",
    "ratio_low",
    "ratio_high",
    "fit_ms",
    "fit_ratio",
)


def main() -> int:
    """Measure, print, and tell by the exit status."""
    asked = _arguments()
    return _one(asked) if asked.adapter else _each(asked)


def _each(asked: argparse.Namespace) -> int:
    """Every adapter in its own environment, one after another; a table that grows as they end."""
    machine, statuses, environments = machine_facts(), [], find_adapters(asked.on)
    print(f"{machine['cpu']}, {asked.threads} threads, {machine['system']}", file=sys.stderr)
    print(",".join(COLUMNS), flush=True)
    for name in asked.workloads or ["lenet5"]:
        for home in environments:
            with tempfile.TemporaryDirectory() as folder:
                figures = Path(folder) / "figures.json"
                words = [name, "--adapter", home.adapter, "--figures", str(figures)]
                for option in ("steps", "seconds", "builds", "threads", "batch_size"):
                    words += [f"--{option.replace('_', '-')}", str(getattr(asked, option))]
                statuses.append(ran([home.python, __file__, *words], stdout=sys.stderr))
                if figures.exists():
                    print(_row(name, json.loads(figures.read_text())), flush=True)
    return max(map(abs, statuses), default=0)


def _row(name: str, found: dict[str, Any]) -> str:
    fit = f"{found['fit']:.2f},{found['fit_ratio']:.3f}" if "fit" in found else ","
    return (
        f"{name},{found['batch']},{found['framework'].split()[0]},{found['steps']},"
        f"{found['adapter']:.2f},{found['native']:.2f},{found['ratio']:.3f},"
        f"{found['low']:.3f},{found['high']:.3f},{fit}"
    )


def _one(asked: argparse.Namespace) -> int:
    """The adapter of this environment."""
    (name,) = asked.workloads or ["lenet5"]
    hook = hooks(asked.adapter_plugin)
    facts = hook.dlb_start(framework=asked.adapter, request=StartRequest(threads=asked.threads))
    if facts is None:
        raise SystemExit(
            f"--adapter {asked.adapter}: not installed in this environment ({sys.prefix}); without "
            "--adapter, every one is found and run in its own, or those of --on"
        )
    print(f"{name}: {asked.adapter} {facts.version}, {facts.threads} threads, {facts.device}")
    workload = load_workload(name)
    if asked.batch_size:
        workload = msgspec.structs.replace(workload, batch_size=asked.batch_size)
    clock = hook.dlb_clock(framework=asked.adapter, device="cpu")
    drops = any(isinstance(node.layer, Dropout) for node in workload.model.nodes)

    contestants = _contestants(asked.adapter, hook, workload, drop=False, native_first=False)
    losses = np.array([[each.timed(clock)[1] for _ in range(ALIKE_STEPS)] for each in contestants])
    # Of Keras' own loop the first alone: its Adam has epsilon elsewhere.
    relative = np.abs(losses / losses[1] - 1)
    apart = float(max(relative[:2].max(), relative[:, 0].max()))
    print(f"losses   apart by {apart:.1e} in the first {ALIKE_STEPS} steps, without dropout")
    if not apart <= ALIKE:
        print(f"they have not trained alike: more than {ALIKE} apart", file=sys.stderr)
        return 2

    took = contestants[1].timed(clock)[0]
    block = int(np.clip(BLOCK_SECONDS / took, 1, BLOCK))
    generator, builds = np.random.default_rng(SEED), []
    for number in range(asked.builds):
        del contestants
        contestants = _contestants(
            asked.adapter, hook, workload, drop=drops, native_first=number % 2 == 1
        )
        builds.append(_timed(contestants, clock, block, asked, generator))
    adapter, native, *fit = ([build[which] for build in builds] for which in range(len(builds[0])))
    low, ratio, high = ratio_of_medians(adapter, native)
    medians = [
        float(np.exp(np.mean([np.log(np.median(build)) for build in each]))) * 1e3
        for each in (adapter, native, *fit)
    ]
    steps = sum(build[0].size for build in builds)
    for what, median in zip(("adapter", "native", "fit"), medians):
        print(f"{what:8} {median:8.3f} ms a step, of {steps} steps")
    print(f"ratio    {ratio:.4f}, 95% interval {low:.4f} to {high:.4f}")
    apiece = [ratio_of_medians([one], [other])[1] for one, other in zip(adapter, native)]
    print("         of each build:", ", ".join(f"{each:.4f}" for each in apiece))
    if asked.figures:
        figures = {"framework": f"{asked.adapter} {facts.version}", "batch": workload.batch_size}
        figures |= {"steps": steps, "ratio": ratio, "low": low, "high": high}
        figures |= dict(zip(("adapter", "native", "fit"), medians))
        if fit:
            figures["fit_ratio"] = ratio_of_medians(fit[0], native)[1]
        asked.figures.write_text(json.dumps(figures))
    if low > LIMIT:
        print(f"the adapter is slower: the whole interval is above {LIMIT}", file=sys.stderr)
        return 1
    return 0


def _timed(
    contestants: list[Any],
    clock: Any,
    block: int,
    asked: argparse.Namespace,
    generator: np.random.Generator,
) -> np.ndarray:
    """Seconds [contestants, pairs, steps] of blocks that alternate, a build's share of what was asked."""
    until = time.monotonic() + asked.seconds / asked.builds
    rows: list[list[list[float]]] = []
    while len(rows) < WARM_UP + LEAST_PAIRS or (
        (len(rows) - WARM_UP) * block < asked.steps / asked.builds and time.monotonic() < until
    ):
        row: list[list[float]] = [[] for _ in contestants]
        for which in generator.permutation(len(contestants)):
            row[which] = contestants[which].block(clock, block)
        rows.append(row)
    return np.array(rows[WARM_UP:]).swapaxes(0, 1)


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


def _contestants(
    name: str, hook: Any, workload: Workload, *, drop: bool, native_first: bool
) -> list[Any]:
    """The adapter's model, the hand-written one and that of ``fit``, from the same weights."""
    if not drop:
        workload = msgspec.structs.replace(workload, model=_without_dropout(workload.model))
    inputs, labels = _samples(workload)
    weights = initial_weights(workload.model, SEED)
    by_hand = _by_hand(name)
    native = _trained(by_hand.Native, workload, drop=drop) if native_first else None
    built = hook.dlb_build_model(
        framework=name,
        request=BuildRequest(lower(workload), weights, "float32", "cpu", workload.batch_size),
    )
    built.set_learning_rate(workload.optimizer.learning_rate)

    def batches() -> Iterator[Any]:
        for order in _orders(workload):
            request = DataRequest(inputs, labels, order, "memory", "cpu", "float32")
            yield from hook.dlb_load_data(framework=name, request=request)

    native = native or _trained(by_hand.Native, workload, drop=drop)
    drawn = (batch for order in _orders(workload) for batch in native.batches(order))
    made = getattr(by_hand, "Fit", None)
    fits = [_Fit(_trained(made, workload, drop=drop), workload)] if made else []
    return [
        _Contestant(built.train_step, batches()),
        _Contestant(native.step, drawn),
        *fits,
    ]


def _by_hand(name: str) -> ModuleType:
    """``native/NAME.py``, under a name that does not hide the framework's own."""
    path = Path(__file__).parent / "native" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"native_{name}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SystemExit(f"{path}: not there; write the class Native as in native/torch.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hooks(module: str) -> Any:
    """The hooks of the installed plugins, or of one plugin."""
    return (load_plugin(module) if module else load_plugins()).hook


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What a step costs through an adapter.")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="default: lenet5")
    parser.add_argument("--adapter", help="its name, e.g. torch, in this environment")
    parser.add_argument(
        "--on", action="append", default=[], metavar="ADAPTER", help="default: every one found"
    )
    parser.add_argument(
        "--adapter-plugin", default="", metavar="MODULE", help="where it is not installed"
    )
    parser.add_argument("--steps", type=int, default=400, help="timed steps of each")
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="end the steps of an adapter after so many"
    )
    parser.add_argument(
        "--builds", type=int, default=8, help="of both models; steps and seconds are of all of them"
    )
    parser.add_argument("--batch-size", type=int, default=0, help="default: the workload's")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--figures", type=Path, metavar="FILE", help="write them there as JSON too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(told(main))
