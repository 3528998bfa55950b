"""How often rounds that end early say a false word, how well intervals cover, and how much sooner they end.

    python benchmarks/early_ends.py [--runs 20000] [--seed 0] >> FILE.csv

Measurements of two frameworks are simulated, with a second trial of one in each round, all in a drawn order.
Looks and confidences are those of :mod:`dlb_measure.stopping`. Of the first measurements of each kind, dlb's
own code has to come to the same words. A row for each machine, number of planned rounds and true ratio:

- ``processes``: each process is off by a normal 4%, as the same program is when it is started again;
- ``random drift``: beside that, the machine changes by a normal 2% from trial to trial, and stays so;
- ``steady drift``: beside that, each trial is 1% slower than the one before;
- ``heavy tails``: processes are off by 4% times Student's t with 3 degrees of freedom.

``false`` is the share of measurements with a false word: ``faster`` or ``slower`` where there is no
difference, the wrong one of the two where there is one, ``same`` where it is larger than the margin. ``missed``
is the share of final intervals without the true ratio; ``found``, that of true words; ``rounds``, the mean
number of rounds until the end. ``naive_missed`` and ``naive_false`` have what plain 95% intervals say if the
same looks may end the rounds, and ``fixed_found`` what they find if all rounds are done. Columns in ``_below``
are upper bounds of the share before (Clopper and Pearson, 97.5%).
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from dlb_measure.comparison import compare
from dlb_measure.ratios import CONFIDENCE, t_quantile
from dlb_measure.stopping import confidence_after, looks

MARGIN, PROCESS = 0.01, 0.04
MACHINES = ("processes", "random drift", "steady drift", "heavy tails")
WORDS = ("unclear", "same", "faster", "slower")
#: So many measurements of each kind are decided by dlb's own code too.
COMPARED = 50


@dataclass(frozen=True)
class Simulated:
    """Logarithms of times, float64 [runs, rounds, 3]: the first trial of each cell, and a second one.

    ``again`` is the cell of the second one, int64 [runs, rounds].
    """

    logs: np.ndarray
    again: np.ndarray


@dataclass(frozen=True)
class Trial:
    """A simulated trial, as :class:`dlb_measure.comparison.Timed`."""

    round: int
    cell: int
    again: bool
    median: float


def simulate(
    machine: str, ratio: float, count: int, runs: int, generator: np.random.Generator
) -> Simulated:
    """Measurements of two cells, the second of which takes ``ratio`` times as long."""
    shape = (runs, count, 3)
    if machine == "heavy tails":
        logs = PROCESS * generator.standard_t(3, shape)
    else:
        logs = PROCESS * generator.standard_normal(shape)
    if machine == "random drift":
        level = np.cumsum(0.02 * generator.standard_normal((runs, 3 * count)), axis=1)
    else:
        level = np.broadcast_to(
            0.01 * (machine == "steady drift") * np.arange(3 * count), (runs, 3 * count)
        )
    # In which order the trials of a round are run is drawn.
    order = generator.permuted(np.broadcast_to(np.arange(3), shape), axis=2)
    logs = logs + np.take_along_axis(level.reshape(shape), order, axis=2)
    again = generator.integers(0, 2, (runs, count))
    logs[:, :, 1] += math.log(ratio)
    logs[:, :, 2] += math.log(ratio) * again
    # Of the two trials of a cell, the one that was run first counts.
    for cell in (0, 1):
        swapped = (again == cell) & (order[:, :, 2] < order[:, :, cell])
        logs[swapped] = logs[swapped][:, [2, 1, 0] if cell == 0 else [0, 2, 1]]
    return Simulated(logs, again)


def decide(
    simulated: Simulated, done: int, confidence: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The place in :data:`WORDS`, and the bounds of the logarithm, of each run after some rounds."""
    logs, again = simulated.logs[:, :done], simulated.again[:, :done]
    ratios = logs[:, :, 1] - logs[:, :, 0]
    mean = ratios.mean(axis=1)
    half = t_quantile(confidence, done - 1) * ratios.std(axis=1, ddof=1) / math.sqrt(done)
    first = np.take_along_axis(logs, again[:, :, None], axis=2)[:, :, 0]
    own = np.abs((logs[:, :, 2] - first).mean(axis=1))
    low, high, limit = mean - half, mean + half, math.log1p(MARGIN)
    same = (low >= -limit) & (high <= limit)
    beyond = ~same & (np.abs(mean) > own)
    return np.select([same, beyond & (high < 0), beyond & (low > 0)], [1, 2, 3], 0), low, high


