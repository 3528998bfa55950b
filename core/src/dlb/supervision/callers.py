"""Those who connect to a supervisor and have not said hello yet: by TCP, any process of the machine can.

All are listened to at once, each within limits, so that none holds or ends a run.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from dlb.errors import RequestError

__all__ = ["HOST", "Callers", "open_doors", "own_address"]

HOST = "127.0.0.1"

#: Whoever connects must have said hello by then, in at most so many bytes; so many may be about to.
HELLO_SECONDS, HELLO_BYTES, MOST_CALLERS = 10.0, 4096, 128


def own_address(peer: str) -> str:
    """The address of this machine that a peer reaches.

    Raises:
        RequestError: there is no way to the peer.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect((peer, 9))  # sends nothing
        except OSError as error:
            raise RequestError(
                f"host {peer} cannot be reached: {error.strerror or error}"
            ) from None
        return str(asking.getsockname()[0])


def open_doors(folder: Path, everywhere: bool = False) -> list[socket.socket]:
    """Sockets that listen: by TCP and, if possible, one in a private folder.

    Args:
        everywhere: on every interface, for workers of other hosts, and not on the loopback interface alone.
    """
    doors = [socket.create_server(("" if everywhere else HOST, 0))]
    # Not every system has such sockets, and none has them at long paths.
    with contextlib.suppress(AttributeError, OSError):
        path = folder / f"door-{secrets.token_hex(4)}"
        doors.append(socket.create_server(str(path), family=socket.AF_UNIX))
    return doors


@dataclass
class _Caller:
    """A connection, when it must have said hello by :func:`time.monotonic`, and what it has said.

    One is private if no other user could make it.
    """

    connection: socket.socket
    deadline: float
    is_private: bool
    said: bytearray = field(default_factory=bytearray)

    def read(self) -> bytes | None:
        """Read what has arrived, up to the end of the line.

        Returns:
            the line; b"" if there will be none; None if it is not complete.
        """
        try:
            arrived = self.connection.recv(HELLO_BYTES, socket.MSG_PEEK)
            # What follows the line is left for whoever listens next.
            self.said += self.connection.recv(arrived.find(b"\n") + 1 or len(arrived))
        except BlockingIOError:
            return None
        except OSError:
            return b""
        if self.said.endswith(b"\n"):
            return bytes(self.said)
        return None if arrived and len(self.said) < HELLO_BYTES else b""


class Callers:
    """The connections of listening sockets; a context manager, which closes those that are left."""

    def __init__(self, listeners: Sequence[socket.socket]) -> None:
        self._listeners = listeners
        self._selector = selectors.DefaultSelector()
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)
        self._callers: dict[int, _Caller] = {}

    def __enter__(self) -> Callers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in list(self._callers):
            self.hang_up(self._forget(number))
        self._selector.close()

    def hear(self, seconds: float) -> Iterator[tuple[socket.socket, bytes]]:
        """Listen once, for so many seconds at most.

        Yields:
            each connection that has said its first line, which is the caller's from then on, and the line.
        """
        ready = [key.fd for key, _ in self._selector.select(seconds)]
        # Before others are let in, for whom one of these may have to go.
        for number in ready:
            line = self._callers[number].read() if number in self._callers else None
            if line is not None:
                connection = self._forget(number)
                if line:
                    connection.setblocking(True)
                    yield connection, line
                else:
                    self.hang_up(connection)
        for listener in self._listeners:
            if listener.fileno() in ready:
                self._accept(listener)
        now = time.monotonic()
        for number in [each for each, caller in self._callers.items() if now > caller.deadline]:
            self.hang_up(self._forget(number))

    @staticmethod
    def hang_up(connection: socket.socket) -> None:
        """Close a connection; who is at its other end reads the end of the stream, not an error."""
        with contextlib.suppress(OSError):
            connection.setblocking(False)
            connection.recv(HELLO_BYTES)
        connection.close()

    def _accept(self, listener: socket.socket) -> None:
        # Until none is left, or one is more than this process may have open.
        with contextlib.suppress(OSError):
            for _ in range(MOST_CALLERS // 4):
                connection, _ = listener.accept()
                connection.setblocking(False)
                if len(self._callers) == MOST_CALLERS:
                    # Whoever comes by the private socket is of this user, and stays.
                    oldest = min(self._callers, key=lambda number: self._callers[number].is_private)
                    self.hang_up(self._forget(oldest))
                deadline = time.monotonic() + HELLO_SECONDS
                is_private = listener.family != socket.AF_INET
                self._callers[connection.fileno()] = _Caller(connection, deadline, is_private)
                self._selector.register(connection, selectors.EVENT_READ)

    def _forget(self, number: int) -> socket.socket:
        connection = self._callers.pop(number).connection
        self._selector.unregister(connection)
        return connection
