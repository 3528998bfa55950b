"""Python processes of this environment, apart from the one that tests run in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def run_python(arguments: Sequence[str], seconds: float = 300.0) -> Any:
    """The JSON that a Python process prints last, with this process's import path."""
    path = os.pathsep.join(each for each in sys.path if each)
    ended = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return json.loads(ended.stdout.splitlines()[-1])
