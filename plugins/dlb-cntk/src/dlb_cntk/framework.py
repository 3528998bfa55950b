"""CNTK itself: start, threads, device."""

import warnings

from dlb_cntk.libraries import load_mpi
from dlb_worker.contract import FrameworkFacts, StartRequest
from dlb_worker.errors import UnsupportedError

__all__ = ["start"]


def start(request: StartRequest) -> FrameworkFacts:
    """Import CNTK, set its threads and seed, and report what it uses.

    Raises:
        UnsupportedError: Open MPI is missing, or another device than the CPU is asked for.
    """
    if request.device != "cpu":
        raise UnsupportedError(
            "CNTK's package on PyPI is the CPU build, so adapter 'cntk' has no device {}; "
            "use --device cpu".format(request.device)
        )
    mpi = load_mpi()
    with warnings.catch_warnings():
        # It warns of every Linux but Ubuntu 16.04, and of a GPU that is not there.
        warnings.simplefilter("ignore")
        import cntk
    cntk.device.try_set_default_device(cntk.device.cpu())
    cntk.cntk_py.set_max_num_cputhreads(request.threads)
    cntk.cntk_py.set_fixed_random_seed(request.seed)
    return FrameworkFacts(
        cntk.__version__,
        cntk.cntk_py.get_max_num_cputhreads(),
        "cpu",
        {"blas": "MKL (libmklml_intel)", "openmp": "libiomp5", "mpi": mpi},
    )
