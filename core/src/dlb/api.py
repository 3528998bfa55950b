"""The commands of dlb as functions. :data:`dlb.__all__` lists the public ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dlb.settings import SETTINGS, Settings, settings_of
from dlb_graph import arguments

if TYPE_CHECKING:
    from dlb.execution.run import Outcome
    from dlb.proof.certificate import Certificate
    from dlb.record import Record
    from dlb.request import Request
    from dlb_graph.options import Reading

__all__ = [
    "assert_proven",
    "checked",
    "read_records",
    "run",
    "run_command",
    "takes_settings",
    "verify",
]


F = TypeVar("F", bound=Callable[..., Any])


def checked(function: F) -> F:
    """As :func:`dlb_graph.arguments.checked`; settings are of their kind and in range, too."""
    return arguments.checked(function, SETTINGS)


def takes_settings(command: str) -> Callable[[F], F]:
    """A :func:`~dlb_graph.arguments.checked` function with a keyword for each setting of a command."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        named = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.kind != parameter.VAR_KEYWORD
        ]
        keywords = [
            inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=setting.default)
            for setting in settings_of(command)
        ]
        function.__signature__ = signature.replace(parameters=[*named, *keywords])  # type: ignore[attr-defined]
        return checked(function)

    return decorate


@takes_settings("verify")
def verify(
    workload: str | Path,
    on: Sequence[str] = (),
    *,
    reading: Reading | None = None,
    **settings: Any,
) -> Certificate:
    """Prove that adapters build the same workload, as ``dlb verify`` does.

    Args:
        workload: a name, or the path of a ``.toml`` or an ``.onnx`` file. If its data set is not on
            this machine, the proof uses synthetic samples, and a warning says so.
        on: adapters; all that are available if empty. They run at the same time, and share the cores.
        reading: sizes, constants and output of an ONNX file, if it leaves a choice.
        settings: fields of :class:`dlb.settings.Settings` that ``dlb verify`` has. ``steps`` are those of the
            trajectory, 20 by default; ``groups``, those of the checks to run.

    Returns:
        the certificate. :meth:`~dlb.proof.certificate.Certificate.status` returns ``proven``,
        ``deviates`` or ``unproven`` for an adapter; ``failures`` says what ended a run early.

    Raises:
        dlb.errors.RequestError: the request cannot be carried out; nothing was started.
        KeyboardInterrupt: the run was interrupted; every worker has ended.
    """
    return run_command("verify", workload, on, reading, settings)[1].certificate


def run_command(
    command: Literal["run", "verify"],
    workload: str | Path,
    on: Sequence[str],
    reading: Reading | None,
    settings: Mapping[str, Any],
    **resolving: Any,
) -> tuple[Request, Outcome]:
    """What a command is asked, and what comes of it; ``resolving`` is for :class:`dlb.resolver.Resolver`."""
    from dlb.adapters import find_adapters
    from dlb.catalogue import load_with_file
    from dlb.execution.run import run as run_request
    from dlb.progress import notebook_reporter
    from dlb.resolver import Resolver

    chosen = Settings(**settings)
    resolver = Resolver(*load_with_file(str(workload), reading), command=command, **resolving)
    request = resolver.resolve(chosen, lambda: find_adapters(on))
    with notebook_reporter([each.adapter for each in request.environments]) as reporter:
        outcome = run_request(request, reporter)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return request, outcome


@takes_settings("verify")
def assert_proven(
    workload: str | Path,
    on: Sequence[str] = (),
    *,
    reading: Reading | None = None,
    **settings: Any,
) -> Certificate:
    """Assert, in a test, that adapters pass every requested check; arguments as :func:`verify`.

    Raises:
        dlb.report.answers.NotProven: an AssertionError: an adapter differs, or could not be checked. The text
            says where, by how much, and the likely cause; then it has the table of all checks.
    """
    __tracebackhide__ = True
    from dlb.report.answers import NotProven

    certificate = verify(workload, on, reading=reading, **settings)
    if {*map(certificate.passed, certificate.judged_adapters)} != {True}:
        raise NotProven(certificate)
    return certificate


@takes_settings("run")
def run(
    workload: str | Path,
    on: Sequence[str] = (),
    *,
    reading: Reading | None = None,
    out: str | Path = "dlb-results",
    **settings: Any,
) -> Outcome:
    """Train a workload on adapters, time it, export it and prove it, as ``dlb run`` does.

    Args:
        workload: a name, or the path of a ``.toml`` or an ``.onnx`` file.
        on: adapters; all that are available if empty.
        reading: sizes, constants and output of an ONNX file, if it leaves a choice.
        out: folder for records.
        settings: fields of :class:`dlb.settings.Settings` that ``dlb run`` has.

    Returns:
        a record for each adapter, their paths, and the certificate.

    Raises:
        dlb.errors.RequestError: the request cannot be carried out; nothing was started.
        dlb.errors.RecordError: a record cannot be written; earlier records are kept.
        KeyboardInterrupt: the run was interrupted; finished records are kept, every worker has ended.
    """
    return run_command("run", workload, on, reading, settings, out=Path(out))[1]


@checked
def read_records(path: str | Path) -> list[Record]:
    """The records in a folder, ordered by name, or the one in a file.

    Raises:
        dlb.errors.RecordError: the file, or a file in the folder, is not a record.
    """
    from dlb.record import read, read_folder

    path = Path(path)
    if not path.is_dir():
        return [read(path)]
    records, errors = read_folder(path)
    if errors:
        raise errors[0]
    return records
