"""Chainer itself: start, threads, device, clock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import chainer
import numpy as np
from chainer.backends import cuda, intel64
from threadpoolctl import threadpool_info, threadpool_limits

from dlb_worker.contract import Clock, FrameworkFacts, PeakRequest, StartRequest
from dlb_worker.errors import UnsupportedError
from dlb_worker.peak import numpy_work


def start(request: StartRequest) -> FrameworkFacts:
    """Set threads and seed; report version, device and the libraries Chainer computes with.

    Chainer on a CPU is numpy, and the only threads in numpy are its BLAS library's.
    """
    if request.device == "cuda" and not cuda.available:
        raise UnsupportedError(
            f"Chainer {chainer.__version__} sees no CUDA device ({_cuda_problem()}); "
            "use --device cpu, or install a CuPy that Chainer takes next to it"
        )
    threadpool_limits(request.threads)
    np.random.seed(request.seed)
    name = "cpu"
    if request.device == "cuda":
        cuda.cupy.random.seed(request.seed)
        name = cuda.cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    build = {
        "numpy": np.__version__,
        "blas": ", ".join(
            f"{blas['internal_api']} {blas['version']} ({blas.get('architecture', 'unknown')})"
            for blas in libraries
        ),
        "ideep": str(intel64.is_ideep_available()),
        "cuda": str(cuda.available),
        "threads_from": "threadpoolctl, asked of the BLAS library",
    }
    # A BLAS that threadpoolctl does not know cannot be set to more than one.
    threads = max((blas["num_threads"] for blas in libraries), default=1)
    return FrameworkFacts(chainer.__version__, threads, name, build)


def clock(device: str) -> Clock:
    """CPU operators return when they are done; a CUDA step ends when its stream is empty."""
    if device != "cuda":
        return Clock()
    return Clock(lambda result: cuda.Stream.null.synchronize())


def peak_work(request: PeakRequest) -> Callable[[], Any]:
    """A product or a copy of CuPy's arrays; on the processor, of NumPy's."""
    if request.device != "cuda":
        return numpy_work(request)
    xp = get_device(request.device).xp
    if request.dtype == "bfloat16":
        raise UnsupportedError("CuPy has no bfloat16")
    if request.work == "copy":
        source, target = (xp.ones(request.size, request.dtype) for _ in range(2))
        return partial(xp.copyto, target, source)
    shape = (request.size, request.size)
    first, second = (xp.random.standard_normal(shape).astype(request.dtype) for _ in range(2))
    return partial(xp.dot, first, second, out=xp.empty_like(first))


def get_device(device: str) -> chainer.backend.Device:
    """Chainer's device for ``cpu`` or ``cuda``."""
    return chainer.get_device("@cupy:0" if device == "cuda" else "@numpy")


def host_copy(array: Any) -> np.ndarray:
    """A copy in host memory."""
    return np.array(cuda.to_cpu(array))


def _cuda_problem() -> str:
    return " ".join(str(getattr(cuda, "_resolution_error", None) or "no device").split())[:200]
