"""The documentation, held against the code: what is public is told, and what is told is so."""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
import pytest

import dlb
from dlb import cli, contract, hookspecs, protocol, record
from dlb import workload as W
from dlb.contract import PlanRequest
from dlb.failure import Failure
from dlb.graph.layout import LAYOUT
from dlb.imported.rules import RULES as OPERATORS
from dlb.plugins import check_hooks
from dlb.proof import certificate
from dlb.proof.checks import tolerances
from dlb.proof.files.checks import CHECKS
from dlb.proof.findings import Finding, LayerFacts
from dlb.supervision import group
from dlb.worker.calls import Calls
from dlb.workload import files
from dlb.workload.layers import Initializer, layer_types
from dlb.workload.shapes import trained_names
from dlb.workload.training import Loss, Optimizer, Schedule

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = next(folder for folder in Path(__file__).parents if (folder / "docs" / "index.md").is_file())
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *DOCS.glob("*.md"),
        *ROOT.glob("core/*.md"),
        *ROOT.glob("*.md"),
        *ROOT.glob("plugins/*/README.md"),
    ]
)
SOURCES = sorted([*ROOT.glob("core/src/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")])
HOOKS = {name: hook for name, hook in vars(hookspecs).items() if name.startswith("dlb_")}


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def headings(text: str) -> list[tuple[int, str, int]]:
    """Level, words and place of each heading outside code."""
    bare = re.sub(r"```.*?```", lambda block: "x" * len(block[0]), text, flags=re.S)
    found = re.finditer(r"^(#+) (.+)$", bare, flags=re.M)
    return [(len(one[1]), one[2].strip(), one.start()) for one in found]


def section(text: str, heading: str) -> str:
    """What is under a heading, until the next one of its level or above."""
    all_of = headings(text)
    for place, (level, words, start) in enumerate(all_of):
        if words == heading:
            ends = (start for below, _, start in all_of[place + 1 :] if below <= level)
            return text[start : next(ends, len(text))]
    raise AssertionError(f"there is no section '{heading}'; sections: {[one[1] for one in all_of]}")


def rows(text: str) -> dict[str, list[str]]:
    """The cells of every table row, by each name in backquotes in the row's first cell."""
    found = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)][
                1:-1
            ]
            for name in re.findall(r"`([^`]+)`", cells[0]):
                found[name] = cells
    return found


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.M | re.S)


# --- the contract ----------------------------------------------------------------------------


def definitions(source: str) -> Iterator[Any]:
    for node in ast.parse(source).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node


def signature(node: ast.FunctionDef) -> str:
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returned}"


def form(node: ast.ClassDef) -> list[str]:
    """Fields and public methods of a class, as they are written."""
    found = []
    for member in node.body:
        if isinstance(member, ast.AnnAssign):
            found.append(ast.unparse(member))
        elif isinstance(member, ast.FunctionDef):
            found.append(signature(member))
    return [ast.unparse(base) for base in node.bases] + found


TOLD = {
    node.name: node
    for block in blocks(page("contract.md"), "python")
    if not block.startswith("#")
    for node in definitions(block)
}
WRITTEN = {
    node.name: node
    for module in (contract, hookspecs)
    for node in definitions(inspect.getsource(module))
}


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_is_told_as_it_is(name: str) -> None:
    section(page("contract.md"), name)
    assert signature(TOLD[name]) == signature(WRITTEN[name])


def test_no_hook_is_told_that_there_is_not() -> None:
    assert {name for name in TOLD if name.startswith("dlb_")} == set(HOOKS)


@pytest.mark.parametrize("name", HOOKS)
def test_which_answers_of_a_hook_are_used_is_told(name: str) -> None:
    if name == "dlb_describe":  # called on each plugin by itself
        return
    used = "first" if HOOKS[name].dlb_spec["firstresult"] else "all"
    assert rows(section(page("contract.md"), "What a plugin is"))[name][1] == used


