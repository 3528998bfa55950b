"""Options that several commands have in common."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from dlb.cli.output import Detail, detail_option, json_option, note
from dlb.settings import SETTINGS, Setting, Settings, in_command, settings_of
from dlb_graph.options import Reading

if TYPE_CHECKING:
    from dlb.adapters import AdapterEnvironment
    from dlb.resolver import Resolver

__all__ = [
    "ANSWERED",
    "CERTIFICATE",
    "DETAILS",
    "OUT",
    "WORKERS",
    "Asked",
    "find_environments",
    "option",
    "reading_options",
    "seconds_of",
    "with_options",
    "workload_argument",
    "workload_options",
]

Decorator = Callable[[Any], Any]


def with_options(options: Iterable[Decorator]) -> Decorator:
    """A decorator that adds several options, shown in this order."""
    ordered = list(options)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(ordered):
            function = option(function)
        return function

    return decorate


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def _adapters_like(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """Adapters that are here, for the completion of a word in a shell."""
    from dlb.adapters import adapter_environments

    return [name for name in adapter_environments() if name.startswith(begun)]


def _workloads_like(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Workloads, and files that begin so, for the completion of a word in a shell."""
    from dlb.catalogue import workload_names

    names = [CompletionItem(name) for name in workload_names() if name.startswith(begun)]
    return names or [CompletionItem(begun, type="file")]


def workload_argument(**changes: Any) -> Decorator:
    """The argument that names a workload."""
    return click.argument("workload", shell_complete=_workloads_like, **changes)


TEST_EVERY = click.option(
    "--test-every",
    metavar="N|TIME",
    help="Test the model every N steps, or every so much time of training, such as 30s; beside the end.",
)

OUT = click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("dlb-results"),
    show_default=True,
    metavar="DIR",
    help="Folder for records.",
)
ON = click.option(
    "--on",
    "adapters",
    multiple=True,
    metavar="ADAPTER",
    shell_complete=_adapters_like,
    help="Adapter to use; repeat for several. Default: every one found.",
)


