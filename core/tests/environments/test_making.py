"""Environments made, reused, made again and removed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import dlb
from dlb import environments
from dlb.environments import record, sources
from dlb.environments.inspection import run_program
from dlb.environments.pyenv import pyenv_python
from dlb.errors import ProvisionError, RequestError

FLAVOUR = "import dlb_mini; print(dlb_mini.FLAVOUR)"


def rewrite(path: Path, text: str) -> None:
    """Not in place: an installed file may be a link to the one in uv's cache."""
    path.unlink()
    path.write_text(text)


def test_from_checkout_then_reuse_stale_and_remove(checkout: Path, home: Path) -> None:
    said: list[str] = []
    made = environments.create("mini", source=checkout, report=said.append)
    assert made == environments.find("mini")
    assert environments.list_all() == [made]
    assert made.managed
    assert (made.source, made.worker_version) == (checkout, dlb.__version__)
    assert made.folder == home / "environments" / "mini"
    assert said[0].startswith("making a virtual environment with Python ")
    assert "installing dlb-worker and dlb-mini" in said
    assert environments.packages(made).keys() >= {"dlb-worker", "dlb-mini", "packaging"}
    # Built, not pointed at the checkout.
    assert run_program(made.python, "import dlb_mini; print(dlb_mini.__file__)")[1].startswith(
        str(made.folder)
    )
    assert {f.severity for f in environments.doctor("mini")} == {"ok"}

    assert environments.ensure("mini") == made
    assert environments.ensure("mini", source=checkout) == made

    (checkout / "plugins/dlb-mini/src/dlb_mini/__init__.py").write_text("FLAVOUR = 'second'\n")
    (stale,) = [f for f in environments.doctor("mini") if f.severity != "ok"]
    assert stale.severity == "warning"
    assert "stale" in stale.what
    assert stale.remedy == f"dlb env create mini --from '{checkout}'"
    again = environments.ensure("mini")
    assert again.created > made.created
    assert run_program(again.python, FLAVOUR)[1] == "second\n"

    # Leftovers of a run change nothing.
    (checkout / "worker/src/dlb_worker/__pycache__").mkdir()
    (checkout / "worker/src/dlb_worker/__pycache__/x.pyc").write_text("")
    assert environments.ensure("mini") == again
    environments.remove("mini")
    assert environments.find("mini") is None
    assert [p.name for p in (home / "environments").iterdir()] == [".mini.lock"]


def test_source_gone_keeps_what_works(checkout: Path, tmp_path: Path) -> None:
    made = environments.create("mini", source=checkout)
    checkout.rename(tmp_path / "moved")
    assert environments.ensure("mini") == made
    (finding,) = [f for f in environments.doctor("mini") if f.severity != "ok"]
    assert "is gone" in finding.what
    assert finding.remedy == "dlb env create mini"
    assert environments.ensure("mini", source=tmp_path / "moved") == made


def test_from_wheels_and_broken_ones(wheels: Path) -> None:
    made = environments.create("mini", source=wheels, python=sys.executable)
    assert made.source == wheels
    assert made.python_request == sys.executable
    assert environments.ensure("mini") == made
    assert run_program(made.python, FLAVOUR)[1] == "first\n"
    assert {f.severity for f in environments.doctor("mini")} == {"ok"}
    mend = f"dlb env create mini --from {wheels} --python {sys.executable}"

    site = next((made.folder / "lib").glob("python*/site-packages"))
    for path in site.glob("packaging-*.dist-info/METADATA"):
        path.unlink()
    missing = [f for f in environments.doctor("mini") if f.severity == "error"]
    assert any("packaging" in f.what for f in missing)
    assert {f.remedy for f in missing} == {mend}

    rewrite(site / "dlb_mini" / "__init__.py", "import a_framework_that_is_not_there\n")
    broken = [f for f in environments.doctor("mini") if "does not load" in f.what]
    assert "a_framework_that_is_not_there" in broken[0].what
    assert broken[0].remedy == mend

    (metadata,) = site.glob("dlb_worker-*.dist-info/METADATA")
    rewrite(metadata, metadata.read_text().replace(f"Version: {dlb.__version__}", "Version: 9"))
    wrong = [f for f in environments.doctor("mini") if f.what.startswith("dlb-worker there is 9")]
    assert (wrong[0].severity, wrong[0].remedy) == ("error", mend)

    (entry_points,) = site.glob("dlb_mini-*.dist-info/entry_points.txt")
    entry_points.unlink()
    assert any("no entry point" in f.what for f in environments.doctor("mini"))

    made.python.unlink()
    last = environments.doctor("mini")[-1]
    assert last == environments.Finding("error", f"its interpreter {made.python} is gone", mend)
    # It is not taken for whole, and is made again from the same wheels.
    assert environments.ensure("mini").python.exists()
    assert {f.severity for f in environments.doctor("mini")} == {"ok"}


