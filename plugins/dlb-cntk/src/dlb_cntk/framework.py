"""CNTK itself: start, threads, device."""

import warnings

from dlb_cntk.libraries import load_mpi
from dlb_worker.contract import FrameworkFacts, StartRequest
from dlb_worker.errors import UnsupportedError


def start(request: StartRequest) -> FrameworkFacts:
    """Import CNTK, set its threads and seed, and report what it uses.

    Raises:
        UnsupportedError: Open MPI is missing, or another device than the CPU is asked for.
    """
    if request.device != "cpu":
        raise UnsupportedError(
            f"CNTK's wheels on PyPI compute on the CPU, so adapter 'cntk' has no device {request.device}; "
            "use --device cpu"
        )
    mpi = load_mpi()
    with warnings.catch_warnings():
        # It warns of every Linux but Ubuntu 16.04, and of a GPU that is not there.
        warnings.simplefilter("ignore")
        import cntk
    cntk.device.try_set_default_device(cntk.device.cpu())
    cntk.cntk_py.set_max_num_cputhreads(request.threads)
    cntk.cntk_py.set_fixed_random_seed(request.seed)
    build = {"blas": "MKL (libmklml_intel)", "openmp": "libiomp5", "mpi": mpi}
    return FrameworkFacts(cntk.__version__, cntk.cntk_py.get_max_num_cputhreads(), "cpu", build)
