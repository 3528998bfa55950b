"""One supervisor owns all the processes of a run.

Within the times below, it detects a process that died, was stopped, no longer answers or never connected,
and ends all processes. The context manager's exit ends them in every case. If this process is killed,
the closed connection ends them, and on Linux the parent-death signal too.
"""

from __future__ import annotations

import contextlib
import io
import ipaddress
import os
import queue
import secrets
import shlex
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from dlb import interrupts, places
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
from dlb.supervision.answers import ErrorAnswer, Hello, answer_as, check_result, worth_reading
from dlb.supervision.callers import HOST, Callers, open_doors, own_address
from dlb_worker import protocol

__all__ = ["Group", "Host", "Launch", "worker_group"]

#: A process that answers calls sends a message every second. After this silence it counts as hung.
SILENCE_SECONDS = 10.0
#: During the import of a framework, one C call can hold Python's lock for longer.
IMPORT_SILENCE_SECONDS = 90.0
#: Characters of a worker's message that are shown; messages that wait to be read.
MOST_SAID, MOST_UNREAD = 2000, 1000
#: Time between two checks of the processes.
CHECK_SECONDS = 0.2
#: After an error, time to detect the death of a peer that caused it.
PEER_DEATH_SECONDS = 1.0
#: Time for workers of other hosts to remove their files, once they are hung up.
LEAVE_SECONDS = 5.0

Progress = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Host:
    """A machine that workers run on.

    Attributes:
        address: at which its peers reach it.
        command: stands before the command of a worker, and runs it there with the standard input that it is
            given; empty for this machine.
    """

    address: str
    command: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> Host:
        """The host that the setting ``hosts`` names: an IPv4 address, and a command after ``=``.

        Raises:
            RequestError: it is no address, or the command has a quote that does not end.
        """
        address, _, command = text.partition("=")
        try:
            return cls(str(ipaddress.IPv4Address(address.strip())), tuple(shlex.split(command)))
        except ValueError as error:
            raise RequestError(
                f"host {text}: {error}; it must be ADDRESS or ADDRESS=COMMAND"
            ) from None


