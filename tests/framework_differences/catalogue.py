"""The catalogue of framework differences: measures the entries, and writes their pages.

    python tests/framework_differences/catalogue.py              writes the pages from measured.json
    python tests/framework_differences/catalogue.py --measure    measures first, and writes measured.json
    python tests/framework_differences/catalogue.py --check      measures, and compares with measured.json

Measuring runs in the core's environment and needs the four frameworks' environments, found as ``dlb``
finds them (DLB_HOME). Writing the pages needs no framework.

An entry is a TOML file in ``entries/``: what it is (``title``, ``category``), what the definition says
and what dlb does (``says``, in one ``sentence``, ``dlb``), the names that a program calls (``api``), what to
write ``instead``, how often it ``bites`` (3: nearly everybody who uses these names; 2: many; 1: few, or by
rounding alone), and scripts that print one list of numbers each: the ``definition`` in NumPy, one for each of
the ``frameworks``, and of some what is ``right`` instead, which must agree. Each begins with the lines of
``given``. Two that are no further apart than ``rounding`` (relative L2, 1e-12 by default) agree.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from dlb import environments
from dlb.errors import DlbError, EnvironmentMissing

FOLDER = Path(__file__).parent
MEASURED = FOLDER / "measured.json"
PAGES = FOLDER.parents[1] / "docs" / "reference" / "framework-differences"
#: Title, and distributions whose versions are recorded, by adapter.
FRAMEWORKS = {
    "torch": ("PyTorch", ("torch", "numpy", "onnx", "onnxscript")),
    "tf": (
        "Keras on TensorFlow",
        ("tensorflow", "tensorflow-cpu", "keras", "tf2onnx", "numpy", "onnx"),
    ),
    "mxnet": ("MXNet", ("mxnet", "numpy", "onnx")),
    "chainer": ("Chainer", ("chainer", "numpy", "onnx")),
}
#: Titles of the sections, by category.
CATEGORIES = {
    "layer": "Layers",
    "gradient": "Gradients",
    "loss": "Losses",
    "optimizer": "Optimizers",
    "initialisation": "Initialisation",
    "numerics": "Numerics",
    "export": "Export",
}
#: Seconds that all scripts of one framework may take; one of torch's compiles.
TIME_LIMIT = 600
#: After the name of an entry, that of the script of what is right.
_RIGHT = "--right"
#: By what part a measured distance may differ from the recorded one.
SAME = 0.1


class Entry(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One file. ``frameworks`` and ``right`` have a script by adapter's name."""

    title: str
    category: str
    says: str
    dlb: str
    bites: Literal[1, 2, 3]
    api: tuple[str, ...]
    instead: str
    definition: str
    frameworks: dict[str, str]
    given: str = ""
    rounding: float = 1e-12
    right: dict[str, str] = {}
    sentence: str = ""

    @property
    def short(self) -> str:
        """In one sentence; that which it says first, if that is enough."""
        return self.sentence or " ".join(re.split(r"(?<=[.)]) (?=[A-Z`(])", self.says)[:1])


class Distance(msgspec.Struct, frozen=True):
    """How far a framework is from the definition; ``None`` stands for no further than rounding."""

    relative_l2: float
    largest: float


Entries = Mapping[str, Entry]
Distances = dict[str, dict[str, Distance | None]]


