"""What workloads reach: test accuracy on each adapter from the same seeds, and in the paper.

    python benchmarks/accuracy.py WORKLOAD ... [--on ADAPTER ...] [--seeds N] [--records FOLDER]

``dlb run`` is run as a user runs it, for each workload and seed, on the adapters of which FOLDER has no
record of it yet, so that a series can be taken up where it was left, and be run in parts. Of a
workload that the paper trained, as many steps as it took; otherwise, or with ``--steps``, the
workload's own, or so many. Then the table of all that is in FOLDER is printed; ``--seeds 0`` prints
it alone.

A seed sets the weights and the order of samples. In float32 training is chaotic, so that adapters
that were proven the same still end at other weights, and their accuracies differ as those of seeds
do. They agree when no two adapters' means differ by more than that: the largest studentized range
(Tukey and Kramer; spread over seeds pooled over adapters) has p >= 0.05. Needs SciPy
(``dlb-core[images]``).

Ends with 1 when a run failed or was not proven, or adapters do not agree.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from commands import ran, told

from dlb import record
from dlb.adapters import find_adapters
from dlb.catalogue import load_workload
from dlb.samples import Splits
from dlb_graph.workload import Workload, workload_hash

try:
    from scipy.stats import studentized_range
except ImportError:
    sys.exit("accuracy.py: SciPy is missing here: pip install 'dlb-core[images]'")

#: Adapters differ by more than seeds do below this.
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Published:
    """What a paper reached.

    Attributes:
        steps: that it trained; its epochs are of fewer samples where it keeps some for validation.
        lowest, highest: of its accuracies in per cent.
        source: of them.
    """

    steps: int
    lowest: float
    highest: float
    source: str


_WU = "Wu et al., Tables 10 and 11: two machines and two libraries on CPUs"
PUBLISHED = {
    "tensorflow-mnist": Published(20_000, 99.14, 99.28, _WU),
    "caffe-mnist": Published(10_000, 99.00, 99.18, _WU),
    "torch-mnist": Published(72_000, 99.15, 99.24, _WU),
    "theano-mnist": Published(20_000, 98.99, 99.08, _WU),
}


@dataclass(frozen=True)
class Part:
    """One workload of the series, and how long it is trained."""

    name: str
    workload: Workload
    steps: int

    def covers(self, one: record.Record) -> bool:
        """Whether a record is of it."""
        return (
            one.quality is not None
            and not one.failure
            and one.workload_hash == workload_hash(self.workload)
            and one.options.steps == self.steps
            and one.options.batch_size == self.workload.batch_size
            and one.options.dtype == "float32"
            and one.options.workers == 1
            and not one.options.variant
        )


def main() -> int:
    """Run what is missing, print the table, and tell by the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--on", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--records", type=Path, default=Path("dlb-accuracy"))
    asked = parser.parse_args()
    adapters = [home.adapter for home in find_adapters(asked.on)]
    parts = [_part(name, asked.steps) for name in asked.workloads]
    sound = all(
        _run(part, seed, adapters, asked.threads, asked.records)
        for part in parts
        for seed in range(asked.seeds)
    )
    print("| workload | steps | adapter | seeds | accuracy | standard deviation | range | proof |")
    print("|---|---|---|---|---|---|---|---|")
    told = [_tell(part, adapters, asked.records) for part in parts]
    print("\n" + "\n".join(line for line, _ in told))
    return 0 if sound and all(good for _, good in told) else 1


