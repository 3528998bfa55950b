"""Draws which room of dlb-core and dlb-graph imports which: docs/explanation/imports.svg.

    python tools/draw_imports.py

It needs grimp (which import-linter brings) and Graphviz' ``tred`` and ``dot``. Arrows that follow from
others are left out. Graphviz draws arrows downwards only where there is no circle; ``tred`` reports one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grimp

TARGET = Path(__file__).parents[1] / "docs" / "explanation" / "imports.svg"


def room(module: str) -> str:
    """The part of the core or of dlb-graph that a module belongs to; dlb-worker is one part."""
    top, *rest = module.split(".")
    if top == "dlb_worker" or not rest:
        return top if top == "dlb_worker" else ""
    return f"graph: {rest[0]}" if top == "dlb_graph" else rest[0]


def edges() -> list[tuple[str, str]]:
    """Rooms that import each other, those of types for a checker left out."""
    graph = grimp.build_graph("dlb", "dlb_graph", "dlb_worker", exclude_type_checking_imports=True)
    found = set()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            pair = room(module), room(imported)
            if pair[0] != pair[1] and all(pair):
                found.add(pair)
    return sorted(found)


def main() -> int:
    """Draw; status 1 where there is a circle."""
    lines = "\n".join(f'  "{one}" -> "{other}";' for one, other in edges())
    style = (
        'node [shape=box, fontname="sans-serif", fontsize=11, height=0.3]; edge [arrowsize=0.6];'
    )
    reduced = subprocess.run(
        ["tred"],
        input=f"digraph imports {{ {style}\n{lines}\n}}",
        capture_output=True,
        text=True,
        check=True,
    )
    if "cycle" in reduced.stderr:
        print(reduced.stderr, file=sys.stderr)
        return 1
    drawn = subprocess.run(
        ["dot", "-Tsvg"], input=reduced.stdout, capture_output=True, text=True, check=True
    )
    TARGET.write_text(drawn.stdout, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
