"""The lines between core and worker, and the one who answers the door."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlb.errors import RequestError, WorkerDied, WorkerError, WorkerHung
from dlb.supervision import callers, processes
from dlb.supervision.answers import check_result
from dlb.supervision.group import Group, Launch, worker_group
from dlb_worker import protocol

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
documents = st.dictionaries(st.text(), values, max_size=4)


class Trickle(io.RawIOBase):
    """A stream that gives a few bytes at a time, as a socket may."""

    def __init__(self, content: bytes, sizes: list[int]) -> None:
        self.rest, self.sizes = content, sizes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = min(self.sizes.pop() if self.sizes else 1 << 16, len(buffer))
        piece, self.rest = self.rest[:size], self.rest[size:]
        buffer[: len(piece)] = piece
        return len(piece)


@given(st.lists(documents, max_size=5), st.lists(st.integers(1, 7), max_size=200))
def test_messages_arrive_as_they_were_sent(sent: list[dict[str, Any]], sizes: list[int]) -> None:
    content = b"".join(protocol.pack(one) for one in sent)
    assert content.count(b"\n") == len(sent)
    assert list(protocol.messages(io.BufferedReader(Trickle(content, sizes)))) == sent


@given(st.lists(documents, min_size=1, max_size=3), st.data())
def test_a_line_cut_short_is_no_message(sent: list[dict[str, Any]], data: st.DataObject) -> None:
    content = b"".join(protocol.pack(one) for one in sent)
    kept = data.draw(st.integers(0, len(content) - 1))
    whole = content[:kept].count(b"\n")
    assert list(protocol.messages(io.BytesIO(content[:kept]))) == sent[:whole]


def test_numbers_that_json_has_not() -> None:
    line = protocol.pack({"loss": math.nan, "worst": math.inf})
    (read,) = protocol.messages(io.BytesIO(line))
    assert math.isnan(read["loss"]) and read["worst"] == math.inf


@pytest.mark.parametrize(
    "line", [b"[1]\n", b"7\n", b"hello\n", b"\xff\xfe\n", b"\n", b"[" * 100_000 + b"\n"]
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        list(protocol.messages(io.BytesIO(line)))


# --- the supervisor ------------------------------------------------------------------------


def launch(folder: Path, python: str = sys.executable, **more: Any) -> Launch:
    return Launch(adapter="example", python=Path(python), scratch=folder, **more)


def test_a_worker_describes_its_environment_and_is_gone_afterwards(tmp_path: Path) -> None:
    with worker_group(launch(tmp_path)) as group:
        (told,) = group.call("describe")
        (worker,) = group.workers
        assert psutil.Process(worker.pid).is_running() and worker.pid != psutil.Process().pid
    assert set(told) >= {"adapters", "strategies", "plugins", "broken"}
    assert not psutil.pid_exists(worker.pid)


#: What strangers send to the supervisor's door while it waits for its worker.
STRANGERS: dict[str, bytes] = {
    "no token": b'{"hello": 2, "role": "worker", "rank": 0, "pid": 1}\n',
    "wrong token": b'{"hello": 2, "token": "00", "role": "worker", "rank": 0, "pid": 1}\n',
    "unicode token": '{"hello": 2, "token": "ü", "role": "worker", "rank": 0}\n'.encode(),
    "no rank": b'{"hello": 2, "token": null, "role": "worker", "rank": null}\n',
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "nothing": b"",
    "binary": bytes(range(256)),
    "no end of a line": b" " * 6000,
}


@pytest.mark.parametrize("content", STRANGERS.values(), ids=list(STRANGERS))
def test_strangers_are_turned_away(tmp_path: Path, content: bytes) -> None:
    group = Group(launch(tmp_path))
    try:
        with socket.create_connection(group._doors[0].getsockname()) as stranger:
            stranger.sendall(content)
            stranger.shutdown(socket.SHUT_WR)
            alone = {"role": "worker", "rank": 0, "environment": {}}
            group.start({"processes": [alone], "launcher": []})
            stranger.settimeout(10)
            assert stranger.recv(1) == b""
        assert len(group.workers) == 1 and group.call("describe")
    finally:
        group.close()


#: What a worker's script sets, names of folders in the path, and the door by which the worker then comes.
DOORS: dict[str, tuple[str, str, socket.AddressFamily]] = {
    "private": ("", "short", socket.AF_UNIX),
    "a long path": ("", "x" * 120, socket.AF_INET),
    "another file system": ("DLB_SOCKET=/nowhere", "short", socket.AF_INET),
    "an older dlb-worker": ("unset DLB_SOCKET;", "short", socket.AF_INET),
}


@pytest.mark.parametrize(("sets", "name", "family"), DOORS.values(), ids=list(DOORS))
def test_the_door_by_which_a_worker_comes(
    tmp_path: Path, sets: str, name: str, family: socket.AddressFamily
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n{sets} "{sys.executable}" "$@"\n:\n')
    python.chmod(0o755)
    with worker_group(launch(folder, str(python))) as group:
        (worker,) = group.workers
        assert worker.connection is not None and worker.connection.family == family
        assert worker.own is not None and worker.pid != worker.process.pid
        assert group.call("describe")


ALONE = {"processes": [{"role": "worker", "rank": 0, "environment": {}}], "launcher": []}


def test_a_stranger_that_speaks_slowly_holds_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those that say nothing, nor one that says a little all the time; each has one deadline."""
    monkeypatch.setattr(callers, "HELLO_SECONDS", 1.0)
    group, over = Group(launch(tmp_path)), threading.Event()
    address = group._doors[0].getsockname()

    def drip() -> None:
        with socket.create_connection(address) as stranger, contextlib.suppress(OSError):
            while not over.wait(0.05):
                stranger.sendall(b" ")
            return
        over.set()

    dripping = threading.Thread(target=drip)
    with contextlib.ExitStack() as stack:
        stack.callback(group.close)
        for _ in range(100):
            stack.enter_context(socket.create_connection(address))
        dripping.start()
        began = time.monotonic()
        group.start(ALONE)
        assert time.monotonic() - began < 20 and group.call("describe")
    over.set()
    dripping.join()


