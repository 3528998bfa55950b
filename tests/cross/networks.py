"""Named networks, proven on every adapter. Makes the table of docs/proof.md::

python tests/cross/networks.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

WORKLOADS = Path(__file__).parent / "workloads"
ADAPTERS = ("torch", "tf", "mxnet", "chainer")
#: What each is, and its workload: a name, or a file.
NETWORKS = {
    "LeNet-5": "lenet5",
    "batch normalisation and residuals": str(WORKLOADS / "residual.toml"),
    "local response normalisation": str(WORKLOADS / "alexnet.toml"),
    "average pooling and concatenation": str(WORKLOADS / "inception.toml"),
    "LSTM language model": str(WORKLOADS / "lstm.toml"),
    "embedding": str(WORKLOADS / "embedding.toml"),
    "transformer": str(WORKLOADS / "transformer.toml"),
    "mobile network": str(WORKLOADS / "mobile.toml"),
    "parts of sequences, a tied embedding": str(WORKLOADS / "tied.toml"),
}
STEPS = 100
#: Rungs in float64, by what they tell.
FLOAT64 = {
    "forward": ("forward float64", "forward float64, training"),
    "gradient": ("gradients",),
    f"{STEPS} steps": ("trajectory", "trajectories"),
}


def words(network: str, steps: int) -> list[str]:
    """What ``dlb`` is asked."""
    on = [word for adapter in ADAPTERS for word in ("--on", adapter)]
    return ["verify", NETWORKS[network], *on, "--steps", str(steps), "--threads", "1", "--json"]


def worst(document: dict, adapter: str, checks: tuple[str, ...]) -> float:
    """The largest relative L2 distance of any tensor in an adapter's checks, which all are there."""
    found = {
        one["check"]: one["figures"][0]["relative_l2"]
        for one in document["certificate"]["checks"]
        if one["adapter"] == adapter and one["check"] in checks
    }
    return max(float("inf") if found[name] is None else found[name] for name in checks)


def main() -> int:
    """Print the table."""
    print(f"| network | worst | {' | '.join(ADAPTERS)} |")
    print("|---|---|" + "---|" * len(ADAPTERS))
    status = 0
    for network in NETWORKS:
        command = [str(Path(sys.executable).parent / "dlb"), *words(network, STEPS)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        status = max(status, done.returncode)
        document = json.loads(done.stdout)
        for what, checks in FLOAT64.items():
            sizes = [f"{worst(document, adapter, checks):.1e}" for adapter in ADAPTERS]
            print(f"| {network} | {what} | {' | '.join(sizes)} |", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