def test_constraints_are_applied_and_remembered(checkout: Path, tmp_path: Path) -> None:
    (checkout / "constraints.txt").write_text("packaging<25\n")
    made = environments.create("mini", source=checkout)
    assert int(environments.packages(made)["packaging"].split(".")[0]) < 25
    mine = tmp_path / "mine.txt"
    mine.write_text("packaging==23.2\n")
    made = environments.ensure("mini", constraint=mine)
    assert environments.packages(made)["packaging"] == "23.2"
    assert environments.ensure("mini") == made
    with pytest.raises(RequestError, match="no such constraints file"):
        environments.create("mini", constraint=tmp_path / "none.txt")


def test_pip_settings_reach_uv(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.txt").write_text("packaging==24.0\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "pip.txt"))
    monkeypatch.delenv("UV_CONSTRAINT", raising=False)
    made = environments.create("mini", source=checkout)
    assert environments.packages(made)["packaging"] == "24.0"


def test_an_adapters_own_package(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if this dlb had been installed from the checkout.
    monkeypatch.setattr(sources, "default_source", lambda: checkout)
    package = checkout.parent / "theirs"
    (checkout / "plugins" / "dlb-mini").rename(package)
    made = environments.create("mini", source=package)
    assert made.source == package
    assert {f.severity for f in environments.doctor("mini")} == {"ok"}


@pytest.mark.parametrize("which", ["nothing", "empty", "checkout", "wheels"])
def test_not_a_source(which: str, tmp_path: Path, checkout: Path, home: Path) -> None:
    place, name = tmp_path / which, "mini"
    if which == "empty":
        place.mkdir()
    elif which == "checkout":
        place, name = checkout, "minni"
    elif which == "wheels":
        place.mkdir()
        (place / "dlb_worker-1.0-py3-none-any.whl").write_text("")
    expected = {
        "nothing": "no such folder",
        "empty": "neither a checkout of dlb",
        "checkout": "no plugins/dlb-minni; adapters there: mini",
        "wheels": "no wheel of dlb-mini",
    }
    with pytest.raises(RequestError, match=expected[which]):
        environments.create(name, source=place)
    assert not home.exists()


def test_unknown_distribution(checkout: Path, home: Path) -> None:
    pyproject = checkout / "plugins/dlb-mini/pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace('"packaging"', '"dlb-no-such-thing-at-all"'))
    with pytest.raises(ProvisionError) as caught:
        environments.create("mini", source=checkout)
    message = str(caught.value)
    log = home / "environments" / "mini.log"
    assert message.startswith("environment 'mini', installing dlb-worker and dlb-mini: ")
    assert "dlb-no-such-thing-at-all" in message
    assert "\n" not in message
    assert str(log) in message
    assert "$ uv pip install" in log.read_text()
    assert environments.find("mini") is None
    assert not (home / "environments" / "mini").exists()


def test_failure_keeps_the_earlier_one(checkout: Path) -> None:
    made = environments.create("mini", source=checkout)
    pyproject = checkout / "plugins/dlb-mini/pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace("hatchling.build", "no_such_backend"))
    with pytest.raises(ProvisionError, match="no_such_backend"):
        environments.ensure("mini")
    assert environments.find("mini") == made
    assert run_program(made.python, FLAVOUR)[1] == "first\n"


@pytest.mark.parametrize("how", ["offline", "proxy"])
def test_no_network(
    how: str, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty cache"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    if how == "offline":
        monkeypatch.setenv("UV_OFFLINE", "1")
    else:
        for variable in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with pytest.raises(ProvisionError, match="no network: could not reach "):
        environments.create("mini", source=checkout)
    assert environments.list_all() == []


def test_no_fitting_python(
    tmp_path: Path, make_checkout: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    checkout = make_checkout(tmp_path / "old", python=">=3.10,<3.10.1")
    with pytest.raises(ProvisionError, match=r"no fitting Python .*>=3.10,<3.10.1.*--python"):
        environments.create("mini", source=checkout)


def test_python_that_the_adapter_does_not_take(
    tmp_path: Path, make_checkout: Callable[..., Path]
) -> None:
    checkout = make_checkout(tmp_path / "old", python=">=3.10,<3.10.1")
    with pytest.raises(ProvisionError, match=r"does not fit: dlb-mini needs .*<3\.10\.1"):
        environments.create("mini", source=checkout, python=sys.executable)


def test_other_worker_version_is_not_held_on_to(
    checkout: Path, tmp_path: Path, make_checkout: Callable[..., Path]
) -> None:
    older = make_checkout(tmp_path / "older", version="0.0.0.1")
    environments.create("mini", source=older)
    wrong = [f for f in environments.doctor("mini") if f.severity == "error"]
    assert wrong[0].what == f"dlb-worker there is 0.0.0.1, this dlb has {dlb.__version__}"
    assert environments.ensure("mini", source=checkout).worker_version == dlb.__version__


def test_moved_home(checkout: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environments.create("mini", source=checkout)
    home.rename(home.with_name("moved"))
    monkeypatch.setenv("DLB_HOME", str(home.with_name("moved")))
    found = environments.find("mini")
    assert found is not None
    assert str(found.python).startswith(str(home.with_name("moved")))
    assert run_program(found.python, FLAVOUR)[1] == "first\n"


def test_default_source_is_where_dlb_came_from(
    checkout: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = next(wheels.glob("dlb_worker-*.whl"))
    installed = tmp_path / "site"
    info = installed / "dlb_core-7.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dlb-core\nVersion: 7\n")
    monkeypatch.setattr(sys, "path", [str(installed)])
    for url, expected in [
        ((checkout / "core").as_uri(), checkout),
        (wheel.as_uri(), wheels),
        ((tmp_path / "elsewhere").as_uri(), None),
        ("https://files.example/dlb_core-7-py3-none-any.whl", None),
    ]:
        (info / "direct_url.json").write_text(json.dumps({"url": url}))
        assert sources.default_source() == expected
    (info / "direct_url.json").write_text("")
    assert sources.default_source() is None


def test_index_plan_asks_for_our_version() -> None:
    if sources.default_source() is not None:
        pytest.skip("this dlb was installed from a checkout")
    plan = sources.plan("torch", source=None, python=None, constraint=None)
    assert plan.requirements == (f"dlb-worker=={dlb.__version__}", "dlb-torch")
    assert plan.python == environments.KNOWN["torch"].python


def test_the_python_range_of_both_packages(checkout: Path) -> None:
    plan = sources.plan("mini", source=checkout, python=None, constraint=None)
    assert plan.python == f">=3.6,=={sys.version_info.major}.{sys.version_info.minor}.*"


def test_of_two_lower_ends_the_higher_one_is_said(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_requires_python", lambda folder: ">=3.6,>=3.10,<3.14")
    plan = sources.plan("mini", source=checkout, python=None, constraint=None)
    assert plan.python == ">=3.10,<3.14"


def test_read_only_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        # Nothing is read-only to root; /proc takes no folder from anyone.
        if not Path("/proc/self").exists():
            pytest.skip("no place is read-only to root here")
        monkeypatch.setenv("DLB_HOME", "/proc/dlb")
    else:
        home.mkdir(mode=0o500)
    with pytest.raises(ProvisionError, match="set DLB_HOME to a folder that you may write to"):
        environments.create("mini")


def test_record_is_written_last(checkout: Path, home: Path) -> None:
    seen: list[bool] = []
    folder = home / "environments" / "mini"
    environments.create(
        "mini", source=checkout, report=lambda _: seen.append(record.is_unfinished(folder))
    )
    assert seen == [*[True] * (len(seen) - 1), False]


def test_the_newest_fitting_python_of_pyenv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("3.6.9", "3.6.15", "3.8.18", "miniconda3-latest"):
        folder = tmp_path / "versions" / version / "bin"
        folder.mkdir(parents=True)
        (folder / "python").symlink_to(sys.executable)
    (tmp_path / "versions" / "3.6.99" / "bin").mkdir(parents=True)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert pyenv_python(">=3.6,<3.7") == tmp_path / "versions/3.6.15/bin/python"
    assert pyenv_python(">=3.9") is None and pyenv_python("no range") is None


def test_a_python_that_uv_does_not_find_is_taken_from_pyenv(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where uv may look nowhere and download nothing."""
    version = ".".join(map(str, sys.version_info[:3]))
    folder = tmp_path / "pyenv" / "versions" / version / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    monkeypatch.setenv("UV_MANAGED_PYTHON", "1")
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "none"))
    made = environments.create("mini", source=checkout)
    assert run_program(made.python, "import sys; print(sys.version_info[:3])")[1] == (
        f"{sys.version_info[:3]}\n"
    )
