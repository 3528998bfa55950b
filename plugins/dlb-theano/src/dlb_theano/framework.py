"""Theano itself: its flags, which it reads when it is imported, its BLAS and its threads."""

import ctypes
import os
import platform
import sys
from pathlib import Path
from typing import Optional

import numpy as np

from dlb_worker.contract import FrameworkFacts, StartRequest
from dlb_worker.errors import UnsupportedError

#: Theano walks a graph by recursion, a few calls for each layer.
RECURSION = 20000


def start(request: StartRequest) -> FrameworkFacts:
    """Import Theano with its flags set, and report its BLAS and the threads that it uses.

    ``THEANO_FLAGS`` of the user come last and win, but for the device.
    """
    if request.device != "cpu":
        raise UnsupportedError("adapter 'theano' runs on the CPU only; use --device cpu")
    library = numpy_blas()
    flags = ["base_compiledir=" + str(compile_folder()), "openmp=" + str(request.threads > 1)]
    if library is not None:
        flags.append("blas.ldflags=-L{} -l:{}".format(library.parent, library.name))
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
    build = {
        "blas": theano.config.blas.ldflags or "NumPy's, by Python",
        "openmp": str(theano.config.openmp),
        "cxx": theano.config.cxx,
        "compiledir": theano.config.compiledir,
    }
    return FrameworkFacts(theano.__version__, blas_threads(library, request.threads), "cpu", build)


def compile_folder() -> Path:
    """Where compiled operators are kept: by machine, since a home may be shared by several.

    Theano locks it for each compilation, so several processes may use it.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "dlb" / "theano" / platform.node()


def numpy_blas() -> Optional[Path]:
    """The OpenBLAS in NumPy's wheel, which is loaded already; Theano finds only the system's."""
    found = sorted(Path(np.__file__).parent.with_name("numpy.libs").glob("libopenblas*.so"))
    return found[0] if found else None


def blas_threads(library: Optional[Path], threads: int) -> int:
    """Set the threads of NumPy's OpenBLAS, and read them back; those of OpenMP where it is not used.

    Worker processes import NumPy before they are told how many threads to use.
    """
    if library is None:
        return int(os.environ["OMP_NUM_THREADS"])
    blas = ctypes.CDLL(str(library))
    blas.openblas_set_num_threads(threads)
    return int(blas.openblas_get_num_threads())
