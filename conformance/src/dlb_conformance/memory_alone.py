"""A process of its own that trains large models one after another, and prints how its memory grew.

Run by ``test_memory.py``: ``python -m dlb_conformance.memory_alone NAME MODULE``.
"""

from __future__ import annotations

import gc
import json
import sys

import psutil

from dlb_graph import workload as W

from .models import chain, random_batch, random_weights
from .subject import Adapter, find

#: 4 million parameters: more than allocators keep for what comes next.
LARGE = chain((1024,), W.Linear(out_features=4096), W.Linear(out_features=64))
#: Least memory after any of so many models, since frameworks give it back late, some now and then ...
SOME = 5
#: ... is held against the least after as many that come so many later.
MORE = 20


def main(name: str, module: str) -> None:
    adapter = find(name, module)
    adapter.start(1)
    process, dtype = psutil.Process(), adapter.described.dtypes[0]
    held = []
    for _ in range(SOME + MORE):
        _train(adapter, dtype)
        # Models refer to themselves in circles.
        gc.collect()
        held.append(process.memory_info().rss)
    weights = sum(each.size for each in random_weights(LARGE).values())
    size = weights * (8 if dtype == "float64" else 4)
    print(json.dumps((min(held[-SOME:]) - min(held[:SOME])) / size))


def _train(adapter: Adapter, dtype: str) -> None:
    """Build a model, take a step, and forget it."""
    inputs, labels = random_batch(LARGE, dtype)
    built = adapter.build(LARGE, random_weights(LARGE), dtype)
    float(built.train_step(*adapter.native(inputs, labels)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
