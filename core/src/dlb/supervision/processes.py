"""Starts the processes of a run in sessions of their own, and ends them with all descendants."""

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

#: Time to wait until a killed process has ended.
KILL_SECONDS = 10.0


def spawn(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, with output to a file and empty input.

    Raises:
        OSError: the process cannot be started.
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
    """Kill processes, their sessions and their descendants, and wait until they have ended.

    SIGKILL is sent at once. Some frameworks ignore SIGTERM for minutes, and a worker has saved its
    results before it is ended.
    """
    processes = list(processes)
    by_pid: dict[int, psutil.Process] = {}
    for pid in [*(process.pid for process in processes), *pids]:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            for member in [process, *process.children(recursive=True)]:
                by_pid[member.pid] = member
    for started in processes:
        # Even if the leader has ended, its children may still run in the group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(started.pid, signal.SIGKILL)
    for process in by_pid.values():
        with contextlib.suppress(psutil.Error):
            process.kill()
    for started in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(KILL_SECONDS)
    psutil.wait_procs(list(by_pid.values()), timeout=KILL_SECONDS)


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP or a debugger has stopped a process."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def how_it_ended(returncode: int | None) -> str:
    """How a process ended, as text for messages."""
    if returncode is None:
        return "ended"
    if returncode >= 0:
        return f"ended with exit status {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    reason = " (out of memory, or killed by hand)" if name == "SIGKILL" else ""
    return f"was killed by {name}{reason}"


def last_lines(log: Path, count: int = 3) -> str:
    """The last lines of a process's output, joined to one line."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    nonempty = [" ".join(line.split()) for line in lines if line.strip()]
    return " | ".join(nonempty[-count:])


def free_ports(count: int, host: str) -> list[int]:
    """Ports that no process listens on at present."""
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            sock = stack.enter_context(socket.socket())
            sock.bind((host, 0))
            ports.append(sock.getsockname()[1])
        return ports