def measure(
    simulated: Simulated, count: int, naive: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The word, the bounds, and after how many rounds each run ended."""
    runs = len(simulated.logs)
    words, ended = np.zeros(runs, int), np.zeros(runs, int)
    low, high = np.zeros(runs), np.zeros(runs)
    for done in looks(count):
        confidence = confidence_after(done, count, last=done == count)
        own = decide(simulated, done, CONFIDENCE if naive else confidence)
        going_on = ended == 0
        words, low, high = (
            np.where(going_on, new, old) for new, old in zip(own, (words, low, high))
        )
        ended = np.where(going_on & ((words > 0) | (done == count)), done, ended)
    return words, low, high, ended


def check_with_dlb(simulated: Simulated, count: int) -> None:
    """Compare words with those of dlb's own code.

    Raises:
        AssertionError: they differ.
    """
    for done in looks(count):
        confidence = confidence_after(done, count, last=done == count)
        words, _, _ = decide(simulated, done, confidence)
        for run in range(COMPARED):
            trials = [
                Trial(number, cell, again, math.exp(simulated.logs[run, number, place]))
                for number in range(done)
                for place, cell, again in (
                    (0, 0, False), (1, 1, False), (2, int(simulated.again[run, number]), True)
                )
            ]  # fmt: skip
            compared = compare(trials, 2, margin=MARGIN, confidence=confidence)[1]
            assert compared.word == WORDS[words[run]], (run, done, compared, WORDS[words[run]])


def false_words(words: np.ndarray, ratio: float) -> np.ndarray:
    """Which words are false of a true ratio."""
    wrong = [False, abs(math.log(ratio)) > math.log1p(MARGIN), ratio >= 1, ratio <= 1]
    return np.array(wrong)[words]


def share(which: np.ndarray) -> list[str]:
    """A share, and its upper bound."""
    count, runs = int(which.sum()), len(which)
    upper = 1.0 if count == runs else float(beta.ppf(0.975, count + 1, runs - count))
    return [f"{count / runs:.4f}", f"{upper:.4f}"]


def main() -> int:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    generator = np.random.default_rng(asked.seed)
    table = csv.writer(sys.stdout, lineterminator="\n")
    names = [
        "machine",
        "planned",
        "ratio",
        "false",
        "false_below",
        "missed",
        "missed_below",
        "found",
        "rounds",
    ]
    table.writerow([*names, "naive_false", "naive_missed", "fixed_found"])
    for machine in MACHINES:
        for count in (3, 5, 10, 20):
            for ratio in (1.0, 1.03, 1.1, 1.4):
                simulated = simulate(machine, ratio, count, max(asked.runs, COMPARED), generator)
                check_with_dlb(simulated, count)
                words, low, high, ended = measure(simulated, count, naive=False)
                truth = math.log(ratio)
                false = false_words(words, ratio)
                row = [machine, count, ratio, *share(false), *share((truth < low) | (truth > high))]
                row += [f"{((words > 0) & ~false).mean():.4f}", f"{ended.mean():.2f}"]
                words, low, high, _ = measure(simulated, count, naive=True)
                row += [
                    share(false_words(words, ratio))[0],
                    share((truth < low) | (truth > high))[0],
                ]
                words, _, _ = decide(simulated, count, CONFIDENCE)
                right = (words > 0) & ~false_words(words, ratio)
                table.writerow([*row, f"{right.mean():.4f}"])
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
