"""Sets the version of every package of this repository, which are released together.

    python tools/set_version.py 0.2.0     sets it
    python tools/set_version.py           prints it, with status 1 where packages differ

A package states its version in its own ``__init__.py``, so that each builds from its own folder. The
ranges in which packages ask for each other, and CITATION.cff, follow.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
STATED = re.compile(r'^__version__ = "([^"]+)"$', re.M)
RANGE = re.compile(r"(dlb-[\w-]+(?:\[[\w,]+\])?)>=[\d.]+,<[\d.]+")
CITED = re.compile(r"^version: (\S+)$", re.M)


def stating_files() -> list[Path]:
    """The ``__init__.py`` of every released package."""
    paths = [*ROOT.glob("*/src/*/__init__.py"), *ROOT.glob("plugins/*/src/*/__init__.py")]
    return sorted(path for path in paths if STATED.search(path.read_text(encoding="utf-8")))


def stated() -> dict[str, str]:
    """The version that each package, and CITATION.cff, states, by its path in the repository."""
    files = [(path, STATED) for path in stating_files()] + [(ROOT / "CITATION.cff", CITED)]
    versions = {}
    for path, pattern in files:
        match = pattern.search(path.read_text(encoding="utf-8"))
        versions[path.relative_to(ROOT).as_posix()] = match[1] if match else ""
    return versions


def set_version(version: str) -> None:
    """Write it everywhere; packages then ask for each other within the same minor version."""
    major, minor = (int(part) for part in version.split(".")[:2])
    for path in stating_files():
        text = path.read_text(encoding="utf-8")
        path.write_text(STATED.sub(f'__version__ = "{version}"', text), encoding="utf-8")
        # Packages for old Pythons have their metadata in setup.cfg.
        for name in ("pyproject.toml", "setup.cfg"):
            metadata = path.parents[2] / name
            if metadata.is_file():
                text = metadata.read_text(encoding="utf-8")
                text = RANGE.sub(rf"\1>={major}.{minor},<{major}.{minor + 1}", text)
                metadata.write_text(text, encoding="utf-8")
    citation = ROOT / "CITATION.cff"
    text = citation.read_text(encoding="utf-8")
    citation.write_text(CITED.sub(f"version: {version}", text), encoding="utf-8")


def main() -> int:
    if len(sys.argv) == 2:
        if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", sys.argv[1]):
            print(f"not a version: {sys.argv[1]}; expected MAJOR.MINOR.PATCH", file=sys.stderr)
            return 2
        set_version(sys.argv[1])
    for path, version in stated().items():
        print(f"{version or 'none'}  {path}")
    return 0 if len(set(stated().values())) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
