"""The documentation, held against the code: what is public is told, and what is told is so."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import math
import re
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
import pytest

import dlb
from dlb import cli, record
from dlb.failure import Failure
from dlb.proof import certificate
from dlb.proof.check_table import BUILT, CheckKind
from dlb.proof.findings import Finding, LayerFacts
from dlb.supervision import group
from dlb_graph import workload as W
from dlb_graph.comparing import tolerances
from dlb_graph.layers import LAYERS, Initializer
from dlb_graph.losses import LOSSES
from dlb_graph.optimizers import OPTIMIZERS
from dlb_graph.reading.rules import RULES as OPERATORS
from dlb_graph.rewriting.compositions import RULES as COMPOSITIONS
from dlb_graph.rewriting.real_rules import LOGIC, QUANTISED
from dlb_graph.truth.layout import LAYOUT
from dlb_graph.workload import files
from dlb_graph.workload.shapes import trained_names
from dlb_graph.workload.training import Schedule
from dlb_measure.results import measurement, sweep
from dlb_port.check_tables import FILE, PORT
from dlb_worker import contract, hookspecs, protocol
from dlb_worker.calls import Calls
from dlb_worker.contract import PlanRequest
from dlb_worker.plugins import check_hooks

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

sys.path.insert(0, str(Path(__file__).parents[3] / "docs"))
import follow

ROOT = next(folder for folder in Path(__file__).parents if (folder / "docs" / "index.md").is_file())
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *DOCS.rglob("*.md"),
        *ROOT.glob("core/*.md"),
        *ROOT.glob("conformance/*.md"),
        *ROOT.glob("*.md"),
        *ROOT.glob("plugins/*/README.md"),
    ]
)
HOOKS = {name: hook for name, hook in vars(hookspecs).items() if name.startswith("dlb_")}


def page(name: str) -> str:
    """A page by its file's name, in whichever folder of docs it is."""
    (path,) = DOCS.rglob(name)
    return path.read_text(encoding="utf-8")


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


#: Modules whose docstrings the contract's page shows, whole or some of their members.
SHOWN = ("contract", "hookspecs", "native", "model", "layers", "parameters", "batches", "updates")


@pytest.mark.parametrize("module", SHOWN)
def test_the_contract_is_shown_from_its_code(module: str) -> None:
    assert f"::: dlb_worker.{module}\n" in page("contract.md")


@pytest.mark.parametrize("module", (*SHOWN, "adapter"))
def test_everything_public_of_the_contract_has_a_docstring(module: str) -> None:
    loaded = importlib.import_module(f"dlb_worker.{module}")
    for name in loaded.__all__:
        value = getattr(loaded, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), name
        if dataclasses.is_dataclass(value):
            text = inspect.getdoc(value) or ""
            for field in dataclasses.fields(value):
                assert re.search(rf"\b{field.name}\b", text), f"{name}.{field.name}"


@pytest.mark.parametrize("name", HOOKS)
def test_which_answers_of_a_hook_are_used_is_told(name: str) -> None:
    told = rows(section(page("contract.md"), "The hooks"))
    if name != "dlb_describe":  # called on each plugin by itself
        assert told[name][1] == ("first" if HOOKS[name].dlb_spec["firstresult"] else "all")
    assert set(told) == set(HOOKS)


def test_features_and_the_contract_s_version_are_told() -> None:
    text = page("contract.md")
    assert set(contract.FEATURES) <= set(rows(section(text, "The description")))
    assert "**contract " + ".".join(map(str, contract.CONTRACT)) + "**" in text


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
    (table,) = (line for line in page("contract.md").splitlines() if "`plugin.py`" in line)
    text = section(page("contract.md"), "An adapter")
    found = {path.name for path in (ROOT / "plugins/dlb-torch/src/dlb_torch").glob("*.py")}
    assert table and set(re.findall(r"`(\w+\.py)`", text)) == found - {"__init__.py"}


def test_every_python_block_is_python() -> None:
    for path in PAGES:
        for block in blocks(path.read_text(encoding="utf-8"), "python"):
            ast.parse(block)


# --- workloads -------------------------------------------------------------------------------

