"""One supervisor owns all the processes of a run.

It notices, within the times below, a process that died, stands still, stopped answering or never
came, and ends them all: by the context manager's exit on any way out, by the closed connection if
this process is killed, and on Linux by the parent-death signal as well.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlb import interrupts, protocol
from dlb.errors import (
    DlbError,
    RequestError,
    UnsupportedError,
    WorkerDied,
    WorkerError,
    WorkerHung,
    WorkerRaised,
)
from dlb.supervision import processes

__all__ = ["Group", "Launch", "worker_group"]

HOST = "127.0.0.1"
#: Every process must have reported by then.
ARRIVAL_SECONDS = 60.0
#: A process that answers calls is heard once a second; silent for so long it is taken for stuck.
SILENCE_SECONDS = 10.0
#: While it imports a framework, one C call can hold Python's lock for longer.
IMPORT_SILENCE_SECONDS = 90.0
#: How often the processes are looked at.
LOOK_SECONDS = 0.2
#: After an error, how long to look for a peer whose death explains it.
BLAME_SECONDS = 1.0

Progress = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Launch:
    """What to start.

    Attributes:
        adapter: whose environment it is; names the run in messages.
        python: interpreter of the environment.
        scratch: folder for arrays and for the output of each process.
        threads: for OpenMP and BLAS, set before anything is imported.
        strategy, workers: how many processes, and how they work together; "" and 1 alone.
        device: handed to the strategy's plan.
        call_seconds: a call that neither answers nor makes progress for so long has hung.
        stop: once set, waiting ends as an interrupt does: Ctrl-C itself reaches only the main thread.
    """

    adapter: str
    python: Path
    scratch: Path
    threads: int = 1
    strategy: str = ""
    workers: int = 1
    device: str = "cpu"
    call_seconds: float = 300.0
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass
class Member:
    """One process of the group, as the supervisor sees it."""

    role: str
    rank: int
    process: subprocess.Popen[bytes]
    log: Path
    pid: int = 0
    connection: socket.socket | None = None
    heard: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        return f"{self.role} {self.rank}"


class Group:
    """The running processes. Made by :func:`worker_group`."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.members: list[Member] = []
        self._events: queue.Queue[tuple[Member, dict[str, Any] | None]] = queue.Queue()
        self._token = secrets.token_hex(16)
        self._listener = socket.create_server((HOST, 0))
        self._listener.settimeout(LOOK_SECONDS)
        self._started: list[subprocess.Popen[bytes]] = []
        self._calls = 0

    @property
    def workers(self) -> list[Member]:
        """Processes that train, by rank."""
        found = [member for member in self.members if member.role == "worker"]
        return sorted(found, key=lambda member: member.rank)

    # --- starting ------------------------------------------------------------------------

    def start(self, plan: Mapping[str, Any]) -> None:
        """Start every process of a plan and wait until each has reported.

        Raises:
            WorkerError: one cannot be started, died, or never came.
        """
        launcher = list(plan["launcher"])
        expected: list[Member] = []
        for process in plan["processes"]:
            joint = launcher and process["role"] == "worker"
            if joint and process["rank"] > 0:
                expected.append(
                    Member("worker", process["rank"], expected[-1].process, expected[-1].log)
                )
                continue
            log = self.launch.scratch / f"{process['role']}-{process['rank']}.log"
            extra = {"DLB_ROLE": process["role"], "DLB_RANK": str(process["rank"])}
            if joint:
                extra["DLB_RANK_VARIABLES"] = ",".join(plan["rank_variables"])
            command = [*(launcher if joint else []), str(self.launch.python), "-m", "dlb.worker"]
            environment = {**self._environment(), **process["environment"], **extra}
            try:
                started = processes.spawn(command, environment, self.launch.scratch, log)
            except OSError as error:
                raise WorkerDied(
                    f"cannot start {command[0]}: {error}", adapter=self.launch.adapter
                ) from None
            self._started.append(started)
            expected.append(Member(process["role"], process["rank"], started, log))
        self._gather(expected)

    def _environment(self) -> dict[str, str]:
        threads = str(self.launch.threads)
        inherited = {
            name: value
            for name, value in os.environ.items()
            # These would bring this environment's packages into the worker's.
            if name not in ("PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__")
        }
        host, port = self._listener.getsockname()[:2]
        return {
            **inherited,
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
            # What a framework leaves in the temporary folder goes when the run's folder goes.
            "TMPDIR": str(self.launch.scratch),
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
            "DLB_SUPERVISOR": f"{host}:{port}",
            "DLB_TOKEN": self._token,
        }

    def _gather(self, expected: list[Member]) -> None:
        waiting = {(member.role, member.rank): member for member in expected}
        deadline = time.monotonic() + ARRIVAL_SECONDS
        while waiting:
            self._check_stop()
            for member in waiting.values():
                self._check_process(member)
            if time.monotonic() > deadline:
                names = ", ".join(str(member) for member in waiting.values())
                raise WorkerHung(
                    f"{names} never reported within {ARRIVAL_SECONDS:.0f} s",
                    adapter=self.launch.adapter,
                    log=next(iter(waiting.values())).log,
                )
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            self._greet(connection, waiting)

    def _greet(self, connection: socket.socket, waiting: dict[tuple[str, int], Member]) -> None:
        """Take in a process that knows the token; turn anybody else away."""
        connection.settimeout(5)
        stream = connection.makefile("rb")
        try:
            hello = next(protocol.messages(stream))
            known = secrets.compare_digest(str(hello["token"]).encode(), self._token.encode())
            member = waiting.pop((hello["role"], int(hello["rank"]))) if known else None
        except (OSError, ValueError, TypeError, KeyError, StopIteration):
            member = None
        if member is None:
            connection.close()
            return
        if hello["hello"] != protocol.PROTOCOL:
            raise WorkerError(
                f"its environment speaks protocol {hello['hello']}, this dlb {protocol.PROTOCOL}; "
                f"fix it with: dlb env create {self.launch.adapter}",
                adapter=self.launch.adapter,
            )
        connection.settimeout(None)
        member.connection, member.pid, member.heard = (
            connection,
            int(hello["pid"]),
            time.monotonic(),
        )
        self.members.append(member)
        threading.Thread(target=self._listen, args=(member, stream), daemon=True).start()

    def _listen(self, member: Member, stream: Any) -> None:
        with contextlib.suppress(OSError, ValueError):
            for message in protocol.messages(stream):
                member.heard = time.monotonic()
                self._events.put((member, message))
        self._events.put((member, None))

    # --- calling -------------------------------------------------------------------------

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | Callable[[int], Mapping[str, Any]] | None = None,
        on_progress: Progress | None = None,
    ) -> list[dict[str, Any]]:
        """Ask every worker the same and wait for all of them.

        Args:
            name: of the call.
            arguments: the same for all, or a function of the rank.
            on_progress: hears what worker 0 reports meanwhile.

        Returns:
            results by rank.

        Raises:
            UnsupportedError: the adapter cannot do it.
            WorkerRaised, WorkerDied, WorkerHung: as their names say; the group is no more use.
        """
        asked = {}
        for member in self.workers:
            given = arguments(member.rank) if callable(arguments) else arguments or {}
            asked[self._send(member, name, given)] = member
        return self._collect(name, asked, on_progress)

    def serve(self, strategy: str) -> None:
        """Set schedulers and servers to work; they are not waited for."""
        for member in self.members:
            if member.role != "worker":
                given = {
                    "framework": self.launch.adapter,
                    "strategy": strategy,
                    "role": member.role,
                }
                self._send(member, "serve", given)

    def _send(self, member: Member, name: str, arguments: Mapping[str, Any]) -> int:
        """Send a call; its id, by which its answer is known."""
        self._calls += 1
        assert member.connection is not None
        try:
            member.connection.sendall(
                protocol.pack({"id": self._calls, "call": name, "arguments": dict(arguments)})
            )
        except OSError:
            self._report_death(member)
        return self._calls

    def _collect(
        self, name: str, asked: Mapping[int, Member], on_progress: Progress | None
    ) -> list[dict[str, Any]]:
        results: dict[int, dict[str, Any]] = {}
        silence = IMPORT_SILENCE_SECONDS if name == "start" else SILENCE_SECONDS
        looked = last_progress = time.monotonic()
        while len(results) < len(asked):
            self._check_stop()
            # By the clock, not when nothing arrives: many workers never leave a pause.
            if time.monotonic() - looked > LOOK_SECONDS:
                self._check_all(silence)
                looked = time.monotonic()
                if looked - last_progress > self.launch.call_seconds:
                    late = next(one for number, one in asked.items() if number not in results)
                    raise WorkerHung(
                        f"{late} made no progress in '{name}' for "
                        f"{self.launch.call_seconds:.0f} s and was ended",
                        adapter=self.launch.adapter,
                        log=late.log,
                    )
            try:
                member, message = self._events.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                continue
            if message is None:
                self._note_end(member)
            elif message.get("event") == "progress":
                last_progress = time.monotonic()
                if on_progress is not None and member.rank == 0:
                    on_progress(message)
            elif message.get("id") in asked:
                if "error" in message:
                    self._report_error(member, name, message["error"])
                results[message["id"]] = message["result"]
                last_progress = time.monotonic()
            elif "error" in message and member.role != "worker":
                self._report_error(member, "serve", message["error"])
            # Anything else is a sign of life, or a peer's late answer to a call that failed.
        return [results[number] for number in asked]

    # --- noticing ------------------------------------------------------------------------

    def _check_stop(self) -> None:
        if self.launch.stop.is_set():
            raise KeyboardInterrupt

    def _check_all(self, silence: float) -> None:
        now = time.monotonic()
        for member in self.members:
            self._check_process(member)
            if processes.is_stopped(member.pid):
                raise WorkerHung(
                    f"{member} (process {member.pid}) stands still: stopped by a signal",
                    adapter=self.launch.adapter,
                )
            # A scheduler or a server lives inside one C call.
            if member.role == "worker" and now - member.heard > silence:
                raise WorkerHung(
                    f"{member} (process {member.pid}) was silent for {silence:.0f} s and was ended",
                    adapter=self.launch.adapter,
                    log=member.log,
                )

    def _check_process(self, member: Member) -> None:
        ended = member.process.poll()
        # A scheduler or a server ends well when its workers have left.
        if ended is not None and (member.role == "worker" or ended != 0):
            self._report_death(member)

    def _note_end(self, member: Member) -> None:
        if member.role != "worker":
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.process.wait(2)
            if member.process.returncode == 0:
                return
        self._report_death(member)

    def _report_death(self, member: Member) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            member.process.wait(2)
        said = processes.last_lines(member.log)
        raise WorkerDied(
            f"{member} {processes.how_it_ended(member.process.returncode)}"
            + (f"; it last said: {said}" if said else ""),
            adapter=self.launch.adapter,
            log=member.log,
        )

    def _report_error(self, member: Member, name: str, error: Mapping[str, Any]) -> None:
        """Raise what a worker raised, unless a peer's death explains it."""
        if len(self.members) > 1:
            deadline = time.monotonic() + BLAME_SECONDS
            while time.monotonic() < deadline:
                with contextlib.suppress(queue.Empty):
                    other, message = self._events.get(timeout=LOOK_SECONDS)
                    if message is None and other is not member:
                        self._report_death(other)
                self._check_all(SILENCE_SECONDS)
        message, adapter = error["message"], self.launch.adapter
        if error["kind"] == "unsupported":
            raise UnsupportedError(message, adapter=adapter)
        if error["kind"] == "dlb":
            raise DlbError(message, adapter=adapter)
        raise WorkerRaised(
            f"{message} (in '{name}')", error["traceback"], adapter=adapter, log=member.log
        )

    # --- ending --------------------------------------------------------------------------

    def close(self) -> None:
        """End every process, now, and wait until it has gone; no signal cuts this short."""
        with interrupts.ignored():
            self._close()

    def _close(self) -> None:
        self._listener.close()
        processes.end_all(self._started, [member.pid for member in self.members])
        for member in self.members:
            if member.connection is not None:
                member.connection.close()


@contextmanager
def worker_group(launch: Launch) -> Iterator[Group]:
    """Start the processes of a run, and end them all on every way out.

    Raises:
        UnsupportedError: the adapter has no such strategy.
        WorkerError: a process did not come up.
    """
    alone = {"processes": [{"role": "worker", "rank": 0, "environment": {}}], "launcher": []}
    if not launch.strategy and launch.workers != 1:
        raise RequestError("several workers need a strategy; see: dlb list strategies")
    plan: Mapping[str, Any] = alone
    if launch.strategy:
        with _group(launch, alone) as planner:
            request = {
                "framework": launch.adapter,
                "strategy": launch.strategy,
                "workers": launch.workers,
                "host": HOST,
                "ports": processes.free_ports(4 + 2 * launch.workers, HOST),
                "device": launch.device,
            }
            plan = planner.call("plan", request)[0]
    with _group(launch, plan) as group:
        group.serve(launch.strategy)
        yield group


@contextmanager
def _group(launch: Launch, plan: Mapping[str, Any]) -> Iterator[Group]:
    group = Group(launch)
    try:
        group.start(plan)
        yield group
    finally:
        group.close()
