"""Runs the notebook of the documentation with the NumPy adapter, and checks what its cells show.

    python docs/run_notebook.py

It needs nbclient and ipykernel, and takes about half a minute. The notebook keeps no outputs.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from dlb import cli

DOCS = Path(__file__).parent
NOTEBOOK = DOCS / "examples" / "notebook.ipynb"
#: What the answer of each cell that shows one says, in order.
ANSWERS = ("numpy unproven", "numpy unproven", "NumPy takes", "NumPy takes")


def register_adapter(folder: Path) -> None:
    """Make an interpreter that has the adapter, and tell dlb of it."""
    info = folder / "site" / "dlb_numpy-1.0.dist-info"
    info.mkdir(parents=True)
    adapter = (DOCS / "examples" / "numpy_adapter.py").read_bytes()
    (folder / "site" / "numpy_adapter.py").write_bytes(adapter)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dlb-numpy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dlb]\nnumpy = numpy_adapter:adapter\n")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder / "site"}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    assert cli.call(["env", "add", "numpy", str(python)]) == 0


def shown(cell: Any, kind: str) -> list[str]:
    """What a cell shows in this form, first to last."""
    outputs = (output.get("data", {}).get(kind) for output in cell.outputs)
    return [text for text in outputs if text is not None]


def main() -> int:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "the notebook keeps outputs"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["DLB_HOME"] = str(folder / "home")
        register_adapter(folder)
        text = (DOCS / "reference" / "workloads.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```toml\n(.*?)^```", text, flags=re.M | re.S)
        (workload,) = (block for block in blocks if "[model]" in block)
        (folder / "softmax.toml").write_text(workload)
        NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": name}}
        ).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    streams = [output.text for cell in code for output in cell.outputs if "text" in output]
    assert streams == [], f"cells print: {streams}"
    answers = [
        page for cell in code for page in shown(cell, "text/html") if page.startswith("<div style=")
    ]
    assert len(answers) == len(ANSWERS), f"{len(answers)} answers"
    for page, words in zip(answers, ANSWERS, strict=True):
        assert words in page and "<table>" in page, page[:200]
    # A line of progress is drawn again in place; the last one has the word of the proof.
    progress = [page for cell in code for page in shown(cell, "text/plain") if "numpy" in page]
    assert any("unproven" in page and "<Certificate" not in page for page in progress), progress
    print(f"{NOTEBOOK.name}: {len(code)} cells, {len(answers)} answers, with progress")
    return 0


if __name__ == "__main__":
    sys.exit(main())
