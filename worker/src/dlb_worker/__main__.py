"""``python -m dlb_worker``: connect to the supervisor and answer its calls until it hangs up.

``python -m dlb_worker -`` takes its variables from the standard input: :func:`take_variables`.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Dict, Iterator, List

from dlb_worker import protocol
from dlb_worker.errors import DlbError, UnsupportedError, one_line

ALIVE_SECONDS = 1.0


class Connection:
    """The line to the supervisor. Sending is safe from any thread."""

    def __init__(self, role: str, rank: int) -> None:
        self._socket = protocol.connect()
        self._stream = self._socket.makefile("rb")
        self._lock = threading.Lock()
        #: Where files are that came by the line, and under what names; "" if both sides share a folder.
        self.folder = (
            tempfile.mkdtemp(prefix="dlb-carried-") if os.environ.get("DLB_CARRIED") else ""
        )
        self._files: Dict[str, str] = {}
        self.send(
            hello=protocol.PROTOCOL,
            token=os.environ.pop("DLB_TOKEN"),
            role=role,
            rank=rank,
            pid=os.getpid(),
            carried=bool(self.folder),
        )

    def send(self, **message: Any) -> None:
        with self._lock:
            self._socket.sendall(protocol.pack(message))

    def receive(self) -> Iterator[Dict[str, Any]]:
        """Messages until the supervisor hangs up; files are kept."""
        for message in protocol.messages(self._stream):
            if "file" in message and self.folder:
                path = self._path(message["file"])
                for _ in protocol.receive_file(self._stream, message, path):
                    pass
            else:
                yield message

    def _path(self, name: str) -> str:
        """Our own file for one of the supervisor's."""
        own = Path(self.folder, str(len(self._files))).with_suffix(Path(name).suffix)
        return self._files.setdefault(name, str(own))

    def own_files(self, arguments: Dict[str, Any]) -> Dict[str, Any]:
        """The arguments of a call with our own files in them."""

        changed = dict(arguments)
        for name in (*protocol.FILES_READ, protocol.FILE_WRITTEN) if self.folder else ():
            own = [self._path(each) for each in protocol.names_in(arguments.get(name))]
            if own:
                changed[name] = own if isinstance(arguments[name], list) else own[0]
        return changed

    def hand_over(self, arguments: Dict[str, Any]) -> None:
        """After a call: send the file that it has written, and remove all that were for it."""
        for name, path in self._files.items():
            if name == arguments.get(protocol.FILE_WRITTEN) and Path(path).is_file():
                with self._lock:
                    protocol.send_file(self._socket, name, path)
            with contextlib.suppress(OSError):  # what is mapped stays readable
                Path(path).unlink()
        self._files.clear()

    def leave(self) -> None:
        """End this process. Of what came by the line nothing stays."""
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        # Interpreter shutdown can hang in a framework's own atexit.
        os._exit(0)


def main() -> None:
    if sys.argv[1:] == ["-"]:
        take_variables()
    end_with_parent()
    # The supervisor decides when a run ends; a Ctrl-C at the terminal reaches it, not us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    role, rank = os.environ.get("DLB_ROLE", "worker"), find_rank()
    connection = Connection(role, rank)
    calls: List[Dict[str, Any]] = []
    arrived = threading.Condition()

    def listen() -> None:
        try:
            for message in connection.receive():
                with arrived:
                    calls.append(message)
                    arrived.notify()
        finally:
            # Whatever the framework is doing, nobody waits for it any more.
            connection.leave()

    def stay_alive() -> None:
        while True:
            time.sleep(ALIVE_SECONDS)
            try:
                connection.send(event="alive")
            except OSError:
                connection.leave()

    threading.Thread(target=listen, daemon=True).start()
    threading.Thread(target=stay_alive, daemon=True).start()

    # Imported late: the supervisor should hear from us before anything slow happens.
    from dlb_worker.calls import Calls

    answers = Calls(rank, lambda **event: connection.send(event="progress", **event))
    while True:
        with arrived:
            while not calls:
                arrived.wait()
            message = calls.pop(0)
        if message["call"] == "end":
            connection.send(id=message["id"], result={})
            sys.stdout.flush()
            sys.stderr.flush()
            connection.leave()
        arguments = message.get("arguments", {})
        message["arguments"] = connection.own_files(arguments)
        answered = answer(answers, message)
        connection.hand_over(arguments)
        connection.send(id=message["id"], **answered)


def take_variables() -> None:
    """Begin again with the environment variables that the first line of the standard input has, in JSON.

    A command such as ssh passes on no environment, and what it passes on is seen in lists of processes.
    """
    line = sys.stdin.readline()
    if line:
        os.chdir("/")  # modules in a user's own folder would hide packages
        variables = dict(os.environ, **json.loads(line))
        os.execve(sys.executable, [sys.executable, "-m", "dlb_worker"], variables)
    if "DLB_TOKEN" not in os.environ:
        sys.exit("the standard input is empty; the command of a --host must pass it on")


def answer(answers: Any, message: Dict[str, Any]) -> Dict[str, Any]:
    """Carry out one call: ``result``, or ``error`` with its kind."""
    try:
        return {"result": answers.answer(message["call"], message.get("arguments", {}))}
    except UnsupportedError as error:
        return {"error": {"kind": "unsupported", "message": str(error), "traceback": ""}}
    except DlbError as error:
        return {"error": {"kind": "dlb", "message": str(error), "traceback": ""}}
    # A framework may raise anything; the supervisor turns it into one line. SIGINT is ignored, so an interrupt
    # is the framework's own.
    except BaseException as error:
        trace = traceback.format_exc()
        # Where the disk is full, the error says so; the output is on the same disk.
        with contextlib.suppress(OSError):
            print(trace, file=sys.stderr, flush=True)
        return {"error": {"kind": "raised", "message": one_line(error), "traceback": trace}}


def find_rank() -> int:
    """Our rank: from the supervisor, or from the launcher in a variable that it named."""
    for name in os.environ.get("DLB_RANK_VARIABLES", "DLB_RANK").split(","):
        if name in os.environ:
            return int(os.environ[name])
    return 0


def end_with_parent() -> None:
    """Ask Linux to end this process when the one that started it ends, however it ends.

    Daemons that this process starts become its children, so that whoever ends it finds them.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    set_parent_death_signal, set_child_subreaper = 1, 36
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(set_parent_death_signal, signal.SIGKILL)
    libc.prctl(set_child_subreaper, 1)


if __name__ == "__main__":
    main()
