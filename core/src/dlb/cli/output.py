"""Output: a table for people, or one JSON document for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from dlb.printable import printable

if TYPE_CHECKING:
    from dlb.report.table import Table

__all__ = [
    "INTERRUPTED",
    "Detail",
    "Group",
    "LazyCommand",
    "detail",
    "detail_option",
    "echo",
    "interrupted",
    "json_option",
    "line_writer",
    "note",
    "print_answer",
    "print_json",
    "print_table",
    "say",
    "show_rows",
    "show_table",
]

#: The exit status of what a person has stopped.
INTERRUPTED = 130

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document and nothing else."
)


class Detail(IntEnum):
    """How much a command shows: each value is shown with what is below it."""

    ANSWER, RESULTS, CHECKS, PHASES = range(4)


#: What options of the command that runs now ask for.
_asked: set[Detail] = set()


def detail() -> Detail:
    """How much the command shows that runs now, in whatever thread."""
    return max(_asked, default=Detail.RESULTS)


def detail_option(shown: Detail, *flags: str, text: str) -> Callable[[Any], Any]:
    """An option that says how much its command shows; the command itself does not see it.

    Raises:
        click.UsageError: another one asks for the opposite.
    """

    def choose(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
        _asked.update([shown] if asked else [])
        if Detail.ANSWER in _asked and len(_asked) > 1:
            raise click.UsageError("--quiet excludes --verbose and --details")

    return click.option(*flags, is_flag=True, expose_value=False, callback=choose, help=text)


class Group(click.Group):
    """A group of commands that proposes the nearest name for one that it has not."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, of whose detail nothing is chosen before its own options are."""
        _asked.clear()
        return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from dlb.errors import UnknownNameError

            hint = f"see: {ctx.command_path} --help"
            raise UnknownNameError("command", args[0], self.list_commands(ctx), hint)
        return super().resolve_command(ctx, args)


class LazyCommand(click.Command):
    """A command that is imported when it is called, so that ``dlb --help`` is fast.

    Args:
        target: where the command is, ``MODULE:NAME``.
        text: its one-line help.
    """

    def __init__(self, name: str, target: str, text: str) -> None:
        super().__init__(name, short_help=text)
        self.target = target

    def load(self) -> click.Command:
        """The command itself."""
        module, _, name = self.target.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


def print_json(document: Any) -> None:
    """Print the JSON document on standard output."""
    import msgspec

    # Not json.dumps, which writes NaN as NaN; here it becomes null, as JSON has none.
    encoded = msgspec.json.encode(document, enc_hook=str)
    say(msgspec.json.format(encoded, indent=1).decode())


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text, of which a terminal obeys nothing: any part of it may come from a stranger."""
    click.echo(printable(text), err=err, nl=nl)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text, unless only the answer is shown."""
    if detail() > Detail.ANSWER:
        say(text, err=err, nl=nl)


def note(text: str) -> None:
    """Print a line on standard error, unless only the answer is shown."""
    echo(text, err=True)


def print_answer(line: str) -> None:
    """Print the sentence that answers, a command's last line, apart from what else is shown."""
    echo()
    say(line)


def interrupted(kept: str = "finished records are kept") -> int:
    """Say that the command was interrupted and what is left of it; its exit status."""
    say(f"dlb: interrupted; {kept}, no process is left", err=True)
    return INTERRUPTED


def line_writer() -> Callable[[str], None] | None:
    """What prints progress in lines; None where it is shown in place, on a terminal."""
    in_place = sys.stderr is not None and sys.stderr.isatty()
    return None if in_place and Detail.ANSWER < detail() < Detail.PHASES else note


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str = "",
    right: Sequence[str] = (),
) -> None:
    """Print a table on standard output, as wide as the terminal; in a file or pipe, up to 200 characters. Rows
    become columns where it is too wide and has few.

    Args:
        right: columns that are aligned right.
    """
    if detail() == Detail.ANSWER:
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(Text(printable(column)), justify="right" if column in right else "left")
    for row in rows:
        # Text, not markup: a cell may come from a file of unknown origin.
        table.add_row(*[Text(printable(cell), style=_STYLES.get(cell, "")) for cell in row])
    width = None if sys.stdout is not None and sys.stdout.isatty() else 200
    console = Console(width=width, highlight=False)
    needed = console.measure(table, options=console.options.update(width=1000)).maximum
    if needed > console.width and 0 < len(rows) < 5 < len(columns):
        columns, *rows = map(list, zip(columns, *rows))
        return print_table(columns, rows, title, columns[1:])
    # Not the table's own title, which is wrapped to the width of the table.
    if title:
        console.print(Text(printable(title), style="italic"))
    console.print(table)


def show_rows(
    what: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    as_json: bool,
    *,
    shown: int | None = None,
    none: str = "",
) -> None:
    """Print a table of rows, or the document of ``--json``, ``{what: [{column: cell}]}``.

    Args:
        shown: how many of the columns the table has; None for all.
        none: what is said in place of a table without rows.
    """
    if as_json:
        print_json({what: [dict(zip(columns, row)) for row in rows]})
    elif rows or not none:
        print_table(columns[:shown], [[str(cell or "-") for cell in row[:shown]] for row in rows])
    else:
        echo(none)


def show_table(table: Table) -> None:
    """Print a table that was made from results."""
    print_table(table.columns, table.rows, table.title, table.right)


_STYLES = {
    "proven": "bold green",
    "deviates": "bold red",
    "unproven": "yellow",
    "within rounding": "bold green",
    "diverged": "bold yellow",
    "passed": "green",
    "failed": "red",
    "not run": "yellow",
    "ok": "green",
    "error": "red",
    "warning": "yellow",
}
