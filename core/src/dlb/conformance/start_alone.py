"""A process of its own that brings the framework up, trains, and prints what it saw as JSON.

Run by ``test_start.py``: ``python -m adapter.start_alone NAME MODULE THREADS``.
"""

from __future__ import annotations

import json
import sys
import time

from dlb import workload as W

from .models import chain, random_batch, random_weights
from .subject import Adapter, find

SECONDS = 2.0


def main(name: str, module: str, threads: int) -> None:
    adapter = find(name, module)
    facts = adapter.start(threads)
    print(
        json.dumps(
            {
                "version": facts.version,
                "threads": facts.threads,
                "device": facts.device,
                "build": dict(facts.build),
                "cores": _cores_used(adapter),
            }
        )
    )


def _cores_used(adapter: Adapter) -> float:
    """CPU seconds of the process for each second of training large layers."""
    model = chain(
        (8, 32, 32),
        W.Conv(out_channels=32, kernel=(5, 5)),
        W.ReLU(),
        W.Flatten(),
        W.Linear(out_features=64),
    )
    adapter.require(model, "float32")
    inputs, labels = random_batch(model, "float32", samples=32)
    built = adapter.build(model, random_weights(model), "float32", batch_size=32)
    batch = adapter.native(inputs, labels)
    for _ in range(3):
        float(built.train_step(*batch))
    began, cpu_began = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < SECONDS:
        float(built.train_step(*batch))
    return (time.process_time() - cpu_began) / (time.perf_counter() - began)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
