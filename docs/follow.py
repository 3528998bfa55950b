"""Follows the README and the tutorials as a reader does, and writes what the commands print into them.

    python docs/follow.py [WORD ...]     all pages, or those whose names contain a word

It works in a clone of this checkout, and needs git, a package index, and some minutes a page. What a page asks
for is done in its order, in one shell: a block that follows a line which ends with a file's name in backticks
is that file, and an indented block holds commands. These comments of a page steer it:

- ``<!-- status N -->``: the next block's last command ends with status N, not 0.
- ``<!-- not followed -->``: the next block is not run.
- ``<!-- unseen ... -->``: commands for what a reader does by hand, such as an edit.
- ``<!-- printed: WORDS | WORDS -->``: the next block shows what the commands above it printed. Each part is the
  last table whose header begins with these words, or the last line that does.

A wrong status ends it with an error, and the page is left as it was.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: Later pages go on where earlier ones ended: with the command, and with its environments.
PAGES = (
    "README.md",
    "docs/tutorials/first-proof.md",
    "docs/tutorials/first-port.md",
    "docs/tutorials/first-benchmark.md",
    "docs/tutorials/first-adapter.md",
)
PRINTED = re.compile(r"<!-- printed: (.+?) -->\n```text\n(.*?)```", re.S)
_PART = re.compile(
    r"<!-- status (?P<status>\d+) -->"
    r"|<!-- (?P<skip>not followed) -->"
    r"|<!-- unseen\n(?P<unseen>.*?)-->"
    r"|<!-- printed: (?P<printed>.+?) -->\n```text\n.*?```"
    r"|`(?P<file>[\w./-]+)`:\n\n```\w+\n(?P<content>.*?)```"
    r"|^```.*?```"
    r"|^(?P<commands>(?:    \S[^\n]*\n)+)",
    re.S | re.M,
)
_RULE = re.compile(r"^ *─+ *$")


@dataclass(frozen=True)
class Step:
    """One thing that a reader does.

    Attributes:
        commands: lines for a shell.
        status: what the last one must end with.
        path, content: a file to write, in place of commands.
        printed: what the page shows of all that was printed before; "" if nothing.
    """

    commands: tuple[str, ...] = ()
    status: int = 0
    path: str = ""
    content: str = ""
    printed: str = ""


def steps_of(text: str) -> Iterator[Step]:
    """What a page asks its reader to do, in order."""
    status, skip = 0, False
    for part in _PART.finditer(text):
        if part["status"]:
            status = int(part["status"])
        elif part["skip"]:
            skip = True
        elif part["printed"]:
            yield Step(printed=part["printed"])
        elif part["file"] and not skip:
            yield Step(path=part["file"], content=part["content"])
        elif part["unseen"] or part["commands"]:
            commands = part["unseen"] or re.sub(r"(?m)^    ", "", part["commands"])
            if not skip:
                yield Step(tuple(commands.strip("\n").splitlines()), status)
            status, skip = 0, False


def tables(output: str) -> list[list[str]]:
    """The tables of an output: each its header, its rule and its rows, without spaces behind."""
    lines, found = [line.rstrip() for line in output.splitlines()], []
    for number, line in enumerate(lines):
        if _RULE.match(line) and number:
            end = next((n for n in range(number, len(lines)) if not lines[n]), len(lines))
            found.append(lines[number - 1 : end])
    return found


def shown(selectors: str, output: str) -> str:
    """What a page shows of an output.

    Raises:
        ValueError: nothing that was printed begins so.
    """
    parts: list[str] = []
    for words in selectors.split(" | "):
        fitting = ["\n".join(table) for table in tables(output) if begins(table[0], words)]
        lines = [line.rstrip() for line in output.splitlines() if line.startswith(words)]
        if not fitting and not lines:
            raise ValueError(f"nothing that was printed begins with {words!r}")
        # An empty line parts a table from what is next to it.
        if parts and (fitting or "\n" in parts[-1]):
            parts.append("")
        parts.append(fitting[-1] if fitting else lines[-1])
    return "\n".join(parts) + "\n"


def begins(header: str, words: str) -> bool:
    """Whether a table's header has these words in this order, the first at its beginning."""
    names = re.split(r" {2,}", header.strip())
    return names[0] == words.split(", ")[0] and set(words.split(", ")) <= set(names)


def script_of(steps: list[Step], folder: Path) -> str:
    """A shell script that does the steps; output and status of each go into the folder."""
    lines = ["set -u"]
    for number, step in enumerate(steps):
        if step.path:
            (folder / f"{number}.file").write_text(step.content, encoding="utf-8")
            lines.append(f"cp {folder / f'{number}.file'} {step.path}")
        if step.commands:
            body = "\n".join(step.commands)
            lines.append(
                f"{{\n{body}\n}} >> {folder / f'{number}.out'} 2>> {folder / f'{number}.err'}"
            )
            lines.append(f"echo $? > {folder / f'{number}.status'}")
            lines.append(
                f'echo "step {number}, after ${{SECONDS}} s: {len(step.commands)} commands" >&2'
            )
    return "\n".join(lines) + "\n"


def follow(names: list[str]) -> None:
    """Follow the pages whose names contain one of some words, and write what was printed into them."""
    with tempfile.TemporaryDirectory() as temporary:
        clone = Path(temporary) / "dlb"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        environment = {"DLB_HOME": str(Path(temporary) / "home"), "COLUMNS": "200"}
        for name in PAGES:
            path = ROOT / name
            if names and not any(word in name for word in names):
                continue
            text = path.read_text(encoding="utf-8")
            steps = list(steps_of(text))
            logs = Path(temporary) / path.stem
            logs.mkdir()
            start = "" if name == "README.md" else ". .venv/bin/activate 2> /dev/null\n"
            print(f"{name}: {len(steps)} steps", file=sys.stderr)
            command = ["env", *(f"{key}={value}" for key, value in environment.items()), "bash"]
            script = start + script_of(steps, logs)
            subprocess.run(command, input=script, text=True, cwd=clone, check=True)
            printed, output = [], ""
            for number, step in enumerate(steps):
                if step.commands:
                    output += (logs / f"{number}.out").read_text(encoding="utf-8")
                    status = int((logs / f"{number}.status").read_text())
                    if status != step.status:
                        told = (logs / f"{number}.err").read_text(encoding="utf-8")[-3000:]
                        ran = "; ".join(step.commands)
                        sys.exit(
                            f"{output}\n{told}\n{name}: {ran}: status {status}, not {step.status}"
                        )
                if step.printed:
                    printed.append(shown(step.printed, output))
            path.write_text(with_printed(text, printed), encoding="utf-8")


def with_printed(text: str, printed: list[str]) -> str:
    """A page with what was printed in its blocks, in their order."""
    outputs = iter(printed)

    def block(part: re.Match[str]) -> str:
        return f"<!-- printed: {part[1]} -->\n```text\n{next(outputs)}```"

    return PRINTED.sub(block, text)


if __name__ == "__main__":
    follow(sys.argv[1:])
