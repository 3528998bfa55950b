"""ONNX files next to what tools made of them, which computes the same: what ``dlb diff`` says of each pair.

    python benchmarks/file_pairs.py FOLDER-OR-FILE ... [--by TOOL ...] [--csv TABLE.csv]

Tools: ``opset``, ONNX's conversion to its newest operator set; ``onnxsim`` and ``onnxslim``, where they are
installed; ``runtime-basic`` and ``runtime-extended``, ONNX Runtime's optimiser without and with its own
operators. A tool that changes nothing but names makes a pair, too. All but ``opset`` may compute constants in
float32, so that numbers of the second file are rounded otherwise: ``within rounding``. The table has what dlb
says first. It is written pair by pair, and pairs that it has are not made again.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import itertools
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from commands import told
from rich.console import Console
from rich.table import Table

LIMIT = 300
DLB = str(Path(sys.executable).with_name("dlb"))
RUNTIME = """
import sys, onnxruntime as r
options = r.SessionOptions()
options.graph_optimization_level = r.GraphOptimizationLevel.ORT_ENABLE_{level}
options.optimized_model_filepath = sys.argv[2]
options.log_severity_level = 3
r.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
"""
#: What is run with the paths of a file and of what is made of it.
TOOLS = {
    "opset": """
import sys, onnx
from onnx import defs, version_converter
model = onnx.load(sys.argv[1])
onnx.save(version_converter.convert_version(model, defs.onnx_opset_version()), sys.argv[2])
""",
    "onnxsim": """
import sys, onnx, onnxsim
model, same = onnxsim.simplify(onnx.load(sys.argv[1]))
assert same
onnx.save(model, sys.argv[2])
""",
    "onnxslim": """
import sys, onnxslim
onnxslim.slim(sys.argv[1], sys.argv[2])
""",
    "runtime-basic": RUNTIME.format(level="BASIC"),
    "runtime-extended": RUNTIME.format(level="EXTENDED"),
}


def main() -> int:
    """Make and compare every pair, print the table, and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--by", action="append", choices=TOOLS, default=[], metavar="TOOL")
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    tools = [name for name in asked.by or TOOLS if _installed(name)]
    files = [
        file
        for path in asked.paths
        for file in (sorted(path.glob("*.onnx")) if path.is_dir() else [path])
    ]
    rows = read(asked.csv) if asked.csv and asked.csv.exists() else []
    done = {(row["source"], row["file"], row["tool"]) for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        for file, tool in itertools.product(files, tools):
            about = {"source": file.resolve().parent.name, "file": file.name, "tool": tool}
            if tuple(about.values()) in done:
                continue
            made = Path(folder) / "made.onnx"
            made.unlink(missing_ok=True)
            rows.append({**about, **compared(file, made, TOOLS[tool])})
            print(*rows[-1].values(), sep=": ", file=sys.stderr, flush=True)
            if asked.csv:
                add(asked.csv, rows[-1])
    show(rows)
    return 0


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with path.open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def add(path: Path, row: dict[str, str]) -> None:
    """Add a row to a table, and its head if it is new."""
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as opened:
        table = csv.DictWriter(opened, list(row), lineterminator="\n")
        if new:
            table.writeheader()
        table.writerow(row)


def _installed(tool: str) -> bool:
    return not tool.startswith("onnx") or importlib.util.find_spec(tool) is not None


def compared(file: Path, made: Path, tool: str) -> dict[str, str]:
    """The verdict on a pair, and the first thing that is said where it is not ``proven``."""
    try:
        tried = subprocess.run(
            [sys.executable, "-c", tool, file, made],
            capture_output=True,
            encoding="utf-8",
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return {"verdict": "not made", "says": f"not done after {LIMIT} s"}
    if tried.returncode or not made.exists():
        lines = tried.stderr.strip().splitlines()
        return {"verdict": "not made", "says": (lines or ["no message"])[-1][:200]}
    try:
        done = subprocess.run(
            [DLB, "diff", file, made], capture_output=True, encoding="utf-8", timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return {"verdict": "not compared", "says": f"not done after {LIMIT} s"}
    if done.returncode not in (0, 1):
        lines = done.stderr.strip().splitlines()
        return {"verdict": "refused", "says": (lines or ["no message"])[-1][:200]}
    lines = done.stdout.strip().splitlines()
    verdict = lines[-1].rpartition(": ")[2]
    said = [line.partition(", ")[2] for line in lines if ": failed" in line or ": not run" in line]
    return {"verdict": verdict, "says": "" if verdict == "proven" else (said or [""])[0][:200]}


def show(rows: list[dict[str, str]]) -> None:
    """Print how many pairs of each tool have which verdict."""
    counts = Counter((row["tool"], row["verdict"]) for row in rows)
    verdicts = sorted({verdict for _, verdict in counts})
    table = Table(box=None)
    for name in ("tool", *verdicts):
        table.add_column(name, justify="left" if name == "tool" else "right")
    for tool in dict.fromkeys(row["tool"] for row in rows):
        table.add_row(tool, *(str(counts[tool, verdict]) for verdict in verdicts))
    Console().print(table)


if __name__ == "__main__":
    raise SystemExit(told(main))