@dataclass(frozen=True)
class Launch:
    """What to start.

    Attributes:
        adapter: the adapter's name, also for messages.
        python: the interpreter of the adapter's environment.
        scratch: folder for arrays and for the output of each process.
        threads: threads of OpenMP and BLAS, set before any import.
        strategy, workers: the distributed strategy and its worker processes; "" and 1 for none.
        device: the device, which the strategy's plan receives.
        call_seconds: a start, or a call without an answer or progress, that takes this time has hung.
        stop: once set, waiting ends as with an interrupt. Ctrl-C itself reaches only the main thread.
        name: what messages call it, if there are several groups of one adapter.
        variables: environment variables of the processes, beside those of this process.
        hosts: where workers run, in turn by rank; empty for this machine alone.
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
    name: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[Host, ...] = ()

    def host(self, role: str, rank: int) -> Host:
        """Where a process runs: what is no worker, beside worker 0."""
        here = Host(HOST)
        place = rank if role == "worker" else 0
        return self.hosts[place % len(self.hosts)] if self.hosts else here

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.name or self.adapter


@dataclass
class Member:
    """One process of the group, as the supervisor sees it.

    Attributes:
        process: the process that was started for it; a launcher is that of all workers.
        own: the process that says that it does the work, if it descends from ``process``.
        refused: why what it sent was no message; nobody listens to it any more.
        carried: whether files travel by the connection.
        awaited: the file that it may send.
    """

    role: str
    rank: int
    process: subprocess.Popen[bytes]
    log: Path
    own: psutil.Process | None = None
    connection: socket.socket | None = None
    heard: float = field(default_factory=time.monotonic)
    refused: str = ""
    carried: bool = False
    awaited: str = ""

    @property
    def pid(self) -> int:
        """The number of the process that does the work, as far as that is known."""
        return self.process.pid if self.own is None else int(self.own.pid)

    def __str__(self) -> str:
        return f"{self.role} {self.rank}"


class Group:
    """The running processes. Made by :func:`worker_group`."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.members: list[Member] = []
        self._events: queue.Queue[tuple[Member, dict[str, Any] | None]] = queue.Queue()
        self._token, self.mark = secrets.token_hex(16), secrets.token_hex(16)
        self._doors = open_doors(
            launch.scratch, everywhere=any(each.command for each in launch.hosts)
        )
        self._started: list[subprocess.Popen[bytes]] = []
        self._calls = 0
        #: Into how many shares their batches are divided; 0: one for each worker.
        self.shares = 0

    @property
    def workers(self) -> list[Member]:
        """The processes that train, by rank."""
        workers = [member for member in self.members if member.role == "worker"]
        return sorted(workers, key=lambda member: member.rank)

    def processes(self) -> list[int]:
        """The numbers of all processes, launchers included."""
        return sorted(
            {process.pid for process in self._started} | {member.pid for member in self.members}
        )

    # --- starting ------------------------------------------------------------------------

    def start(self, plan: Mapping[str, Any]) -> None:
        """Start every process of a plan and wait until each has connected.

        Raises:
            WorkerError: a process could not be started, died, or never connected.
        """
        launcher, self.shares = list(plan["launcher"]), plan.get("shares", 0)
        if launcher and self.launch.hosts:
            raise UnsupportedError(
                f"strategy '{self.launch.strategy}' starts its workers by {Path(launcher[0]).name}, on this "
                "machine alone; leave out --host",
                adapter=self.launch.label,
            )
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
            host = self.launch.host(process["role"], process["rank"])
            command = [*(launcher if joint else host.command)]
            command += [str(self.launch.python), "-m", "dlb_worker"]
            variables = {**self._variables(host), **process["environment"], **extra}
            given = b""
            if host.command:  # it may pass on no environment, as ssh does
                command.append("-")
                given = protocol.pack(variables)
            environment = {**self._inherited(), **variables}
            try:
                started = processes.spawn(command, environment, self.launch.scratch, log, given)
            except OSError as error:
                raise WorkerDied(
                    f"cannot start {command[0]}: {error}", adapter=self.launch.label
                ) from None
            self._started.append(started)
            member = Member(process["role"], process["rank"], started, log)
            member.carried = bool(host.command)
            expected.append(member)
        self._gather(expected)

    def _inherited(self) -> dict[str, str]:
        """The variables that processes have of this one."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            # They would make the worker import packages of this environment.
            if name not in ("PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__")
        }
        if self.launch.python.is_relative_to(places.environments_home()):
            # What an environment of dlb's own imports is compiled once, and not in each of its processes.
            inherited.pop("PYTHONDONTWRITEBYTECODE", None)
        if any(each.command for each in self.launch.hosts):
            inherited.pop("TMPDIR", None)
        return inherited

    def _variables(self, host: Host) -> dict[str, str]:
        """The variables that dlb sets for a process."""
        threads = str(self.launch.threads)
        public, *private = [door.getsockname() for door in self._doors]
        there = {
            # Temporary files of a framework are deleted together with the run's folder.
            "TMPDIR": str(self.launch.scratch),
            "DLB_SUPERVISOR": f"{HOST}:{public[1]}",
            "DLB_SOCKET": "".join(private),
        }
        if host.command:
            seen = own_address(host.address)
            there = {"DLB_SUPERVISOR": f"{seen}:{public[1]}", "DLB_SOCKET": "", "DLB_CARRIED": "1"}
        return {
            **self.launch.variables,
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
            **there,
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
            "DLB_TOKEN": self._token,
            processes.MARK: self.mark,
        }

    def _gather(self, expected: list[Member]) -> None:
        """Wait until each process has said hello."""
        waiting = {(member.role, member.rank): member for member in expected}
        deadline = time.monotonic() + self.launch.call_seconds
        with Callers(self._doors) as callers:
            while waiting:
                self._check_stop()
                for member in waiting.values():
                    self._check_process(member)
                if time.monotonic() > deadline:
                    names = ", ".join(str(member) for member in waiting.values())
                    raise WorkerHung(
                        f"{names} never reported within {self.launch.call_seconds:.0f} s",
                        adapter=self.launch.label,
                        log=next(iter(waiting.values())).log,
                    )
                for connection, line in callers.hear(CHECK_SECONDS):
                    process = self._greet(connection, line, waiting)
                    if process is None:
                        callers.hang_up(connection)
                    else:
                        self._take(process, connection)
        self._close_doors()

    def _close_doors(self) -> None:
        for door in self._doors:
            door.close()

    def _greet(
        self, connection: socket.socket, line: bytes, waiting: dict[tuple[str, int], Member]
    ) -> Member | None:
        """The process that said hello; None for one that does not know the token, or is not expected.

        Raises:
            WorkerError: it knows the token, and says nothing that could be understood.
        """
        try:
            hello = next(protocol.messages(io.BytesIO(line)), {})
            token = str(hello.get("token", "")).encode("utf-8", "replace")
        except ValueError:
            return None
        if not secrets.compare_digest(token, self._token.encode()):
            return None
        said = answer_as(Hello, hello, "hello", self.launch.label)
        if said.hello != protocol.PROTOCOL:
            raise WorkerError(
                f"its environment speaks protocol {said.hello}, this dlb {protocol.PROTOCOL}; "
                f"fix it with: dlb env create {self.launch.adapter}",
                adapter=self.launch.label,
            )
        member = waiting.pop((said.role, said.rank), None)
        if member is not None:
            if member.carried and not said.carried:
                raise WorkerError(
                    f"{member} is on another host and takes no files by its connection; run dlb env create "
                    f"{self.launch.adapter} there",
                    adapter=self.launch.label,
                )
            # Only a process of ours is looked at, or ended, whatever number was named.
            number = processes.number_of_peer(connection) or said.pid
            member.own = processes.started_by(member.process, number)
        return member

    def _take(self, member: Member, connection: socket.socket) -> None:
        """Listen to a process that said hello."""
        member.connection, member.heard = connection, time.monotonic()
        self.members.append(member)
        if member.carried:  # who takes no file must not hold the run
            limit = struct.pack("ll", int(self.launch.call_seconds), 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        stream = connection.makefile("rb")
        threading.Thread(target=self._listen, args=(member, stream), daemon=True).start()

    def _listen(self, member: Member, stream: Any) -> None:
        try:
            for message in protocol.messages(stream):
                member.heard = time.monotonic()
                if "file" in message:
                    self._keep(member, message, stream)
                    continue
                # Who sends more than anybody reads takes no memory, and hides no answer.
                read = worth_reading(message)
                if read and self._events.qsize() < MOST_UNREAD * (1 + ("id" in read)):
                    self._events.put((member, read))
        except ValueError as error:
            member.refused = str(error)[:MOST_SAID]
        except OSError:
            pass
        self._events.put((member, None))

    def _keep(self, member: Member, message: dict[str, Any], stream: Any) -> None:
        """Write the file that a worker sends.

        Raises:
            ValueError: it is none that a call has asked for, or it cannot be written.
        """
        if not member.awaited or message["file"] != member.awaited:
            raise ValueError("a file that was not asked for")
        path, member.awaited = Path(member.awaited), ""
        try:
            for _ in protocol.receive_file(stream, message, str(path)):
                member.heard = time.monotonic()
        except OSError as error:
            raise ValueError(f"{path.name} cannot be written: {error.strerror or error}") from None

    # --- calling -------------------------------------------------------------------------

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | Callable[[int], Mapping[str, Any]] | None = None,
        on_progress: Progress | None = None,
        only: int | None = None,
    ) -> list[dict[str, Any]]:
        """Send a call to every worker and wait for all results.

        Args:
            name: the call.
            arguments: the same for all workers, or a function of the rank.
            on_progress: receives the progress messages of worker 0: ``step`` and ``loss``.
            only: the rank of the one worker that the call is for.

        Returns:
            results by rank.

        Raises:
            UnsupportedError: the adapter cannot do it.
            WorkerRaised, WorkerDied, WorkerHung: a worker failed; the group cannot be used any more.
        """
        calls = {}
        for member in self.workers[slice(None) if only is None else slice(only, only + 1)]:
            own_arguments = arguments(member.rank) if callable(arguments) else arguments or {}
            calls[self._send(member, name, own_arguments)] = member
        return self._collect(name, calls, on_progress)

    def serve(self, strategy: str) -> None:
        """Start the work of schedulers and servers, without waiting for a result."""
        for member in self.members:
            if member.role != "worker":
                arguments = {
                    "framework": self.launch.adapter,
                    "strategy": strategy,
                    "role": member.role,
                }
                self._send(member, "serve", arguments)

    def _send(self, member: Member, name: str, arguments: Mapping[str, Any]) -> int:
        """Send a call; returns its id, which the answer repeats."""
        self._calls += 1
        assert member.connection is not None
        try:
            if member.carried:
                member.awaited = str(arguments.get(protocol.FILE_WRITTEN, ""))
                for path in _files(arguments):
                    protocol.send_file(member.connection, path, path)
            member.connection.sendall(
                protocol.pack({"id": self._calls, "call": name, "arguments": dict(arguments)})
            )
        except BlockingIOError:
            raise WorkerHung(
                f"{member} took no file for {self.launch.call_seconds:.0f} s and was ended",
                adapter=self.launch.label,
                log=member.log,
            ) from None
        except OSError:
            self._report_death(member)
        return self._calls

    def _collect(
        self, name: str, calls: Mapping[int, Member], on_progress: Progress | None
    ) -> list[dict[str, Any]]:
        results: dict[int, dict[str, Any]] = {}
        silence = IMPORT_SILENCE_SECONDS if name == "start" else SILENCE_SECONDS
        last_check = last_progress = time.monotonic()
        while len(results) < len(calls):
            self._check_stop()
            # By the clock, not when nothing arrives: with many workers, messages never pause.
            if time.monotonic() - last_check > CHECK_SECONDS:
                self._check_all(silence)
                last_check = time.monotonic()
                if last_check - last_progress > self.launch.call_seconds:
                    late = next(worker for number, worker in calls.items() if number not in results)
                    raise WorkerHung(
                        f"{late} made no progress in '{name}' for "
                        f"{self.launch.call_seconds:.0f} s and was ended",
                        adapter=self.launch.label,
                        log=late.log,
                    )
            try:
                member, message = self._events.get(timeout=CHECK_SECONDS)
            except queue.Empty:
                continue
            if message is None:
                self._handle_disconnect(member)
            elif message.get("event") == "progress":
                last_progress = time.monotonic()
                if on_progress is not None and member.rank == 0 and "step" in message:
                    on_progress(message)
            elif isinstance(number := message.get("id"), int) and number in calls:
                if "error" in message:
                    self._report_error(member, name, message["error"])
                result = message.get("result")
                results[number] = check_result(name, result, self.launch.label)
                last_progress = time.monotonic()
            elif isinstance(number, (list, dict, str, float)):
                raise WorkerError(
                    f"{member} answered '{name}' without the number of the call",
                    adapter=self.launch.label,
                    log=member.log,
                )
            elif "error" in message and member.role != "worker":
                self._report_error(member, "serve", message["error"])
            # Anything else is a heartbeat, or a peer's late answer to a call that failed.
        return [results[number] for number in calls]

    # --- detecting failures --------------------------------------------------------------

    def _check_stop(self) -> None:
        if self.launch.stop.is_set():
            raise KeyboardInterrupt

    def _check_all(self, silence: float) -> None:
        now = time.monotonic()
        for member in self.members:
            self._check_process(member)
            if processes.is_stopped(member.pid):
                raise WorkerHung(
                    f"{member} (process {member.pid}) was stopped by a signal",
                    adapter=self.launch.label,
                )
            # A scheduler or a server spends its whole life in one C call.
            if member.role == "worker" and now - member.heard > silence:
                raise WorkerHung(
                    f"{member} (process {member.pid}) was silent for {silence:.0f} s and was ended",
                    adapter=self.launch.label,
                    log=member.log,
                )

    def _check_process(self, member: Member) -> None:
        status = member.process.poll()
        # A scheduler or a server ends with status 0 after its workers have left.
        if status is not None and (member.role == "worker" or status != 0):
            self._report_death(member)

    def _handle_disconnect(self, member: Member) -> None:
        if member.refused:
            raise WorkerError(
                f"{member} sent a line that is no message: {member.refused}",
                adapter=self.launch.label,
                log=member.log,
            )
        if member.role != "worker":
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.process.wait(2)
            if member.process.returncode == 0:
                return
        self._report_death(member)

    def _report_death(self, member: Member) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            member.process.wait(2)
        output = processes.last_lines(member.log)
        raise WorkerDied(
            f"{member} {processes.how_it_ended(member.process.returncode)}"
            + (f"; it last said: {output}" if output else ""),
            adapter=self.launch.label,
            log=member.log,
        )

    def _report_error(self, member: Member, name: str, answer: Any) -> None:
        """Raise a worker's error, unless the death of a peer explains it."""
        error = answer_as(ErrorAnswer, answer, f"error in '{name}'", self.launch.label)
        if len(self.members) > 1:
            deadline = time.monotonic() + PEER_DEATH_SECONDS
            while time.monotonic() < deadline:
                with contextlib.suppress(queue.Empty):
                    peer, message = self._events.get(timeout=CHECK_SECONDS)
                    if message is None and peer is not member:
                        self._report_death(peer)
                self._check_all(SILENCE_SECONDS)
        adapter, said = self.launch.label, error.message
        if len(said) > MOST_SAID:
            said = said[:MOST_SAID] + " ..."
        if error.kind == "unsupported":
            raise UnsupportedError(said, adapter=adapter)
        if error.kind == "dlb":
            raise DlbError(said, adapter=adapter)
        raise WorkerRaised(
            f"{said} (in '{name}')", error.traceback, adapter=adapter, log=member.log
        )

    # --- ending --------------------------------------------------------------------------

    def close(self) -> None:
        """Kill every process and wait until it has ended; signals do not interrupt this."""
        with interrupts.ignored():
            self._close()

    def _close(self) -> None:
        self._close_doors()
        far = [
            member for member in self.members if member.carried and member.connection is not None
        ]
        for member in far:  # they clean up on their host once nobody listens
            with contextlib.suppress(OSError):
                member.connection.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
        deadline = time.monotonic() + LEAVE_SECONDS
        for member in far:
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.process.wait(max(0, deadline - time.monotonic()))
        own = [member.own for member in self.members if member.own is not None]
        processes.end_all(self._started, own, self.mark)
        for member in self.members:
            if member.connection is not None:
                member.connection.close()


