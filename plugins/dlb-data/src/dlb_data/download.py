"""Downloads one file over HTTP, with resume and limits of size, time and attempts."""

from __future__ import annotations

import hashlib
import http.client
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

from dlb_data.storage import SourceFailed, cannot_write

__all__ = ["download"]

_CHUNK = 1 << 16
_SECONDS_PER_FILE = 900.0
_RETRIED_STATUSES = (408, 425, 429, 500, 502, 503, 504)


class _Refused(Exception):
    """An answer that another attempt would not change."""


def download(
    url: str,
    part: Path,
    *,
    size: int,
    sha256: str,
    timeout: float,
    attempts: int,
    report: Callable[[str], None],
) -> None:
    """Download ``url`` to ``part``, and continue a download that ``part`` already holds.

    The part of an interrupted download is kept for the next time. An oversized or altered part is
    deleted.

    Args:
        url: an http or https address; redirects to other schemes are not followed.
        part: the file to write.
        size: the exact size of the file in bytes.
        sha256: the SHA-256 of the file.
        timeout: seconds that the server may stay silent.
        attempts: largest number of connections.
        report: receives a message for each new attempt.

    Raises:
        SourceFailed: the file could not be downloaded from this address.
        DataError: the part cannot be written.
    """
    deadline = time.monotonic() + _SECONDS_PER_FILE
    failure = ""
    for attempt in range(attempts):
        if attempt:
            report(f"{failure}; trying again")
            time.sleep(min(0.5 * 2**attempt, 8.0))
        try:
            resumed = _transfer(url, part, size, timeout, deadline)
            _check_sum(part, sha256, resumed)
            return
        except _Refused as error:
            raise SourceFailed(f"{url}: {error}") from error
        except urllib.error.HTTPError as error:
            failure = f"{url}: answered {error.code} {error.reason}"
            error.close()
            if error.code not in _RETRIED_STATUSES:
                break
        except urllib.error.URLError as error:
            failure = f"{url}: {error.reason}"
            if _no_such_host(
                error.reason
            ):  # a machine without a network: another attempt would not help
                break
        except (http.client.HTTPException, OSError, ValueError) as error:
            failure = f"{url}: {error or type(error).__name__}"
        if time.monotonic() > deadline:
            break
    raise SourceFailed(failure)


def _transfer(url: str, part: Path, size: int, timeout: float, deadline: float) -> bool:
    """Complete the part; returns whether its start comes from an earlier transfer."""
    have = _size_of(part)
    if have > size:
        _delete(part)
        have = 0
    if have == size:
        return True
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
    if not request.type or request.type.lower() not in ("http", "https"):
        raise _Refused("not an http or https address")
    if have:
        request.add_header("Range", f"bytes={have}-")
    resumed = have > 0
    with _open(request, part, timeout) as response:
        if response.status == 206 and _range_start(response) == have:
            mode = "ab"
        elif response.status == 200:
            # The server ignores the range and sends the whole file.
            mode, have, resumed = "wb", 0, False
        else:
            _delete(part)
            raise http.client.HTTPException(f"unexpected answer {response.status} to a range")
        announced = response.headers.get("Content-Length", "")
        if announced.isdecimal() and have + int(announced) > size:
            _delete(part)
            raise _Refused(f"oversized: {have + int(announced):,} bytes instead of {size:,}")
        have += _copy(response, part, mode, size - have, deadline)
    if have < size:
        raise http.client.HTTPException(f"stopped after {have:,} of {size:,} bytes")
    return resumed


def _open(request: urllib.request.Request, part: Path, timeout: float) -> http.client.HTTPResponse:
    try:
        # urlopen's own set of handlers would also follow a redirect to ftp.
        return cast("http.client.HTTPResponse", _opener().open(request, timeout=timeout))
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        # The part is not a prefix of the server's file: start over.
        error.close()
        _delete(part)
        raise http.client.HTTPException("cannot continue the part that was kept") from error


def _opener() -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.UnknownHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    return opener


def _no_such_host(reason: object) -> bool:
    return isinstance(reason, socket.gaierror) and reason.errno == socket.EAI_NONAME


def _range_start(response: http.client.HTTPResponse) -> int:
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(match.group(1)) if match else -1


def _copy(
    response: http.client.HTTPResponse, part: Path, mode: str, room: int, deadline: float
) -> int:
    written = 0
    oversized = False
    with _open_part(part, mode) as file:
        # read1 returns what has arrived, so that bytes before a broken connection are kept.
        while piece := response.read1(min(_CHUNK, room - written + 1)):
            written += len(piece)
            if written > room:
                oversized = True
                break
            try:
                file.write(piece)
            except OSError as error:
                raise cannot_write(part, error) from error
            if time.monotonic() > deadline:
                raise _Refused(f"not finished in {_SECONDS_PER_FILE:.0f} seconds")
    if oversized:
        _delete(part)
        raise _Refused("oversized: more bytes than the file has")
    return written


def _open_part(part: Path, mode: str) -> IO[bytes]:
    try:
        # Unbuffered, so that a full disk fails at the write and not at the close.
        return cast("IO[bytes]", part.open(mode, buffering=0))
    except OSError as error:
        raise cannot_write(part, error) from error


def _check_sum(part: Path, sha256: str, resumed: bool) -> None:
    digest = hashlib.sha256()
    with part.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    if digest.hexdigest() != sha256:
        _delete(part)
        message = f"altered: SHA-256 {digest.hexdigest()}, not {sha256}"
        if resumed:  # the start from an earlier download may be bad: start over
            raise http.client.HTTPException(message)
        raise _Refused(message)


def _size_of(part: Path) -> int:
    try:
        return part.stat().st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise cannot_write(part, error) from error


def _delete(part: Path) -> None:
    try:
        part.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(part, error) from error
