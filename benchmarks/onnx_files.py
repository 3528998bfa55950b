"""ONNX files from anywhere: which dlb reads and proves, which onnx2torch converts, which ONNX's reference runs.

    python benchmarks/onnx_files.py FOLDER-OR-FILE ... [--on ADAPTER ...] [--csv TABLE.csv]

FOLDER may hold ``.onnx`` files and wheels, whose files are unpacked into a temporary folder. Each file is tried
in processes of its own, with a limit of time. What a file leaves open is chosen as a user would: the first
output; 1 for integer inputs whose names have "mask" in them, 128 for those with "length", as many as tokens are
tried, 0 for all other integer inputs but the first, and 0 for inputs of real numbers without a batch, such as a
state; no token is padding.

Columns: ``dlb`` is "read" or the reason why not; ``proven`` are the adapters of --on, proven with a batch of 4;
``onnx2torch`` is "yes" or the error, and "not installed" without that package; ``evaluated`` says whether
``onnx.reference`` computes the first output from random inputs.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from commands import told
from rich.console import Console
from rich.table import Table

#: Seconds for each of the tries.
LIMIT = 300
DLB = str(Path(sys.executable).with_name("dlb"))


def main() -> int:
    """Try every file, print the table, and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--on", action="append", default=[], metavar="ADAPTER")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="files at a time; default: 1")
    parser.add_argument("--only", choices=["dlb", "onnx2torch", "evaluated"], action="append")
    asked = parser.parse_args()
    what = asked.only or ["dlb", "onnx2torch", "evaluated"]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.jobs) as pool:
        found = list(files(asked.paths, Path(folder)))
        tries = [pool.submit(tried, path, asked.on, what) for _, path in found]
        for (source, path), one in zip(found, tries):
            row = one.result()
            rows.append({"source": source, "file": path.name, **row})
            print(f"{source} {path.name}: {row.get('dlb')}", file=sys.stderr, flush=True)
            if asked.csv:
                write(asked.csv, rows)
    show(rows, asked.on)
    return 0


