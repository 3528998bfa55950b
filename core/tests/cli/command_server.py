"""Runs ``dlb`` commands in children of one process that has imported dlb: a start then costs no imports.

    python command_server.py

Standard input has a JSON document a line: ``words``, ``environment``, ``folder``, ``out`` and ``err`` (files).
The answers are two lines: the number of the child's process and, when it has ended, its status. A child ends as
the command does: its ``main`` runs at the end of this module, and Python exits.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import signal
import sys
import tempfile
import time
from typing import Any

import dlb
import dlb.cli


def import_all() -> None:
    """Import every module of dlb, but no plugin."""
    for module in pkgutil.walk_packages(dlb.__path__, "dlb."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.freeze()


def serve() -> list[str]:
    """Fork a child for each command. Returns in a child alone, with the command's words."""
    for line in sys.stdin:
        asked = json.loads(line)
        number = os.fork()
        if not number:
            become(asked)
            words: list[str] = asked["words"]
            return words
        print(number, flush=True)
        _, status = os.waitpid(number, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    os._exit(0)


def become(asked: dict[str, Any]) -> None:
    """Make this child what a new process in that folder would be."""
    os.setsid()
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    tempfile.tempdir = None
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, path in ((0, os.devnull), (1, asked["out"]), (2, asked["err"])):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        file = os.open(path, flags, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process lives


if __name__ == "__main__":
    import_all()
    sys.argv = ["dlb", *serve()]
    dlb.cli.main()
