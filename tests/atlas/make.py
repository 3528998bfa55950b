"""Measures every divergence in ``divergences/`` in the frameworks, and writes ``docs/reference/atlas.md``.

    python tests/atlas/make.py            writes the page
    python tests/atlas/make.py --check    measures again, and holds the page against it

It runs in the core's environment; the frameworks' are found as ``dlb`` finds them (DLB_HOME).

A divergence is a TOML file: what it is (``title``, ``category``), what the definition says and what
dlb does (``says``, ``dlb``), and scripts that print one list of numbers each: the ``definition`` in
NumPy, and one for each of the ``frameworks``. Each begins with the lines of ``given``. Two that are
no further apart than ``rounding`` (relative L2, 1e-12 unless said) agree.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dlb import environments
from dlb.errors import DlbError, EnvironmentMissing

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "reference" / "atlas.md"
#: Column, and distributions whose versions are told, by adapter.
FRAMEWORKS = {
    "torch": ("PyTorch", ("torch", "numpy", "onnx", "onnxscript")),
    "tf": (
        "Keras on TensorFlow",
        ("tensorflow", "tensorflow-cpu", "keras", "tf2onnx", "numpy", "onnx"),
    ),
    "mxnet": ("MXNet", ("mxnet", "numpy", "onnx")),
    "chainer": ("Chainer", ("chainer", "numpy", "onnx")),
}
CATEGORIES = ("layer", "gradient", "loss", "optimizer", "initialisation", "numerics", "export")
#: Seconds that all reproducers of one framework may take; one of torch's compiles.
TIME_LIMIT = 600
LINES: dict[str, Any] = {"width": 112, "break_long_words": False, "break_on_hyphens": False}
#: By how much a measured size may differ from the page's.
SAME = 0.1


class Divergence(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One file. ``frameworks`` has a script by adapter's name."""

    title: str
    category: str
    says: str
    dlb: str
    definition: str
    frameworks: dict[str, str]
    given: str = ""
    rounding: float = 1e-12


class Size(msgspec.Struct, frozen=True):
    """How far a framework is from the definition."""

    relative_l2: float
    largest: float


Divergences = Mapping[str, Divergence]
Sizes = Mapping[tuple[str, str], Size]


def read() -> Divergences:
    """Every file, by its name, in the order of the page."""
    found = {}
    for path in sorted(FOLDER.glob("divergences/*.toml")):
        one = msgspec.toml.decode(path.read_bytes(), type=Divergence)
        assert one.category in CATEGORIES, f"{path}: category '{one.category}'"
        assert one.frameworks.keys() <= FRAMEWORKS.keys(), f"{path}: a framework of no adapter"
        found[path.stem] = one
    return dict(sorted(found.items(), key=lambda each: CATEGORIES.index(each[1].category)))


def run(python: str, scripts: Mapping[str, str], distributions: Sequence[str] = ()) -> Any:
    """What scripts print in one process of an environment, and versions.

    Raises:
        SystemExit: one failed, or time ran out.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, script in scripts.items():
            (Path(folder) / f"{name}.py").write_text(script, encoding="utf-8")
        command = [python, str(FOLDER / "reproduce.py"), folder, *distributions]
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=TIME_LIMIT, cwd=folder
        )
        if ended.returncode:
            raise SystemExit(f"{python}: {ended.stderr[-3000:]}")
        found = json.loads((Path(folder) / "found.json").read_text(encoding="utf-8"))
    failed = [f"{name}: {what}" for name, what in found["printed"].items() if isinstance(what, str)]
    if failed:
        raise SystemExit(f"{python}\n" + "\n".join(failed))
    return found


def measure(divergences: Divergences) -> tuple[Sizes, Mapping[str, Mapping[str, str]]]:
    """The size of each divergence in each framework, and the frameworks' versions."""
    definitions = {name: one.given + one.definition for name, one in divergences.items()}
    true = run(sys.executable, definitions)["printed"]
    sizes, versions = {}, {}
    for framework, (_, distributions) in FRAMEWORKS.items():
        scripts = {
            name: one.given + one.frameworks[framework]
            for name, one in divergences.items()
            if framework in one.frameworks
        }
        environment = environments.find(framework)
        if environment is None:
            raise EnvironmentMissing(
                f"adapter '{framework}' has no environment; make it with: dlb env create {framework}"
            )
        found = run(str(environment.python), scripts, distributions)
        versions[framework] = found["versions"]
        for name, printed in found["printed"].items():
            sizes[name, framework] = size(name, np.array(printed), np.array(true[name]))
    return sizes, versions


def size(name: str, found: np.ndarray, true: np.ndarray) -> Size:
    assert found.shape == true.shape, f"{name}: prints {found.shape}, defined {true.shape}"
    assert np.isfinite(found).all() and np.isfinite(true).all(), f"{name}: not finite"
    apart = found.astype(np.float64) - true
    scale = float(np.linalg.norm(true)) or 1.0
    return Size(float(np.linalg.norm(apart)) / scale, float(np.abs(apart).max(initial=0)))


