"""What a training step costs through an adapter, against the same step written by hand.

One command measures every adapter that dlb finds, each in its own environment, and prints a table::

    python benchmarks/step_overhead.py

``--adapter NAME`` measures that one in the environment it is called in.

LeNet-5 is built twice in the adapter's process, from the same weights: through the adapter's hooks, and as
``benchmarks/native/NAME.py`` writes it, with nothing of dlb. Both train on the same batches, in
blocks of ten steps that alternate; which of the two goes first is drawn for each pair of blocks,
so that neither always finds the machine warmer. Steps are timed by the adapter's clock, for both.

The figure is the ratio of the median step times, with a 95% interval by bootstrap over the pairs
(Efron and Tibshirani 1993, section 13.3, percentiles): pairs, since steps next to each other share
the machine's state and are not independent.

Ends with 1 when the whole interval lies above 1.02, and with 2 when the two have not trained alike.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pluggy
from rich.console import Console
from rich.progress import track

from dlb import hookspecs
from dlb.adapters import find_adapters
from dlb.contract import BuildRequest, LoadRequest, StartRequest
from dlb.data.batches import sample_order
from dlb.data.load import load as load_split
from dlb.data.load import normalise
from dlb.plugins import check_hooks, load_plugins
from dlb.provenance import machine_facts
from dlb.workload import SGD
from dlb.workload.files import load as load_workload
from dlb.workload.initial import initial_weights

BLOCK = 10
#: Pairs of blocks before any that counts: compilation, first allocations, caches.
WARM_UP = 3
RESAMPLES = 5000
LIMIT = 1.02
#: How far losses may be apart, relative, in the first block. Later, training in float32 is
#: chaotic, and the least difference in the order of a sum grows.
ALIKE = 1e-4
SEED = 0


def main() -> int:
    """Measure, print, and tell by the exit status."""
    asked = _arguments()
    return _one(asked) if asked.adapter else _each(asked)


def _each(asked: argparse.Namespace) -> int:
    """Every adapter in its own environment, one after another, and a table of all."""
    rows, statuses = [], []
    for home in track(find_adapters(()), "measuring", console=Console(stderr=True)):
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder) / "figures.json"
            words = ["--adapter", home.adapter, "--figures", str(figures)]
            words += ["--steps", str(asked.steps), "--threads", str(asked.threads)]
            ran = subprocess.run([home.python, __file__, *words], stdout=sys.stderr)
            statuses.append(ran.returncode)
            if figures.exists():
                rows.append(json.loads(figures.read_text()))
    machine = machine_facts()
    print(f"{machine['cpu']}, {asked.threads} threads, {machine['system']}\n")
    print("| adapter | by the adapter | by hand | ratio | 95% interval |")
    print("|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['framework']} | {row['adapter']:.2f} ms | {row['native']:.2f} ms "
            f"| {row['ratio']:.3f} | {row['low']:.3f} to {row['high']:.3f} |"
        )
    return max(map(abs, statuses), default=0)


def _one(asked: argparse.Namespace) -> int:
    """The adapter of this environment."""
    hook = hooks(asked.adapter_plugin)
    facts = hook.dlb_start(framework=asked.adapter, request=StartRequest(threads=asked.threads))
    print(f"{asked.adapter} {facts.version}, {facts.threads} threads, {facts.device}")
    pairs = WARM_UP + -(-asked.steps // BLOCK)
    adapter, native = _contestants(asked.adapter, hook, pairs * BLOCK)
    clock = hook.dlb_clock(framework=asked.adapter, device="cpu")
    seconds, losses = np.empty((2, 2, pairs, BLOCK))
    first = np.random.default_rng(SEED).integers(0, 2, pairs)
    for pair in range(pairs):
        for which in (first[pair], 1 - first[pair]):
            step, batches = (adapter, native)[which]
            for place in range(BLOCK):
                inputs, labels = next(batches)
                clock.synchronise()
                clock.start()
                loss = step(inputs, labels)
                seconds[which, pair, place] = clock.stop()
                losses[which, pair, place] = float(loss)
    apart = np.abs(losses[0] / losses[1] - 1)
    timed = seconds[:, WARM_UP:]
    low, ratio, high = ratio_of_medians(timed[0], timed[1])
    for name, each in zip(("adapter", "native"), timed):
        print(f"{name:8} {np.median(each) * 1e3:8.3f} ms a step, median of {each.size}")
    print(
        f"losses   apart by {apart[0].max():.1e} in the first {BLOCK} steps, {apart.max():.1e} ever"
    )
    print(f"ratio    {ratio:.4f}, 95% interval {low:.4f} to {high:.4f}")
    if asked.figures:
        by_adapter, by_hand = (float(np.median(each)) * 1e3 for each in timed)
        figures = {"framework": f"{asked.adapter} {facts.version}", "adapter": by_adapter}
        figures |= {"native": by_hand, "ratio": ratio, "low": low, "high": high}
        asked.figures.write_text(json.dumps(figures))
    if not apart[0].max() <= ALIKE:
        print(f"the two have not trained alike: more than {ALIKE} apart", file=sys.stderr)
        return 2
    if low > LIMIT:
        print(f"the adapter is slower: the whole interval is above {LIMIT}", file=sys.stderr)
        return 1
    return 0


def ratio_of_medians(one: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """Median of one over median of the other, between the bounds of its 95% interval.

    Args:
        one, other: seconds [pairs, steps], measured in pairs of blocks.
    """
    drawn = np.random.default_rng(SEED).integers(0, len(one), (RESAMPLES, len(one)))
    ratios = [np.median(one[some]) / np.median(other[some]) for some in drawn]
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(np.median(one) / np.median(other)), float(high)


def _contestants(name: str, hook: Any, steps: int) -> tuple[Any, Any]:
    """For the adapter and the hand-written loop each: its step, and its batches."""
    workload = load_workload("lenet5")
    optimizer = workload.optimizer
    assert isinstance(optimizer, SGD)
    split = load_split(workload.data.name, "train")
    inputs = normalise(split.images, workload.data.mean, workload.data.std)
    labels = split.labels.copy()
    weights = initial_weights(workload.model, SEED)
    order = sample_order(len(inputs), workload.batch_size, steps, SEED)
    built = hook.dlb_build_model(
        framework=name,
        request=BuildRequest(workload, weights, "float32", "cpu", workload.batch_size),
    )
    built.set_learning_rate(optimizer.learning_rate)
    request = LoadRequest(inputs, labels, order, "memory", "cpu", "float32")
    batches: Iterable[Any] = hook.dlb_load_data(framework=name, request=request)
    native = _by_hand(name).Native(
        weights,
        workload.batch_size,
        optimizer.learning_rate,
        optimizer.momentum,
        inputs,
        labels,
    )
    return (built.train_step, iter(batches)), (native.step, iter(native.batches(order)))


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
    """The hooks of the installed plugins, or of one plugin module."""
    if not module:
        return load_plugins().hook
    loaded = importlib.import_module(module)
    check_hooks(loaded)
    manager = pluggy.PluginManager("dlb")
    manager.add_hookspecs(hookspecs)
    manager.register(loaded)
    return manager.hook


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What a step costs through an adapter.")
    parser.add_argument("--adapter", help="its name, e.g. torch; left out: every one found")
    parser.add_argument(
        "--adapter-plugin", default="", metavar="MODULE", help="where it is not installed"
    )
    parser.add_argument("--steps", type=int, default=400, help="timed steps of each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--figures", type=Path, metavar="FILE", help="write them there as JSON too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
