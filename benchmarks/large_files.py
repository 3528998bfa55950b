"""What it costs to read a large ONNX file as a workload, and to compare it with itself.

    python benchmarks/large_files.py [--gigabytes 2.4] [--layers 9]

Writes a network of linear layers, whose weights lie in two safetensors files beside the .onnx file, to a
temporary folder, and runs ``dlb show`` and ``dlb diff`` on it. Prints seconds, and the most memory of the
process in copies of the weights.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from commands import told
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table
from safetensors.numpy import save_file


def main() -> int:
    """Make the file, measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.4)
    parser.add_argument("--layers", type=int, default=9)
    asked = parser.parse_args()
    width = int(math.sqrt(asked.gigabytes * 1e9 / 4 / asked.layers))
    weights = 4 * asked.layers * width * width
    table = Table(title=f"{weights / 1e9:.2f} GB of weights in {asked.layers} layers")
    for name in ("command", "seconds", "memory, in copies of the weights"):
        table.add_column(name)
    with tempfile.TemporaryDirectory() as folder:
        path = _write(Path(folder), width, asked.layers)
        for command in (["show", path], ["diff", path, path]):
            seconds, memory = _run(command)
            table.add_row(f"dlb {command[0]}", f"{seconds:.0f}", f"{memory / weights:.1f}")
    Console(width=100).print(table)
    return 0


def _write(folder: Path, width: int, layers: int) -> str:
    """Write the network. Each shard is made, and let go, before the next."""
    generator = np.random.default_rng(0)
    tensors, nodes, value = [], [], "x"
    for shard in range(2):
        names = [f"weight{layer}" for layer in range(layers) if layer % 2 == shard]
        location = f"shard-{shard + 1}-of-2.safetensors"
        drawn = {
            name: generator.standard_normal((width, width), np.float32) / np.float32(width**0.5)
            for name in names
        }
        save_file(drawn, folder / location)
        del drawn
        tensors += [_external(folder / location, name) for name in names]
    for layer in range(layers):
        bias = generator.standard_normal(width, np.float32)
        tensors.append(numpy_helper.from_array(bias, f"bias{layer}"))
        read = [value, f"weight{layer}", f"bias{layer}"]
        value = f"linear{layer}"
        nodes.append(helper.make_node("Gemm", read, [value], transB=layer % 2))
        if layer < layers - 1:
            nodes.append(helper.make_node("Relu", [value], [f"relu{layer}"]))
            value = f"relu{layer}"
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["batch", width])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "large.onnx"
    path.write_bytes(model.SerializeToString())
    return str(path)


def _external(shard: Path, name: str) -> TensorProto:
    """A tensor whose numbers lie in a safetensors file, as ONNX refers to them."""
    with shard.open("rb") as content:
        header_bytes = int.from_bytes(content.read(8), "little")
        header = json.loads(content.read(header_bytes))
    start, end = header[name]["data_offsets"]
    tensor = TensorProto(
        name=name,
        dims=header[name]["shape"],
        data_type=TensorProto.FLOAT,
        data_location=TensorProto.EXTERNAL,
    )
    for key, entry in (
        ("location", shard.name),
        ("offset", str(8 + header_bytes + start)),
        ("length", str(end - start)),
    ):
        tensor.external_data.add(key=key, value=entry)
    return tensor


def _run(arguments: list[str]) -> tuple[float, int]:
    """Seconds and bytes of memory of a command."""
    began = time.perf_counter()
    command = [sys.executable, "-c", "from dlb.cli import main; main()", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"large_files.py: dlb {arguments[0]} ended with {status}")
    return time.perf_counter() - began, used.ru_maxrss * 1024


if __name__ == "__main__":
    raise SystemExit(told(main))