def test_a_caller_has_one_deadline_for_all_that_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "HELLO_SECONDS", 0.3)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        callers.Callers([listener]) as heard,
        socket.create_connection(listener.getsockname()) as stranger,
    ):
        began = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - began < 10:
                stranger.sendall(b" ")
                assert not list(heard.hear(0.05))
        assert time.monotonic() - began < 3


def test_what_follows_the_hello_is_not_lost() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        callers.Callers([listener]) as heard,
        socket.create_connection(listener.getsockname()) as worker,
    ):
        worker.sendall(b"hello\nmore\n")
        connection, line = next(iter(said for _ in range(20) for said in heard.hear(0.5)))
        with connection:
            assert line == b"hello\n" and connection.recv(100) == b"more\n"


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that dlb did not start."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("number", [0, -1, 1, None], ids=["zero", "negative", "init", "stranger"])
def test_only_processes_that_were_started_are_ended(
    tmp_path: Path, stranger: subprocess.Popen[bytes], number: int | None
) -> None:
    """A worker in a PID namespace names itself 1; whom it names here, it does not mean."""
    named = stranger.pid if number is None else number
    program = f"import os, runpy; os.getpid = lambda: {named}; runpy.run_module('dlb_worker', None, '__main__')"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{program}"\n')
    python.chmod(0o755)
    with worker_group(launch(tmp_path, str(python))) as group:
        assert group.call("describe")
        (worker,) = group.workers
        assert group.processes() == [worker.process.pid] == [worker.pid]
    assert stranger.poll() is None


