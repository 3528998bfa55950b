"""How often a thing is called different from itself, and how often a planted slow-down is found.

    pip install benchmarks/slower pyperf
    python benchmarks/false_alarms.py [--on ADAPTER] [--workload W] [--slower 3] [--load]
                                        [--order alternating] [--variable NAME=VALUE] >> FILE.csv

Each comparison is a measurement in rounds, as ``dlb run`` makes it, of an adapter and itself; with ``--slower
3``, of itself with steps that take 3% longer, for which dlb-slower must be in the adapter's environment. With
``--load``, a process keeps one core busy half of the time, and with ``--variable``, both have that environment
variable. Rounds end once the word is settled, as those of ``dlb run`` do. A row for each comparison has ratio,
interval, and word, and what others would have said of the same trials:

- ``quartiles``: whether the quartiles of steps of the first two processes are apart, as a plain loop shows;
- ``torch_benchmark``: whether torch.utils.benchmark prints other times for these two processes, to as many
  digits as it says are significant; empty if torch is not in this environment;
- ``pyperf``: whether pyperf calls the mean times of all processes significantly different.

``seconds`` are those of the whole comparison, and of pyperf's processes; ``loop_seconds``, those of two;
``pairs``, the ratios of the rounds that were done.

A summary goes to standard error: the share that was called different, with Clopper and Pearson's bounds.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from dlb import contents
from dlb.adapters import find_adapters
from dlb.catalogue import load_with_file
from dlb.execution.run import run
from dlb.progress import Silent
from dlb.resolver import Resolver
from dlb.samples import replace_missing_data
from dlb.settings import Settings
from dlb_measure.comparison import figures_by_round
from dlb_measure.measure import measure_cells
from dlb_measure.plan import Plan
from dlb_measure.results.compared import compared_cells
from dlb_measure.results.measurement import Measurement

DIFFERENT = ("faster", "slower")
#: Half of the time busy, in pieces that a scheduler sees.
LOAD = """
import time
while True:
    end = time.perf_counter() + 0.05
    while time.perf_counter() < end:
        pass
    time.sleep(0.05)
"""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--on", default="torch", metavar="ADAPTER")
    parser.add_argument("--workload", default="lenet5")
    parser.add_argument("--comparisons", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--slower", type=float, default=0.0, metavar="PERCENT")
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--order", default="interleaved", choices=["interleaved", "alternating"])
    parser.add_argument("--until", default="settled", choices=["all", "settled"])
    parser.add_argument("--variable", action="append", default=[], metavar="NAME=VALUE")
    asked = parser.parse_args()
    described, imported = load_with_file(asked.workload)
    described = replace_missing_data(described, lambda line: print(line, file=sys.stderr))
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(
        [
            "order",
            "slower",
            "load",
            "variables",
            "rounds",
            "steps",
            "ratio",
            "low",
            "high",
            "word",
            "quartiles",
            "torch_benchmark",
            "pyperf",
            "seconds",
            "loop_seconds",
            "pairs",
        ]
    )
    plan = Plan(
        rounds=asked.rounds,
        trial_steps=asked.steps,
        repeats=0,
        order=asked.order,
        until=asked.until,
    )
    variables = dict(each.split("=", 1) for each in asked.variable)
    words: list[tuple[str, bool, bool | None, bool]] = []
    with tempfile.TemporaryDirectory() as name, _load(asked.load):
        resolver = Resolver(described, imported, out=Path(name))
        request = resolver.resolve(
            Settings(steps=asked.steps, threads=1, variables=variables), find_adapters([asked.on])
        )
        (record,) = run(request, Silent()).records
        if record.proof != "proven":
            print(f"{asked.on} is not proven: {record.proof}", file=sys.stderr)
            return 1
        slower = {"DLB_SLOWER": str(asked.slower / 100)} if asked.slower else {}
        cells = [
            (request, record),
            (replace(request, variables={**request.variables, **slower}), record),
        ]
        for number in range(asked.comparisons):
            began = time.monotonic()
            measurement = measure_cells(cells, plan, Silent())
            if measurement.ended == "interrupted":
                return 130
            seconds = time.monotonic() - began
            _, compared = compared_cells(measurement)
            ratio, word = compared.ratio, compared.word or "no steady state"
            steps = _steps(measurement, request.out)
            loop, pyperf = _quartiles_apart(steps), _pyperf(measurement)
            printed = _torch_benchmark(steps)
            figures = ["", "", ""] if ratio is None else [ratio.ratio, ratio.low, ratio.high]
            table.writerow(
                [asked.order, asked.slower, int(asked.load), " ".join(asked.variable)]
                + [asked.rounds, asked.steps]
                + [f"{each:.4f}" if each else "" for each in figures]
                + [word, int(loop), "" if printed is None else int(printed), int(pyperf)]
                + [f"{seconds:.1f}", f"{2 * seconds / len(measurement.trials):.1f}"]
                + [" ".join(f"{each:.4f}" for each in _pairs(measurement))]
            )
            sys.stdout.flush()
            words.append((word, loop, printed, pyperf))
            print(f"{number + 1} of {asked.comparisons}: {word}", file=sys.stderr)
    _summarise(words)
    return 0


@contextlib.contextmanager
def _load(wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", LOAD])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _steps(measurement: Measurement, folder: Path | None) -> list[np.ndarray]:
    """The times of the steps of the first process of both cells, without the first tenth."""
    assert folder is not None
    found = []
    for cell in (0, 1):
        first = next(t for t in measurement.trials if t.cell == cell and t.series)
        steps = contents.read_arrays(folder, first.series)["step_seconds"]
        found.append(steps[len(steps) // 10 :])
    return found


def _pairs(measurement: Measurement) -> list[float]:
    """The ratio of every round."""
    figures, others = (figures_by_round(measurement.trials, cell) for cell in (1, 0))
    return [figures[number] / others[number] for number in sorted(figures.keys() & others.keys())]


def _quartiles_apart(steps: list[np.ndarray]) -> bool:
    """Whether the quartiles of two processes' steps do not overlap."""
    (low, high), (other_low, other_high) = (np.percentile(each, (25, 75)) for each in steps)
    return bool(high < other_low or other_high < low)


