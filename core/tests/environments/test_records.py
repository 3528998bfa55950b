"""Names, records, and what is ours to delete: no uv in these."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlb import environments
from dlb.environments import record
from dlb.environments.names import check_name
from dlb.environments.uv_process import redact
from dlb.errors import EnvironmentMissing, ProvisionError, RequestError

BAD_NAMES = ["", ".", "..", "../x", "a/b", "/etc", "-x", "_x", "x-", "Torch", "a b", "a\n", "é"]


@pytest.mark.parametrize("name", [*BAD_NAMES, "core", "a" * 65])
def test_bad_names_are_refused_everywhere(name: str, home: Path) -> None:
    for action in (
        environments.create,
        environments.ensure,
        environments.find,
        environments.remove,
        environments.doctor,
        environments.distribution_of,
        lambda given: environments.add(given, Path(sys.executable)),
    ):
        with pytest.raises(RequestError, match=r"core|cannot be an adapter's name"):
            action(name)
    assert not home.exists()


@given(st.text(max_size=10))
def test_no_name_leaves_the_home(name: str) -> None:
    try:
        check_name(name)
    except RequestError:
        return
    assert record.folder_of(name).parent.name == "environments"
    assert Path(name).name == name


@pytest.mark.parametrize("name", ["torch", "tf", "my-own_one", "x", "3d"])
def test_good_names(name: str) -> None:
    assert environments.distribution_of(name) == f"dlb-{name}"


def test_told_of(home: Path) -> None:
    added = environments.add("mini", Path(sys.executable))
    assert added == environments.find("mini")
    assert not added.managed
    assert added.python == Path(sys.executable)
    assert environments.list_all() == [added]
    assert environments.ensure("mini") == added
    assert "pytest" in environments.packages(added)
    with pytest.raises(RequestError, match=r"registered to run in .*dlb env remove mini"):
        environments.create("mini")
    environments.add("mini", Path(sys.executable))
    environments.remove("mini")
    assert Path(sys.executable).exists()
    assert environments.find("mini") is None
    assert not (home / "environments" / "mini").exists()


def test_told_of_one_that_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="not a Python interpreter that runs"):
        environments.add("mini", tmp_path / "python")
    assert environments.find("mini") is None


def test_told_of_one_that_went_away(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    environments.add("mini", python)
    python.unlink()
    with pytest.raises(EnvironmentMissing, match="dlb env add mini PYTHON"):
        environments.ensure("mini")
    last = environments.doctor("mini")[-1]
    assert (last.severity, last.remedy) == ("error", "dlb env add mini PYTHON")


def test_told_of_one_without_the_adapter() -> None:
    environments.add("nowhere", Path(sys.executable))
    found = {f.what: f for f in environments.doctor("nowhere")}
    missing = found["dlb-nowhere is not installed there"]
    assert missing.severity == "error"
    assert missing.remedy == f"{sys.executable} -m pip install dlb-nowhere"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"format": 2}', '{"format": 1, "name": "other"}', "\x00\xff"],
)
def test_unreadable_record_counts_as_none(home: Path, text: str) -> None:
    environments.add("good", Path(sys.executable))
    folder = home / "environments" / "mini"
    folder.mkdir()
    (folder / record.RECORD).write_text(text, encoding="latin-1")
    assert environments.find("mini") is None
    assert [e.name for e in environments.list_all()] == ["good"]
    (finding,) = environments.doctor("mini")
    assert finding.severity == "error"
    assert str(folder) in finding.what
    assert finding.remedy == "dlb env create mini"
    environments.remove("mini")
    assert not folder.exists()


@pytest.mark.parametrize(
    "change", [{"managed": "yes"}, {"python": None}, {"created": 3}, {"source": []}]
)
def test_record_with_a_wrong_field(home: Path, change: dict[str, object]) -> None:
    environments.add("mini", Path(sys.executable))
    path = home / "environments" / "mini" / record.RECORD
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert environments.find("mini") is None
    assert next(iter(change)) in environments.doctor("mini")[0].what


def test_only_our_folders_are_deleted(home: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentMissing):
        environments.remove("mini")
    folder = home / "environments" / "mini"
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(RequestError, match="did not make this folder"):
        environments.remove("mini")
    with pytest.raises(RequestError, match="did not make this folder"):
        environments.create("mini")
    with pytest.raises(RequestError, match="did not make this folder"):
        environments.add("mini", Path(sys.executable))
    assert (folder / "thesis.tex").read_text() == "years of work"


def test_a_link_is_not_followed(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / record.UNFINISHED).touch()
    (home / "environments").mkdir(parents=True)
    (home / "environments" / "mini").symlink_to(elsewhere)
    for action in (environments.remove, environments.create):
        with pytest.raises(RequestError, match="did not make this folder"):
            action("mini")
    assert (elsewhere / record.UNFINISHED).exists()


def test_nothing_there() -> None:
    assert environments.find("mini") is None
    assert environments.list_all() == []
    (finding,) = environments.doctor("mini")
    assert finding == environments.Finding(
        "error", "there is no environment 'mini'", "dlb env create mini"
    )


def test_home_that_cannot_be_written(home: Path) -> None:
    home.write_text("a file, where a folder should be")
    with pytest.raises(ProvisionError, match="set DLB_HOME to a folder that you may write to"):
        environments.create("mini")
    with pytest.raises(ProvisionError, match="set DLB_HOME"):
        environments.add("mini", Path(sys.executable))
    assert environments.list_all() == []


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_bad_time_limit(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("DLB_PROVISION_TIMEOUT", text)
    with pytest.raises(RequestError, match="DLB_PROVISION_TIMEOUT"):
        environments.create("mini")


def test_passwords_are_not_logged() -> None:
    assert redact("from https://me:secret@a.example/x") == "from https://***@a.example/x"
