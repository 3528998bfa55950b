"""What a worker measures about its own process; psutil and threadpoolctl help where they are."""

import os
import platform
import re
import resource
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import importlib_metadata

__all__ = ["cpu_seconds", "memory_bytes", "thread_seconds", "worker_facts"]

#: Allocators that replace the C library's.
_ALLOCATORS = re.compile("jemalloc|tcmalloc|mimalloc|hoard|snmalloc|tbbmalloc_proxy")
#: Environment variables that libraries of computation and memory read; never one that may hold a secret.
_VARIABLES = re.compile(
    "(?!.*(KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH))"
    "((OMP|KMP|GOMP|MKL|OPENBLAS|GOTO|BLIS|BLAS|VECLIB|NUMEXPR|DNNL|ONEDNN|MALLOC|MIMALLOC|JEMALLOC|TCMALLOC"
    "|XLA|KERAS|TORCH|TORCHINDUCTOR|PYTORCH|ATEN|MXNET|CHAINER|CUPY|THEANO|CUDA|CUBLAS|CUDNN|NCCL|GLOO"
    "|TF_(CPP|CUDA|CUDNN|DETERMINISTIC|DISABLE|ENABLE|FORCE|GPU|INTER|INTRA|MKL|NUM|USE|XLA))_"
    "|LD_PRELOAD$|GLIBC_TUNABLES$|NVIDIA_TF32_OVERRIDE$|PYTHONMALLOC$|PYTHONHASHSEED$)"
)
_TASKS = Path("/proc/self/task")


def worker_facts() -> Dict[str, Any]:
    """The worker's interpreter, every package of its environment, its BLAS and OpenMP pools.

    Also what allocates its memory, and environment variables that libraries of computation read.
    """
    packages = {}
    for each in importlib_metadata.distributions():
        try:
            metadata = each.metadata
            packages[metadata["Name"]] = metadata["Version"]
        # Missing or damaged metadata raise anything, depending on the version of importlib-metadata.
        except Exception:
            continue
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": {name: packages[name] for name in sorted(filter(None, packages))},
        "libraries": _thread_pools(),
        "allocator": _allocator(),
        "variables": {
            name: value for name, value in sorted(os.environ.items()) if _VARIABLES.match(name)
        },
    }


def _allocator() -> Optional[str]:
    """What stands for the C library's allocator, by the files in this process; None where nobody tells."""
    try:
        files = Path("/proc/self/maps").read_text(errors="replace").split()
    except OSError:
        return None
    found = {Path(each).name for each in files if each.startswith("/")}
    others = sorted(name for name in found if _ALLOCATORS.search(name))
    return ", ".join(others) or " ".join(["the C library's", *platform.libc_ver()]).strip()


def _thread_pools() -> List[Dict[str, str]]:
    try:
        import threadpoolctl
    except ImportError:
        return []
    names = ("user_api", "internal_api", "version", "num_threads")
    return [
        {name: str(pool.get(name)) for name in names} for pool in threadpoolctl.threadpool_info()
    ]


def cpu_seconds() -> float:
    """User and system CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def memory_bytes() -> Optional[int]:
    """Resident memory of this process now; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        process = _process()
        return None if process is None else int(process.memory_info().rss)


def thread_seconds() -> Optional[Dict[int, float]]:
    """CPU seconds of each thread so far, by its number; None where the system does not say."""
    if _TASKS.is_dir():
        tick = os.sysconf("SC_CLK_TCK")
        found = {}
        for task in _TASKS.iterdir():
            try:
                # The name in parentheses may hold spaces; user and system time follow it.
                fields = (task / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            found[int(task.name)] = (int(fields[11]) + int(fields[12])) / tick
        return found
    process = _process()
    if process is None:
        return None
    return {each.id: each.user_time + each.system_time for each in process.threads()}


def _process() -> Any:
    try:
        import psutil
    except ImportError:
        return None
    return psutil.Process()
