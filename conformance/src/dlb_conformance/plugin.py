"""pytest's side of the suite: options, the adapter, expected failures, and the table at the end.

It comes by :mod:`dlb_conformance.entry_point`; where pytest loads no plugins by itself, by
``-p dlb_conformance.plugin``.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dlb.errors import DlbError, RequestError
from dlb_worker.contract import (
    ASYNCHRONOUS_CASES,
    CASES,
    PRECISION,
    AdapterDescription,
    StrategyDescription,
)
from dlb_worker.plugins import load_plugins

from . import coverage, expected_failures, port_models
from .subject import Adapter, find

#: Threads of the session. Two, so that what only goes wrong in parallel can.
THREADS = 2

FOLDER = Path(__file__).resolve().parent
_ADAPTER = pytest.StashKey[Adapter]()
_PORT_MODELS = pytest.StashKey[tuple[port_models.PortModel, ...]]()
_ENTRY = pytest.StashKey[expected_failures.Entry]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("dlb_conformance", "conformance of adapters for dlb")
    group.addoption("--adapter", default="", metavar="NAME", help="the adapter, e.g. torch")
    group.addoption(
        "--adapter-plugin",
        default="",
        metavar="MODULE",
        help="its plugin module, where it is not installed, e.g. dlb_torch.plugin:adapter",
    )
    group.addoption(
        "--expected-failures",
        default="",
        metavar="FILE",
        help="TOML: tests that are known to fail, and why",
    )
    group.addoption(
        "--port-models",
        default="",
        metavar="FILE",
        help="TOML: models written in the framework, for an adapter that loads user models",
    )
    group.addoption(
        "--long", action="store_true", help="many more random models; strategies on 1 and 2 workers"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "layer(type): what layer type a test of an adapter is about")
    # Whatever the project in whose folder pytest was started calls its own tests.
    config.addinivalue_line("python_files", "test_*.py")
    config.addinivalue_line("python_functions", "test_")
    # What goes wrong while a model is collected would be seen by nobody.
    config.addinivalue_line("filterwarnings", "error::pytest.PytestUnraisableExceptionWarning")
    given = config.getoption("--port-models")
    try:
        models = port_models.read(config.invocation_params.dir / given) if given else ()
    except DlbError as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[_PORT_MODELS] = models


def _subject(config: pytest.Config) -> Adapter:
    """The adapter that the options name, or the only one installed, not yet started.

    Raises:
        DlbError: there is none.
    """
    if _ADAPTER not in config.stash:
        name, module = config.getoption("--adapter"), config.getoption("--adapter-plugin")
        if not name and not module:
            installed = sorted(load_plugins().adapters)
            if len(installed) != 1:
                known = ", ".join(installed) or "none"
                raise RequestError(f"name the adapter with --adapter; installed here: {known}")
            name = installed[0]
        config.stash[_ADAPTER] = find(name, module)
    return config.stash[_ADAPTER]


def _entries(config: pytest.Config) -> tuple[expected_failures.Entry, ...]:
    given = config.getoption("--expected-failures")
    return expected_failures.read(config.invocation_params.dir / given) if given else ()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Models that were written by hand, and values of variants, to tests of the suite that take one."""
    if not _is_own(metafunc.definition):
        return
    if "port_model" in metafunc.fixturenames:
        models = metafunc.config.stash[_PORT_MODELS]
        ids = [one.name for one in models] or ["none"]
        metafunc.parametrize("port_model", models or [None], ids=ids)
    if "strategy" in metafunc.fixturenames:
        described = _subject(metafunc.config).described
        found = [each for each in load_plugins().strategies() if described.name in each.frameworks]
        every = metafunc.config.getoption("--long")
        cases = [
            _case(each, case, described, workers)
            for each in found
            for case in (*CASES, *(ASYNCHRONOUS_CASES if each.asynchronous else ()))
            for workers in ((1, 2, 3) if every else (3,))  # starting them is what costs time
        ]
        metafunc.parametrize("strategy,case,workers", cases)
    if "variant" in metafunc.fixturenames:
        try:
            offered = _subject(metafunc.config).described.variants
        except DlbError as error:
            raise pytest.UsageError(str(error)) from None
        others = [
            (name, value)
            for name, values in offered.items()
            for value in values[1:]
            if name != PRECISION
        ]
        metafunc.parametrize("variant", others, ids="=".join)


