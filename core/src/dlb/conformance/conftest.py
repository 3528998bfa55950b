"""Options that name the adapter under test, and the adapter, started once for the session."""

from __future__ import annotations

import pytest

from dlb.plugins import load_plugins

from .subject import Adapter, find

#: Threads of the session. Two, so that what only goes wrong in parallel can.
THREADS = 2


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("adapter")
    group.addoption("--adapter", help="name of the adapter to test, e.g. torch")
    group.addoption(
        "--adapter-plugin",
        default="",
        metavar="MODULE",
        help="its plugin module, where it is not installed, e.g. dlb_torch.plugin",
    )
    group.addoption("--long", action="store_true", help="many more random models")


@pytest.fixture(scope="session")
def adapter_names(pytestconfig: pytest.Config) -> tuple[str, str]:
    """Name and plugin module of the adapter; without options, the only one installed."""
    name = pytestconfig.getoption("--adapter", default=None)
    if name:
        return name, pytestconfig.getoption("--adapter-plugin")
    installed = sorted(load_plugins().adapters)
    if len(installed) != 1:
        raise pytest.UsageError(
            f"name the adapter with --adapter; installed here: {', '.join(installed) or 'none'}"
        )
    return installed[0], ""


@pytest.fixture(scope="session")
def adapter(adapter_names: tuple[str, str]) -> Adapter:
    """The adapter, with its framework brought up."""
    found = find(*adapter_names)
    found.start(THREADS)
    return found
