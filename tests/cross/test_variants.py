"""Models that a framework compiles, whole through the command."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import Dlb

DROPOUTS = str(Path(__file__).parent / "workloads" / "dropouts.toml")


def test_what_xla_makes_of_a_model_is_proven(dlb: Dlb) -> None:
    words = ("--variant", "tf:compile=xla", "--threads", "1", "--json")
    done = dlb("verify", DROPOUTS, "--on", "tf", *words)
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    certificate = json.loads(done.stdout)["certificate"]
    assert certificate["variants"] == {"tf": {"compile": "xla"}}
    assert {one["verdict"] for one in certificate["checks"]} == {"passed"}


def test_a_compiler_that_is_missing_is_told_in_a_line(dlb: Dlb, tmp_path: Path) -> None:
    missing = "no-such-compiler"
    words = ("--variant", "torch:compile=inductor", "--threads", "1")
    # What was compiled before is not to be found.
    variables = {"CXX": missing, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    done = dlb("verify", DROPOUTS, "--on", "torch", *words, **variables)
    assert done.returncode == 1
    assert "torch.compile cannot compile here" in done.stderr and missing in done.stderr
    assert "takes a C++ compiler (Debian: g++)" in done.stderr
    assert "Traceback" not in done.stderr
