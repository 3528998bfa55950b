"""What it takes to start a worker without its framework, against ``import numpy``.

    python benchmarks/worker_start.py [--pairs N]

Run it with an interpreter that has dlb-worker. A worker starts, connects, and describes its environment.
The two are measured in pairs, one after the other, and the ratio of each pair is taken, so that
both share the machine's state. It prints medians, quartiles of the ratio, and the ratio of the fastest.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20)
    pairs = parser.parse_args().pairs
    imports, starts = zip(*((_import(), _start()) for _ in range(pairs)))
    ratios = [start / plain for plain, start in zip(imports, starts)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"import numpy {statistics.median(imports) * 1e3:.0f} ms")
    print(f"worker       {statistics.median(starts) * 1e3:.0f} ms")
    print(
        f"ratio        {middle:.2f} ({low:.2f} to {high:.2f}); fastest {min(starts) / min(imports):.2f}"
    )
    return 0


def _import() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import numpy"], check=True)
    return time.perf_counter() - began


def _start() -> float:
    """Seconds until a worker has described its environment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        variables = {
            "DLB_SUPERVISOR": f"127.0.0.1:{server.getsockname()[1]}",
            "DLB_TOKEN": "measured",
        }
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "dlb_worker"], env={**os.environ, **variables}
        )
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as lines:
            lines.readline()
            connection.sendall(b'{"id": 1, "call": "describe", "arguments": {}}\n')
            while json.loads(lines.readline()).get("id") != 1:
                pass
            seconds = time.perf_counter() - began
        process.wait()
    return seconds


if __name__ == "__main__":
    sys.exit(main())
