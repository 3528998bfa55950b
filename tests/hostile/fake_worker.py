"""dlb-worker with one thing altered: what a worker of another program, or a hostile one, may say or write.

    python fake_worker.py NAME -m dlb_worker

It is the example adapter under the name NAME. ``DLB_FAULT`` has words ``NAME=MODE``; :data:`MODES` has what a
mode alters, and what dlb says of it. A mode that is a number is the seed of a :func:`mutation`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import struct
import sys
import time
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from dlb_worker import __main__ as worker
from dlb_worker import protocol

__all__ = ["BAD", "MODES", "PASSED"]

Json = dict[str, Any]
Arrays = dict[str, np.ndarray]
Alteration = Callable[[], None]

#: What would harm a terminal, a page, a spreadsheet or a document, if it were printed as it is.
BAD = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31m<script>alert(1)</script>=cmd|' /C calc'!A0 | `y` \\input{x} "
    "\u202e \x00 \r end"
)
CSV = "=cmd|' /C calc'!A0"
#: In place of what dlb says: the run has no failure, and no check of it failed.
PASSED = "(nothing)"

true_answer, true_send, true_init = (
    worker.answer,
    worker.Connection.send,
    worker.Connection.__init__,
)
#: The call of each number that has come.
called: dict[int, str] = {}
connections: list[Any] = []


def remember_connection(self: Any, *arguments: Any) -> None:
    connections.append(self)
    true_init(self, *arguments)


def raw(data: bytes) -> None:
    """Send bytes as they are."""
    with connections[0]._lock:
        connections[0]._socket.sendall(data)


# --- what is altered --------------------------------------------------------------------------------


def hello(**changes: Any) -> Alteration:
    """Other fields in the hello; those that are ``...`` are left out."""

    def send(self: Any, **message: Any) -> None:
        if "hello" in message:
            message = {k: v for k, v in {**message, **changes}.items() if v is not ...}
        true_send(self, **message)

    return lambda: setattr(worker.Connection, "send", send)


def hello_bytes(data: bytes) -> Alteration:
    """These bytes in place of the hello."""

    def send(self: Any, **message: Any) -> None:
        if "hello" in message:
            raw(data)
        else:
            true_send(self, **message)

    return lambda: setattr(worker.Connection, "send", send)


def answer(call: str, change: Callable[[Json, Json], Json | None]) -> Alteration:
    """Another answer to a call: a function of the answer, which it may change, and of the message."""

    def altered(answers: Any, message: Json) -> Json:
        found = true_answer(answers, message)
        if message["call"] != call:
            return found
        return change(found, message) or found

    return lambda: setattr(worker, "answer", altered)


def result(call: str, **changes: Any) -> Alteration:
    """Other fields in the result of a call."""
    return answer(call, lambda found, message: found["result"].update(changes))


def file(call: str, write: Callable[[Path], Any], replace: bool = True) -> Alteration:
    """Another file than the one that a call writes."""

    def change(found: Json, message: Json) -> None:
        path = Path(message["arguments"]["to"])
        if replace:
            path.unlink(missing_ok=True)
        write(path)

    return answer(call, change)


def arrays(call: str, change: Callable[[Arrays], Any]) -> Alteration:
    """Other arrays in the file that a call writes."""

    def write(path: Path) -> None:
        with np.load(path) as stored:
            changed = dict(stored)
        change(changed)
        save(**changed)(path)

    return file(call, write, replace=False)


def lines(call: str, pieces: Callable[[int], Iterable[bytes]]) -> Alteration:
    """Bytes in place of the line that answers a call: a function of its number."""

    def send(self: Any, **message: Any) -> None:
        if called.get(message.get("id", 0)) != call:
            return true_send(self, **message)
        with self._lock:  # nothing comes between the pieces
            for piece in pieces(message["id"]):
                self._socket.sendall(piece)

    return lambda: setattr(worker.Connection, "send", send)


def line(call: str, text: str) -> Alteration:
    """A text in place of the line that answers a call, with its number for %d."""
    return lines(call, lambda number: [text.replace("%d", str(number)).encode() + b"\n"])


def before(call: str, piece: bytes, count: int = 1) -> Alteration:
    """Bytes before a call is answered."""

    def altered(answers: Any, message: Json) -> Json:
        if message["call"] == call:
            for _ in range(count):
                raw(piece)
        return true_answer(answers, message)

    return lambda: setattr(worker, "answer", altered)


def at(call: str, do: Callable[[], Any]) -> Alteration:
    """Something that is done before a call is answered."""

    def altered(answers: Any, message: Json) -> Json:
        if message["call"] == call:
            do()
        return true_answer(answers, message)

    return lambda: setattr(worker, "answer", altered)


# --- files that are no arrays -----------------------------------------------------------------------


def save(**named: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as stream:
            np.savez(stream, **named)

    return write


def npy(header: str, data: bytes = b"") -> bytes:
    encoded = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(encoded)) + encoded + data


def zipped(content: bytes, name: str = "fc.weight.npy") -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, content)

    return write


def array_of(descr: str, shape: str, data: bytes = b"\0" * 64) -> Callable[[Path], None]:
    """A file with an array that claims to be of a type and a shape."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    return zipped(npy(header, data))


