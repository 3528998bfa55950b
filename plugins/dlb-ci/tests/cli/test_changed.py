"""``dlb changed``, the action and the hook, in temporary git repositories."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from dlb_process import TESTS, Dlb, Ended
from onnx import TensorProto, helper, numpy_helper

from dlb_ci.forms import Checked, junit, markdown

ROOT = next(folder for folder in Path(__file__).parents if (folder / "action.yml").is_file())
ACTION = (ROOT / "action.yml").read_text(encoding="utf-8")
Changed = Callable[..., Ended]


def write_model(path: Path, weight: float) -> None:
    """An ONNX file of one product with a constant."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    w = numpy_helper.from_array(np.full((3, 3), weight, np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "mul")
    graph = helper.make_graph([node], "g", [x], [y], [w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def git(folder: Path, *words: str) -> str:
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    command = ["git", *settings, *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(dlb: Dlb) -> Path:
    """Three models, a workload and settings are committed; a branch changes some."""
    folder = dlb.folder
    (folder / "models").mkdir()
    for name in ("same", "other", "kept"):
        write_model(folder / "models" / f"{name}.onnx", 0.5)
    (folder / "settings.toml").write_text("[tool]\nline = 1\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    git(folder, "checkout", "-q", "-b", "mine")
    model = onnx.load(folder / "models" / "same.onnx")
    model.producer_name = "somebody else"
    onnx.save(model, folder / "models" / "same.onnx")
    write_model(folder / "models" / "other.onnx", 0.75)
    (folder / "settings.toml").write_text("[tool]\nline = 2\n")
    shutil.copy(TESTS / "workloads" / "mlp.toml", folder / "mlp.toml")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "second")
    return folder


def test_what_changed_is_compared_and_proven(dlb: Dlb, repository: Path) -> None:
    ended = dlb(
        "changed", "--base", "main", "--on", "example", "--junit", "j.xml", "--summary", "s.md"
    )
    assert ended.status == 1 and dlb.left() == []
    suite = ElementTree.parse(repository / "j.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    cases = {case.get("name"): [part.tag for part in case] for case in suite}
    assert cases == {"mlp.toml": [], "models/other.onnx": ["failure"], "models/same.onnx": []}
    failure = suite.find("testcase/failure")
    assert failure is not None and failure.text is not None
    assert failure.get("message") == "other-before.onnx and other.onnx: other.onnx deviates"
    assert "other.onnx differs first in weights: 9 of 9 elements of 'w' [3, 3]" in failure.text
    summary = (repository / "s.md").read_text()
    assert "| models/other.onnx | diff | failed |" in summary
    assert "| mlp.toml | verify | passed | mlp: example proven |" in summary
    assert "- other.onnx differs first in weights: 9 of 9 elements of" in summary
    assert "settings.toml" not in ended.out + summary and "kept" not in ended.out


def test_a_change_that_computes_the_same_passes_and_nothing_is_skipped_silently(
    dlb: Dlb, repository: Path
) -> None:
    ended = dlb("changed", "--base", "main", "models/same.onnx", "mlp.toml", "--junit", "j.xml")
    assert ended.status == 0, ended.err
    assert "no adapter is named; add --on ADAPTER" in ended.out
    skipped = ElementTree.parse(repository / "j.xml").findall(".//testcase/skipped")
    assert [part.get("message") for part in skipped] == ["no adapter is named; add --on ADAPTER"]


def run_in(dlb: Dlb, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(dlb.command), "changed", *words]
    return subprocess.run(
        command, cwd=folder, env=dlb.environment(), capture_output=True, text=True
    )


def test_from_a_folder_within_and_before_a_commit(dlb: Dlb, repository: Path) -> None:
    write_model(repository / "models" / "kept.onnx", 0.25)
    done = run_in(dlb, repository / "models")
    assert done.returncode == 1
    assert (
        "kept.onnx: kept.onnx differs first in weights: 9 of 9 elements of 'w' [3, 3]"
        in done.stdout
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--base", "nowhere"), "--base nowhere: no such commit here"),
        (("--base", "--output=x"), "--base --output=x: no such commit here"),
        (("--junit", "no/such/j.xml"), "cannot write no/such/j.xml: No such file or directory"),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(
    dlb: Dlb, repository: Path, words: tuple[str, ...], says: str
) -> None:
    ended = dlb("changed", *words)
    assert ended.status == 2 and says in ended.complaint and not (repository / "x").exists()


def test_a_file_that_is_broken_is_an_error_of_its_own(dlb: Dlb, repository: Path) -> None:
    (repository / "models" / "same.onnx").write_bytes(b"\x00broken")
    (repository / "mlp.toml").write_text("model = [")
    ended = dlb("changed", "--base", "main", "--on", "example")
    assert ended.status == 1 and ended.out.count(" error ") == 2 and " failed " in ended.out


def test_a_file_may_have_a_whole_path_and_must_be_of_the_repository(
    dlb: Dlb, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "x.onnx"
    write_model(elsewhere, 0.5)
    ended = dlb("changed", "--base", "main", repository / "models" / "same.onnx", elsewhere)
    assert ended.status == 1 and ended.out.count(" passed ") == 1
    assert "it is not in the repository" in ended.out


def test_a_file_of_weights_that_changed_alone(dlb: Dlb, repository: Path) -> None:
    folder = repository / "two words"
    folder.mkdir()
    write_model(folder / "a b.onnx", 0.5)
    model = onnx.load(folder / "a b.onnx")
    onnx.save(
        model, folder / "a b.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "third")
    (folder / "w.bin").write_bytes(np.full((3, 3), 0.25, np.float32).tobytes())
    for words in ((), ("two words/w.bin",)):
        ended = dlb("changed", *words)
        first = r"a b.onnx differs first in weights: 9 of 9 elements of 'w' .*, 5.0e-01 apart"
        assert ended.status == 1 and re.search(first, ended.out)


def test_a_first_commit_and_a_shallow_clone(dlb: Dlb, repository: Path) -> None:
    git(repository, "checkout", "-q", "--orphan", "new")
    before = dlb("changed", "models/same.onnx")  # as the hook does before the first commit
    git(repository, "commit", "-q", "-m", "first")
    for ended in (before, dlb("changed", "--base", "HEAD^")):
        assert ended.status == 0 and re.search("same.onnx +verify +not checked", ended.out), (
            ended.err
        )
    git(repository, "checkout", "-q", "mine")
    git(repository, "clone", "-q", "--depth", "1", repository.as_uri(), "shallow")
    shallow = repository / "shallow"
    git(shallow, "fetch", "-q", "--depth", "1", "origin", "main")
    for base in ("HEAD^", "FETCH_HEAD"):
        done = run_in(dlb, shallow, "--base", base)
        assert done.returncode == 2 and "fetch-depth: 0" in done.stderr


def test_outside_of_a_repository(dlb: Dlb) -> None:
    ended = dlb("changed")
    assert ended.status == 2 and "not a git repository" in ended.complaint


def test_what_strangers_wrote_is_text() -> None:
    hostile = "<b>&\x1b|\n# x"
    results = [Checked(hostile, "diff", error=hostile)]
    case = ElementTree.fromstring(junit(results))[0][0]
    assert case.get("name") == "<b>&\\u001b|\n# x"
    lines = markdown(results).splitlines()
    assert not any(line.startswith("# x") for line in lines) and "<b>" not in "\n".join(lines)


# --- the action and the hook -------------------------------------------------------------------


def step(name: str) -> str:
    """The shell script of a step of the action."""
    (part,) = (part for part in ACTION.split("    - name: ") if part.startswith(name))
    return dedent(part.split("      run: |\n")[1])


def run_step(dlb: Dlb, name: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as a runner does: bash with -e and pipefail, inputs as variables."""
    binaries = dlb.folder.parent / f"{dlb.folder.name}-runner" / "dlb" / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    if not (binaries / "dlb").exists():
        (binaries / "dlb").symlink_to(dlb.command)
    variables |= {
        "RUNNER_TEMP": str(binaries.parents[1]),
        "GITHUB_STEP_SUMMARY": str(binaries / "summary.md"),
    }
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step(name)],
        cwd=dlb.folder,
        env={**dlb.environment(), **variables},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("base", ["main", "", "0" * 40])
def test_the_action_proves_what_changed(dlb: Dlb, repository: Path, base: str) -> None:
    done = run_step(dlb, "Prove what changed", BASE=base, ADAPTERS="", JUNIT="j.xml")
    assert done.returncode == 1 and "other.onnx differs first in weights" in done.stdout, (
        done.stderr
    )
    assert (repository / "j.xml").exists()
    runner = repository.parent / f"{repository.name}-runner"
    assert "## dlb" in (runner / "dlb" / "bin" / "summary.md").read_text()


def test_the_action_takes_several_adapters_and_no_shell(dlb: Dlb, repository: Path) -> None:
    done = run_step(
        dlb, "Prove what changed", BASE="main", ADAPTERS="example faulty", JUNIT="j.xml"
    )
    assert "mlp: example proven, faulty proven" in done.stdout, done.stderr
    done = run_step(dlb, "Prove what changed", BASE="$(touch hacked)", ADAPTERS="", JUNIT="j.xml")
    assert done.returncode == 2 and not (repository / "hacked").exists()


def test_the_action_installs_what_the_repository_has() -> None:
    words = step("Install dlb").split()
    names = (ROOT / "requirements" / "all.txt").read_text().split("\n")[1:]
    assert "requirements/all.txt" in words and "./plugins/dlb-ci" in names
    folders = [ROOT / name.partition("[")[0] for name in names if name]
    assert all((folder / "pyproject.toml").is_file() for folder in folders)
    for name in re.findall(r"\$\{\{ inputs\.(\w+) \}\}", ACTION):
        assert f"\n  {name}:\n" in ACTION
    assert "${{" not in "".join(step(name) for name in ("Install", "Make", "Prove"))


def test_the_hook_compares_staged_files_with_the_last_commit(dlb: Dlb, repository: Path) -> None:
    """As pre-commit calls it: the entry, then the names of staged files that match."""
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    settings = dict(re.findall(r"^[ -] (\w+): (.+)$", text, re.M))
    write_model(repository / "models" / "kept.onnx", 0.25)
    git(repository, "add", ".")
    staged = git(repository, "diff", "--cached", "--name-only").split()
    files = [name for name in staged if re.search(settings["files"], name)]
    program, *words = settings["entry"].split()
    assert program == "dlb" and settings["language"] == "system" and files == ["models/kept.onnx"]
    ended = dlb(*words, *files)
    assert ended.status == 1 and "kept.onnx differs first in weights" in ended.out
    git(repository, "checkout", "-q", "HEAD", "--", ".")
    assert dlb(*words, "models/kept.onnx", "settings.toml").status == 0
