"""Running uv: bounded, logged, and never outliving what started it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dlb.errors import ProvisionError

__all__ = ["UvFailed", "find_uv", "redact", "run"]

# The lines of uv's that show how far it is.
_PROGRESS = re.compile(r"\s*(Using|Downloading|Building|Resolved|Prepared|Installed)\b")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_PR_SET_PDEATHSIG = 1


class UvFailed(Exception):
    """uv ended with an error; ``output`` is what it printed."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        self.output = output


def find_uv() -> str:
    """The uv that came with dlb.

    Raises:
        ProvisionError: there is none.
    """
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError) as error:
        raise ProvisionError(
            f"uv, which makes the environments, is not beside dlb ({error}); "
            f"install it: {sys.executable} -m pip install uv"
        ) from error


def redact(text: str) -> str:
    """The text with user names and passwords in URLs left out."""
    return _CREDENTIALS.sub("***@", text)


def run(
    arguments: Sequence[str],
    *,
    environ: Mapping[str, str],
    log: Path,
    deadline: float,
    lock: int,
    report: Callable[[str], None],
) -> None:
    """Run uv, adding what it prints to ``log`` and telling its progress to ``report``.

    Args:
        arguments: of uv.
        environ: the environment it runs in.
        log: a file that exists.
        deadline: of ``time.monotonic``.
        lock: descriptor of the lock that uv and its children share. If this process is killed
            outright, the lock stays held until they have ended too, so none of them can be writing
            into a folder that the next maker clears.
        report: called with one line at a time.

    Raises:
        UvFailed: it ended with an error.
        ProvisionError: it did not end in time.
    """
    command = [find_uv(), *arguments]
    with open(log, "ab") as sink, open(log, "rb") as tail:
        sink.write(f"$ {redact(' '.join(['uv', *arguments]))}\n".encode())
        sink.flush()
        start = tail.seek(0, os.SEEK_END)
        # Its own process group, so that the builds it starts end with it.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=dict(environ),
            start_new_session=True,
            pass_fds=(lock,),
            preexec_fn=_end_with_parent(),
        )
        try:
            while process.returncode is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ProvisionError(
                        "uv did not end in time (DLB_PROVISION_TIMEOUT, in seconds, sets the limit)"
                    )
                # Returns as soon as uv ends; otherwise this is how often progress is told.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(min(left, 0.3))
                for line in tail.read().decode(errors="replace").splitlines():
                    if _PROGRESS.match(line):
                        report(redact(line.strip()))
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if process.returncode:
            tail.seek(start)
            raise UvFailed(redact(tail.read().decode(errors="replace")))


def _end_with_parent() -> Callable[[], None] | None:
    """What makes a child end when this process is killed, where the system can do that."""
    if sys.platform != "linux":
        return None
    # Loaded here, before the fork: little is safe after it.
    prctl = ctypes.CDLL(None).prctl

    def set_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return set_signal
