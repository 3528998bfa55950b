"""A real HTTP server that can misbehave, and the small data set of the core's tests."""

from __future__ import annotations

import gzip
import http.server
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "core" / "tests" / "data"))

from tiny_data import describe_tiny, home, tiny

__all__ = ["describe_tiny", "home", "tiny"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "network: uses package managers or the internet")


@dataclass
class Site:
    """What the server serves, how it misbehaves, and what it was asked.

    ``truncate`` maps a path to how many answers are cut after how many bytes.
    """

    base: str = ""
    pages: dict[str, bytes] = field(default_factory=dict)
    truncate: dict[str, list[int]] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, list[int]] = field(default_factory=dict)
    ranges: bool = True
    announce_size: bool = True
    asked: list[tuple[str, str]] = field(default_factory=list)

    def put(self, folder: str, contents: dict[str, bytes]) -> str:
        """Serve contents, compressed, under a folder; returns the folder's address."""
        for name, content in contents.items():
            self.pages[f"/{folder}/{name}.gz"] = gzip.compress(content, mtime=0)
        return f"{self.base}/{folder}/"


def _handler(site: Site) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked_range = self.headers.get("Range", "")
            site.asked.append((self.path, asked_range))
            if site.statuses.get(self.path):
                self.send_error(site.statuses[self.path].pop(0))
                return
            if self.path in site.redirects:
                self.send_response(302)
                self.send_header("Location", site.redirects[self.path])
                self.end_headers()
                return
            page = site.pages.get(self.path)
            if page is None:
                self.send_error(404)
                return
            self._send(page, asked_range)

        def _send(self, page: bytes, asked_range: str) -> None:
            start = 0
            match = re.fullmatch(r"bytes=(\d+)-", asked_range)
            if match and site.ranges:
                start = int(match.group(1))
                if start >= len(page):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(page)}")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(page) - 1}/{len(page)}")
            else:
                self.send_response(200)
            body = page[start:]
            if site.announce_size:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            cuts = site.truncate.get(self.path)
            with suppress(ConnectionError):  # the client may hang up on what is oversized
                self.wfile.write(body[: cuts.pop(0)] if cuts else body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def site() -> Iterator[Site]:
    """A server on 127.0.0.1 that answers Range requests unless told otherwise."""
    served = Site()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(served))
    served.base = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield served
    server.shutdown()
    server.server_close()
    thread.join()
