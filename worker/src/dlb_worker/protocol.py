"""The words that the core and a worker exchange. docs/reference/protocol.md has it for other languages.

A worker is started with ``DLB_SUPERVISOR`` (``host:port``), ``DLB_TOKEN`` and, where there are Unix sockets,
``DLB_SOCKET`` (a path) in its environment. It connects to one of the two.
Both sides write one JSON object a line, UTF-8::

    worker      {"hello": 2, "token": "...", "role": "worker", "rank": 0, "pid": 123}
    core        {"id": 1, "call": "start", "arguments": {...}}
    worker      {"event": "alive"}                               once a second, whatever else it does
    worker      {"event": "progress", "step": 17, "loss": 0.31}  at most some times a second
    worker      {"id": 1, "result": {...}}
            or  {"id": 1, "error": {"kind": "unsupported", "message": "...", "traceback": "..."}}

One call is answered before the next is sent. Arrays travel as .npz files without pickle in a folder
that the core names. When the connection closes, the worker ends.

A worker of another host has no such folder. It is started with ``DLB_CARRIED=1``, and files travel by the
connection: before a call come those that its arguments name, before the answer the one that it has written.
A file is a line and so many bytes::

    either      {"file": "/path/of/the/core/1.npz", "bytes": 4096} and 4096 bytes
"""

import json
import os
import socket
from typing import Any, Dict, Iterator, List, Tuple

__all__ = [
    "FILES_READ",
    "FILE_WRITTEN",
    "PROTOCOL",
    "connect",
    "messages",
    "names_in",
    "pack",
    "receive_file",
    "send_file",
    "supervisor_address",
]

PROTOCOL = 2
#: A line longer than this is no message of ours.
LONGEST = 64 * 1024 * 1024
#: Arguments of calls that name files which a worker reads, one or several; the one that it writes.
FILES_READ = ("weights", "masks", "inputs", "order", "data", "steps")
FILE_WRITTEN = "to"
#: Bytes of a file that are sent or written at once.
PIECE = 1 << 20
#: Seconds between two progress events: rare enough to cost nothing.
REPORT_SECONDS = 0.2


def pack(message: Dict[str, Any]) -> bytes:
    """One message as the line that carries it. NaN and infinity are written as JSON's extension."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def names_in(argument: Any) -> List[str]:
    """The names of files in an argument of a call; one of that name may be a number in another call."""
    named = argument if isinstance(argument, list) else [argument]
    return [each for each in named if each and isinstance(each, str)]


def send_file(connection: socket.socket, name: str, path: str) -> None:
    """Send a file under a name. Nothing else may be sent meanwhile.

    Raises:
        OSError: the file cannot be read, or it cannot be sent.
    """
    with open(path, "rb") as file:
        left = os.fstat(file.fileno()).st_size
        connection.sendall(pack({"file": name, "bytes": left}))
        while left:
            piece = file.read(min(left, PIECE))
            if not piece:
                raise OSError("{} has become shorter".format(path))
            connection.sendall(piece)
            left -= len(piece)


def receive_file(stream: Any, message: Dict[str, Any], path: str) -> Iterator[int]:
    """Write a file that arrives after its message; yields as each piece has come.

    Raises:
        ValueError: it is cut short, or the message has no number of bytes.
        OSError: it cannot be written.
    """
    left = message.get("bytes")
    if not isinstance(left, int) or isinstance(left, bool) or left < 0:
        raise ValueError("a file of {} bytes".format(left))
    with open(path, "wb") as file:
        while left:
            piece = stream.read(min(left, PIECE))
            if not piece:
                raise ValueError("a file that is cut short")
            file.write(piece)
            left -= len(piece)
            yield left


def messages(stream: Any) -> Iterator[Dict[str, Any]]:
    """Every message that arrives on a binary stream, until it closes.

    Who reads ``{"file": ...}`` must read the bytes that follow before the next message.

    Raises:
        ValueError: what arrived is not a message.
    """
    while True:
        line = stream.readline(LONGEST)
        if not line:
            return
        if not line.endswith(b"\n"):
            if len(line) == LONGEST:
                raise ValueError("a line of more than {} bytes".format(LONGEST))
            return
        try:
            message = json.loads(line.decode("utf-8"))
        except RecursionError:
            raise ValueError("a message nested too deep") from None
        if not isinstance(message, dict):
            raise ValueError("a message must be a JSON object")
        yield message


def supervisor_address() -> Tuple[str, int]:
    """Where this worker's supervisor listens."""
    host, _, port = os.environ["DLB_SUPERVISOR"].rpartition(":")
    return host, int(port)


def connect() -> socket.socket:
    """Connect this worker to its supervisor: by the private socket, if it has one that can be reached.

    Raises:
        OSError: no supervisor listens there.
    """
    path = os.environ.get("DLB_SOCKET", "")
    if path:
        private = socket.socket(socket.AF_UNIX)
        try:
            private.connect(path)
            return private
        except OSError:  # as in a container that has another file system
            private.close()
    connection = socket.create_connection(supervisor_address(), timeout=30)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