STRUCTS = {
    **LAYERS,
    **LOSSES,
    **OPTIMIZERS,
    **{W.type_name(kind): kind for kind in get_args(Schedule)},
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
        elif field.default is None:
            assert default == "none", key
        else:
            stated = tomllib.loads(f"x = {default.strip('`')}")["x"]
            whole = json.loads(msgspec.json.encode(field.default))
            if isinstance(whole, dict):  # TOML has no null
                whole = {name: value for name, value in whole.items() if value is not None}
            assert stated == whole, key


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
    residual, shared = (
        tomllib.loads(block)["nodes"]
        for block in blocks(section(page("workloads.md"), "Node"), "toml")
    )
    for nodes, shape in ((residual, [8, 4, 4]), (shared, [64])):
        W.infer_shapes(msgspec.convert({"input": {"shape": shape}, "nodes": nodes}, W.Model))


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
    assert f'"hello": {protocol.PROTOCOL}' in text and f"protocol **{protocol.PROTOCOL}**" in text
    assert f"at most {protocol.LONGEST >> 20} MiB" in text
    times = section(text, "Times")
    silence = f"{group.SILENCE_SECONDS:.0f} s ({group.IMPORT_SILENCE_SECONDS:.0f} s in `start`)"
    assert silence in times
    assert f"{1 / group.CHECK_SECONDS:.0f} times a second" in times
    called = group.Launch.__dataclass_fields__["call_seconds"].default
    assert f"| {called:.0f} s (`--timeout`) | has not said hello, or has neither" in times
    told = section(page("distributed.md"), "What ends a run")
    for seconds in (group.SILENCE_SECONDS, group.IMPORT_SILENCE_SECONDS,
                    group.PEER_DEATH_SECONDS, called):  # fmt: skip
        assert f"{seconds:.0f} s" in told


ADAPTER = DOCS / "examples" / "numpy_adapter.py"


def test_the_adapter_on_one_page_is_old_python_and_short() -> None:
    text = ADAPTER.read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 6))
    assert len(text.splitlines()) <= 120
    assert "import dlb\n" not in text and "from dlb " not in text


@pytest.fixture
def numpy_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    """From the documentation alone: the adapter's interpreter, its registration, a workload."""
    site = tmp_path / "site"
    info = site / "dlb_numpy-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "numpy_adapter.py").write_bytes(ADAPTER.read_bytes())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dlb-numpy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dlb]\nnumpy = numpy_adapter:adapter\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (whole,) = (block for block in blocks(page("workloads.md"), "toml") if "[model]" in block)
    workload = tmp_path / "softmax.toml"
    workload.write_text(whole)
    monkeypatch.setenv("DLB_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DLB_DATA_DIR", raising=False)
    assert cli.call(["env", "add", "numpy", str(python)]) == 0
    capsys.readouterr()
    return workload


def test_the_adapter_on_one_page_is_proven(
    numpy_adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", str(numpy_adapter), "--on", "numpy", "--steps", "20", "--rounds", "0", "--json"]
    # NumPy has no exporter, so there is something that was not run.
    assert cli.call([*words, "--out", str(tmp_path / "out")]) == 1
    document = json.loads(capsys.readouterr().out)
    (one,) = document["records"]
    assert not one["failure"], one["failure"]
    assert one["framework"] == "NumPy" and one["proof"] == "unproven"
    verdicts = {one["check"]: one["verdict"] for one in document["certificate"]["checks"]}
    not_run = {name for name, verdict in verdicts.items() if verdict == "not run"}
    assert not_run == {"structure", "exported weights", "export"}
    assert {verdict for name, verdict in verdicts.items() if name not in not_run} == {"passed"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("optimizer.clip_norm=1", "does not have the feature 'clip_norm'"),
        ("loss.label_smoothing=0.1", "does not have the feature 'label_smoothing'"),
        ("loss.type=squared_error", "it has no loss squared_error; it has softmax_cross_entropy"),
    ],
)
def test_what_the_adapter_lacks_is_refused_with_the_reason(
    numpy_adapter: Path, capsys: pytest.CaptureFixture[str], change: str, reason: str
) -> None:
    words = ["verify", str(numpy_adapter), "--on", "numpy", "--data", "synthetic", "--set", change]
    assert cli.call(words) != 0
    ended = capsys.readouterr()
    assert reason in ended.out + ended.err


# --- records and proof -----------------------------------------------------------------------

PARTS = (record.StoredRecord, record.Options, record.TimingSummary, record.QualitySummary)
PARTS += (record.Exported,)
PARTS += (certificate.Certificate, certificate.CheckResult, certificate.Figure)
PARTS += (measurement.Measurement, measurement.Cell, measurement.TrialResult)
PARTS += (sweep.Sweep, sweep.CellState)
PARTS += (certificate.Divergence, certificate.Baseline, Finding, LayerFacts, Failure)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_field_of_a_record_is_told(part: Any) -> None:
    name = part.__name__.removeprefix("Stored").removesuffix("Summary")
    told = rows(section(section(page("records.md"), "Fields"), name))
    assert set(part.__struct_fields__) <= set(told)


