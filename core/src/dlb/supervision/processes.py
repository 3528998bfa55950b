"""Starts the processes of a run in sessions of their own, and ends them with all descendants."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from dlb_graph.regular_files import read_end

__all__ = [
    "MARK",
    "end_all",
    "free_ports",
    "how_it_ended",
    "is_stopped",
    "last_lines",
    "number_of_peer",
    "spawn",
    "started_by",
    "watch",
]

#: Time to wait until a killed process has ended.
KILL_SECONDS = 10.0
#: The environment variable that processes of a run have, and whatever these start.
MARK = "DLB_MARK"


def spawn(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    log: Path,
    given: bytes = b"",
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, with output to a file.

    Args:
        given: what it reads from its standard input.

    Raises:
        OSError: the process cannot be started.
    """
    with log.open("ab") as output, tempfile.TemporaryFile(dir=folder) as file:
        file.write(given)
        file.seek(0)
        return subprocess.Popen(
            command,
            env=dict(environment),
            cwd=folder,
            stdin=file,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


#: Waits until its input ends, then kills all whose environment has the mark that is its name. On Linux.
_WATCH = """read -r _
for _ in 1 2 3 4 5; do
    grep -ls "DLB_MARK=$0" /proc/[0-9]*/environ | cut -d/ -f3 | xargs kill -9
    sleep 0.2
done"""


@contextlib.contextmanager
def watch(mark: str) -> Iterator[None]:
    """If this process is killed within the block, end all that have a mark, daemons too, on Linux."""
    with subprocess.Popen(
        ["sh", "-c", _WATCH, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as watching:
        try:
            yield
        finally:
            watching.kill()


def started_by(started: subprocess.Popen[bytes], pid: int) -> psutil.Process | None:
    """The process of a number that somebody names, if it is a started one, or one of its descendants.

    Args:
        started: a process that :func:`spawn` started.
        pid: the number. In a PID namespace, as in a container, it means another process than here.
    """
    try:
        process = psutil.Process(pid)
        ancestors = {pid, *(parent.pid for parent in process.parents())}
        own = started.pid in ancestors or os.getsid(pid) == started.pid
    except (psutil.Error, OSError, OverflowError, ValueError):
        return None
    return process if own else None


def number_of_peer(connection: socket.socket) -> int:
    """The number of the process at the other end of a Unix socket, as the kernel knows it; 0 if it does not.

    In a PID namespace of its own, that process has another number for itself.
    """
    if connection.family == socket.AF_INET or not hasattr(socket, "SO_PEERCRED"):
        return 0
    about = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", about)[0])


def end_all(
    started: Iterable[subprocess.Popen[bytes]],
    more: Iterable[psutil.Process] = (),
    mark: str = "",
) -> None:
    """Kill processes, their sessions and their descendants, and wait until they have ended.

    SIGKILL is sent at once. Some frameworks ignore SIGTERM for minutes, and a worker has saved its
    results before it is ended.

    Args:
        started: processes that :func:`spawn` started.
        more: processes that :func:`started_by` knew as theirs; they may have lost their parents since.
        mark: what they have as :data:`MARK`, daemons included, which leave their session and their parents;
            "" for none.
    """
    # The number of a process that has been waited for is free once its session is empty. If there is a process
    # of that number, it is another's.
    started = [
        leader
        for leader in started
        if leader.returncode is None or not psutil.pid_exists(leader.pid)
    ]
    roots = list(more)
    for leader in started:
        if leader.returncode is None:
            with contextlib.suppress(psutil.Error):
                roots.append(psutil.Process(leader.pid))
    # Even if the leader has ended, its children may still run in the session.
    by_pid = {member.pid: member for member in _in_sessions({leader.pid for leader in started})}
    for root in roots:
        by_pid[root.pid] = root
        with contextlib.suppress(psutil.Error):
            by_pid.update((child.pid, child) for child in root.children(recursive=True))
    for leader in started:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader.pid, signal.SIGKILL)
    for process in by_pid.values():
        with contextlib.suppress(psutil.Error):
            process.kill()
    for leader in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            leader.wait(KILL_SECONDS)
    psutil.wait_procs(list(by_pid.values()), timeout=KILL_SECONDS)
    # What was just ended may have started more.
    deadline = time.monotonic() + KILL_SECONDS
    while mark and time.monotonic() < deadline and (left := _marked(mark)):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)


def _marked(mark: str) -> list[psutil.Process]:
    """Every process that was started with a mark in its environment, and has not ended."""
    marked = []
    for process in psutil.process_iter():
        # Others' processes, and those that have ended, show none.
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                marked.append(process)
    return marked


def _in_sessions(leaders: set[int]) -> Iterator[psutil.Process]:
    """Every process of sessions, by the numbers of their leaders."""
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(pid) in leaders:
                yield psutil.Process(pid)


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
        lines = read_end(log, 4096).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    nonempty = [" ".join(line.split()) for line in lines if line.strip()]
    return " | ".join(nonempty[-count:])


@contextlib.contextmanager
def free_ports(count: int, host: str) -> Iterator[list[int]]:
    """Ports below those that systems give out, which nobody listens on and no other command takes meanwhile."""
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        while len(ports) < count:
            port = random.SystemRandom().randrange(10_000, 32_768)
            with contextlib.suppress(OSError), socket.socket() as listening:
                # It may take long until somebody listens.
                held.enter_context(socket.socket(type=socket.SOCK_DGRAM)).bind((host, port))
                listening.bind((host, port))
                ports.append(port)
        yield ports