def _torch_benchmark(steps: list[np.ndarray]) -> bool | None:
    """Whether torch.utils.benchmark's Compare prints other times; None without torch."""
    try:
        from torch.utils.benchmark.utils import common
    except ImportError:
        return None
    task = common.TaskSpec(stmt="step", setup="")
    made = [common.Measurement(1, each.tolist(), task) for each in steps]
    printed = [common.trim_sigfig(each.median, each.significant_figures) for each in made]
    return bool(printed[0] != printed[1])


def _pyperf(measurement: Measurement) -> bool:
    """Whether pyperf calls the means of all processes different."""
    import pyperf

    def benchmark(cell: int) -> Any:
        means = [t.mean for t in measurement.trials if t.cell == cell and not t.again and t.mean]
        runs = [
            pyperf.Run([mean], collect_metadata=False, metadata={"name": "step"}) for mean in means
        ]
        return pyperf.Benchmark(runs)

    from pyperf._compare import CompareResult

    if not all(any(t.mean for t in measurement.trials if t.cell == cell) for cell in (0, 1)):
        return False  # no trial has a steady state
    result = CompareResult(_Named("a", benchmark(0)), _Named("b", benchmark(1)))
    return bool(result.significant)


class _Named:
    """What pyperf's comparison takes of a benchmark in a file."""

    def __init__(self, name: str, benchmark: Any) -> None:
        self.name, self.benchmark = name, benchmark


def _summarise(words: list[tuple[str, bool, bool | None, bool]]) -> None:
    if not words:
        return
    told = {
        "dlb": [word in DIFFERENT for word, *_ in words],
        "quartiles of one process": [loop for _, loop, _, _ in words],
        "torch.utils.benchmark": [printed for *_, printed, _ in words if printed is not None],
        "pyperf": [pyperf for *_, pyperf in words],
    }
    for name, verdicts in told.items():
        if not verdicts:
            continue
        count = sum(verdicts)
        interval = binomtest(count, len(verdicts)).proportion_ci(method="exact")
        print(
            f"{name}: {count} of {len(verdicts)} called different, {count / len(verdicts):.1%} "
            f"({interval.low:.1%} to {interval.high:.1%})",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main())
