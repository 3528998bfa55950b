"""MXNet itself: start, threads, device, clock."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from dlb_worker.contract import Clock, FrameworkFacts, PeakRequest, StartRequest
from dlb_worker.errors import UnsupportedError


def start(request: StartRequest) -> FrameworkFacts:
    """Set threads and seed; report version, device and the libraries MXNet was built with.

    MXNet reads its threads from the environment as it is imported: operators run one after
    another in one engine thread, each on as many OpenMP threads as the request has.
    """
    os.environ["OMP_NUM_THREADS"] = str(request.threads)
    os.environ["MXNET_CPU_WORKER_NTHREADS"] = "1"
    # MXNet would add the gradients of a value with 8 readers in place, and its own pass over that graph
    # fails: "control dep not found in graph".
    os.environ["MXNET_EXEC_INPLACE_GRAD_SUM_CAP"] = "1000000"
    import mxnet as mx

    if request.device == "cuda" and not mx.context.num_gpus():
        raise UnsupportedError(
            f"mxnet {mx.__version__} sees no CUDA device; use --device cpu, or install a CUDA "
            "build of MXNet (mxnet-cu112) on a machine with an NVIDIA GPU"
        )
    mx.random.seed(request.seed)
    features = mx.runtime.Features()
    threads, libraries = _threads(mx.libinfo.find_lib_path()[0])
    build = {
        "onednn": str(features.is_enabled("MKLDNN")),
        "openmp": str(features.is_enabled("OPENMP")),
        "cuda": str(features.is_enabled("CUDA")),
        "dist_kvstore": str(features.is_enabled("DIST_KVSTORE")),
        "engine_threads": os.environ["MXNET_CPU_WORKER_NTHREADS"],
        **libraries,
    }
    name = str(context(request.device)) if request.device == "cuda" else "cpu"
    return FrameworkFacts(mx.__version__, threads, name, build)


def _threads(library: str) -> tuple[int, dict[str, str]]:
    """OpenMP's number of threads, which MXNet has no call for, and its BLAS."""
    from threadpoolctl import threadpool_info

    pools = threadpool_info()
    threads = max(pool["num_threads"] for pool in pools if pool["user_api"] == "openmp")
    # NumPy brings a BLAS of its own, in another folder.
    for pool in pools:
        if pool["user_api"] == "blas" and Path(pool["filepath"]).parent == Path(library).parent:
            return threads, {
                "blas": f"{pool['internal_api']} {pool['version']} {pool['architecture']}",
                "blas_threads": str(pool["num_threads"]),
            }
    return threads, {}


def context(device: str) -> Any:
    """MXNet's name of the device; of several GPUs, the one of this rank."""
    import mxnet as mx

    if device == "cpu":
        return mx.cpu()
    return mx.gpu(int(os.environ.get("DLB_MXNET_GPU", "0")) % mx.context.num_gpus())


def clock(device: str) -> Clock:
    """Operators are asynchronous on every device; a step ends at a wait for all."""
    import mxnet as mx

    return Clock(lambda result: mx.nd.waitall())


def peak_work(request: PeakRequest) -> Callable[[], Any]:
    """A product or a copy of MXNet's own arrays."""
    import mxnet as mx

    if request.dtype == "bfloat16":
        raise UnsupportedError("MXNet multiplies no arrays of bfloat16")
    made = {"dtype": request.dtype, "ctx": context(request.device)}
    if request.work == "copy":
        source, target = (mx.nd.ones(request.size, **made) for _ in range(2))
        return partial(source.copyto, target)
    shape = (request.size, request.size)
    first, second, product = (mx.nd.random.normal(shape=shape, **made) for _ in range(3))
    return partial(mx.nd.dot, first, second, out=product)
