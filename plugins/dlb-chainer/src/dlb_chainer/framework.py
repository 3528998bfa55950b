"""Chainer itself: start, threads, device, clock."""

from __future__ import annotations

import chainer
import numpy as np
from chainer.backends import cuda, intel64
from threadpoolctl import threadpool_info, threadpool_limits

from dlb.contract import Clock, FrameworkFacts, StartRequest
from dlb.errors import UnsupportedError


def start(request: StartRequest) -> FrameworkFacts:
    """Set threads and seed; tell version, device and the libraries Chainer computes with.

    Chainer on a CPU is numpy, and the only threads in numpy are its BLAS library's.
    """
    if request.device == "cuda" and not cuda.available:
        raise UnsupportedError(
            f"Chainer {chainer.__version__} sees no CUDA device ({_cuda_problem()}); "
            "use --device cpu, or install a CuPy that Chainer takes beside it"
        )
    threadpool_limits(request.threads)
    np.random.seed(request.seed)
    name = "cpu"
    if request.device == "cuda":
        cuda.cupy.random.seed(request.seed)
        name = cuda.cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    libraries = [each for each in threadpool_info() if each["user_api"] == "blas"]
    build = {
        "numpy": np.__version__,
        "blas": ", ".join(
            f"{each['internal_api']} {each['version']} ({each.get('architecture', 'unknown')})"
            for each in libraries
        ),
        "ideep": str(intel64.is_ideep_available()),
        "cuda": str(cuda.available),
        "threads_from": "threadpoolctl, asked of the BLAS library",
    }
    # A BLAS that threadpoolctl does not know cannot be told to use more than one.
    threads = max((each["num_threads"] for each in libraries), default=1)
    return FrameworkFacts(chainer.__version__, threads, name, build)


def clock(device: str) -> Clock:
    """CPU operators return when they are done; a CUDA step ends when its stream is empty."""
    return Clock(cuda.Stream.null.synchronize) if device == "cuda" else Clock()


def _cuda_problem() -> str:
    return " ".join(str(getattr(cuda, "_resolution_error", None) or "no device").split())[:200]
