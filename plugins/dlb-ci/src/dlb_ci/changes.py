"""What changed since a commit, and the earlier versions of files."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dlb.errors import RequestError
from dlb_graph.toml_files import read_toml

__all__ = ["changed_files", "earlier_version", "is_workload"]


def _git(*words: str) -> bytes:
    try:
        return subprocess.run(["git", *words], check=True, capture_output=True).stdout
    except FileNotFoundError:
        raise RequestError("git is not installed, or not on PATH") from None
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip().splitlines() or ["it failed"]
        raise RequestError(f"git {words[0]}: {reason[0]}") from None


def _commit(base: str) -> str:
    """The hash of a commit.

    Raises:
        RequestError: there is no such commit; in a shallow clone it may not have been fetched.
    """
    try:
        return (
            _git("rev-parse", "--verify", "--end-of-options", f"{base}^{{commit}}").decode().strip()
        )
    except RequestError as error:
        raise RequestError(
            f"--base {base}: no such commit here ({error.message}); fetch it, in a GitHub workflow with "
            "fetch-depth: 0 of actions/checkout"
        ) from None


def changed_files(base: str) -> list[Path]:
    """ONNX and TOML files here that differ from the last commit in common with ``base``."""
    common = _git("merge-base", _commit(base), "HEAD").decode().strip()
    words = ("diff", "--name-only", "-z", "--no-renames", "--diff-filter=AM", "--relative", common)
    names = _git(*words, "--", "*.onnx", "*.toml").decode().split("\0")
    return [Path(name) for name in names if name]


def earlier_version(base: str, path: Path, to: Path) -> bool:
    """Write the version that a file had before this branch changed it; False if there was none."""
    common = _git("merge-base", _commit(base), "HEAD").decode().strip()
    top = Path(_git("rev-parse", "--show-toplevel").decode().rstrip("\n")).resolve()
    whole = path.parent.resolve() / path.name
    if top not in whole.parents:
        raise RequestError(f"it is not in the repository {top}", path=path)
    name = whole.relative_to(top).as_posix()
    if not _git("ls-tree", "-z", "--full-tree", common, "--", name):
        return False
    to.write_bytes(_git("cat-file", "blob", f"{common}:{name}"))
    return True


def is_workload(path: Path) -> bool:
    """Whether a TOML file is a workload, and not a project's settings. One that cannot be read may be one."""
    try:
        return "model" in read_toml(path, "workload", 1 << 24, RequestError, dict)
    except RequestError:
        return True
