"""Processes of one run: started in sessions of their own, ended whole, whatever they do."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

__all__ = ["end_all", "free_ports", "how_it_ended", "is_stopped", "last_lines", "spawn"]

#: Between asking a process to end and seeing that it has.
KILL_SECONDS = 10.0


def spawn(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, its output in a file, nothing on its input.

    Raises:
        OSError: it cannot be started.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def end_all(processes: Iterable[subprocess.Popen[bytes]], pids: Iterable[int] = ()) -> None:
    """Kill processes, their sessions and their descendants, and wait until they are gone.

    SIGKILL at once: some frameworks ignore SIGTERM for minutes, and what a worker had to save is
    saved before it is ended.
    """
    processes = list(processes)
    found: dict[int, psutil.Process] = {}
    for pid in [*(process.pid for process in processes), *pids]:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            for one in [process, *process.children(recursive=True)]:
                found[one.pid] = one
    for started in processes:
        # Also where the leader is gone: what it had started may live on in its group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(started.pid, signal.SIGKILL)
    for one in found.values():
        with contextlib.suppress(psutil.Error):
            one.kill()
    for started in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(KILL_SECONDS)
    psutil.wait_procs(list(found.values()), timeout=KILL_SECONDS)


def is_stopped(pid: int) -> bool:
    """Whether a process stands still by SIGSTOP or a debugger."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def how_it_ended(returncode: int | None) -> str:
    """A process's end in words."""
    if returncode is None:
        return "ended"
    if returncode >= 0:
        return f"ended with exit status {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    more = " (out of memory, or killed by hand)" if name == "SIGKILL" else ""
    return f"was killed by {name}{more}"


def last_lines(log: Path, count: int = 3) -> str:
    """The last lines that a process wrote, on one line."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    kept = [" ".join(line.split()) for line in lines if line.strip()]
    return " | ".join(kept[-count:])


def free_ports(count: int, host: str) -> list[int]:
    """Ports that nothing listens on right now."""
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            sock = stack.enter_context(socket.socket())
            sock.bind((host, 0))
            ports.append(sock.getsockname()[1])
        return ports