def none_diverges(divergences: Divergences, sizes: Sizes) -> Iterator[str]:
    """Entries that are none."""
    for name, one in divergences.items():
        if all(sizes[name, each].relative_l2 <= one.rounding for each in one.frameworks):
            yield f"{name}: no framework diverges"


# --- the page ---------------------------------------------------------------------------------

HEAD = """\
# Atlas of divergences

What differs between the frameworks when the same layer, loss or update is written by hand in each, with the
framework's defaults or with attributes carried over by their names; and what a framework computes otherwise and
cannot be told not to. Each was measured: a few lines of NumPy are the definition, a few lines in the framework
reproduce the divergence.

A figure is the relative L2 distance of what the framework prints to what the definition prints (the distance
itself where that is zero). *agrees* is no further away than rounding. A cell is empty where the framework has
nothing of the kind, or only what another entry has. Some scripts print shapes or counts, where the divergence
is in those.

`python tests/atlas/make.py` runs every script in its framework's environment ([dlb env](../how-to/environments.md)) and
writes this page; with `--check` it holds the page against what is measured. The scripts are in
`tests/atlas/divergences`.

"""


def page(
    divergences: Divergences, sizes: Sizes, versions: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """The page's parts."""
    yield HEAD
    yield "Measured with:\n\n"
    for framework, (title, _) in FRAMEWORKS.items():
        told = ", ".join(f"{name} {version}" for name, version in versions[framework].items())
        yield f"- {title}: {told}\n"
    for category in CATEGORIES:
        of = {name: one for name, one in divergences.items() if one.category == category}
        yield f"\n## {category.capitalize()}\n\n" + table(of, sizes)
        for name, one in of.items():
            yield entry(name, one, sizes)


def table(divergences: Divergences, sizes: Sizes) -> str:
    columns = [title for title, _ in FRAMEWORKS.values()]
    lines = [f"| divergence | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, one in divergences.items():
        cells = [cell(one, sizes.get((name, framework))) for framework in FRAMEWORKS]
        lines.append(f"| [{name}](#{name}) | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cell(one: Divergence, found: Size | None) -> str:
    if found is None:
        return ""
    return "agrees" if found.relative_l2 <= one.rounding else f"{found.relative_l2:.1e}"


def entry(name: str, one: Divergence, sizes: Sizes) -> str:
    told = f"**{one.title}.** {one.says}", f"What dlb does: {one.dlb}"
    parts = [
        f"\n### {name}\n\n" + "\n\n".join(textwrap.fill(each, **LINES) for each in told) + "\n"
    ]
    for framework in one.frameworks:
        found, title = sizes[name, framework], FRAMEWORKS[framework][0]
        if found.relative_l2 > one.rounding:
            apart = f"{found.relative_l2:.1e} relative L2, {found.largest:.1e} at most"
            parts.append(f"- {title}: {apart}\n")
    listing = {"Definition": one.definition}
    listing |= {FRAMEWORKS[framework][0]: code for framework, code in one.frameworks.items()}
    parts.append("\n<details><summary>Scripts</summary>\n")
    if one.given:
        parts.append(f"\nEach begins with:\n\n{fenced(one.given)}")
    parts += [f"\n{title}:\n\n{fenced(code)}" for title, code in listing.items()]
    return parts[0] + "\n" + "".join(parts[1:]) + "\n</details>\n"


def fenced(code: str) -> str:
    return f"```python\n{code.strip()}\n```\n"


# --- the page, held against what is measured --------------------------------------------------


def differences(divergences: Divergences, sizes: Sizes, text: str) -> Iterator[str]:
    """What the page says that is not so now."""
    told = {}
    for line in re.findall(r"^\| \[[\w-]+\]\(#.*$", text, re.M):
        name, *cells = (part.strip() for part in line.strip("|").split("|"))
        told[name[1 : name.index("]")]] = dict(zip(FRAMEWORKS, cells))
    for missing in told.keys() ^ divergences.keys():
        yield f"{missing}: on the page or in divergences/, and not in both"
    for (name, framework), found in sizes.items():
        was, is_now = told.get(name, {}).get(framework, ""), cell(divergences[name], found)
        with contextlib.suppress(ValueError):
            if abs(float(was) - float(is_now)) <= SAME * float(was):
                continue
        if was != is_now:
            yield f"{name}, {framework}: the page says '{was}', measured '{is_now}'"
    for name, one in divergences.items():
        for code in (one.given, one.definition, *one.frameworks.values()):
            if code.strip() not in text:
                yield f"{name}: a script on the page is not the one in divergences/"


def main() -> int:
    reader = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    reader.add_argument("--check", action="store_true", help="hold the page against what is now")
    check = reader.parse_args().check
    divergences = read()
    try:
        sizes, versions = measure(divergences)
    except DlbError as error:
        print(error, file=sys.stderr)
        return 2
    wrong = list(none_diverges(divergences, sizes))
    if check:
        wrong += differences(divergences, sizes, PAGE.read_text(encoding="utf-8"))
    elif not wrong:
        written = io.StringIO()
        written.writelines(page(divergences, sizes, versions))
        PAGE.write_text(written.getvalue(), encoding="utf-8")
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
