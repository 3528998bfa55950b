"""What an outsider finds in the repository: versions that agree, files that their readers accept."""

from __future__ import annotations

import re
import shutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import dlb

ROOT = next(folder for folder in Path(__file__).parents if (folder / "CITATION.cff").is_file())
PACKAGES = sorted(
    path.parent
    for pattern in ("*/pyproject.toml", "plugins/*/pyproject.toml")
    for path in ROOT.glob(pattern)
)


@pytest.fixture
def versions() -> Iterator[types.ModuleType]:
    """``tools/set_version.py``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        import set_version

        yield set_version
        del sys.modules["set_version"]


def test_every_package_has_the_same_version(versions: types.ModuleType) -> None:
    stated = versions.stated()
    assert set(stated.values()) == {dlb.__version__}
    assert {"CITATION.cff", "core/src/dlb/__init__.py"} < set(stated)
    assert len(stated) >= len(PACKAGES) + 1


def test_a_version_is_set_everywhere(
    versions: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [*versions.stated(), *(f"{path.relative_to(ROOT)}/pyproject.toml" for path in PACKAGES)]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    versions.set_version("3.14.1")
    assert set(versions.stated().values()) == {"3.14.1"}
    text = (tmp_path / "plugins" / "dlb-torch" / "pyproject.toml").read_text(encoding="utf-8")
    ranges = re.findall(r'"(dlb-[a-z]+)>=([\d.]+),<([\d.]+)"', text)
    assert {(low, high) for _, low, high in ranges} == {("3.14", "3.15")}


def test_the_citation_has_what_the_format_requires() -> None:
    """The Citation File Format 1.2.0: https://doi.org/10.5281/zenodo.5171937."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    keys = dict(re.findall(r"^([\w-]+):[ ]?(.*)$", text, re.M))
    assert {"cff-version", "message", "title", "authors"} <= keys.keys()
    assert keys["cff-version"] == "1.2.0" and keys["type"] == "software"
    assert keys["license"] == "Apache-2.0" and keys["version"] == dlb.__version__


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_the_page_of_a_package_on_an_index_stands_alone(package: Path) -> None:
    """An index shows the README without the repository, where no relative link leads anywhere."""
    text = (package / "README.md").read_text(encoding="utf-8")
    assert "pip install" in text
    assert [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link] == []