def _part(name: str, steps: int | None) -> Part:
    workload = load_workload(name)
    own = workload.epochs * (Splits(workload).count // workload.batch_size)
    published = PUBLISHED.get(name)
    return Part(name, workload, steps or (published.steps if published else own))


def _found(part: Part, folder: Path) -> dict[tuple[str, int], record.Record]:
    """The records of a workload by adapter and seed; the last of several."""
    records, _ = record.read_folder(folder)
    return {(one.adapter, one.options.seed): one for one in records if part.covers(one)}


def _run(part: Part, seed: int, adapters: Sequence[str], threads: int | None, folder: Path) -> bool:
    """Run a seed on the adapters that have not; whether each has a record now."""
    missing = [name for name in adapters if (name, seed) not in _found(part, folder)]
    if not missing:
        return True
    words = [str(Path(sys.executable).parent / "dlb"), "run", part.name, "--seed", str(seed)]
    words += ["--rounds", "0", "--steps", str(part.steps), "--out", str(folder)]
    words += [word for name in missing for word in ("--on", name)]
    words += ["--threads", str(threads)] if threads else []
    ran(words, stdout=sys.stderr)
    found = _found(part, folder)
    return all((name, seed) in found for name in adapters)


def _tell(part: Part, adapters: Sequence[str], folder: Path) -> tuple[str, bool]:
    """Print a line for each adapter; in words whether they agree, and whether all is well."""
    found, groups, proven = _found(part, folder), [], True
    for adapter in adapters:
        some = [one for (name, _), one in sorted(found.items()) if name == adapter]
        if not some:
            print(f"| `{part.name}` | {part.steps:,} | {adapter} | 0 | | | | not run |")
            continue
        reached = np.array([100 * one.quality.test_accuracy for one in some if one.quality])
        words = sorted({one.proof for one in some})
        spread = f"{reached.std(ddof=1):.3f}" if len(reached) > 1 else ""
        print(
            f"| `{part.name}` | {part.steps:,} | {adapter} | {len(reached)} | {reached.mean():.2f}% "
            f"| {spread} | {reached.min():.2f} to {reached.max():.2f} | {', '.join(words)} |"
        )
        groups.append(reached)
        proven &= words == ["proven"]
    told, agree = agreement(groups)
    return f"- `{part.name}`: {told}. {_compared(part.name, groups)}", proven and agree


def agreement(groups: Sequence[np.ndarray]) -> tuple[str, bool]:
    """Whether groups of accuracies differ by no more than those within them, in words too.

    The Tukey-Kramer test: for means m of n values each, and the standard deviation s pooled over
    the groups, the largest |m1 - m2| / (s sqrt((1/n1 + 1/n2) / 2)) has the distribution of the
    studentized range if all values are of one normal distribution.
    """
    freedom = sum(map(len, groups)) - len(groups)
    if len(groups) < 2 or freedom < 1:
        return "too few adapters or seeds to tell whether they agree", True
    means = [float(one.mean()) for one in groups]
    pooled = math.sqrt(sum(float(((one - one.mean()) ** 2).sum()) for one in groups) / freedom)
    most = max(
        abs(one - other) / math.sqrt((1 / len(groups[a]) + 1 / len(groups[b])) / 2)
        for a, one in enumerate(means)
        for b, other in enumerate(means[:a])
    )
    apart = f"means are up to {max(means) - min(means):.2f} points apart"
    if pooled == 0.0:
        return f"{apart}; seeds make no difference", most == 0.0
    p = float(studentized_range.sf(most / pooled, len(groups), freedom))
    agree = p >= SIGNIFICANT
    word = "within" if agree else "more than"
    return f"{apart}, {word} the spread of seeds ({pooled:.2f} points; p = {p:.2f})", agree


def _compared(name: str, groups: Sequence[np.ndarray]) -> str:
    published = PUBLISHED.get(name)
    if published is None:
        return "No published figure"
    if not groups:
        return "Nothing to compare with the paper"
    every = np.concatenate(list(groups))
    within = ((every >= published.lowest) & (every <= published.highest)).sum()
    return (
        f"The paper has {published.lowest:.2f}% to {published.highest:.2f}% ({published.source}); "
        f"{within} of {len(every)} runs are in it; they have {every.min():.2f}% to "
        f"{every.max():.2f}%"
    )


if __name__ == "__main__":
    sys.exit(told(main))