@pytest.mark.parametrize("name", contract.__all__)
def test_what_passes_through_the_contract_is_told(name: str) -> None:
    if name in WRITTEN:
        assert form(TOLD[name]) == form(WRITTEN[name])
    elif name == "CONTRACT":
        assert f"CONTRACT = {contract.CONTRACT}" in page("contract.md")
    else:
        assert f"`{name}`" in page("contract.md")


def test_every_field_of_the_contract_is_explained() -> None:
    text = page("contract.md")
    for name, node in TOLD.items():
        for member in node.body:
            if isinstance(member, ast.AnnAssign):
                field = ast.unparse(member.target)
                assert f"`{field}`" in text, f"{name}.{field}"


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(block, id=block.split("\n")[0][2:])
        for name in ("contract.md", "data.md")
        for block in blocks(page(name), "python")
        if block.startswith("# ")
    ],
)
def test_an_example_of_a_plugin_is_one(source: str) -> None:
    module = types.ModuleType("example")
    exec(compile(source, "example", "exec"), vars(module))
    for name in check_hooks(module):
        if name in ("dlb_strategies", "dlb_datasets", "dlb_commands"):
            assert len(getattr(module, name)()) == 1


def test_the_walk_through_names_every_file_of_the_adapter() -> None:
    told = rows(section(page("contract.md"), "dlb-torch, file by file"))
    found = {path.name for path in (ROOT / "plugins/dlb-torch/src/dlb_torch").glob("*.py")}
    assert {name for name in told if name.endswith(".py")} == found - {"__init__.py"}


def test_every_python_block_is_python() -> None:
    for path in PAGES:
        for block in blocks(path.read_text(encoding="utf-8"), "python"):
            ast.parse(block)


# --- workloads -------------------------------------------------------------------------------

STRUCTS = {
    **layer_types(),
    **{
        W.type_name(kind): kind
        for union in (Loss, Optimizer, Schedule)
        for kind in (get_args(union) or (union,))
    },
    **{
        kind.__name__: kind
        for kind in (W.Workload, W.Data, W.Augmentation, W.Model, W.Input, W.Node)
    },
}


@pytest.mark.parametrize("name", STRUCTS)
def test_a_part_of_a_workload_is_told_with_its_fields_and_defaults(name: str) -> None:
    told = rows(section(page("workloads.md"), name))
    fields = {field.encode_name: field for field in msgspec.structs.fields(STRUCTS[name])}
    assert set(told) == set(fields)
    for key, field in fields.items():
        default = told[key][2]
        if field.required:
            assert default == "required", key
        else:
            stated = tomllib.loads(f"x = {default.strip('`')}")["x"]
            assert stated == json.loads(msgspec.json.encode(field.default)), key


def test_every_initialiser_is_told() -> None:
    names, *kinds = get_args(Initializer)
    told = rows(section(page("workloads.md"), "Initial weights"))
    assert {*get_args(names), *map(W.type_name, kinds)} <= set(told)
    for kind in kinds:
        assert told[W.type_name(kind)][1].strip("`") == kind.__struct_fields__[0]


def test_every_workload_is_told_with_its_counts() -> None:
    told = rows(section(page("workloads.md"), "The papers' networks").split("### ")[0])
    assert set(told) == set(files.shipped_names())
    for name, row in told.items():
        model = files.load(name).model
        shapes = W.parameter_shapes(model)
        trained = sum(math.prod(shapes[key]) for key in trained_names(model))
        assert row[2:4] == [f"{trained:,}", f"{sum(W.multiply_adds(model).values()):,}"], name


def whole_workloads() -> list[Any]:
    found = []
    for path in PAGES:
        for number, block in enumerate(blocks(path.read_text(encoding="utf-8"), "toml")):
            document = tomllib.loads(block)
            if "model" in document:
                found.append(pytest.param(block, id=f"{path.stem}-{number}"))
    return found


