"""The rungs of two ONNX files, and the certificate that they make.

In float64, files that compute the same agree to rounding, and one that does not stands out: the
second file is held to 1e-10 of the first. Values show agreement where they were tried. What shows
it elsewhere is that both are made of the same operators with the same numbers, or that what is
written differently is analytic (:mod:`dlb.proof.files.analytic`).
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import numpy as np

from dlb.errors import DlbError
from dlb.proof.certificate import Certificate, Rung
from dlb.proof.files import rungs
from dlb.proof.files.inputs import feed, paired
from dlb.proof.files.read import read_model_file
from dlb.proof.files.runs import Pair, run_both
from dlb.proof.files.structure import compare
from dlb.proof.files.weights import match_weights

__all__ = ["verify_files"]


def verify_files(
    first: Path, second: Path, given: Path | None = None, seed: int = 0
) -> Certificate:
    """Hold the second file against the first.

    Args:
        given: an .npz file with the inputs; seeded noise that fits when left out.
        seed: of the noise.

    Returns:
        A certificate whose rungs are of one adapter, the second file. ``workload`` names both
        files, ``workload_hash`` is the SHA-256 of the first file's bytes, ``seed`` is that of the
        inputs, and ``adapters`` has the producer and the operator set of each file.

    Raises:
        DataError, UnsupportedError, RequestError: a file cannot be read, the two read different
            things, or the inputs do not fit.
    """
    labels = [path.name for path in (first, second)]
    if labels[0] == labels[1]:
        labels = [str(first), str(second)]
    ours, theirs = (read_model_file(path, label) for path, label in zip((first, second), labels))
    outputs, told = paired("outputs", ours, theirs)
    fed = feed(ours, theirs, given, seed)
    pair = Pair(
        ours,
        theirs,
        fed,
        [(a.name, b.name) for a, b in outputs],
        "; ".join(each for each in (fed.told, told) if each),
    )
    # What overflows is found as an infinity; NumPy need not warn of it as well.
    with np.errstate(all="ignore"):
        found = tuple(_climb(pair, np.random.default_rng(seed)))
    return Certificate(
        workload=f"{labels[0]} and {labels[1]}",
        workload_hash=ours.sha256,
        seed=seed,
        adapters={each.label: each.described for each in (ours, theirs)},
        rungs=found,
    )


def _climb(pair: Pair, draw: np.random.Generator) -> list[Rung]:
    """Every rung, in order; what structure and weights amount to depends on the values."""
    clock = _Clock()
    try:
        runs = run_both(pair)
    except DlbError as error:
        names = [name for name in rungs.RUNGS if name != "layers"]
        return [rungs.unrun(pair, name, str(error)) for name in names]
    run_seconds = clock.lap()
    structure = compare(pair, runs)
    structure_seconds = clock.lap()
    matched = match_weights(*runs.traces, folding=structure.equal and structure.hidden)
    weights_seconds = clock.lap()
    gate = rungs.float64_gate(pair, runs, matched, draw)
    forward = clock.stamp(rungs.forward_rung(pair, runs, gate), run_seconds)
    agree = forward.verdict == "passed"
    found = [clock.stamp(rungs.structure_rung(pair, runs, structure, agree), structure_seconds)]
    if matched.figures:
        found.append(
            clock.stamp(rungs.weights_rung(pair, matched, structure, agree), weights_seconds)
        )
    found.append(forward)
    if not agree:
        found.append(clock.stamp(rungs.layers_rung(pair, runs, gate)))
    found.append(clock.stamp(rungs.float32_rung(pair, runs, agree)))
    return found


class _Clock:
    """What each rung cost."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last call."""
        before, self._began = self._began, time.perf_counter()
        return self._began - before

    def stamp(self, rung: Rung, more: float = 0.0) -> Rung:
        """The rung with the seconds since the last call, and those before."""
        return msgspec.structs.replace(rung, seconds=self.lap() + more)