def test_the_format_of_records_is_told() -> None:
    assert f"\n| {record.FORMAT} |" in section(page("records.md"), "History")


def test_the_words_of_the_proof_are_told() -> None:
    words = section(page("proof.md"), "Words")
    for word in (*get_args(certificate.ProofStatus), *get_args(certificate.Verdict)):
        assert f"**{word}**" in words or f"`{word}`" in words


@pytest.mark.parametrize(
    ("name", "heading", "table"),
    [
        ("explanation/proof.md", "The checks", BUILT),
        ("how-to/porting.md", "What is proven", PORT),
        ("explanation/proof.md", "Two files", FILE),
    ],
)
def test_every_check_is_told_with_its_tolerance(
    name: str, heading: str, table: Mapping[str, CheckKind]
) -> None:
    text = section((DOCS / name).read_text(encoding="utf-8"), heading)
    told = rows(text[text.index("| check |") :].partition("\n\n")[0])
    assert list(told) == list(table)
    for check, kind in table.items():
        # Links, and where to read more, are the page's own.
        plain = re.sub(r"[;,] see .*", "", told[check][-1])
        assert re.sub(r"\[(.*?)\]\(.*?\)", r"\1", plain) == kind.tolerance, check


def test_every_group_is_told_with_its_checks() -> None:
    told = rows(section(page("proof.md"), "Groups"))
    assert set(told) == set(get_args(certificate.CheckGroup))
    for group_name, cells in told.items():
        of_group = [kind.name for kind in BUILT.values() if kind.group == group_name]
        assert re.findall(r"`([a-z][^`]*)`", cells[1].partition(". ")[0]) == of_group


def test_every_field_that_a_finding_is_shown_with_is_one() -> None:
    (shown,) = blocks(section(page("records.md"), "Finding"), "json")
    msgspec.json.decode(shown, type=Finding)


def test_every_operator_that_is_read_is_told() -> None:
    told = section(page("onnx.md"), "What is read")
    cells = [line.split("|")[1] for line in told.splitlines() if line.startswith("| `")]
    # These are read as the operators that they are written with.
    read = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert read == {*OPERATORS, *LOGIC, *QUANTISED, *COMPOSITIONS, "Einsum"}
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


@pytest.fixture(scope="module")
def generate() -> Iterator[types.ModuleType]:
    """``docs/generate.py``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        import generate

        yield generate
        del sys.modules["generate"]


def test_generated_parts_are_what_the_code_makes(generate: types.ModuleType) -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
    stale = [path for path, text in texts.items() if generate.generated(text) != text]
    assert stale == [], "run: python docs/generate.py"


def test_every_command_has_a_generated_part(generate: types.ModuleType) -> None:
    parts = [found[2] for found in generate.PART.finditer(page("command-line.md"))]
    assert sorted(parts) == sorted(f"command {name}" for name, _ in generate.commands(cli.dlb))


def test_every_option_and_its_default_is_shown(generate: types.ModuleType) -> None:
    for name, command in generate.commands(cli.dlb):
        shown = rows(section(page("command-line.md"), name))
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                (cells,) = {
                    tuple(cells)
                    for words, cells in shown.items()
                    if set(parameter.opts) <= set(re.split(r"[ ,]+", words))
                }
                default = parameter.default
                if isinstance(default, str) and default:
                    assert cells[1] == f"`{default}`"


def test_every_environment_variable_is_described(generate: types.ModuleType) -> None:
    described = rows(page("environment-variables.md"))
    assert generate.used_variables() == set(described)
    assert len(described) >= 10


def test_every_setting_of_pip_that_is_honoured_is_told() -> None:
    source = (ROOT / "core/src/dlb/environments/index_settings.py").read_text(encoding="utf-8")
    told = section(page("environments.md"), "Package indexes and other settings")
    names = set(re.findall(r'"(PIP_[A-Z_]+)"', source))
    assert names and {name for name in names if f"`{name}" not in told} == set()


def test_known_frameworks_and_data_sets_are_told() -> None:
    from dlb.data.registry import data_sets
    from dlb.environments import KNOWN

    told = rows(section(page("environments.md"), "Making one"))
    for name, framework in KNOWN.items():
        assert told[name][1:] == [framework.title, framework.python]
    for name, described in data_sets().items():
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


CATALOGUE = DOCS / "reference" / "framework-differences"


def linked_pages(path: Path) -> set[Path]:
    targets = re.findall(r"\]\(([\w/-]+\.md)", path.read_text(encoding="utf-8"))
    return {(path.parent / target).resolve() for target in targets}


def test_the_index_leads_to_every_page() -> None:
    folders = (CATALOGUE, DOCS / "explanation" / "studies")  # their indexes lead on
    pages = {path for path in DOCS.rglob("*.md") if path.parent not in folders}
    pages |= {folder / "index.md" for folder in folders}
    assert linked_pages(DOCS / "index.md") == pages - {DOCS / "index.md"}


# --- the catalogue of framework differences --------------------------------------------------


@pytest.fixture(scope="module")
def catalogue() -> Iterator[types.ModuleType]:
    """``tests/framework_differences/catalogue.py``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests" / "framework_differences"))
        import catalogue

        yield catalogue
        del sys.modules["catalogue"]