def _case(
    strategy: StrategyDescription, case: str, adapter: AdapterDescription, workers: int
) -> Any:
    """A case of a strategy; the table has what is not claimed too."""
    marks, row = [], f"{strategy.name}: {case}"
    weighs = case not in ("unequal_shares", "accumulation") or "unequal_shares" in adapter.features
    defined = strategy.synchronous or strategy.averages_every or strategy.asynchronous
    if not (defined and case in strategy.cases and weighs):
        row += " (not claimed)"
        reason = f"'{strategy.name}' of adapter '{adapter.name}' does not describe case '{case}'"
        marks.append(pytest.mark.skip(reason=reason))
    marks.append(pytest.mark.layer(type=row))
    name = f"{strategy.name}-{case}-{workers}"
    return pytest.param(strategy.name, case, workers, marks=marks, id=name)


@pytest.fixture(scope="session")
def adapter_names(pytestconfig: pytest.Config) -> tuple[str, str]:
    """Name of the adapter, and its plugin module where it is not installed."""
    return _subject(pytestconfig).name, pytestconfig.getoption("--adapter-plugin")


@pytest.fixture(scope="session")
def adapter(pytestconfig: pytest.Config) -> Iterator[Adapter]:
    """The adapter, with its framework brought up."""
    found = _subject(pytestconfig)
    found.start(THREADS)
    yield found
    # What a model raises that nobody needs any more fails the last test, if none before.
    gc.collect()


# First, so that entries are held against all tests, not against what -k has left.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    own = {_id(item): item for item in items if _is_own(item)}
    if not own:
        return
    try:
        _subject(config)
        entries = _entries(config)
        if _is_whole(config, own):
            expected_failures.refuse_stale(entries, list(own))
    except DlbError as error:
        raise pytest.UsageError(str(error)) from None
    # Adopting a model sets the framework's default type for good.
    items.sort(key=lambda item: _is_own(item) and item.path.name == "test_ports.py")
    for name, item in own.items():
        about = item.get_closest_marker("layer")
        row = about.kwargs["type"] if about else coverage.OTHER
        item.user_properties.append((coverage.PROPERTY, row))
        entry = expected_failures.first_match(entries, name)
        if entry:
            item.stash[_ENTRY] = entry
            item.add_marker(pytest.mark.xfail(reason=entry.reason, strict=True))


def _id(item: pytest.Item) -> str:
    """The end of a test's id, which does not depend on where the suite is installed."""
    return f"{item.path.name}::{item.nodeid.partition('::')[2]}"


def _is_own(item: pytest.Item) -> bool:
    return item.path.resolve().parent == FOLDER


def _is_whole(config: pytest.Config, tests: Iterable[str]) -> bool:
    """Whether all of the suite was collected: it was asked for, and no module was left out."""
    asked = any(
        each == __package__ or (config.invocation_params.dir / each).resolve() == FOLDER
        for each in config.args
    )
    modules = {path.name for path in FOLDER.glob("test_*.py")}
    return asked and {test.partition("::")[0] for test in tests} == modules


# Around pytest's own, which makes an outcome of the mark.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    entry = item.stash.get(_ENTRY, None)
    if entry and report.failed and call.excinfo is None:
        report.longrepr = f"passes now: remove its entry\n{entry.place}: {entry.reason}"
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    told = list(coverage.lines(terminalreporter.stats))
    if told:
        terminalreporter.section(f"adapter '{_subject(config).name}'")
        for line in told:
            terminalreporter.write_line(line)
