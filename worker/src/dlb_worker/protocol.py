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
"""

import json
import os
import socket
from typing import Any, Dict, Iterator, Tuple

__all__ = ["PROTOCOL", "connect", "messages", "pack", "supervisor_address"]

PROTOCOL = 2
#: A line longer than this is no message of ours.
LONGEST = 64 * 1024 * 1024
#: Seconds between two progress events: rare enough to cost nothing.
REPORT_SECONDS = 0.2


def pack(message: Dict[str, Any]) -> bytes:
    """One message as the line that carries it. NaN and infinity are written as JSON's extension."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def messages(stream: Any) -> Iterator[Dict[str, Any]]:
    """Every message that arrives on a binary stream, until it closes.

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