def write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """The rows so far, so that an interrupt loses none."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def files(paths: Sequence[Path], folder: Path) -> Iterator[tuple[str, Path]]:
    """Every file, with the folder or the wheel that it is from."""
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        for one in inside:
            if one.suffix == ".onnx":
                yield one.parent.name, one
            elif one.suffix == ".whl":
                yield from unpacked(one, folder)


def unpacked(wheel: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """The ONNX files of a wheel, under names of our own: those in an archive are not trusted."""
    source = "-".join(wheel.name.split("-")[:2])
    with zipfile.ZipFile(wheel) as archive:
        for number, name in enumerate(sorted(archive.namelist())):
            if name.endswith(".onnx"):
                path = folder / source / str(number) / Path(name).name
                path.parent.mkdir(parents=True)
                path.write_bytes(archive.read(name))
                yield source, path


def tried(path: Path, adapters: Sequence[str], what: Sequence[str]) -> dict[str, Any]:
    """The row of one file."""
    row: dict[str, Any] = {}
    if "dlb" in what:
        began = time.perf_counter()
        try:
            chosen = choices(path)
        except Exception as error:
            chosen = []
            row["dlb"] = f"no ONNX model: {error}".splitlines()[0]
        else:
            row["dlb"] = "read"
            status, text = ran([DLB, "show", str(path), *chosen, "--json"])
            if status:
                row["dlb"] = text.removeprefix("dlb: ").removeprefix(f"{path}: ")
        row["seconds"] = f"{time.perf_counter() - began:.1f}"
        proven = []
        for adapter in adapters if row["dlb"] == "read" else []:
            command = [DLB, "verify", str(path), *chosen]
            status, text = ran([*command, "--on", adapter, "--batch-size", "4"])
            proven += [adapter] if status == 0 else [f"not {adapter}"]
        row["proven"] = " ".join(proven)
    for name, script in (("onnx2torch", CONVERT), ("evaluated", EVALUATE)):
        if name in what:
            status, text = ran([sys.executable, "-c", script, str(path)])
            row[name] = text if status else "yes"
    return row


def choices(path: Path) -> list[str]:
    """Options for what the file leaves open."""
    import onnx

    from dlb.graph.evaluate import names_read
    from dlb.imported.reading import padding_tests

    graph = onnx.load(path, load_external_data=False).graph
    held = {tensor.name for tensor in graph.initializer}
    chosen = []
    if len(graph.output) > 1:
        chosen += ["--output-name", graph.output[0].name]
    inputs = [value for value in graph.input if value.name not in held]
    needed = {value.name for value in graph.output[:1]}
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            needed |= names_read(node)
    inputs = [value for value in inputs if value.name in needed]
    real = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE}
    kept = [value for value in inputs if value.type.tensor_type.elem_type in real] or inputs[:1]
    shapes = [[d.dim_value or d.dim_param for d in v.type.tensor_type.shape.dim] for v in kept]
    # A batch is an axis that is open, or as large as that of the first.
    kept = [
        v for v, shape in zip(kept, shapes) if v is kept[0] or (shape and shape[0] == shapes[0][0])
    ]
    for name in padding_tests(graph):
        if name in needed:
            chosen += ["--constant", f"{name}=0"]
    for value in inputs:
        if value not in kept:
            words = {"mask": 1, "length": 128}
            number = next((words[word] for word in words if word in value.name.lower()), 0)
            chosen += ["--constant", f"{value.name}={number}"]
    return chosen


def ran(command: Sequence[str]) -> tuple[int, str]:
    """The exit status, and the last line of what a command says."""
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return 124, f"not done after {LIMIT} s"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return done.returncode, (lines or ["no message"])[-1][:300]


def show(rows: Sequence[dict[str, Any]], adapters: Sequence[str]) -> None:
    """Print how many of each source were read, proven, converted and evaluated."""
    table = Table(box=None)
    for name in (
        "source",
        "files",
        "read",
        *(f"proven on {a}" for a in adapters),
        "onnx2torch",
        "evaluated",
    ):
        table.add_column(name, justify="left" if name == "source" else "right")
    sources = sorted({row["source"] for row in rows})
    for source in [*sources, "all"]:
        its = [row for row in rows if source in (row["source"], "all")]
        counts = [
            sum(row.get("dlb") == "read" for row in its),
            *(
                sum(a in row.get("proven", "").replace(f"not {a}", "") for row in its)
                for a in adapters
            ),
            sum(row.get("onnx2torch") == "yes" for row in its),
            sum(row.get("evaluated") == "yes" for row in its),
        ]
        table.add_row(source, *map(str, [len(its), *counts]))
    Console().print(table)
    reasons = sorted(json.dumps(row["dlb"]) for row in rows if row.get("dlb", "read") != "read")
    for reason in reasons:
        print(reason)


CONVERT = """
import importlib.util, sys
if importlib.util.find_spec("onnx2torch") is None:
    sys.exit("not installed")
from onnx2torch import convert
convert(sys.argv[1])
"""

EVALUATE = """
import sys
import numpy as np
import onnx
from onnx.helper import tensor_dtype_to_np_dtype
from onnx.reference import ReferenceEvaluator
model = onnx.load(sys.argv[1])
held = {tensor.name for tensor in model.graph.initializer}
random = np.random.default_rng(0)
fed = {}
for value in model.graph.input:
    if value.name in held:
        continue
    kind = value.type.tensor_type
    shape = [dim.dim_value or (1 if axis == 0 else 16 if len(kind.shape.dim) < 4 else 32)
             for axis, dim in enumerate(kind.shape.dim)]
    fed[value.name] = random.random(shape).astype(tensor_dtype_to_np_dtype(kind.elem_type))
ReferenceEvaluator(model).run([model.graph.output[0].name], fed)
"""

if __name__ == "__main__":
    raise SystemExit(told(main))
