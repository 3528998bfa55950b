"""torch itself: start, threads, device, clock, and its fastest work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from dlb_worker.contract import Clock, FrameworkFacts, PeakRequest, StartRequest
from dlb_worker.errors import UnsupportedError

#: The layout that each choice of the variant means, for tensors of so many axes.
MEMORY_FORMATS = {
    "contiguous": {4: torch.contiguous_format, 5: torch.contiguous_format},
    "channels_last": {4: torch.channels_last, 5: torch.channels_last_3d},
}


def laid_out(tensor: Tensor, layout: str) -> Tensor:
    """A tensor in a layout of the variant; feature maps and filters alone have one."""
    found = MEMORY_FORMATS[layout].get(tensor.ndim)
    return tensor if found is None else tensor.to(memory_format=found)


def local(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor: all of it, or its part of a DTensor."""
    own: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return own


def whole(tensor: Tensor) -> Tensor:
    """A tensor with the parts of all processes, each of which calls this."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full


def start(request: StartRequest) -> FrameworkFacts:
    """Set threads and seed; report version, device and the libraries torch was built with."""
    if request.device == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError(
            f"torch {torch.__version__} sees no CUDA device; use --device cpu, or install a CUDA "
            "build of torch on a machine with an NVIDIA GPU"
        )
    torch.set_num_threads(request.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(request.seed)
    if request.device == "cuda":
        # TF32 is not float32: https://docs.pytorch.org/docs/stable/notes/cuda.html
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
    name = torch.cuda.get_device_name() if request.device == "cuda" else "cpu"
    build = {
        "mkl": str(torch.backends.mkl.is_available()),
        "onednn": str(torch.backends.mkldnn.is_available()),
        "openmp": str(torch.backends.openmp.is_available()),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cuda": str(torch.version.cuda),
        "interop_threads": str(torch.get_num_interop_threads()),
    }
    return FrameworkFacts(torch.__version__, torch.get_num_threads(), name, build)


def clock(device: str) -> Clock:
    """CPU operators return when they are done; a CUDA step ends at a synchronize."""
    return Clock(lambda result: torch.cuda.synchronize()) if device == "cuda" else Clock()


def peak_work(request: PeakRequest) -> Callable[[], Tensor]:
    """A product or a copy of torch's own tensors."""
    dtype = getattr(torch, request.dtype)
    if request.work == "copy":
        source, target = (
            torch.ones(request.size, dtype=dtype, device=request.device) for _ in range(2)
        )
        return partial(target.copy_, source)
    first, second, product = (
        torch.randn(request.size, request.size, device=request.device).to(dtype) for _ in range(3)
    )
    return partial(torch.mm, first, second, out=product)
