"""What goes wrong, and where: ``DLB_FAULT=KIND@CALL``, in the worker of rank ``DLB_FAULT_RANK``."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time

from dlb_worker.errors import UnsupportedError

__all__ = ["KIND", "strike"]

KIND, _, CALL = os.environ.get("DLB_FAULT", "").partition("@")


def strike(call: str) -> None:
    """Go wrong, if it is this call in this process that should."""
    if call != CALL or os.environ.get("DLB_RANK", "0") != os.environ.get("DLB_FAULT_RANK", "0"):
        return
    match KIND:
        case "die-sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die-sigsegv":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "leave-child":
            subprocess.Popen(["sleep", "3600"])
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "hang-sleep":
            time.sleep(3600)
        case "hang-gil":
            ctypes.PyDLL(None).sleep(3600)
        case "slow":
            time.sleep(0.1)
        case "raise":
            raise ValueError("the kernel of\nthe framework burst")
        case "unsupported":
            raise UnsupportedError("this framework cannot do that; take another")