@pytest.mark.parametrize("text", whole_workloads())
def test_a_whole_workload_can_be_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "workload.toml"
    path.write_text(text, encoding="utf-8")
    files.read(path)


def test_part_of_a_model_can_be_read() -> None:
    (nodes,) = (
        tomllib.loads(block)["nodes"]
        for block in blocks(section(page("workloads.md"), "Node"), "toml")
    )
    described = {"input": {"shape": [8, 4, 4]}, "nodes": nodes}
    W.infer_shapes(msgspec.convert(described, W.Model))


def test_the_hash_is_made_as_told() -> None:
    """The rule of docs/workloads.md, followed by hand."""
    import hashlib

    workload = files.load("lenet5")
    document = files.to_document(workload)
    document["name"] = ""
    del document["title"], document["source"]
    before = workload.model.input.name
    for node in document["model"]["nodes"]:
        node.setdefault("inputs", [before])
        before = node["name"]
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(text.encode()).hexdigest() == W.workload_hash(workload)


# --- the protocol ----------------------------------------------------------------------------

CALLS = {
    name.removeprefix("call_"): member
    for name, member in vars(Calls).items()
    if name.startswith("call_")
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_told_with_its_arguments(name: str) -> None:
    text = section(section(page("protocol.md"), "Calls"), name)
    arguments = set(inspect.signature(CALLS[name]).parameters) - {"self"}
    if "request" in arguments:
        arguments = arguments - {"request"} | set(PlanRequest.__dataclass_fields__)
    table = text.split("| result |")[0]
    assert set(rows(table)) == arguments


def test_no_call_is_told_that_there_is_not() -> None:
    text = section(page("protocol.md"), "Calls")
    assert {words for level, words, _ in headings(text) if level == 3} == set(CALLS)


def test_the_numbers_of_the_protocol_are_told() -> None:
    text = page("protocol.md")
    assert f'"hello": {protocol.PROTOCOL}' in text and f"version {protocol.PROTOCOL}." in text
    assert f"at most {protocol.LONGEST >> 20} MiB" in text
    times = section(text, "Times")
    silence = f"{group.SILENCE_SECONDS:.0f} s ({group.IMPORT_SILENCE_SECONDS:.0f} s in `start`)"
    assert silence in times and f"| {group.ARRIVAL_SECONDS:.0f} s | has not said hello" in times
    assert f"{1 / group.LOOK_SECONDS:.0f} times a second" in times
    called = group.Launch.__dataclass_fields__["call_seconds"].default
    assert f"| {called:.0f} s (`--time-out`)" in times
    told = section(page("distributed.md"), "What ends a run")
    for seconds in (group.SILENCE_SECONDS, group.IMPORT_SILENCE_SECONDS, group.ARRIVAL_SECONDS,
                    group.BLAME_SECONDS, called):  # fmt: skip
        assert f"{seconds:.0f} s" in told


WORKER = DOCS / "examples" / "numpy_worker.py"


def test_the_worker_without_the_core_is_old_python_and_short() -> None:
    text = WORKER.read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 6))
    assert len(text.splitlines()) <= 200
    assert "import dlb" not in text and "from dlb" not in text


