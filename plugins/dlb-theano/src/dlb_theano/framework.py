"""Theano itself: its flags, which it reads when it is imported, its BLAS and its threads."""

import ctypes
import os
import platform
import sys
from pathlib import Path

import numpy as np

from dlb_worker.contract import FrameworkFacts, StartRequest
from dlb_worker.errors import UnsupportedError

#: Theano walks a graph by recursion, a few calls for each layer.
RECURSION = 20000


def start(request: StartRequest) -> FrameworkFacts:
    """Import Theano with its flags set, and report its BLAS and the threads that it uses.

    The user's own ``THEANO_FLAGS`` come later and win, but for the device.
    """
    if request.device != "cpu":
        raise UnsupportedError("adapter 'theano' runs on the CPU only; use --device cpu")
    # By machine: a home may be shared by several. Theano locks it while it compiles.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    compiled = cache / "dlb" / "theano" / platform.node()
    # Theano looks for the system's BLAS alone. NumPy's wheel has one, which is loaded already.
    folder = Path(np.__file__).parent.with_name("numpy.libs")
    libraries = sorted(folder.glob("libopenblas*.so"))
    flags = [f"base_compiledir={compiled}", f"openmp={request.threads > 1}"]
    flags += [f"blas.ldflags=-L{folder} -l:{each.name}" for each in libraries[:1]]
    flags += [os.environ.get("THEANO_FLAGS", ""), "device=cpu"]
    os.environ["THEANO_FLAGS"] = ",".join(filter(None, flags))
    os.environ["OMP_NUM_THREADS"] = str(request.threads)
    sys.setrecursionlimit(max(RECURSION, sys.getrecursionlimit()))
    import theano

    if not theano.config.cxx:
        raise UnsupportedError(
            "Theano found no C++ compiler, without which it computes in Python; install g++ "
            "(Debian: apt install g++)"
        )
    config, threads = theano.config, request.threads
    build = {
        "blas": config.blas.ldflags or "NumPy's, called by Python",
        "openmp": str(config.openmp),
        "cxx": config.cxx,
        "compiledir": config.compiledir,
    }
    for each in libraries[:1]:
        # NumPy may have been imported before it was known how many.
        blas = ctypes.CDLL(str(each))
        blas.openblas_set_num_threads(threads)
        threads = int(blas.openblas_get_num_threads())
    return FrameworkFacts(theano.__version__, threads, "cpu", build)
