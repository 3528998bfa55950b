"""Faults of strategies in released versions of frameworks: docs/how-to/proving-strategies.md has the table.

    python benchmarks/released_faults.py FOLDER

makes two environments in a folder with uv, which must find Python 3.10 and 3.11, and prints a row for each
release and case of two workers. It needs 4 GB.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("worker", "graph", "core", "plugins/dlb-port", "conformance")
OTHERS = ("tf2onnx", "typing-extensions", "onnx<1.18", "numpy<2", "pytest")
SUMS = "mirrored-equal_shares", "multi_worker_mirrored-equal_shares"
STATISTICS = ("multi_worker_mirrored-local_statistics",)
ALONE = ("local_sgd-equal_shares",)
PYTHON = {"tf": "3.11", "torch": "3.10"}
#: The adapter, what is installed, and the cases.
RELEASES = (
    ("tf", ("tensorflow-cpu==2.17.1", "keras==3.4.1"), SUMS),
    ("tf", ("tensorflow-cpu==2.18.1", "keras==3.5.0"), SUMS),
    ("tf", ("tensorflow-cpu==2.18.1", "keras==3.7.0"), STATISTICS),
    ("tf", ("tensorflow-cpu==2.18.1", "keras==3.8.0"), STATISTICS),
    ("torch", ("torch==1.11.0", "--no-deps"), ALONE),
    ("torch", ("torch==1.12.1", "--no-deps"), ALONE),
)
#: What dlb-torch uses of later releases of torch than these, by file.
EDITS = {
    "framework.py": ("torch.backends.cpu.get_cpu_capability()", '"unknown"'),
    "data.py": ("batch_sampler=rows", "sampler=rows, batch_size=None"),
}


def main(folder: Path) -> None:
    for adapter, version in PYTHON.items():
        python, plugin = folder / adapter / "bin" / "python", folder / f"dlb-{adapter}"
        run("uv", "venv", "--clear", "-p", version, folder / adapter)
        install = ("uv", "pip", "install", "--python", python)
        run(*install, *OTHERS, *(f"-e{ROOT / part}" for part in PARTS))
        shutil.copytree(ROOT / "plugins" / plugin.name, plugin, dirs_exist_ok=True)
        for name, (old, new) in EDITS.items() if adapter == "torch" else ():
            source = plugin / "src" / "dlb_torch" / name
            text = source.read_text()
            assert old in text, f"{source} has no {old}"
            source.write_text(text.replace(old, new).replace("def __getitems__", "def __getitem__"))
        run(*install, "--no-deps", plugin)
        for _, packages, cases in (each for each in RELEASES if each[0] == adapter):
            run(*install, *packages)
            for case in cases:
                print(f"| {packages} | {case} | {said(python, adapter, case)} |", flush=True)


def said(python: Path, adapter: str, case: str) -> str:
    """What is wrong in a case, in dlb's words."""
    suite = (python, "-m", "pytest", "--pyargs", "dlb_conformance", "--adapter", adapter)
    found = python.parents[1] / "found.xml"
    run(*suite, "-k", f"test_strategies and [{case}-2]", f"--junitxml={found}", statuses=(0, 1))
    failure = ElementTree.parse(found).find(".//failure")
    message = "passed" if failure is None else failure.get("message", "")
    return message.removeprefix("AssertionError: ").split(";")[0]


def run(*command: str | Path, statuses: tuple[int, ...] = (0,)) -> None:
    ended = subprocess.run([*map(str, command)], capture_output=True, text=True)
    if ended.returncode not in statuses:
        sys.exit(ended.stdout[-2000:] + ended.stderr[-2000:])


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
