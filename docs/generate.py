"""Writes the parts of the documentation that are made from the code.

    python docs/generate.py            writes them
    python docs/generate.py --check    status 1 if a page is not what the code makes of it

It runs in an environment with dlb-core and the packages that add commands. A generated part of a page lies
between two comments, which say what makes it::

    <!-- generated: command dlb run -->
    ...
    <!-- end -->

``command NAME`` is the help and the options of a command, ``variables`` the environment variables,
``csv FILE COLUMN ...`` these columns of a CSV file in this folder, ``settings`` the table of settings,
``mistakes`` what ports usually do wrong with each layer, ``ratios PAGE`` the ratios that a page has as printed.
What is outside of the comments is written by hand.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from dlb import cli
from dlb.settings import SETTINGS
from dlb_graph.layers import LAYERS

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PART = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end -->)", re.S)
#: The environment variables that dlb reads, with their meaning; those of workers are set by dlb itself.
VARIABLES = {
    "DLB_HOME": "Folder for environments (`environments/`), fetched data (`data/`) and indexes of results "
    "(`indexes/`). Default: the user's data folder by platformdirs, on Linux `~/.local/share/dlb`.",
    "DLB_DATA_DIR": "Folder in which dlb looks first for data sets. It never writes there.",
    "DLB_OFFLINE": "If `1`, `dlb data fetch` makes no request, and uv takes packages from its cache alone.",
    "DLB_PROVISION_TIMEOUT": "Seconds that making an environment may take, including the wait for "
    "another process that makes it. Default: 3600.",
    "DLB_STRICT_PLUGINS": "If set, and not `0`: a plugin that cannot be used is fatal (status 1).",
    "DLB_DEBUG": "If set: a fault in dlb itself shows its traceback.",
}
SET_BY_DLB = {
    "DLB_SUPERVISOR": "Address at which the worker finds the core.",
    "DLB_CARRIED": "`1` for a worker of another host, whose files travel by its connection.",
    "DLB_SOCKET": "Unix socket at which the worker finds the core, if there is one.",
    "DLB_MARK": "Mark by which the core finds what the worker started, to end it.",
    "DLB_TOKEN": "Token by which the core recognises the worker.",
    "DLB_ROLE": "Role of the process in a strategy: worker, scheduler or server.",
    "DLB_RANK": "Rank of a worker.",
    "DLB_PADDING": "Some bytes, drawn for each trial of a measurement, so that its stack begins elsewhere.",
    "DLB_RANK_VARIABLES": "Names of the variables in which a launcher passes the rank.",
    "DLB_TORCH_ADDRESS": "The address at which a worker's peers reach it, set by torch's strategies.",
    "DLB_TORCH_BACKEND": "The backend of torch.distributed, set by the strategy `ddp`.",
    "DLB_TORCH_WORKERS": "How many workers the server of the strategy `parameter_server` has, set by it.",
    "DLB_TF_RANK": "Rank, set by the strategy `multi_worker_mirrored`.",
    "DLB_TF_REPLICAS": "How many logical devices a worker has, set by strategies of one process.",
    "DLB_MXNET_GPU": "The GPU of a worker, set by the strategy `dist_sync`.",
}


def commands(group: click.Group, name: str = "dlb") -> Iterator[tuple[str, click.Command]]:
    """dlb's own commands and those of its packages, those of groups after their group."""
    context = click.Context(group)
    own = (
        list({**cli.COMMANDS, **cli.PACKAGES}) if group is cli.dlb else group.list_commands(context)
    )
    for word in own:
        command = group.get_command(context, word)
        assert command is not None
        yield f"{name} {word}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {word}")


def command_part(name: str) -> str:
    """Usage, help and options of a command."""
    command = dict(commands(cli.dlb))[name]
    context = click.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    parts = [f"{'#' * len(name.split())} {name}\n", f"```text\n{usage}\n```\n"]
    for paragraph in (command.help or "").split("\n\n"):
        parts.append(" ".join(paragraph.replace("\b", "").split()) + "\n")
    options = [
        each for each in command.params if isinstance(each, click.Option) and not each.hidden
    ]
    if options:
        parts.append("| option | default | meaning |\n|---|---|---|\n")
        parts[-1] += "".join(f"{option_row(each)}\n" for each in options)
    return "\n".join(parts)


def option_row(option: click.Option) -> str:
    words, meaning = ", ".join(option.opts), [option.help or ""]
    if not option.is_flag:
        words += f" {option.metavar or option.opts[0].lstrip('-').upper()}"
    if isinstance(option.type, click.Choice):
        meaning.append(f"One of {', '.join(f'`{each}`' for each in option.type.choices)}.")
    if isinstance(option.type, (click.IntRange, click.FloatRange)):
        meaning.append(limits(option.type))
    cells = f"`{words}`", shown_default(option), " ".join(meaning).strip()
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def limits(kind: Any) -> str:
    """The range of a number, in words."""
    low, high = (None if end is None else f"{end:,.12g}" for end in (kind.min, kind.max))
    if low is None or high is None:
        return f"At least {low}." if high is None else f"At most {high}."
    return f"From {low} to {high}."


