"""Runs uv with a time limit and a log, and ends it together with this process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from dlb.errors import ProvisionError

__all__ = ["UvFailed", "ending_together", "find_uv", "redact", "run"]

# The lines of uv that report progress.
_PROGRESS = re.compile(r"\s*(Using|Downloading|Building|Resolved|Prepared|Installed)\b")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_PR_SET_PDEATHSIG = 1
#: Runs uv, and ends it with its builds when this process is killed: of a child alone would the system do that.
_GUARD = 'trap "kill -KILL 0" TERM; "$@" & wait $!'
#: The process groups of uv that threads of this process run, and whether they were interrupted.
_running: set[int] = set()
_interrupted = threading.Event()


class UvFailed(Exception):
    """uv ended with an error; ``output`` is its whole output."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        self.output = output


def find_uv() -> str:
    """The path of the uv that was installed with dlb.

    Raises:
        ProvisionError: uv is not installed.
    """
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError) as error:
        raise ProvisionError(
            f"uv, which makes the environments, is not installed next to dlb ({error}); "
            f"install it: {sys.executable} -m pip install uv"
        ) from error


def redact(text: str) -> str:
    """The text without user names and passwords in URLs."""
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
    """Run uv; its output is appended to ``log``, and its progress goes to ``report``.

    Args:
        arguments: the arguments of uv.
        environ: the environment variables of uv.
        log: an existing file.
        deadline: in terms of ``time.monotonic``.
        lock: the descriptor of the lock, which uv and its children inherit. If this process is
            killed, they end, too, and the lock stays held until they have: none of them can write to
            a folder that the next process deletes.
        report: receives a line of text at a time.

    Raises:
        UvFailed: uv ended with an error.
        ProvisionError: uv did not end in time.
    """
    command = ["sh", "-c", _GUARD, "sh", find_uv(), *arguments]
    if _interrupted.is_set():
        raise ProvisionError("interrupted before it was made")
    with open(log, "ab") as sink, open(log, "rb") as tail:
        sink.write(f"$ {redact(' '.join(['uv', *arguments]))}\n".encode())
        sink.flush()
        start = tail.seek(0, os.SEEK_END)
        # A process group of its own, so that the builds of uv end with it.
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
        _running.add(process.pid)
        try:
            while process.returncode is None:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise ProvisionError(
                        "uv did not end in time (DLB_PROVISION_TIMEOUT, in seconds, sets the limit)"
                    )
                # This returns as soon as uv ends; otherwise progress is reported after the timeout.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(min(remaining, 0.3))
                for line in tail.read().decode(errors="replace").splitlines():
                    if _PROGRESS.match(line):
                        report(redact(line.strip()))
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        finally:
            _running.discard(process.pid)
        if process.returncode:
            tail.seek(start)
            raise UvFailed(redact(tail.read().decode(errors="replace")))


@contextlib.contextmanager
def ending_together() -> Iterator[None]:
    """A block in which threads run uv; an interrupt of the block ends all of them, and starts no other."""
    _interrupted.clear()
    try:
        yield
    except KeyboardInterrupt:
        _interrupted.set()
        for number in tuple(_running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(number, signal.SIGKILL)
        raise


def _end_with_parent() -> Callable[[], None] | None:
    """A function that has a child sent SIGTERM when this process is killed; None without system support."""
    if sys.platform != "linux":
        return None
    # Loaded before the fork, since little is safe after it.
    prctl = ctypes.CDLL(None).prctl

    def set_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return set_signal
