"""Messages as lines, and a worker process that answers a supervisor."""

import io
import os
import socket
import subprocess
import sys
import threading

import pytest

from dlb_worker import protocol

MESSAGES = [
    {"hello": 2, "token": "t", "role": "worker", "rank": 0, "pid": 1},
    {"id": 1, "result": {"text": "é\n\u2028", "numbers": [1.5, -0.0, 1e300]}},
    {"event": "progress", "loss": float("inf")},
    {},
]


class Trickle(io.RawIOBase):
    """A stream that gives a few bytes at a time."""

    def __init__(self, content):
        self.content = content

    def readable(self):
        return True

    def readinto(self, buffer):
        part, self.content = self.content[:3], self.content[3:]
        buffer[: len(part)] = part
        return len(part)


def test_messages_arrive_as_they_were_sent():
    content = b"".join(protocol.pack(each) for each in MESSAGES)
    assert content.count(b"\n") == len(MESSAGES)
    assert list(protocol.messages(io.BytesIO(content))) == MESSAGES
    assert list(protocol.messages(io.BufferedReader(Trickle(content)))) == MESSAGES


def test_a_message_that_was_cut_off_is_none():
    content = protocol.pack(MESSAGES[0]) + protocol.pack(MESSAGES[1])[:-1]
    assert list(protocol.messages(io.BytesIO(content))) == MESSAGES[:1]


@pytest.mark.parametrize(
    "line", [b"[1]\n", b"3\n", b"nothing\n", b"\xff\n", b"\n", b"[" * 99999 + b"\n"]
)
def test_what_is_no_object_is_refused(line):
    with pytest.raises(ValueError):
        list(protocol.messages(io.BytesIO(line)))


@pytest.mark.parametrize("content", [b"", b"one", b"x" * (protocol.PIECE + 1)])
def test_a_file_travels_between_messages(tmp_path, content):
    (tmp_path / "sent").write_bytes(content)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sending = threading.Thread(
            target=lambda: (
                protocol.send_file(ours, "its name", str(tmp_path / "sent")),
                ours.sendall(protocol.pack({"id": 1})),
            )
        )
        sending.start()
        stream = theirs.makefile("rb")
        messages = protocol.messages(stream)
        announced = next(messages)
        assert announced == {"file": "its name", "bytes": len(content)}
        list(protocol.receive_file(stream, announced, str(tmp_path / "got")))
        assert next(messages) == {"id": 1}
        sending.join()
    assert (tmp_path / "got").read_bytes() == content


@pytest.mark.parametrize("count", [-1, True, None, "4", 5])
def test_a_file_of_another_size_is_refused(tmp_path, count):
    with pytest.raises(ValueError):
        announced = {"file": "name", "bytes": count}
        list(protocol.receive_file(io.BytesIO(b"four"), announced, str(tmp_path / "got")))


def test_the_supervisors_address(monkeypatch):
    monkeypatch.setenv("DLB_SUPERVISOR", "::1:80")
    assert protocol.supervisor_address() == ("::1", 80)


@pytest.fixture(params=["environment", "standard input"])
def worker(request):
    """A worker process and the stream of its messages; it has said hello. Its variables come one of two ways."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        variables = dict(
            DLB_SUPERVISOR=f"127.0.0.1:{listener.getsockname()[1]}",
            DLB_TOKEN="secret",
            DLB_RANK_VARIABLES="NO_SUCH_RANK,LAUNCHED_RANK",
            LAUNCHED_RANK="3",
        )
        command, environment = [sys.executable, "-m", "dlb_worker"], dict(os.environ)
        if request.param == "environment":
            process = subprocess.Popen(command, env=dict(environment, **variables))
        else:
            process = subprocess.Popen(command + ["-"], stdin=subprocess.PIPE, env=environment)
            with process.stdin:
                process.stdin.write(protocol.pack(variables))
        listener.settimeout(60)
        connection, _ = listener.accept()
        with connection:
            messages = protocol.messages(connection.makefile("rb"))
            hello = next(messages)
            assert hello == {
                "hello": protocol.PROTOCOL,
                "token": "secret",
                "role": "worker",
                "rank": 3,
                "pid": process.pid,
                "carried": False,
            }
            yield process, connection, messages
            connection.shutdown(socket.SHUT_RDWR)
        # Whatever it was doing, it ends when the supervisor hangs up.
        assert process.wait(timeout=30) == 0


def ask(worker, number, call, **arguments):
    _, connection, messages = worker
    connection.sendall(protocol.pack({"id": number, "call": call, "arguments": arguments}))
    answer = next(each for each in messages if "id" in each)
    assert answer.pop("id") == number
    return answer


def test_a_worker_answers_and_ends(worker):
    described = ask(worker, 1, "describe")["result"]
    assert sorted(described) == ["adapters", "broken", "plugins", "strategies"]
    assert ask(worker, 2, "end") == {"result": {}}
    assert worker[0].wait(timeout=30) == 0


def test_a_worker_says_what_went_wrong_and_goes_on(worker):
    def error(number, call, **arguments):
        return ask(worker, number, call, **arguments)["error"]

    assert error(1, "dance")["kind"] == "dlb"
    assert "'dance'" in error(2, "dance")["message"]
    raised = error(3, "drop", model=7)
    assert raised["kind"] == "raised" and raised["message"] == "KeyError: 7"
    assert "call_drop" in raised["traceback"]
    unknown = error(
        4, "start", framework="none", threads=1, device="cpu", seed=0, strategy="", workers=1
    )
    assert unknown["kind"] == "dlb" and "unknown adapter 'none'" in unknown["message"]


def test_a_worker_without_variables_says_so():
    done = subprocess.run(
        [sys.executable, "-m", "dlb_worker", "-"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert done.returncode == 1
    assert b"the standard input is empty" in done.stderr and b"Traceback" not in done.stderr


def test_a_worker_ends_when_the_supervisor_hangs_up(worker):
    """The fixture checks it."""
