"""A process of its own that brings the framework up, trains, and prints what it saw as JSON.

Run by ``test_start.py``: ``python -m dlb_conformance.start_alone NAME MODULE THREADS``.
"""

from __future__ import annotations

import json
import sys
import time

from .models import busy_model, random_batch, random_weights
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
    model, dtype = busy_model(adapter.described.layers), adapter.described.dtypes[0]
    inputs, labels = random_batch(model, dtype, samples=32)
    built = adapter.build(model, random_weights(model), dtype, batch_size=32)
    batch = adapter.native(inputs, labels)
    for _ in range(3):
        float(built.train_step(*batch))
    began, cpu_began = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < SECONDS:
        float(built.train_step(*batch))
    return (time.process_time() - cpu_began) / (time.perf_counter() - began)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
