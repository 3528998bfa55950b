"""A sweep that is killed again and again ends with every cell measured once.

    pip install core/tests/example_adapter
    python benchmarks/sweep_kills.py [--cells 200] [--kills 10] [--seconds 60]

It starts ``dlb sweep`` with the example adapter, kills the command and its workers with SIGKILL at a random
moment within ``--seconds``, and starts it again. After the last kill it lets the sweep end. Then it counts:
each cell has one record and one trial, and one cell a second trial, the one next to itself. Cells differ in
steps and data, on which no proof depends, so that there is one proof alone. Exit status 0 if the counts are
right.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from dlb import record
from dlb_measure.results import measurement as measurements
from dlb_measure.results import sweep as sweeps

WORKLOAD = Path(__file__).parents[1] / "core" / "tests" / "workloads" / "mlp.toml"
DATA = ("synthetic", "fashion-mnist-subset")


def main() -> int:
    """Kill, count and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0, help="longest time until a kill")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results"
        steps = ",".join(str(10 + number) for number in range(options.cells // len(DATA)))
        words = ["sweep", str(WORKLOAD), "--on", "example", "--threads", "1", "--out", str(out)]
        words += ["--vary", f"steps={steps}", "--vary", f"data={','.join(DATA)}"]
        words += ["--rounds", "1", "--repeats", "0"]
        command = [str(Path(sys.executable).with_name("dlb")), *words]
        environment = {**os.environ, "DLB_HOME": str(Path(folder) / "home")}
        for number in range(options.kills):
            process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
            time.sleep(generator.uniform(1.0, options.seconds))
            kill(process)
            print(f"kill {number + 1}: {ended(out)}", flush=True)
        status = subprocess.run(command, env=environment, stderr=subprocess.DEVNULL).returncode
        print(f"end: {ended(out)}, exit status {status}", flush=True)
        return 0 if is_right(out, options.cells) and status == 0 else 1


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a command, and all that it started."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    process.kill()
    for child in children:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()


def ended(out: Path) -> str:
    """How far it is."""
    states = [sweeps.read(path) for path in (out / "sweeps").glob("*.json")]
    cells = sum(cell.ended for state in states for cell in state.cells)
    trials = [
        each
        for path in (out / "measurements").glob("*.json")
        for each in measurements.read(path).trials
    ]
    return f"{len(states)} sweep, {cells} cells, {len(trials)} trials"


def is_right(out: Path, count: int) -> bool:
    """Whether each cell has one proven record and one trial, and one of them a second."""
    (state,) = [sweeps.read(path) for path in (out / "sweeps").glob("*.json")]
    (measurement,) = [measurements.read(path) for path in (out / "measurements").glob("*.json")]
    records = [record.read_header(path) for path in out.glob("*.json")]
    proven = {each.name for each in records if each.proof == "proven"}
    named = [cell.record for cell in state.cells]
    trials = Counter(trial.cell for trial in measurement.trials)
    print(
        f"{len(records)} records, {len(proven)} of them proven; trials of a cell: {Counter(trials.values())}"
    )
    return (
        state.ended
        and len(set(named)) == len(named) == count
        and set(named) == proven
        and sorted(trials.values()) == [*([1] * (count - 1)), 2]
        and all(trial.sound for trial in measurement.trials)
    )


if __name__ == "__main__":
    sys.exit(main())
