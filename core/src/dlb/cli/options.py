"""Options that several commands have in common."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from dlb.cli.output import json_option
from dlb.reading import Reading

__all__ = [
    "CERTIFICATE",
    "FORMER_TIMEOUT",
    "ON",
    "OUT",
    "SEED",
    "VARIABLES",
    "VARIANT",
    "WORKERS",
    "check_workers",
    "reading_options",
    "with_options",
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


def _renamed(context: click.Context, option: click.Parameter, value: float | None) -> None:
    if value is not None:
        raise click.UsageError(f"--time-out is called --timeout now; write: --timeout {value:g}")


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
    help="Adapter to use; repeat for several. Default: every one found.",
)
VARIANT = click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="[ADAPTER:]NAME=VALUE",
    help="Option of how models are built; repeat for several. See: dlb list adapters.",
)
SEED = click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Seed of the weights and of the order of samples.",
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


VARIABLES = click.option(
    "--variable",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_as_variables,
    help="Environment variable of the workers' processes, such as TF_ENABLE_ONEDNN_OPTS=0; repeat for "
    "several.",
)

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

FORMER_TIMEOUT = click.option(
    "--time-out", type=float, hidden=True, expose_value=False, callback=_renamed
)

#: Environments of workers, their device and threads, and how long they may make no progress.
WORKERS: tuple[Decorator, ...] = (
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
    click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True),
    click.option(
        "--threads",
        type=int,
        metavar="N",
        help="Threads of each worker. Default: all cores, divided among workers. Without timing, adapters "
        "run at the same time and divide the cores too.",
    ),
    click.option(
        "--timeout",
        "call_seconds",
        type=click.FloatRange(1.0, 1e6),
        default=300.0,
        show_default=True,
        metavar="SECONDS",
        help="End a worker that makes no progress for so long.",
    ),
    FORMER_TIMEOUT,
    json_option,
)


def check_workers(options: Mapping[str, Any]) -> None:
    """Check what :data:`WORKERS` were given.

    Raises:
        RequestError: ``--from`` is given without ``--provision``, or ``--threads`` is below 1.
    """
    from dlb.errors import RequestError

    if options["source"] is not None and not options["provision"]:
        raise RequestError("--from says what --provision makes environments from; add --provision")
    threads = options["threads"]
    if threads is not None and threads < 1:
        raise RequestError(f"--threads is {threads}; it must be 1 or more")
