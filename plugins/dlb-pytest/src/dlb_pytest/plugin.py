"""What every run of pytest loads where this package is installed. It imports dlb when a test needs it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dlb.proof.certificate import Certificate
    from dlb_port.port_proof import Port

__all__ = ["Prover"]

MARKER = "dlb(*adapters, **settings): needs these adapters; its proofs have these settings."
_PROVER = pytest.StashKey["Prover"]()


class Prover:
    """The fixture ``dlb_proof``: assertions of one test.

    A request that cannot be carried out fails the test in one line.

    Attributes:
        adapters, settings: those of the test's marker.
        certificates: of the proofs so far.
    """

    def __init__(
        self, adapters: Sequence[str], settings: Mapping[str, Any], keep: Callable[..., None]
    ) -> None:
        self.adapters, self.settings, self._keep = adapters, settings, keep
        self.certificates: list[Certificate] = []

    def workload(
        self, workload: str | Path, on: Sequence[str] = (), **settings: Any
    ) -> Certificate:
        """Assert that adapters are proven the same, as :func:`dlb.assert_proven`.

        Args:
            on: adapters; the marker's if empty. Without any the test fails, since what is installed may be
                too little.

        Raises:
            AssertionError: one differs, or could not be checked.
        """
        __tracebackhide__ = True
        from dlb import assert_proven

        adapters = list(on or self.adapters)
        if not adapters:
            pytest.fail(
                "dlb_proof: no adapters; name them with on=[...], or @pytest.mark.dlb('torch', 'tf')",
                pytrace=False,
            )
        with self._proof():
            certificate = assert_proven(workload, adapters, **{**self.settings, **settings})
        return self._kept(certificate)

    def port(self, models: Mapping[str, Any], **options: Any) -> Port:
        """Assert that a port is proven, as :func:`dlb_port.assert_port_proven`.

        Raises:
            AssertionError: a model differs, or could not be checked.
        """
        __tracebackhide__ = True
        from dlb_port import assert_port_proven

        with self._proof():
            port = assert_port_proven(models, **{**self.settings, **options})
        self._kept(port.certificate)
        return port

    def same_file(self, first: str | Path, second: str | Path, **options: Any) -> Certificate:
        """Assert that two ONNX files compute the same, as :func:`dlb_port.assert_same_file`.

        Raises:
            AssertionError: they differ.
        """
        __tracebackhide__ = True
        from dlb_port import assert_same_file

        with self._proof():
            certificate = assert_same_file(first, second, **{**self.settings, **options})
        return self._kept(certificate)

    @contextmanager
    def _proof(self) -> Iterator[None]:
        """Keep what was not proven; fail the test in the one line of another error of dlb."""
        __tracebackhide__ = True
        from dlb.errors import DlbError
        from dlb.report.answers import NotProven

        try:
            yield
        except NotProven as error:
            self._kept(error.certificate)
            raise
        except DlbError as error:
            raise pytest.fail.Exception(f"dlb_proof: {error}", pytrace=False) from None

    def _kept(self, certificate: Any) -> Certificate:
        self.certificates.append(certificate)
        self._keep(certificate, len(self.certificates))
        return certificate  # type: ignore[no-any-return]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("dlb").addoption(
        "--dlb-certificates",
        metavar="FOLDER",
        type=Path,
        help="Write the certificate of each proof to FOLDER, for dlb explain.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl
def pytest_runtest_setup(item: pytest.Item) -> None:
    """An adapter of a marker that is missing is an error, never a skip."""
    for marker in item.iter_markers("dlb"):
        if marker.args:
            from dlb.adapters import find_adapters
            from dlb.errors import DlbError

            try:
                find_adapters(marker.args)
            except DlbError as error:
                raise pytest.fail.Exception(f"@pytest.mark.dlb: {error}", pytrace=False) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that passes without a proof, though it asked for one, is an error."""
    yield
    prover = item.stash.get(_PROVER, None)
    if prover is not None and not prover.certificates:
        pytest.fail("dlb_proof: the test proved nothing", pytrace=False)


@pytest.fixture
def dlb_proof(request: pytest.FixtureRequest, record_property: Callable[..., None]) -> Prover:
    """Proves a workload, a port or two files: a :class:`dlb_pytest.Prover`."""
    markers = list(request.node.iter_markers("dlb"))
    adapters = next((marker.args for marker in markers if marker.args), ())
    settings = {name: value for marker in markers[::-1] for name, value in marker.kwargs.items()}
    folder: Path | None = request.config.getoption("--dlb-certificates")

    def keep(certificate: Certificate, number: int) -> None:
        from dlb.proof.certificate import write

        record_property("dlb", certificate.answer().line)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^A-Za-z0-9_.-]+", "-", request.node.nodeid)[-150:].strip("-")
            write(
                certificate, folder / (f"{name}.json" if number == 1 else f"{name}-{number}.json")
            )

    prover = Prover(adapters, settings, keep)
    request.node.stash[_PROVER] = prover
    return prover
