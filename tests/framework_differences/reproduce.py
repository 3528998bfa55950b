"""Runs reproducers in this process, which is one of a framework's environment.

    python reproduce.py FOLDER DISTRIBUTION...

Every ``*.py`` in the folder is run by itself, and must print one list of numbers. What each printed
(or the traceback, where it failed) and the distributions' versions go to ``FOLDER/found.json``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
import traceback
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def printed(script: Path) -> object:
    """What a script printed, or its traceback as text."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(str(script), run_name="__main__")
        # Exporters print news of their own before.
        return json.loads(out.getvalue().strip().splitlines()[-1])
    except Exception:
        return traceback.format_exc()


def versions(distributions: list[str]) -> dict[str, str]:
    found = {}
    for name in distributions:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def main(folder: Path, distributions: list[str]) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    os.environ["KERAS_BACKEND"] = "tensorflow"
    # The default depends on the processor.
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"
    warnings.simplefilter("ignore")
    found = {script.stem: printed(script) for script in sorted(folder.glob("*.py"))}
    document = {"printed": found, "versions": versions(distributions)}
    (folder / "found.json").write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