def _files(arguments: Mapping[str, Any]) -> Iterator[str]:
    """The files that a call reads."""
    for name in protocol.FILES_READ:
        yield from protocol.names_in(arguments.get(name))


@contextmanager
def worker_group(launch: Launch) -> Iterator[Group]:
    """Start the processes of a run; they all end with the context, in every case.

    Raises:
        RequestError: there are several workers and no strategy.
        UnsupportedError: the adapter does not have the strategy.
        WorkerError: a process did not start.
    """
    addresses = [launch.host("worker", rank).address for rank in range(launch.workers)]
    plan: Any = {"processes": [{"role": "worker", "rank": 0, "environment": {}}], "launcher": []}
    if not launch.strategy and launch.workers != 1:
        raise RequestError("several workers need a strategy; see: dlb list strategies")
    with ExitStack() as running:
        if launch.strategy:
            request = {
                "framework": launch.adapter,
                "strategy": launch.strategy,
                "workers": launch.workers,
                "host": addresses[0],
                "ports": running.enter_context(processes.free_ports(4 + 2 * launch.workers, HOST)),
                "device": launch.device,
                **({"hosts": addresses} if launch.hosts else {}),
            }
            with _group(launch, plan) as planner:
                plan = planner.call("plan", request)[0]
            ranks = sum(process["role"] == "worker" for process in plan["processes"])
            if launch.hosts and ranks < launch.workers:
                reason = f"'{launch.strategy}' has its workers in one process; leave out --host"
                raise UnsupportedError(f"strategy {reason}", adapter=launch.label)
        group = running.enter_context(_group(launch, plan))
        group.serve(launch.strategy)
        yield group


@contextmanager
def _group(launch: Launch, plan: Mapping[str, Any]) -> Iterator[Group]:
    group = Group(launch)
    with processes.watch(group.mark):
        try:
            group.start(plan)
            yield group
        finally:
            group.close()
