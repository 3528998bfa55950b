"""Debian's Chromium, driven by Playwright, and pages of results that are made here."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "plugins" / "dlb-report" / "tests"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    assert path, "no Chromium; install it with: apt-get install chromium"
    # Chromium's sandbox does not start for root.
    words = ["--no-sandbox"] if hasattr(os, "getuid") and os.getuid() == 0 else []
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=words)
        yield launched
        launched.close()


class Watched:
    """A page with what it logged and asked for.

    Attributes:
        troubles: messages of its console, errors of its script, and what its policy blocked.
        requests: addresses other than its own file.
    """

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.troubles: list[str] = []
        self.requests: list[str] = []
        address = path.as_uri()
        page.on("console", lambda message: self.troubles.append(message.text))
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("dialog", lambda dialog: self.troubles.append(dialog.message))
        page.on(
            "request",
            lambda request: self.requests.append(request.url) if request.url != address else None,
        )
        page.goto(address)

    def is_quiet(self) -> bool:
        assert self.troubles == [] and self.requests == []
        return True


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports as files: an ordinary one, two folders next to each other, and one of hostile results."""
    from example_results import hostile, ordinary

    import dlb_report

    folder = tmp_path_factory.mktemp("reports")
    one, other = ordinary(folder / "one"), ordinary(folder / "other", deviates="tf")
    bad = hostile(folder / "bad")
    found = {name: folder / f"{name}.html" for name in ("ordinary", "two", "hostile")}
    dlb_report.make_report(one, found["ordinary"])
    dlb_report.make_report([one, other], found["two"])
    with pytest.warns(UserWarning):
        dlb_report.make_report(bad, found["hostile"], limit=50)
    return found
