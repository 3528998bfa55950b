"""Draws what a command prints in a terminal, as an SVG that needs nothing else.

    python tools/draw_terminal.py FILE.svg [--columns N] [--keep FIRST-LAST] -- COMMAND ...

It needs rich, which dlb-core brings, and a system with pseudo-terminals. ``--keep`` are
the lines that are shown.
"""

from __future__ import annotations

import argparse
import io
import os
import pty
import re
import shlex
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text


def printed(command: list[str], columns: int) -> str:
    """All that a command prints in a terminal of so many columns."""
    os.environ |= {"COLUMNS": str(columns), "LINES": "60", "TERM": "xterm-256color"}
    found = io.BytesIO()

    def read(terminal: int) -> bytes:
        data = os.read(terminal, 65536)
        found.write(data)
        return data

    pty.spawn(command, read)
    # What a line was overwritten by, as progress is, is what remains of it.
    text = re.sub(r"\x1b\[\?25[hl]|\x1b\[[0-9]*[AK]|\x1b\[2K", "", found.getvalue().decode())
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def main() -> int:
    """Run and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--columns", type=int, default=110)
    parser.add_argument("--keep", default="1-1000", metavar="FIRST-LAST")
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    lines = printed(asked.command, asked.columns).split("\n")
    first, last = map(int, asked.keep.split("-"))
    console = Console(width=asked.columns, record=True, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {shlex.join(asked.command)}", style="bold"))
    console.print(Text.from_ansi("\n".join(lines[first - 1 : last])))
    drawn = console.export_svg(title="dlb")
    # Fonts from the network: the terminal's own is as good.
    drawn = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)
    drawn = drawn.replace("Fira Code,", "Menlo, Consolas, DejaVu Sans Mono,")
    asked.file.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
