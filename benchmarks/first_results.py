"""How long a newcomer waits: seconds to each thing that README's main command shows.

    python benchmarks/first_results.py [--busy N] > first-results.csv

Clones this checkout, and runs README's command in it with a home and caches of its own: nothing is kept from
before, so environments are made, and packages come from the index. ``--busy`` runs N processes beside it that
only compute. Ends with the status of the command.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent
README_COMMAND = re.compile(r"^    (python3 -m venv .*dlb run .*)$", re.M)
#: What is waited for: a line that begins so, on either stream, the first time that it comes.
SHOWN = (
    ("the environments", re.compile(r"chainer: ready|dlb: lenet5 on ")),
    ("the plan, with its time", re.compile(r"dlb: lenet5 on ")),
    ("PyTorch proven", re.compile(r"torch: proven; ")),
    ("TensorFlow proven", re.compile(r"tf: proven; ")),
    ("MXNet proven", re.compile(r"mxnet: proven; ")),
    ("Chainer proven", re.compile(r"chainer: proven; ")),
    ("the first table", re.compile(r"lenet5: \d+ steps of ")),
    ("the first ratio", re.compile(r"lenet5: 1 round of new processes")),
    ("the second ratio, with an interval", re.compile(r"lenet5: 2 rounds of new processes")),
    ("the end", re.compile(r"Measurement: ")),
)


def main() -> int:
    """Run README's command, and write when it showed what."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--busy", type=int, default=0, metavar="N", help="processes that only compute"
    )
    asked = parser.parse_args()
    found = README_COMMAND.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found, "README has no main command"
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(asked.busy)]
    try:
        with tempfile.TemporaryDirectory() as temporary:
            seconds, status = timed(found[1], Path(temporary))
    finally:
        for process in busy:
            process.kill()
            process.wait()
    writer = csv.writer(sys.stdout)
    writer.writerow(["shown", "busy", "seconds"])
    for name, _ in SHOWN:
        writer.writerow([name, asked.busy, f"{seconds[name]:.0f}" if name in seconds else ""])
    return status


def timed(command: str, folder: Path) -> tuple[dict[str, float], int]:
    """Seconds to each thing that a command shows in a new clone, and its status."""
    clone = folder / "dlb"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    own = {"HOME": folder, "DLB_HOME": folder / "home", "UV_CACHE_DIR": folder / "uv"}
    own |= {"PIP_CACHE_DIR": folder / "pip", "XDG_CACHE_HOME": folder / "cache"}
    environment = {**os.environ, **{name: str(path) for name, path in own.items()}}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.monotonic()
    seconds: dict[str, float] = {}
    process = subprocess.Popen(
        ["bash", "-c", command],
        cwd=clone,
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None

    def read(stream: IO[str]) -> None:
        for line in stream:
            after = time.monotonic() - began
            print(f"{after:6.0f}  {line}", end="", file=sys.stderr)
            for name, pattern in SHOWN:
                if pattern.match(line):
                    seconds.setdefault(name, after)

    readers = [
        threading.Thread(target=read, args=(each,)) for each in (process.stdout, process.stderr)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return seconds, process.wait()


if __name__ == "__main__":
    sys.exit(main())