def test_the_worker_without_the_core_is_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the documentation alone: a worker, its registration, a workload, a run."""
    package = tmp_path / "site" / "dlb"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "worker.py").write_bytes(WORKER.read_bytes())
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{package.parent}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (whole,) = (block for block in blocks(page("workloads.md"), "toml") if "[model]" in block)
    workload = tmp_path / "softmax.toml"
    workload.write_text(whole)
    monkeypatch.setenv("DLB_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DLB_DATA_DIR", raising=False)

    assert cli.call(["env", "add", "numpy", str(python)]) == 0
    capsys.readouterr()
    out = tmp_path / "out"
    words = ["run", str(workload), "--on", "numpy", "--steps", "20", "--out", str(out), "--json"]
    # NumPy has no exporter, so there is something that was not run.
    assert cli.call(words) == 1
    document = json.loads(capsys.readouterr().out)
    (one,) = document["records"]
    assert not one["failure"], one["failure"]
    assert one["framework"] == "NumPy" and one["proof"] == "unproven"
    verdicts = {one["check"]: one["verdict"] for one in document["certificate"]["checks"]}
    not_run = {name for name, verdict in verdicts.items() if verdict == "not run"}
    assert not_run == {"structure", "export"}
    assert {verdict for name, verdict in verdicts.items() if name not in not_run} == {"passed"}


# --- records and proof -----------------------------------------------------------------------

PARTS = (record.Record, record.Options, record.Timing, record.Quality, record.Exported)
PARTS += (certificate.Certificate, certificate.CheckResult, certificate.Figure)
PARTS += (certificate.Divergence, certificate.Baseline, Finding, LayerFacts, Failure)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_field_of_a_record_is_told(part: Any) -> None:
    told = rows(section(section(page("records.md"), "Fields"), part.__name__))
    assert set(part.__struct_fields__) <= set(told)


def test_the_format_of_records_is_told() -> None:
    assert f"\n| {record.FORMAT} |" in section(page("records.md"), "History")


def test_the_words_of_the_proof_are_told() -> None:
    words = section(page("proof.md"), "Words")
    for word in (*get_args(certificate.ProofStatus), *get_args(certificate.Verdict)):
        assert f"**{word}**" in words or f"`{word}`" in words


def test_every_check_is_told() -> None:
    told = rows(section(page("proof.md"), "The checks"))
    folder = ROOT / "core" / "src" / "dlb"
    places = [*folder.glob("proof/checks/*.py"), *folder.glob("proof/run_*.py")]
    places.append(folder / "execution" / "between.py")
    sources = "".join(path.read_text(encoding="utf-8") for path in places)
    for name in told:
        plain = name.removesuffix(", training")
        stem = plain.removesuffix(" float64").removesuffix(" float32")
        forms = (f'"{name}"', f'"{plain}{{mode}}"', f'"{stem} {{dtype}}"')
        assert any(form in sources for form in forms), name
    named = set(re.findall(r'check="([a-z0-9 ]+)"', sources))
    named |= set(re.findall(r'(?:check_agreement|_check_changes)\("([^"]+)"', sources))
    named |= set(re.findall(r'"((?:forward float|isolated )[^"{]*)"', sources))
    assert named and named <= set(told)


def test_every_group_is_told_with_its_checks() -> None:
    told = rows(section(page("proof.md"), "Groups"))
    assert set(told) == set(get_args(certificate.CheckGroup))
    checks_told = set(rows(section(page("proof.md"), "The checks")))
    groups = section(page("proof.md"), "Groups")
    assert all(f"`{name}`" in groups for name in checks_told)


def test_the_checks_of_two_files_are_told() -> None:
    assert list(rows(section(page("proof.md"), "Two files"))) == list(CHECKS)


def test_every_field_that_a_finding_is_shown_with_is_one() -> None:
    (shown,) = blocks(section(page("records.md"), "Finding"), "json")
    msgspec.json.decode(shown, type=Finding)


def test_every_operator_that_is_read_is_told() -> None:
    told = section(page("onnx.md"), "What is read")
    cells = [line.split("|")[1] for line in told.splitlines() if line.startswith("| `")]
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == set(OPERATORS)
    assert all(f"`{name}`" in told for name in LAYOUT)


def test_the_tolerances_are_told() -> None:
    told = section(page("proof.md"), "The checks")
    for tolerance in (
        tolerances.FLOAT64_TOLERANCE,
        tolerances.SLOPE_TOLERANCE,
        *tolerances.EXPORT_TOLERANCES.values(),
    ):
        assert f"{tolerance:.0e}".replace("e-0", "e-") in told
    assert f"{tolerances.FLOAT32_MULTIPLE:.0f} times ONNX Runtime's own error" in told
    figures = section(page("proof.md"), "Figures")
    assert f"{tolerances.FLOAT32_SMALL} in `gradients float32`" in figures
    for share in (tolerances.NOISE, tolerances.SMALL):
        assert f"{share:.0e}".replace("e-0", "e-") in figures
    assert f"{tolerances.ROUNDED:.0e} of the whole" in section(page("proof.md"), "Updates")


# --- the command line and the environment ----------------------------------------------------


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli.dlb)
    for name in cli.COMMANDS:
        command = cli.dlb.get_command(context, name)
        assert command is not None
        yield f"dlb {name}", command
        if isinstance(command, click.Group):
            for inner, one in command.commands.items():
                yield f"dlb {name} {inner}", one


@pytest.mark.parametrize(("name", "command"), [pytest.param(*one, id=one[0]) for one in commands()])
def test_a_command_is_told_with_its_options(name: str, command: click.Command) -> None:
    text = page("command-line.md")
    assert f"`{name}" in text or any(words == name for _, words, _ in headings(text))
    told = section(text, " ".join(name.split()[:2]))
    for parameter in command.params:
        for option in parameter.opts:
            if option.startswith("--"):
                assert re.search(rf"`{option}[` ]", told), option


def test_defaults_of_run_are_told() -> None:
    told = rows(section(page("command-line.md"), "dlb run"))
    command = dict(commands())["dlb run"]
    stated = {name.split()[0]: cells[1] for name, cells in told.items() if name.startswith("--")}
    for parameter in command.params:
        default = parameter.default
        if isinstance(default, (int, float, str, Path)) and default is not False and default != "":
            shown = f"{default:g}" if isinstance(default, float) else str(default)
            assert stated[parameter.opts[0]].strip("`") == shown, parameter.opts[0]


def test_every_environment_variable_is_told() -> None:
    used = {
        name
        for path in SOURCES
        for name in re.findall(r"\bDLB_[A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8"))
    }
    told = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    assert len(used) >= 10
    assert {name for name in used if f"`{name}`" not in told} == set()


def test_every_setting_of_pip_that_is_honoured_is_told() -> None:
    source = (ROOT / "core/src/dlb/environments/index_settings.py").read_text(encoding="utf-8")
    told = section(page("environments.md"), "Package indexes and other settings")
    names = set(re.findall(r'"(PIP_[A-Z_]+)"', source))
    assert names and {name for name in names if f"`{name}" not in told} == set()


def test_known_frameworks_and_data_sets_are_told() -> None:
    from dlb.data import catalogue
    from dlb.environments import KNOWN

    told = rows(section(page("environments.md"), "Making one"))
    for name, framework in KNOWN.items():
        assert told[name][1:] == [framework.title, framework.python]
    for name in catalogue.data_set_names():
        described = catalogue.describe(name)
        cells = rows(page("data.md").split("## Where")[0])[name]
        counts = " + ".join(f"{split.n_samples:,}" for split in described.splits)
        assert cells[1:3] == [counts, described.licence]


# --- links -----------------------------------------------------------------------------------


def anchor(words: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        place, _, fragment = target.partition("#")
        file = (path.parent / place).resolve() if place else path
        assert file.exists(), target
        if fragment:
            known = {anchor(words) for _, words, _ in headings(file.read_text(encoding="utf-8"))}
            assert fragment in known, target


def test_the_map_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)", page("index.md")))
    assert linked == {path.name for path in DOCS.glob("*.md")} - {"index.md"}


def test_the_changelog_has_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{dlb.__version__}]" in text
    assert f"- {'.'.join(map(str, contract.CONTRACT))}: " in text
    assert f"- {protocol.PROTOCOL}: " in section(text, "Worker protocol")
    assert f"- {record.FORMAT}: " in section(text, "Record format")