def _as_variables(
    context: click.Context, parameter: click.Parameter, given: Sequence[str]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise click.UsageError(f"--variable {text}: write NAME=VALUE")
        if name in found:
            raise click.UsageError(f"--variable {name} is given twice")
        found[name] = value
    return found


_READING: tuple[Decorator, ...] = (
    click.option(
        "--size",
        "sizes",
        multiple=True,
        metavar="NAME=N",
        help="A size that an ONNX file leaves open, as sequence=64; INPUT:AXIS=N for one without a name.",
    ),
    click.option(
        "--constant",
        "constants",
        multiple=True,
        metavar="NAME=VALUE",
        help="An input of an ONNX file that holds one number everywhere, as attention_mask=1.",
    ),
    click.option(
        "--output-name",
        default="",
        metavar="NAME",
        help="The output of an ONNX file that the loss reads, if it has several.",
    ),
)


def reading_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say what is read of an ONNX file; the command gets one argument, ``reading``."""

    @functools.wraps(function)
    def command(
        *, sizes: Sequence[str], constants: Sequence[str], output_name: str, **options: Any
    ) -> Any:
        reading = Reading(
            sizes=_numbers_by_name("--size", sizes, int, 1),
            constants=_numbers_by_name("--constant", constants, float, -1e30),
            output=output_name,
        )
        return function(reading=reading, **options)

    decorated: Callable[..., Any] = with_options(_READING)(command)
    return decorated


def _numbers_by_name(
    flag: str, given: Sequence[str], kind: Callable[[str], Any], least: float
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.rpartition("=")
        try:
            number = kind(value)
        except ValueError:
            number = None
        if not (equals and name) or number is None or not least <= number <= 1e30:
            least_text = " of 1 or more" if least == 1 else ""
            raise click.UsageError(f"{flag} {text}: write NAME=VALUE with a number{least_text}")
        if name in found:
            raise click.UsageError(f"{flag} {name} is given twice")
        found[name] = number
    return found


CERTIFICATE = click.option(
    "--certificate",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the certificate, a JSON document (see: dlb explain).",
)
DETAILS = detail_option(Detail.CHECKS, "--details", text="Show each check, also where all passed.")
#: The form of the output, and how much of it is shown; of every command that ends with an answer.
ANSWERED: tuple[Decorator, ...] = (
    json_option,
    detail_option(Detail.ANSWER, "-q", "--quiet", text="Print only the answer and what failed."),
    detail_option(
        Detail.PHASES,
        "-v",
        "--verbose",
        text="Print a line for each phase, each check, and all that was found where one failed.",
    ),
)


def option(name: str, **changes: Any) -> Decorator:
    """The option of a setting.

    Args:
        changes: arguments of :func:`click.option` that a command has in place of the setting's own.
    """
    setting = SETTINGS[name]
    metavar = setting.metavar or ("N" if setting.kind is int else None)
    arguments: dict[str, Any] = {"help": setting.help or None, "metavar": metavar}
    if setting.plain:
        arguments["default"] = setting.default
    else:
        arguments["multiple"] = True
    if setting.kind is bool:
        arguments["is_flag"] = True
    elif setting.kind is dict:
        arguments["callback"] = _as_variables
    elif isinstance(setting.kind, tuple):
        arguments["type"] = click.Choice(setting.kind)
    elif setting.kind in (int, float):
        arguments |= {"type": setting.kind, "callback": _checked}
        if setting.most != Setting.most:
            arguments["help"] += f" From {setting.least:,.12g} to {setting.most:,.12g}."
    arguments |= changes
    # A flag and nothing at all are no defaults to show; 0 is.
    shown = setting.kind is not bool and arguments.get("default") not in (None, "")
    return click.option(in_command(name), name, **arguments, show_default=shown)


def _checked(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """The value of a setting, whose bounds are refused in the words that Python and sweeps have too."""
    SETTINGS[str(parameter.name)].check(value)
    return value


#: Environments of workers, and what :data:`ANSWERED` has.
ENVIRONMENTS: tuple[Decorator, ...] = (
    click.option(
        "--provision", is_flag=True, help="Make environments that are missing or out of date."
    ),
    click.option(
        "--from",
        "source",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="With --provision: a checkout or a folder of wheels.",
    ),
    *ANSWERED,
)
#: The same, with the device and the threads of workers, and how long they may make no progress.
WORKERS: tuple[Decorator, ...] = (
    *map(option, ("device", "threads", "call_seconds")),
    *ENVIRONMENTS,
)


def find_environments(
    adapters: Sequence[str], provision: bool, source: Path | None
) -> list[AdapterEnvironment]:
    """The environments of adapters, with a line for each step on standard error.

    Raises:
        RequestError: ``--from`` is given without ``--provision``, or an adapter cannot be found or made.
    """
    from dlb.adapters import find_adapters
    from dlb.errors import RequestError

    if source is not None and not provision:
        raise RequestError("--from says what --provision makes environments from; add --provision")
    return find_adapters(adapters, provision=provision, source=source, report=note)


@dataclass(frozen=True)
class Asked:
    """A workload that a command was asked to run, on adapters, with settings.

    Attributes:
        find: finds the adapters' environments.
        out: folder for records; None if the command keeps none.
    """

    workload: str
    reading: Reading
    settings: Settings
    adapters: Sequence[str]
    find: Callable[[], list[AdapterEnvironment]]
    out: Path | None

    def resolver(self, **more: Any) -> Resolver:
        """What makes requests of the workload; further arguments as :class:`dlb.resolver.Resolver`."""
        from dlb.catalogue import load_with_file
        from dlb.resolver import Resolver

        described = load_with_file(self.workload, self.reading)
        return Resolver(*described, out=self.out, **more)


def workload_options(command: str, on: Decorator = ON, **changes: Mapping[str, Any]) -> Decorator:
    """The options of a command that runs a workload; it gets one argument for them, ``asked``.

    Args:
        on: the option that chooses ``adapters``.
        changes: by setting, as :func:`option`.
    """
    names = [setting.name for setting in settings_of(command)]
    # One option chooses a test by steps or by seconds.
    plain = [name for name in names if not name.startswith("test_")]
    added = [on, *(option(name, **changes.get(name, {})) for name in plain), *ENVIRONMENTS]
    added += [TEST_EVERY] if plain != names else []

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run_command(
            *,
            workload: str,
            reading: Reading,
            adapters: Sequence[str],
            provision: bool,
            source: Path | None,
            out: Path | None = None,
            test_every: str | None = None,
            **options: Any,
        ) -> Any:
            chosen = {name: options.pop(name) for name in plain}
            settings = Settings(**chosen, **_test_times(test_every))
            find = functools.partial(find_environments, adapters, provision, source)
            return function(
                asked=Asked(workload, reading, settings, adapters, find, out), **options
            )

        decorated: Callable[..., Any] = with_options(added)(reading_options(run_command))
        return decorated

    return decorate


def _test_times(text: str | None) -> dict[str, Any]:
    """Fields of a request for ``--test-every``.

    Raises:
        click.UsageError: the text is neither a number of steps nor a time.
    """
    if text is None:
        return {}
    if text.isdecimal() and int(text):
        return {"test_steps": int(text)}
    if not text.strip()[-1:].isalpha():
        raise click.UsageError(f"--test-every {text}: give a number of steps, or a time as 30s")
    return {"test_seconds": seconds_of("--test-every", text)}


def seconds_of(flag: str, text: str) -> float:
    """A time, such as 90s, 20m or 2h.

    Raises:
        click.UsageError: the text is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)([smh]?)", text.strip())
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else 0.0
    if not 0 < seconds < float("inf"):
        raise click.UsageError(f"{flag} {text}: must be a time above 0, such as 90s, 20m or 2h")
    return seconds
