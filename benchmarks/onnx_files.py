"""ONNX files from anywhere: which dlb reads and proves, which onnx2torch converts, which ONNX's reference runs.

    python benchmarks/onnx_files.py FOLDER-OR-FILE ... [--on ADAPTER ...] [--csv TABLE.csv]

FOLDER may hold ``.onnx`` files, wheels and npm packages, unpacked into a temporary folder. Each file is tried
in processes of its own, with a limit of time, and without options: what it leaves open is as dlb reads it.
Equal files are tried once, the smallest file first.

Columns: ``dlb`` is "read" or the reason why not; ``proven`` are the adapters of --on, proven with a batch of 4,
all of them in ``proof_seconds``; ``unproven`` is each one's first check that does not pass, or what ended the
proof; ``onnx2torch`` is "yes" or the error, and "not installed" without that package; ``evaluated`` says
whether ``onnx.reference`` computes the first output from random inputs.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from commands import told
from rich.console import Console
from rich.table import Table

DLB = str(Path(sys.executable).with_name("dlb"))


def main() -> int:
    """Try every file, print the table, and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--on", action="append", default=[], metavar="ADAPTER")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="files at a time; default: 1")
    parser.add_argument(
        "--limit",
        type=int,
        default=300,
        help="seconds for each try, and for each adapter; default: 300",
    )
    parser.add_argument("--only", choices=["dlb", "onnx2torch", "evaluated"], action="append")
    asked = parser.parse_args()
    what = asked.only or ["dlb", "onnx2torch", "evaluated"]
    rows: list[dict[str, Any]] = []
    tries: dict[str, Future[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.jobs) as pool:
        found = sorted(files(asked.paths, Path(folder)), key=lambda each: each[1].stat().st_size)
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for _, path in found]
        for digest, (_, path) in zip(digests, found):
            if digest not in tries:
                tries[digest] = pool.submit(tried, path, asked.on, what, asked.limit)
        for digest, (source, path) in zip(digests, found):
            row = tries[digest].result()
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
    """Every file, with the folder or the package that it is from."""
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        for one in inside:
            if one.suffix == ".onnx":
                yield one.parent.name, one
            elif one.suffix in (".whl", ".tgz"):
                yield from unpacked(one, folder)


def unpacked(package: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """The ONNX files of a wheel or of an npm package, under names of our own: those in it are not trusted."""
    wheel = package.suffix == ".whl"
    source = "-".join(package.name.split("-")[:2]) if wheel else package.stem
    for number, (name, content) in enumerate(members(package)):
        path = folder / source / str(number) / Path(name).name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        yield source, path


def members(package: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each ONNX file of a package, once."""
    seen = set[str]()
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            names = sorted(name for name in wheel.namelist() if name.endswith(".onnx"))
            found = [(name, wheel.read(name)) for name in names]
    else:
        with tarfile.open(package) as archive:
            entries = [each for each in archive if each.isfile() and each.name.endswith(".onnx")]
            opened = [(each.name, archive.extractfile(each)) for each in entries]
            found = [(name, content.read()) for name, content in opened if content is not None]
    for name, content in found:
        if (digest := hashlib.sha256(content).hexdigest()) not in seen:
            seen.add(digest)
            yield name, content


def tried(path: Path, adapters: Sequence[str], what: Sequence[str], limit: int) -> dict[str, Any]:
    """The row of one file."""
    row: dict[str, Any] = {}
    if "dlb" in what:
        began = time.perf_counter()
        status, text = ran([DLB, "show", str(path), "--json"], limit)
        row["dlb"] = text.removeprefix("dlb: ").removeprefix(f"{path}: ") if status else "read"
        row["seconds"] = f"{time.perf_counter() - began:.1f}"
        began = time.perf_counter()
        reasons = proofs(path, adapters, limit) if adapters and row["dlb"] == "read" else {}
        row["proven"] = " ".join(
            f"not {name}" if reason else name for name, reason in reasons.items()
        )
        row["unproven"] = "; ".join(
            f"{name}: {reason}" for name, reason in reasons.items() if reason
        )
        row["proof_seconds"] = f"{time.perf_counter() - began:.1f}" if reasons else ""
    for name, script in (("onnx2torch", CONVERT), ("evaluated", EVALUATE)):
        if name in what:
            status, text = ran([sys.executable, "-c", script, str(path)], limit)
            row[name] = text if status else "yes"
    return row


def proofs(path: Path, adapters: Sequence[str], limit: int) -> dict[str, str]:
    """Each adapter's first check that does not pass, or what ended the proof; "" if it is proven.

    All adapters are in one proof, which computes once what they are compared with; ``limit`` is for each.
    """
    with tempfile.TemporaryDirectory() as folder:
        certificate = Path(folder) / "certificate.json"
        options = [part for name in adapters for part in ("--on", name)]
        options += ["--batch-size", "4", "--certificate", str(certificate)]
        status, text = ran([DLB, "verify", str(path), *options], limit * len(adapters))
        if not certificate.exists():
            return dict.fromkeys(adapters, "" if status == 0 else text)
        document = json.loads(certificate.read_text(encoding="utf-8"))
    return {
        name: why_unproven(document, name) or ("" if name in document["adapters"] else text)
        for name in adapters
    }


def why_unproven(document: dict[str, Any], adapter: str) -> str:
    """The first check of an adapter that does not pass, with its distance, or why there are no checks."""
    if adapter in document["failures"]:
        return str(document["failures"][adapter]["message"])[:300]
    for check in document["checks"]:
        if check["adapter"] in (adapter, None) and check["verdict"] != "passed":
            worst = (check["figures"] or [{}])[0]
            return f"{check['check']}: {check['verdict']} {worst.get('relative_l2', '')}".strip()
    return ""


def ran(command: Sequence[str], limit: int) -> tuple[int, str]:
    """The exit status, and the last line of what a command says."""
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=limit)
    except subprocess.TimeoutExpired:
        return 124, f"not done after {limit} s"
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
    shape = [max(dim.dim_value, 0) or (1 if axis == 0 else 16 if len(kind.shape.dim) < 4 else 32)
             for axis, dim in enumerate(kind.shape.dim)]
    fed[value.name] = random.random(shape).astype(tensor_dtype_to_np_dtype(kind.elem_type))
ReferenceEvaluator(model).run([model.graph.output[0].name], fed)
"""

if __name__ == "__main__":
    raise SystemExit(told(main))