class Measured(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What ``measured.json`` holds.

    Attributes:
        versions: of each framework's distributions, by adapter.
        distances: by entry and adapter.
        right: of what is written instead, by entry and adapter.
    """

    versions: dict[str, dict[str, str]]
    distances: Distances
    right: Distances


def read_entries() -> Entries:
    """Every entry by its name, in the order of the index."""
    entries = {}
    for path in sorted(FOLDER.glob("entries/*.toml")):
        entry = msgspec.toml.decode(path.read_bytes(), type=Entry)
        assert entry.category in CATEGORIES, f"{path}: category '{entry.category}'"
        assert entry.frameworks.keys() <= FRAMEWORKS.keys(), f"{path}: a framework of no adapter"
        entries[path.stem] = entry
    order = list(CATEGORIES)
    return dict(sorted(entries.items(), key=lambda item: order.index(item[1].category)))


def read_measured() -> Measured:
    return msgspec.json.decode(MEASURED.read_bytes(), type=Measured)


# --- measuring --------------------------------------------------------------------------------


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


def measure(entries: Entries) -> Measured:
    """The distance of each framework from each definition, and the frameworks' versions."""
    definitions = {name: entry.given + entry.definition for name, entry in entries.items()}
    defined = run(sys.executable, definitions)["printed"]
    versions: dict[str, dict[str, str]] = {}
    distances: Distances = {name: {} for name in entries}
    right: Distances = {}
    for framework, (_, distributions) in FRAMEWORKS.items():
        scripts = {
            f"{name}{kind}": entry.given + codes[framework]
            for name, entry in entries.items()
            for kind, codes in (("", entry.frameworks), (_RIGHT, entry.right))
            if framework in codes
        }
        environment = environments.find(framework)
        if environment is None:
            raise EnvironmentMissing(
                f"adapter '{framework}' has no environment; make it with: dlb env create {framework}"
            )
        found = run(str(environment.python), scripts, distributions)
        versions[framework] = found["versions"]
        for script, printed in found["printed"].items():
            name = script.removesuffix(_RIGHT)
            apart = distance(script, np.array(printed), np.array(defined[name]))
            agrees = apart.relative_l2 <= entries[name].rounding
            kept = distances[name] if script == name else right.setdefault(name, {})
            kept[framework] = None if agrees else apart
    return Measured(versions, distances, right)


def distance(name: str, printed: np.ndarray, defined: np.ndarray) -> Distance:
    """Rounded to the two digits that the pages show."""
    assert printed.shape == defined.shape, f"{name}: prints {printed.shape}, not {defined.shape}"
    assert np.isfinite(printed).all() and np.isfinite(defined).all(), f"{name}: not finite"
    apart = printed.astype(np.float64) - defined
    scale = float(np.linalg.norm(defined)) or 1.0
    largest = float(np.abs(apart).max(initial=0))
    return Distance(float(f"{np.linalg.norm(apart) / scale:.1e}"), float(f"{largest:.1e}"))


def without_difference(measured: Measured) -> Iterator[str]:
    """Entries in which every framework agrees: they have no place in the catalogue."""
    for name, distances in measured.distances.items():
        if not any(distances.values()):
            yield f"{name}: no framework differs"


def wrong_instead(measured: Measured) -> Iterator[str]:
    """Scripts of what is right that do not agree with the definition."""
    for name, distances in measured.right.items():
        for framework, apart in distances.items():
            if apart is not None:
                yield f"{name}, {framework}: what is right is {apart.relative_l2:.1e} apart"


def changes(recorded: Measured, now: Measured) -> Iterator[str]:
    """What ``measured.json`` records that is not so now."""
    for name in sorted(recorded.distances.keys() ^ now.distances.keys()):
        yield f"{name}: in measured.json or in entries/, and not in both"
    if recorded.right != now.right:
        yield "what is right instead: recorded and measured differ"
    for name in sorted(recorded.distances.keys() & now.distances.keys()):
        before, after = recorded.distances[name], now.distances[name]
        for framework in sorted(before.keys() | after.keys()):
            was, measured = (shown(each, framework) for each in (before, after))
            if was != measured and not _close(before.get(framework), after.get(framework)):
                yield f"{name}, {framework}: recorded '{was}', measured '{measured}'"


def _close(one: Distance | None, other: Distance | None) -> bool:
    if one is None or other is None:
        return False
    return abs(one.relative_l2 - other.relative_l2) <= SAME * one.relative_l2


# --- the pages --------------------------------------------------------------------------------

HEAD = """\
# Catalogue of framework differences

Write the same layer, loss or update by hand in two frameworks, and the results differ. A default differs, or
an attribute of the same name means something else, or a framework computes something else and offers no choice.
Each entry is one such difference, with its size, a script for each framework that reproduces it, and what to
write instead.

The tables begin with what nearly everybody meets who uses these names, and where the numbers are furthest
apart. The site's search finds a page by the name of a function, such as `BatchNormalization` or
`clip_grad_norm_`.

"""

METHOD = """\
## How it is measured

A few lines of NumPy are the definition, and a few lines in each framework print the same numbers. A figure is
the relative L2 distance between the two (the distance itself if the definition is zero). Where the difference
is in shapes or counts, the scripts print those.

*agrees* means no further apart than rounding. A cell is empty if the framework has nothing of the kind, or if
another entry covers it.

The scripts are in `tests/framework_differences/entries`, the figures in
`tests/framework_differences/measured.json`. To run every script again, make the four
[environments](../../how-to/environments.md), then:

    python tests/framework_differences/catalogue.py --check

"""


def pages(entries: Entries, measured: Measured) -> dict[str, str]:
    """Text of every page, by its file's name."""
    texts = {f"{name}.md": entry_page(name, entry, measured) for name, entry in entries.items()}
    return {"index.md": index_page(entries, measured), **texts}


def index_page(entries: Entries, measured: Measured) -> str:
    parts = [HEAD]
    for category, heading in CATEGORIES.items():
        parts.append(f"## {heading}\n\n| difference | what it is | write instead | furthest |\n")
        parts.append("|---|---|---|---|\n")
        own = [name for name, entry in entries.items() if entry.category == category]
        for name in sorted(own, key=lambda name: (-entries[name].bites, -furthest(measured, name))):
            entry = entries[name]
            cells = entry.short.rstrip(":"), entry.instead, f"{furthest(measured, name):.1e}"
            escaped = (cell.replace("|", r"\|") for cell in cells)
            parts.append(f"| [{entry.title}]({name}.md) | {' | '.join(escaped)} |\n")
        parts.append("\n")
    parts.append(METHOD + "Versions:\n\n| framework | distributions |\n|---|---|\n")
    for framework, (title, _) in FRAMEWORKS.items():
        versions = measured.versions[framework].items()
        parts.append(f"| {title} | {', '.join(' '.join(item) for item in versions)} |\n")
    return "".join(parts)


def furthest(measured: Measured, name: str) -> float:
    """The largest distance of any framework."""
    found = [each.relative_l2 for each in measured.distances[name].values() if each is not None]
    return max(found, default=0.0)


def shown(distances: Mapping[str, Distance | None], framework: str) -> str:
    """A cell of a table."""
    if framework not in distances:
        return ""
    apart = distances[framework]
    return "agrees" if apart is None else f"{apart.relative_l2:.1e}"


def entry_page(name: str, entry: Entry, measured: Measured) -> str:
    parts = [f"# {entry.title}\n\n{filled(entry.says)}\n\n"]
    parts.append(filled(f"**Names.** {', '.join(f'`{each}`' for each in entry.api)}") + "\n\n")
    parts.append(
        filled(f"**Write instead.** {entry.instead[0].upper()}{entry.instead[1:]}.") + "\n\n"
    )
    parts.append(filled(f"**In dlb.** {entry.dlb}") + "\n\n")
    parts.append("| framework | relative L2 distance | largest difference |\n|---|---|---|\n")
    distances = measured.distances[name]
    for framework, (title, _) in FRAMEWORKS.items():
        if framework in distances:
            apart = distances[framework]
            largest = "" if apart is None else f"{apart.largest:.1e}"
            parts.append(f"| {title} | {shown(distances, framework)} | {largest} |\n")
    parts.append(
        "\nEach script is complete. The [index](index.md#how-it-is-measured) has the method.\n"
    )
    scripts = {"Definition": entry.definition}
    for framework, code in entry.frameworks.items():
        scripts[FRAMEWORKS[framework][0]] = code
        if framework in entry.right:
            scripts[f"{FRAMEWORKS[framework][0]}, right"] = entry.right[framework]
    parts += [f"\n## {title}\n\n{fenced(entry.given, code)}" for title, code in scripts.items()]
    return "".join(parts)


def filled(text: str) -> str:
    return textwrap.fill(text, 112, break_long_words=False, break_on_hyphens=False)


def fenced(*code: str) -> str:
    return "```python\n" + "\n\n".join(part.strip() for part in code if part) + "\n```\n"


def write_pages(entries: Entries, measured: Measured) -> None:
    PAGES.mkdir(parents=True, exist_ok=True)
    texts = pages(entries, measured)
    for path in PAGES.glob("*.md"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (PAGES / name).write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--measure", action="store_true", help="measure, and write measured.json")
    what.add_argument("--check", action="store_true", help="measure, and compare")
    arguments = parser.parse_args()
    entries = read_entries()
    if not (arguments.measure or arguments.check):
        write_pages(entries, read_measured())
        return 0
    try:
        now = measure(entries)
    except DlbError as error:
        print(error, file=sys.stderr)
        return 2
    wrong = [*without_difference(now), *wrong_instead(now)]
    if arguments.check:
        wrong += changes(read_measured(), now)
    elif not wrong:
        text = msgspec.json.format(msgspec.json.encode(now), indent=1)
        MEASURED.write_bytes(text + b"\n")
        write_pages(entries, now)
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