def shown_default(option: click.Option) -> str:
    default = option.default
    if isinstance(default, bool) or not isinstance(default, (int, float, str, Path)):
        return ""
    return (
        f"`{default:g}`" if isinstance(default, float) else f"`{default}`" if str(default) else ""
    )


def used_variables() -> set[str]:
    """Every variable of dlb's that a source of the packages names."""
    sources = [
        path
        for folder in ("core", "worker", "plugins/*")
        for path in ROOT.glob(f"{folder}/src/**/*.py")
    ]
    texts = (path.read_text(encoding="utf-8") for path in sources)
    return {name for text in texts for name in re.findall(r"\bDLB_[A-Z_]*[A-Z]\b", text)}


def variables_part(_: str) -> str:
    """The two tables.

    Raises:
        SystemExit: a source names a variable that has no meaning above, or none names one that has.
    """
    described = {**VARIABLES, **SET_BY_DLB}
    if wrong := used_variables() ^ described.keys():
        raise SystemExit(f"docs/generate.py: variables read and described differ: {sorted(wrong)}")
    rows = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in VARIABLES.items())
    own = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in SET_BY_DLB.items())
    head = "| variable | meaning |\n|---|---|\n"
    return f"## For you to set\n\n{head}{rows}\n## Set by dlb for its workers\n\n{head}{own}"


def csv_part(words: str) -> str:
    """Columns of a CSV file as a table; an underscore in a column's name stands for a space."""
    name, *underscored = words.split(" ")
    columns = [column.replace("_", " ") for column in underscored]
    with open(DOCS / name, encoding="utf-8", newline="") as file:
        rows = [[row[column] for column in columns] for row in csv.DictReader(file)]
    lines = [columns, ["---"] * len(columns), *rows]
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def settings_part(_: str) -> str:
    """Every setting: where it can be chosen, and what it enters."""
    marks = {"varied": "varies", "recorded": "recorded", "part of the proof": "proven"}
    kinds = {int: "a whole number", float: "a number", bool: "`True` or `False`", str: "text"}
    lines = ["| setting | values | default | meaning | commands | |", "|---|---|---|---|---|---|"]
    for setting in SETTINGS.values():
        kind = setting.kind
        words = ", ".join(f"`{each}`" for each in kind) if isinstance(kind, tuple) else ""
        values = words or (f"`{setting.metavar}`" if setting.metavar else kinds[kind])
        default = "" if setting.default is None or setting.many else f"`{setting.default!r}`"
        entered = ", ".join(word for word, name in marks.items() if getattr(setting, name))
        cells = (
            f"`{setting.name}`",
            values,
            default,
            setting.help,
            ", ".join(setting.commands),
            entered,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def mistakes_part(_: str) -> str:
    """What ports usually do wrong, by kind of layer."""
    lines = ["", "| layer | mostly | in training |", "|---|---|---|"]
    for name, layer in LAYERS.items():
        if layer.mistakes or layer.training_mistakes:
            link = f"[`{name}`](../reference/workloads.md#{name})"
            lines.append(f"| {link} | {layer.mistakes} | {layer.training_mistakes} |")
    return "\n".join(lines) + "\n"


def ratios_part(name: str) -> str:
    """The table of ratios that a page shows as a command printed it, with the ratio first."""
    text = (ROOT / name).read_text(encoding="utf-8")
    printed = re.search(r"<!-- printed: adapter, times torch.*?```text\n(.*?)\n\n", text, re.S)
    assert printed is not None, f"{name} has no table of ratios"
    lines = ["| adapter | times torch | 95% interval | proof | result | median ms |"]
    lines.append("|---|--:|---|---|---|--:|")
    for line in printed[1].splitlines()[2:]:
        adapter, median, *_, proof = cells = re.split(r" {2,}", line.strip())
        ratio, interval, word = cells[5:8] if len(cells) == 10 else [cells[5], "", ""]
        interval = interval.replace(" ", "\N{NO-BREAK SPACE}")
        lines.append(f"| {' | '.join([adapter, ratio, interval, proof, word, median])} |")
    return "\n".join(lines) + "\n"


MAKERS = {
    "command": command_part,
    "variables": variables_part,
    "csv": csv_part,
    "settings": settings_part,
    "mistakes": mistakes_part,
    "ratios": ratios_part,
}


def generated(text: str) -> str:
    """A page with its generated parts made again."""

    def part(found: re.Match[str]) -> str:
        maker, _, argument = found[2].partition(" ")
        return f"{found[1]}\n{MAKERS[maker](argument)}\n{found[3]}"

    return PART.sub(part, text)


def main() -> int:
    check, stale = "--check" in sys.argv[1:], []
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        made = generated(text)
        if made != text:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(made, encoding="utf-8")
    print("\n".join(stale))
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