def test_the_pages_of_the_catalogue_are_made_of_its_data(catalogue: types.ModuleType) -> None:
    made = catalogue.pages(catalogue.read_entries(), catalogue.read_measured())
    written = {path.name: path.read_text(encoding="utf-8") for path in CATALOGUE.glob("*.md")}
    assert written == made, "run: python tests/framework_differences/catalogue.py"


def test_every_entry_of_the_catalogue_is_measured(catalogue: types.ModuleType) -> None:
    measured = catalogue.read_measured()
    scripts = {name: set(entry.frameworks) for name, entry in catalogue.read_entries().items()}
    assert {name: set(distances) for name, distances in measured.distances.items()} == scripts
    assert list(catalogue.without_difference(measured)) == []


def test_an_entry_without_a_difference_is_reported(catalogue: types.ModuleType) -> None:
    measured = catalogue.read_measured()
    agreed = {name: dict.fromkeys(each) for name, each in measured.distances.items()}
    assert len(list(catalogue.without_difference(catalogue.Measured({}, agreed, {})))) == len(
        agreed
    )


def test_the_changelog_has_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{dlb.__version__}]" in text
    assert f"- {'.'.join(map(str, contract.CONTRACT))}: " in text
    assert f"- {protocol.PROTOCOL}: " in section(text, "Worker protocol")
    assert f"- {record.FORMAT}: " in section(text, "Record format")


@pytest.mark.parametrize("page_name", follow.PAGES)
def test_printed_tables_say_passed_of_what_is_within_its_tolerance(page_name: str) -> None:
    """A figure that lost a digit, or a table that was edited, shows."""
    printed = list(follow.PRINTED.finditer((ROOT / page_name).read_text(encoding="utf-8")))
    assert printed, "no table of this page is written by docs/follow.py"
    for block in printed:
        for table in follow.tables(block[2]):
            if table[0].split()[0] != "check":
                continue
            for row in table[2:]:
                name, tolerance, *cells = re.split(r" {2,}", row.strip())
                if name == "proof":
                    continue
                for cell in cells:
                    figure = re.fullmatch(r"(\d\.\de[+-]\d\d|0)( failed)?", cell)
                    assert figure or cell in ("passed", "failed", "not run", "infinite failed", "-")
                    if figure and not figure[2] and tolerance[0].isdecimal():
                        assert float(figure[1]) <= float(tolerance), row


@pytest.mark.parametrize("name", follow.PAGES)
def test_pages_that_are_followed_have_steps(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    steps = list(follow.steps_of(text))
    assert any(step.commands for step in steps)
    # What is printed follows a command, and each block that shows a table is written by the script.
    assert steps[0].commands and all(
        "─" not in part for part in follow.PRINTED.sub("", text).split("```")
    )


def test_the_table_of_strategies_has_what_each_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is from runs of the conformance suite, and follows when a claim changes."""
    text = (DOCS / "how-to" / "proving-strategies.md").read_text(encoding="utf-8")
    table = text[text.index("| case | `") :].split("\n\n")[0].splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table]
    passed = {
        name: {row[0] for row in rows[2:] if row[place] == "1, 2, 3"}
        for place, name in enumerate(rows[0])
        if place
    }
    claimed = {}
    for adapter in ("torch", "tf", "mxnet", "chainer", "cntk"):
        monkeypatch.syspath_prepend(ROOT / "plugins" / f"dlb-{adapter}" / "src")
        for each in importlib.import_module(f"dlb_{adapter}.plugin").adapter.strategies:
            if each.synchronous or each.averages_every:
                claimed[each.name] = set(each.cases)
    assert passed == claimed
