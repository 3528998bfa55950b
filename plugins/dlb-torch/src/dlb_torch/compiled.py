"""torch.compile: https://docs.pytorch.org/docs/stable/generated/torch.compile.html."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from dlb_worker.errors import UnsupportedError

#: Compilations of one function. Each mode, type and size of a batch takes one; torch gives up at 8.
LIMIT = 64


def compiled(function: Callable[..., Any]) -> Any:
    """A module or a function compiled by inductor, whole, again for each size of a batch.

    What cannot be compiled raises an error, since torch would silently run it uncompiled: a graph
    that breaks within the loop over layers, and the 9th compilation. Models of one workload share
    what was compiled.
    """
    # Without it torch compiles nothing of a network that has an LSTM.
    torch._dynamo.config.allow_rnn = True
    return torch.compile(function, fullgraph=True, dynamic=False, recompile_limit=LIMIT)


@lru_cache
def check_inductor(device: torch.device) -> None:
    """Compile something small.

    Raises:
        UnsupportedError: it cannot be compiled, as where a compiler is missing.
    """
    try:
        compiled(lambda values: values * 2)(torch.ones(2, device=device))
    # From inductor, its compilers and the machine: each message says why.
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise UnsupportedError(
            f"torch.compile cannot compile here ({type(error).__name__}: {lines[0]}); on a CPU it "
            "takes a C++ compiler (Debian: g++) and Python's headers, on a GPU Triton; or leave "
            "out --variant compile=inductor"
        ) from error