def test_a_program_that_a_script_starts_is_ended_with_it(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n"{sys.executable}" "$@"\n:\n')
    python.chmod(0o755)
    with worker_group(launch(tmp_path, str(python))) as group:
        (worker,) = group.workers
        assert worker.pid != worker.process.pid and worker.pid in group.processes()
    assert not psutil.pid_exists(worker.pid)


def test_a_process_group_of_its_own_does_not_escape(tmp_path: Path) -> None:
    """The session's leader has ended; job control has put its child in another process group."""
    shell = ["sh", "-mc", "sleep 3600 & echo $!"]
    started = processes.spawn(shell, {"PATH": "/usr/bin:/bin"}, tmp_path, tmp_path / "log")
    started.wait(10)
    child = psutil.Process(int((tmp_path / "log").read_text().split()[-1]))
    processes.end_all([started])
    _, alive = psutil.wait_procs([child], timeout=10)
    assert alive == []


#: What a daemon becomes: a process that leaves session, parents and, in the second, its environment.
DAEMONS = {
    "forks": "time.sleep(600)",
    "another program": "os.execve('/bin/sleep', ['sleep', '600'], {})",
}


@pytest.mark.parametrize("becomes", DAEMONS.values(), ids=list(DAEMONS))
def test_daemons_of_a_worker_are_ended_with_it(tmp_path: Path, becomes: str) -> None:
    program = f"""
import os, runpy, time
from dlb_worker.__main__ import end_with_parent
end_with_parent()
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    open("daemon", "w").write(str(os.getpid()))
    {becomes}
os.wait()
runpy.run_module("dlb_worker", None, "__main__")
"""
    (tmp_path / "program.py").write_text(program)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/program.py"\n')
    python.chmod(0o755)
    with worker_group(launch(tmp_path, str(python))) as group:
        assert group.call("describe")
        assert not is_over(int((tmp_path / "daemon").read_text()))
    assert is_over(int((tmp_path / "daemon").read_text()))


def is_over(number: int) -> bool:
    """Whether a process has ended, be it that nobody has waited for it yet."""
    try:
        return psutil.Process(number).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_daemons_are_ended_if_dlb_is_killed(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nsetsid sh -c "sleep 600 & echo \\$! > daemon"\nexec "{sys.executable}" -m dlb_worker\n'
    )
    python.chmod(0o755)
    program = f"""
import os, signal
from pathlib import Path
from dlb.supervision.group import Launch, worker_group
with worker_group(Launch("example", Path("{python}"), Path("{tmp_path}"))):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60)
    assert done.returncode == -signal.SIGKILL
    daemon, deadline = int((tmp_path / "daemon").read_text()), time.monotonic() + 30
    while not is_over(daemon) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert is_over(daemon)


def test_daemons_of_a_worker_that_died_are_ended(tmp_path: Path) -> None:
    shell = "setsid sh -c 'sleep 600 & echo $! > daemon'; kill -9 $$"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{shell}\n")
    python.chmod(0o755)
    with pytest.raises(WorkerDied, match="SIGKILL"), worker_group(launch(tmp_path, str(python))):
        pass
    assert is_over(int((tmp_path / "daemon").read_text()))


def test_a_number_that_is_used_again_is_not_ended(stranger: subprocess.Popen[bytes]) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    ended.pid = stranger.pid
    processes.end_all([ended])
    assert stranger.poll() is None


#: Answers, and what is said of them.
WRONG_ANSWERS: list[tuple[str, Any, str]] = [
    ("start", None, "its 'result' is not an object"),
    ("start", {"framework": 5, "version": "1"}, "Expected `str`, got `int` - at `$.framework`"),
    ("start", {"framework": "x"}, "missing required field `version`"),
    ("start", {"framework": "x", "version": "1", "x": 10**30}, "more than 64 bits"),
    ("start", {"framework": "x", "version": "1", "x": "y" * (1 << 20)}, "larger than 1048576"),
    ("describe", {}, "missing required field `adapters`"),
    ("describe", {"adapters": [{"name": "x", "layers": 3}]}, "adapters[0].layers"),
    ("describe", {"adapters": [], "broken": ["x"]}, "broken[0]"),
    ("build", {}, "missing required field `model`"),
    ("build", {"model": 1, "layers": {"fc": 5}}, "layers"),
    ("load", {"model": 1, "layers": []}, "missing required field `parameters`"),
    ("load", {"model": 1, "layers": [5], "parameters": []}, "layers[0]"),
    ("forward", {"outputs": [], "calls": [{"layer": "x"}]}, "calls[0]"),
    (
        "forward",
        {"outputs": [], "calls": [{"layer": "x", "inputs": 0, "output": 0, "dropout": {"of": 1}}]},
        "calls[0].dropout",
    ),
    ("begin_training", {"clock": "now"}, "clock"),
    ("end_training", {}, "missing required field"),
    ("audit_step", {"read_before": "x"}, "read_before"),
    ("predict", {"seconds": math.nan}, ">= 0.0"),
    ("predict", {"seconds": -1}, ">= 0.0"),
    ("plan", {"processes": [{"role": "worker"}]}, "processes[0]"),
    ("drop", [], "its 'result' is not an object"),
]


@pytest.mark.parametrize(("call", "result", "says"), WRONG_ANSWERS)
def test_a_wrong_answer_is_one_line(call: str, result: Any, says: str) -> None:
    with pytest.raises(WorkerError) as raised:
        check_result(call, result, "example")
    line = str(raised.value)
    assert says in line and f"example: its worker's answer to '{call}' breaks" in line


def test_a_text_that_documents_cannot_hold_is_replaced() -> None:
    result = {"framework": "x\ud800", "version": "1"}
    assert check_result("start", result, "example") == {"framework": "x?", "version": "1"}


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise SystemExit(7)", "ended with exit status 7"),
        ("import os; os.abort()", "was killed by SIGABRT"),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        ("print('last words'); raise SystemExit(1)", "it last said: last words"),
    ],
)
def test_a_worker_that_never_comes(tmp_path: Path, code: str, says: str) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}"\n')
    python.chmod(0o755)
    with pytest.raises(WorkerDied, match=says), worker_group(launch(tmp_path, str(python))):
        pass


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    with (
        pytest.raises(WorkerDied, match="cannot start /nowhere/python"),
        worker_group(launch(tmp_path, "/nowhere/python")),
    ):
        pass


def test_several_workers_need_a_strategy(tmp_path: Path) -> None:
    with (
        pytest.raises(RequestError, match="dlb list strategies"),
        worker_group(launch(tmp_path, workers=2)),
    ):
        pass


def test_a_stopped_worker_is_noticed(tmp_path: Path) -> None:
    with worker_group(launch(tmp_path)) as group:
        process = psutil.Process(group.workers[0].pid)
        process.suspend()
        began = time.monotonic()
        with pytest.raises(WorkerHung, match="was stopped by a signal"):
            group.call("describe")
        assert time.monotonic() - began < 5
    assert not process.is_running()


def test_signs_of_life_do_not_hide_a_hang(tmp_path: Path) -> None:
    """Not even so many that there is never a pause between them."""
    with worker_group(launch(tmp_path, call_seconds=1.0)) as group:
        (worker,) = group.workers
        over = threading.Event()

        def chatter() -> None:
            while not over.wait(0.01):
                group._events.put((worker, {"event": "alive"}))

        chatting = threading.Thread(target=chatter)
        chatting.start()
        try:
            with pytest.raises(WorkerHung, match="made no progress in 'nothing' for 1 s"):
                group._collect("nothing", {10**6: worker}, None)
        finally:
            over.set()
            chatting.join()


def test_a_late_answer_is_not_taken_for_another(tmp_path: Path) -> None:
    with worker_group(launch(tmp_path)) as group:
        (worker,) = group.workers
        group._send(worker, "leave", {})
        (told,) = group.call("describe")
        assert "adapters" in told


def test_what_a_dead_worker_had_started_is_ended_too(tmp_path: Path) -> None:
    shell = ["sh", "-c", "sleep 3600 & echo $!"]
    started = processes.spawn(shell, {"PATH": "/usr/bin:/bin"}, tmp_path, tmp_path / "log")
    started.wait(10)
    child = psutil.Process(int((tmp_path / "log").read_text()))
    processes.end_all([started])
    _, alive = psutil.wait_procs([child], timeout=10)
    assert alive == []


@pytest.mark.parametrize(
    ("returncode", "words"),
    [
        (0, "ended with exit status 0"),
        (3, "ended with exit status 3"),
        (-9, "was killed by SIGKILL (out of memory, or killed by hand)"),
        (-11, "was killed by SIGSEGV"),
        (-99, "was killed by signal 99"),
        (None, "ended"),
    ],
)
def test_ends_in_words(returncode: int | None, words: str) -> None:
    assert processes.how_it_ended(returncode) == words


def test_free_ports_are_free(tmp_path: Path) -> None:
    with processes.free_ports(8, "127.0.0.1") as ports:
        assert len(set(ports)) == 8
        for port in ports:
            socket.create_server(("127.0.0.1", port)).close()


def test_ports_are_held_until_they_are_needed_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what another process of dlb sees, and not by what listens."""
    host, wanted = "127.0.0.1", itertools.cycle(range(23_000, 23_008))
    monkeypatch.setattr(random.SystemRandom, "randrange", lambda *within: next(wanted))
    with processes.free_ports(3, host) as first, processes.free_ports(3, host) as second:
        assert not {*first} & {*second}
    with socket.create_server((host, first[0])), processes.free_ports(6, host) as third:
        assert first[0] not in third and first[1] in third


def test_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff first\n" * 5000 + b"\n\n  second   last\n\nlast\n")
    assert processes.last_lines(log, 2) == "second last | last"
    assert processes.last_lines(tmp_path / "none") == ""
