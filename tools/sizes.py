"""Lines, modules and dependencies of every package of this repository.

    python tools/sizes.py       prints them; status 1 if a package has more lines than it may

Lines are those of Python files in a package's ``src``, comments and blank lines included. What each may have
is in ``pyproject.toml``, under ``tool.dlb.most-lines``. A limit goes down with the package; it goes up with a
reason in ``docs/explanation/how-it-fits.md``.
"""

from __future__ import annotations

import configparser
import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]


def packages() -> dict[str, Path]:
    """The folder of each package, by its distribution's name."""
    folders = [
        ROOT / "core",
        ROOT / "graph",
        ROOT / "worker",
        ROOT / "conformance",
        *ROOT.glob("plugins/*"),
    ]
    return {name_of(folder): folder for folder in sorted(folders) if (folder / "src").is_dir()}


def name_of(folder: Path) -> str:
    return folder.name if folder.name.startswith("dlb-") else f"dlb-{folder.name}"


def lines(folder: Path) -> tuple[int, int]:
    """Lines and modules of a package."""
    files = list((folder / "src").rglob("*.py"))
    return sum(file.read_bytes().count(b"\n") for file in files), len(files)


def dependencies(folder: Path) -> list[str]:
    """What a package needs, extras aside; those for old Pythons have their metadata in setup.cfg."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    if "project" in project:
        stated = project["project"].get("dependencies", [])
    else:
        old = configparser.ConfigParser()
        old.read(folder / "setup.cfg", encoding="utf-8")
        stated = old.get("options", "install_requires", fallback="").split("\n")
    return [text.split(";")[0].strip() for text in stated if text.strip()]


def main() -> int:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    limits = settings["tool"]["dlb"]["most-lines"]
    print(f"{'package':18}{'lines':>8}{'at most':>9}{'modules':>9}  needs")
    total, above = 0, []
    for name, folder in packages().items():
        count, modules = lines(folder)
        total += count
        most = limits.get(name)
        above += [name] if most is not None and count > most else []
        needs = " ".join(
            text.split(">")[0].split("=")[0].split("<")[0] for text in dependencies(folder)
        )
        print(f"{name:18}{count:8,}{most or '':>9}{modules:9}  {needs}")
    print(f"{'all':18}{total:8,}")
    for name in above:
        print(f"{name} has more lines than it may: see tools/sizes.py", file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