def bomb(path: Path) -> None:
    """6 GB of zeros in 6 MB."""
    size = 6 << 30
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("fc.weight.npy", "w", force_zip64=True) as stream:
            shape = f"({size // 8},)"
            stream.write(npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}"))
            # What the directory says is all that is looked at: the data end sooner.
            stream.write(b"\0" * (1 << 20))
    content = bytearray(path.read_bytes())
    entry = content.rfind(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", (1 << 32) - 2)
    path.write_bytes(content)


def other_header(place: int, value: int) -> Callable[[Path], None]:
    """Set a byte of the zip's local header, and the same in its directory, two bytes later."""

    def write(path: Path) -> None:
        array_of("'<f8'", "(1,)", b"\0" * 8)(path)
        content = bytearray(path.read_bytes())
        content[place] = content[content.find(b"PK\x01\x02") + place + 2] = value
        path.write_bytes(content)

    return write


def bad_deflate(path: Path) -> None:
    noise = random.Random(0).randbytes(8000)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000,), }"
        archive.writestr("fc.weight.npy", npy(header, noise))
    content = bytearray(path.read_bytes())
    content[60:3000] = noise[:2940]
    path.write_bytes(content)


def many_members(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(20_000):
            archive.writestr(f"{number}.npy", b"")


def truncate(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def grows(path: Path) -> None:
    """A file that is there, and a process that never stops to write to it."""
    path.write_bytes(b"")
    if not os.fork():
        with path.open("ab") as stream:
            while True:
                stream.write(b"x" * (1 << 16))
                time.sleep(0.01)


# --- processes --------------------------------------------------------------------------------------


def daemon() -> None:
    """Start a process as daemons start: no descendant of ours, in a session of its own."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 256)
    signal.pause()
    os._exit(0)


def another_connection() -> None:
    """Nobody listens after the workers have arrived.

    Raises:
        RuntimeError: somebody does.
    """
    with socket.socket() as again:
        if again.connect_ex(protocol.supervisor_address()) == 0:
            raise RuntimeError("somebody listens")


def hang_up() -> None:
    connections[0]._socket.shutdown(socket.SHUT_RDWR)


# --- modes ------------------------------------------------------------------------------------------

WEIGHT = "fc.weight"
STARTED = '"framework": "x", "version": "1"'


def weights(change: Callable[[Any], Any]) -> Alteration:
    return arrays("weights", lambda a: a.update({WEIGHT: change(a[WEIGHT])}))


def steps(**changes: Callable[[Any], Any]) -> Alteration:
    """Other times or losses of the steps."""
    return arrays("end_training", lambda a: a.update({k: f(a[k]) for k, f in changes.items()}))


MODES: dict[str, tuple[Alteration, str]] = {
    "ok": (lambda: None, PASSED),
    # The hello.
    "token-wrong": (hello(token="0" * 32), "worker 0 ended with exit status 0"),
    "token-missing": (hello(token=...), "worker 0 ended with exit status 0"),
    "token-list": (hello(token=["a"]), "worker 0 ended with exit status 0"),
    "token-surrogate": (hello(token="\ud800"), "worker 0 ended with exit status 0"),
    "hello-garbage": (
        hello_bytes(random.Random(1).randbytes(5000) + b"\n"),
        "worker 0 ended with exit status 0",
    ),
    "hello-array": (hello_bytes(b"[1,2]\n"), "worker 0 ended with exit status 0"),
    "hello-deep": (hello_bytes(b"[" * 4000 + b"\n"), "worker 0 ended with exit status 0"),
    "hello-bigint": (
        hello_bytes(b'{"hello":' + b"9" * 4000 + b"}\n"),
        "worker 0 ended with exit status 0",
    ),
    "version-missing": (hello(hello=...), "missing required field `hello`"),
    "version-text": (hello(hello=BAD), "at `$.hello`"),
    "version-3": (hello(hello=3), "speaks protocol 3, this dlb 2"),
    "pid-text": (hello(pid="abc"), "at `$.pid`"),
    "pid-missing": (hello(pid=...), "missing required field `pid`"),
    "pid-negative": (hello(pid=-1), PASSED),
    "pid-zero": (hello(pid=0), PASSED),
    "pid-huge": (hello(pid=10**30), "an integer has more than 64 bits"),
    "pid-of-dlb": (hello(pid=os.getppid()), PASSED),
    "rank-text": (hello(rank="x"), "at `$.rank`"),
    "rank-infinite": (hello(rank=float("inf")), "at `$.rank`"),
    "rank-5": (hello(rank=5), "worker 0 ended with exit status 0"),
    "role-list": (hello(role=["worker"]), "at `$.role`"),
    "role-other": (hello(role="scheduler"), "worker 0 ended with exit status 0"),
    # Lines.
    "line-200mb": (
        lines("start", lambda _: (b"x" * (1 << 20) for _ in range(200))),
        "no message: a line of more than 67108864 bytes",
    ),
    "line-20mb": (before("start", b'{"event":"' + b"x" * 20_000_000 + b'"}\n', 2), PASSED),
    "line-unfinished": (
        lines("start", lambda i: [b'{"id": %d' % i]),
        "no message: Expecting ',' delimiter",
    ),
    "line-deep": (
        line("start", '{"id": %d, "result": ' + "[" * 100000 + "]" * 100000 + "}"),
        "no message: a message nested too deep",
    ),
    "line-900-deep": (
        line("start", '{"id": %d, "result": {"build": ' + '{"a":' * 900 + "1" + "}" * 902),
        "nested more than 200 deep",
    ),
    "line-latin1": (
        lines("start", lambda i: [b'{"id": %d, "result": "\xff\xfe"}\n' % i]),
        "no message: 'utf-8' codec",
    ),
    "file-unasked": (
        line("start", '{"file": "/etc/dlb-was-here", "bytes": 0}'),
        "no message: a file that was not asked for",
    ),
    "line-text": (line("start", "hello there"), "no message: Expecting value"),
    "line-empty": (line("start", "no message: Expecting value"), "no message: Expecting value"),
    "line-bytewise": (
        lines(
            "start",
            lambda i: [
                bytes([each])
                for each in b'{"event":"alive"}\n{"event":"alive"}\n'
                + b'{"id": %d, "result": {"framework": "x", "version": "1"}}\n' % i
            ],
        ),
        PASSED,
    ),
    "keys-twice": (
        line("start", '{"id": 77, "id": %d, "result": 1, "result": {' + STARTED + "}}"),
        PASSED,
    ),
    "id-list": (
        line("start", '{"id": [1], "result": {}}'),
        "answered 'start' without the number of the call",
    ),
    "id-object": (
        line("start", '{"id": {}, "result": {}}'),
        "answered 'start' without the number of the call",
    ),
    "id-other": (
        line("start", '{"id": 999999, "result": {}}'),
        "made no progress in 'start' for 3 s",
    ),
    "id-text": (
        line("start", '{"id": "%d", "result": {}}'),
        "answered 'start' without the number of the call",
    ),
    "id-real": (
        line("start", '{"id": %d.0, "result": {}}'),
        "answered 'start' without the number of the call",
    ),
    "result-missing": (line("start", '{"id": %d}'), "its 'result' is not an object"),
    "result-null": (line("start", '{"id": %d, "result": null}'), "its 'result' is not an object"),
    "result-number": (line("start", '{"id": %d, "result": 5}'), "its 'result' is not an object"),
    "result-list": (line("build", '{"id": %d, "result": []}'), "its 'result' is not an object"),
    "result-empty": (line("build", '{"id": %d, "result": {}}'), "missing required field `model`"),
    "error-text": (
        line("start", '{"id": %d, "error": "bad"}'),
        "error in 'start' breaks the protocol",
    ),
    "error-null": (
        line("start", '{"id": %d, "error": null}'),
        "error in 'start' breaks the protocol",
    ),
    "error-empty": (line("start", '{"id": %d, "error": {}}'), "missing required field `kind`"),
    "error-types": (
        line("start", '{"id": %d, "error": {"kind": {}, "message": [1], "traceback": 3}}'),
        "at `$.kind`",
    ),
    "error-number": (
        line("start", '{"id": %d, "error": {"kind": "unsupported", "message": 5}}'),
        "at `$.message`",
    ),
    "error-text-bad": (
        answer("start", lambda a, m: {"error": {"kind": "unsupported", "message": BAD + "\n2\n3"}}),
        "alert(1)",
    ),
    "error-long": (
        answer("start", lambda a, m: {"error": {"kind": "dlb", "message": "x" * 10**6}}),
        "xxx ...",
    ),
    "error-raised-bad": (
        answer(
            "build",
            lambda a, m: {"error": {"kind": "raised", "message": BAD, "traceback": BAD * 1000}},
        ),
        "alert(1)",
    ),
    "answer-early": (
        before("start", b'{"id": 3, "result": {"model": 1}}\n{"id": 4, "result": {}}\n'),
        PASSED,
    ),
    "answer-twice": (
        line("start", ('{"id": %d, "result": {' + STARTED + "}}\n") * 2),
        "no message: Expecting value",
    ),
    # Events.
    "progress-odd": (
        before(
            "train_steps", protocol.pack({"event": "progress", "step": BAD, "loss": {"a": BAD}})
        ),
        PASSED,
    ),
    "progress-empty": (before("train_steps", b'{"event": "progress"}\n'), PASSED),
    "progress-numbers": (
        before(
            "train_steps",
            b'{"event":"progress","step":NaN,"loss":Infinity}\n'
            b'{"event":"progress","step":1e308,"loss":-1e308}\n'
            b'{"event":"progress","step":-5,"loss":null}\n',
        ),
        PASSED,
    ),
    "progress-flood": (
        before("train_steps", b'{"event":"progress","step":1,"loss":0.5}\n' * 1000, 50),
        PASSED,
    ),
    "event-list": (before("train_steps", b'{"event":["progress"],"id":null,"error":{}}\n'), PASSED),
    # What it says about itself.
    "describe-empty": (
        answer("describe", lambda a, m: {"result": {}}),
        "missing required field `adapters`",
    ),
    "describe-null": (
        result("describe", adapters=None, strategies=5, plugins={}),
        "at `$.adapters`",
    ),
    "describe-types": (
        result("describe", adapters=[{"name": "fake", "layers": 3, "optimizers": "sgd"}]),
        "at `$.adapters[0].layers`",
    ),
    "describe-bad": (
        answer(
            "describe",
            lambda a, m: a["result"]["adapters"][0].update(
                title=BAD, framework_version=BAD, exporter=BAD, deviations=[BAD]
            ),
        ),
        PASSED,
    ),
    "describe-broken": (
        result("describe", adapters=[], broken=[{"reason": BAD}, 5, {}]),
        "at `$.broken[1]`",
    ),
    "describe-proof": (result("describe", proven=True, certificate={"proof": "proven"}), PASSED),
    "start-bad": (
        result(
            "start",
            framework=BAD,
            version=BAD,
            build={BAD: BAD},
            packages={BAD: BAD},
            executable=BAD,
            variables={BAD: BAD},
            libraries=[BAD],
            device=BAD,
            python=BAD,
        ),
        PASSED,
    ),
    "start-csv": (result("start", framework=CSV, version="+1", build={"b": "@SUM(1)"}), PASSED),
    "start-types": (
        result("start", framework=5, version=[1], build=7, threads="many"),
        "at `$.framework`",
    ),
    "start-proof": (result("start", proven=True, proof="proven", certificate="x" * 64), PASSED),
    "start-surrogate": (result("start", framework="\ud800", version="\udfff"), PASSED),
    "start-huge": (
        result("start", build={str(i): "x" * 100 for i in range(200_000)}),
        "larger than 1048576 bytes",
    ),
    "start-bigint": (result("start", threads=10**4000), "an integer has more than 64 bits"),
    # Models.
    "model-object": (answer("build", lambda a, m: {"result": {"model": {"a": 1}}}), "at `$.model`"),
    "layers-bad": (result("build", layers={"fc": BAD, BAD: BAD, "flat": 5}), "at `$.layers[...]`"),
    "weights-fifo": (file("weights", os.mkfifo), "cannot be read: not a file"),
    "weights-zero": (file("weights", link("/dev/zero")), "a link, not a file"),
    "weights-passwd": (file("weights", link("/etc/passwd")), "a link, not a file"),
    "weights-folder": (file("weights", Path.mkdir), "cannot be read: not a file"),
    "weights-missing": (file("weights", lambda path: None), "No such file"),
    "weights-empty": (file("weights", Path.touch), "not a whole .npz file of plain numbers"),
    "weights-truncated": (
        file("weights", truncate, replace=False),
        "not a whole .npz file of plain numbers",
    ),
    "weights-growing": (file("weights", grows), "not a whole .npz file of plain numbers"),
    "weights-socket": (
        file("weights", lambda path: socket.socket(socket.AF_UNIX).bind(str(path))),
        "cannot be read",
    ),
    "weights-pickle": (
        file("weights", save(**{WEIGHT: np.array([{"a": 1}], object), "fc.bias": np.zeros(3)})),
        "Object arrays cannot be loaded",
    ),
    "weights-complex": (
        weights(lambda a: a.astype("complex64")),
        "'fc.weight' is no array of numbers",
    ),
    "weights-structured": (
        weights(lambda a: np.zeros((3, 16), [("a", "f4")])),
        "'fc.weight' is no array of numbers",
    ),
    "weights-text": (
        weights(lambda a: np.full((3, 16), "x")),
        "'fc.weight' is no array of numbers",
    ),
    "weights-bytes": (
        weights(lambda a: np.full((3, 16), b"\xff")),
        "'fc.weight' is no array of numbers",
    ),
    "weights-void": (
        weights(lambda a: np.zeros((3, 16), "V8")),
        "'fc.weight' is no array of numbers",
    ),
    "weights-nan": (
        weights(lambda a: a * np.nan),
        "weights float64 failed: not the same bits: fc.weight",
    ),
    "weights-whole": (
        weights(lambda a: a.astype(np.int64)),
        "weights float64 failed: not the same bits: fc.weight",
    ),
    "weights-shape": (weights(lambda a: a[:, :5]), "a shape is [3, 5], and should be [3, 16]"),
    "weights-names": (file("weights", save(**{"../../x": np.zeros(3)})), "../../x"),
    "weights-more-names": (
        arrays(
            "weights", lambda a: a.update({"optimizer/" + BAD[:20]: np.zeros(3), "z" * 5000: 1})
        ),
        "weights float64 failed",
    ),
    "weights-bomb": (file("weights", bomb), "at most 1073741824 are read"),
    "weights-1e12": (
        file("weights", array_of("'<f8'", "(1000000000000,)")),
        "Unable to allocate 7.28 TiB",
    ),
    "weights-negative": (file("weights", array_of("'<f8'", "(-5,)")), "negative dimensions"),
    "weights-header": (file("weights", zipped(npy("(" * 9000 + ")" * 9000))), "Header info length"),
    "weights-deflate": (file("weights", bad_deflate), "not a whole .npz file"),
    "weights-encrypted": (file("weights", other_header(6, 1)), "is encrypted"),
    "weights-method": (file("weights", other_header(8, 99)), "not supported"),
    "weights-descr": (
        file("weights", array_of("[('a', ('<f8', (1000000000,)))]", "(3,)")),
        "not a whole .npz",
    ),
    "weights-members": (file("weights", many_members), "not a whole .npz"),
    "forward-missing": (file("forward", save(x=np.zeros(3))), "has no array 'values/0'"),
    "forward-scalar": (
        arrays("forward", lambda a: a.update(dict.fromkeys(a, np.float64(1)))),
        "forward float64 failed",
    ),
    "forward-calls": (
        result("forward", calls=[{"layer": "x", "inputs": None, "output": 99}], outputs=[-1]),
        "has no array 'values/99'",
    ),
    "gradients-text": (
        arrays("gradients", lambda a: a.update(loss=np.array("low"))),
        "'loss' is no array of numbers",
    ),
    "gradients-missing": (
        file("gradients", save(loss=np.float64(1))),
        "gave no gradient of 'fc.weight'",
    ),
    "gradients-vector": (
        arrays("gradients", lambda a: a.update(loss=np.zeros(7))),
        "a 'loss' of [7], not one number",
    ),
    # Training.
    "training-negative": (
        steps(step_seconds=np.negative, data_seconds=np.negative),
        "what no clock can: step 0 took -",
    ),
    "training-nan": (
        steps(**dict.fromkeys(("step_seconds", "untold_seconds"), lambda a: a * np.nan)),
        "holds NaN or infinity",
    ),
    "training-zero": (steps(step_seconds=np.zeros_like), "step 0 took 0 s"),
    "training-1e308": (steps(step_seconds=lambda a: a * 0 + 1e308), "holds more than 1e+09 s"),
    "training-short": (
        steps(step_seconds=lambda a: a[:2]),
        "'step_seconds' of float64 [2]; 5 real numbers",
    ),
    "training-long": (
        arrays("end_training", lambda a: a.update({k: np.tile(v, 100_000) for k, v in a.items()})),
        "of float64 [500000]; 5 real numbers",
    ),
    "training-text": (
        steps(losses=lambda a: np.full(len(a), "x")),
        "'losses' is no array of numbers",
    ),
    "training-missing": (
        file("end_training", save(losses=np.zeros(20))),
        "has no array 'untold_seconds'",
    ),
    "training-fifo": (file("end_training", os.mkfifo), "cannot be read: not a file"),
    "training-facts": (
        result(
            "end_training",
            seconds=-5,
            cpu_seconds="many",
            busy_threads=1e300,
            memory_bytes=-1,
            observed={BAD: {BAD: [BAD]}},
            clock=float("nan"),
        ),
        "at `$.seconds`",
    ),
    "training-no-facts": (
        answer("end_training", lambda a, m: {"result": {}}),
        "missing required field `seconds`",
    ),
    "training-counts": (
        result(
            "end_training",
            seconds=1e308,
            cpu_seconds=1e308,
            busy_threads=10**18,
            memory_bytes=10**30,
        ),
        "an integer has more than 64 bits",
    ),
    "training-observed": (result("end_training", observed={BAD: {BAD: [BAD]}}), PASSED),
    "training-losses-nan": (steps(losses=lambda a: a * np.nan), "audit, losses failed"),
    "clock-text": (result("begin_training", clock="now"), "at `$.clock`"),
    "clock-back": (result("end_training", clock=-1e9), "audit, clock failed"),
    "audit-types": (
        result("audit_step", read_before="x", waited_before=None, masks_unknown=5),
        "at `$.read_before`",
    ),
    "audit-missing": (file("audit_step", save(x=np.zeros(1))), "has no array 'inputs'"),
    "audit-fifo": (file("audit_step", os.mkfifo), "cannot be read: not a file"),
    "audit-text": (
        arrays(
            "audit_step",
            lambda a: a.update(
                {k: np.full(v.shape, "x") for k, v in a.items() if k.startswith("after/")}
            ),
        ),
        "'after/fc.weight' is no array",
    ),
    "predict-nan": (result("predict", seconds=float("nan")), "at `$.seconds`"),
    "predict-text": (result("predict", seconds="fast"), "at `$.seconds`"),
    "predict-missing": (file("predict", save(x=np.zeros(1))), "has no array 'logits'"),
    "predict-rows": (
        arrays("predict", lambda a: a.update(logits=np.zeros((5, 3)))),
        "audit, test failed",
    ),
    # What is exported.
    "export-garbage": (
        file("export", lambda path: path.write_bytes(random.Random(2).randbytes(10_000))),
        "export not run",
    ),
    "export-fifo": (file("export", os.mkfifo), "what was exported cannot be read: not a file"),
    "export-zero": (file("export", link("/dev/zero")), "a link, not a file"),
    "export-missing": (file("export", lambda path: None), "No such file"),
    "export-folder": (file("export", Path.mkdir), "not a file"),
    "export-passwd": (file("export", link("/etc/passwd")), "a link, not a file"),
    "export-facts": (result("export", exporter=5, bytes=-5), "at `$.exporter`"),
    # Processes.
    "daemon": (at("build", daemon), PASSED),
    "connects-again": (at("build", another_connection), PASSED),
    "closes": (at("build", hang_up), "worker 0 ended"),
}


# --- mutations --------------------------------------------------------------------------------------


#: What a worker is asked in a proof; the answer to one of these is changed.
CALLS = (
    "describe", "start", "build", "weights", "forward", "gradients", "set_weights", "train",
    "begin_training", "train_steps", "audit_step", "end_training", "predict", "export", "drop",
    "audit_gradients",
)  # fmt: skip


#: The same in a port. Seeds from this one on change the answer to one of these.
CALLS_OF_PORTS = (
    "describe", "start", "load", "weights", "set_weights", "set_dropout", "forward", "gradients",
    "own_steps", "drop",
)  # fmt: skip
FIRST_OF_PORTS = 1000


def mutation(seed: int) -> Alteration:
    """Change the first answer to some call: bytes of its line, one value in it, or bytes of its file."""
    draw = random.Random(seed)
    calls = CALLS if seed < FIRST_OF_PORTS else CALLS_OF_PORTS
    call, kind = draw.choice(calls), draw.choice(("bytes", "value", "value", "file"))
    if kind == "file":
        return answer(call, lambda found, message: damage_file(draw, message.get("arguments", {})))

    def send(self: Any, **message: Any) -> None:
        if called.get(message.get("id", 0)) != call:
            return true_send(self, **message)
        called.clear()
        changed = replace_one(draw, message) if kind == "value" else message
        data = protocol.pack(changed)
        raw(damage(draw, data) if kind == "bytes" else data)

    return lambda: setattr(worker.Connection, "send", send)


def damage_file(draw: random.Random, arguments: Json) -> None:
    """Damage the file that a call has written, if it is one that writes a file."""
    path = Path(arguments.get("to") or os.devnull)
    if path.is_file():
        path.write_bytes(damage(draw, path.read_bytes()))


ODD: list[Any] = [
    None, True, -1, 0, 5, 2**63, 10**30, 1e308, -0.0, float("nan"), float("inf"), "", "x", BAD,
    "\ud800", "a" * 100_000, [], [1], {}, {"a": 1}, [[[]]], {"": None},
]  # fmt: skip


def damage(draw: random.Random, data: bytes) -> bytes:
    """Some bytes set, left out, doubled or put in."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8))):
        place = draw.randrange(len(changed))
        match draw.randrange(4):
            case 0:
                changed[place] = draw.randrange(256)
            case 1:
                del changed[place : place + draw.randrange(1, 9)]
            case 2:
                changed[place:place] = changed[place : place + draw.randrange(1, 40)]
            case _:
                changed[place:place] = draw.choice((b"\n", b"}", b'"', b"\0", b"[" * 3000))
        if not changed:
            return b"\n"
    return bytes(changed)


def replace_one(draw: random.Random, message: Json) -> Json:
    """One value replaced, removed, or added, anywhere in a message."""
    changed = json.loads(json.dumps(message))
    container: Any = changed
    while True:
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        if not keys:
            break
        key = draw.choice(keys)
        if isinstance(container[key], (dict, list)) and container[key] and draw.random() < 0.75:
            container = container[key]
            continue
        if isinstance(container, dict) and draw.random() < 0.2:
            del container[key]
        else:
            container[key] = draw.choice(ODD)
        break
    return changed


# --- the worker -------------------------------------------------------------------------------------


def named(name: str) -> None:
    """Let the example adapter be called so."""
    altered = worker.answer

    def as_named(answers: Any, message: Json) -> Json:
        called[message["id"]] = message["call"]
        arguments = message.get("arguments", {})
        if "framework" in arguments:
            arguments["framework"] = "example"
        found = altered(answers, message)
        if message["call"] == "describe" and isinstance(found.get("result"), dict):
            for adapter in found["result"].get("adapters") or []:
                if adapter.get("name") == "example":
                    adapter["name"] = name
        return found

    worker.answer = as_named


def main(name: str) -> None:
    modes = dict(word.split("=") for word in os.environ["DLB_FAULT"].split())
    mode = modes.get(name, "ok")
    worker.Connection.__init__ = remember_connection  # type: ignore[method-assign]
    (mutation(int(mode)) if mode.isdigit() else MODES[mode][0])()
    named(name)
    sys.argv = ["dlb_worker"]
    worker.main()


if __name__ == "__main__":
    main(sys.argv[1])
