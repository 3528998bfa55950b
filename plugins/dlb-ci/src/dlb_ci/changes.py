"""What changed since a commit, and the earlier versions of files."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import onnx

from dlb.errors import RequestError
from dlb_graph.files.model_file import tensors_of
from dlb_graph.toml_files import read_toml

__all__ = ["changed_files", "earlier_version", "to_prove"]


def _git(*words: str) -> bytes:
    try:
        return subprocess.run(["git", *words], check=True, capture_output=True).stdout
    except FileNotFoundError:
        raise RequestError("git is not installed, or not on PATH") from None
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip().splitlines() or ["it failed"]
        raise RequestError(f"git {words[0]}: {reason[0]}") from None


def _before(base: str) -> str:
    """The last commit in common with a commit; of ``HEAD`` and ``HEAD^``, the empty tree if there is none yet.

    A commit that is not here raises RequestError; a shallow clone may not have fetched it.
    """
    _git("rev-parse", "--git-dir")
    try:
        commit = _git("rev-parse", "--verify", "--end-of-options", f"{base}^{{commit}}").decode()
        return _git("merge-base", commit.strip(), "HEAD").decode().strip()
    except RequestError as error:
        # A first commit has no parent, not even one that a shallow clone lacks.
        own = b"" if base == "HEAD" else _git("cat-file", "-p", "HEAD")
        if base in ("HEAD", "HEAD^") and b"\nparent " not in own:
            return _git("hash-object", "-t", "tree", "/dev/null").decode().strip()
        raise RequestError(
            f"--base {base}: no such commit here, or none in common with HEAD ({error.message}); fetch it, "
            "in a GitHub workflow with fetch-depth: 0 of actions/checkout"
        ) from None


def changed_files(base: str) -> list[Path]:
    """Files here that differ from the last commit in common with ``base``."""
    words = ("diff", "--name-only", "-z", "--no-renames", "--diff-filter=AM", "--relative")
    return [*map(Path, _git(*words, _before(base)).decode().split("\0")[:-1])]


def to_prove(files: Sequence[Path]) -> list[Path]:
    """The ONNX files and workloads among files, and ONNX files whose weights are in one of the others."""
    own = {each for each in files if _is_model(each)}
    folders = {f":(glob){each.parent}/*.onnx" for each in {*files} - own}
    models = _git("ls-files", "-z", "--", *folders) if folders else b""
    for path in map(Path, models.decode().split("\0")[:-1]):
        own |= {path} if {path.parent / name for name in _data_of(path)} & {*files} else set()
    return sorted(own)


def _data_of(path: Path) -> list[str]:
    """Names of the files next to an ONNX file that hold its weights; none if it cannot be read."""
    try:
        tensors = list(tensors_of(onnx.load(path, load_external_data=False)))
    except Exception:  # whoever proves it says why
        return []
    named = {each.value for own in tensors for each in own.external_data if each.key == "location"}
    return [name for name in named if Path(name).name == name]


def earlier_version(base: str, path: Path, to: Path) -> bool:
    """Write the version that a file had before this branch changed it; False if there was none."""
    common = _before(base)
    top = Path(_git("rev-parse", "--show-toplevel").decode().rstrip("\n")).resolve()
    whole = path.parent.resolve() / path.name
    if top not in whole.parents:
        raise RequestError(f"it is not in the repository {top}", path=path)
    name = whole.relative_to(top).as_posix()
    if not _git("ls-tree", "-z", "--full-tree", common, "--", name):
        return False
    read = ("cat-file", "--filters")  # they make a file of what Git LFS keeps elsewhere
    to.write_bytes(_git(*read, f"{common}:{name}"))
    for each in _data_of(to):
        (to.parent / each).write_bytes(_git(*read, f"{common}:{name[: -len(path.name)]}{each}"))
    return True


def _is_model(path: Path) -> bool:
    """Whether it is an ONNX file or a workload. A TOML file that cannot be read may be one."""
    if path.suffix != ".toml":
        return path.suffix == ".onnx"
    try:
        return "model" in read_toml(path, "workload", 1 << 24, RequestError, dict)
    except RequestError:
        return True
