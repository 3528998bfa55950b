"""Workload files: what is written is read back, and the hash is of what is meant."""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from workload_strategies import workloads

from dlb.errors import UnknownNameError, WorkloadError
from dlb_graph import workload as W
from dlb_graph.workload import files, workload_hash
from dlb_graph.workload.model import without_defaults

replace = msgspec.structs.replace
several = settings(max_examples=60, suppress_health_check=list(HealthCheck))

#: Records name workloads by these; a change here makes old records those of another workload.
GOLDEN = {"lenet5": "cd2476966946abc334337ea90d8652f83595b5d585c63ca9fe0bbe27e0684a18"}
LENET = files.load("lenet5")


@pytest.mark.parametrize(("name", "golden"), GOLDEN.items())
def test_hashes_never_change(name: str, golden: str) -> None:
    assert workload_hash(files.load(name)) == golden


@pytest.mark.parametrize("name", files.shipped_names())
def test_shipped_workloads_hold_together(name: str) -> None:
    shipped = files.load(name)
    assert shipped.name == name and shipped.title and shipped.source
    assert len(W.infer_shapes(shipped.model)) == len(shipped.model.nodes) + 1


@several
@given(workloads())
def test_round_trip(workload: W.Workload) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.toml"
        files.write(workload, path)
        assert files.read(path) == workload
    assert files.from_document(files.to_document(workload)) == workload


@several
@given(workloads(), st.text(max_size=9))
def test_hash_is_of_the_meaning(workload: W.Workload, name: str) -> None:
    """Not of names and titles, nor of whether inputs are written out."""
    wired = replace(workload.model, nodes=workload.model.wired())
    renamed = replace(workload, name=name, title=name, source=name, model=wired)
    assert workload_hash(renamed) == workload_hash(workload)


@several
@given(workloads(), workloads())
def test_hash_tells_workloads_apart(one: W.Workload, other: W.Workload) -> None:
    def meaning(workload: W.Workload) -> object:
        model = replace(workload.model, nodes=workload.model.wired())
        return without_defaults(replace(workload, name="", title="", source="", model=model))

    assert (workload_hash(one) == workload_hash(other)) == (meaning(one) == meaning(other))


#: Each means something else.
CHANGES = {
    "batch size": lambda w: replace(w, batch_size=65),
    "epochs": lambda w: replace(w, epochs=11),
    "data": lambda w: replace(w, data=replace(w.data, mean=(0.3,))),
    "augmentation": lambda w: replace(
        w, data=replace(w.data, augmentation=W.Augmentation(flip=True))
    ),
    "rate": lambda w: replace(w, optimizer=replace(w.optimizer, learning_rate=0.1)),
    "nesterov": lambda w: replace(w, optimizer=replace(w.optimizer, nesterov=True)),
    "optimizer": lambda w: replace(w, optimizer=W.Adam(learning_rate=0.05)),
    "schedule": lambda w: replace(w, schedule=W.Step(milestones=(5,))),
    "a layer's name": lambda w: replace(
        w,
        model=replace(w.model, nodes=(replace(w.model.nodes[0], name="conv9"), *w.model.nodes[1:])),
    ),
    "a layer less": lambda w: replace(
        w, model=replace(w.model, nodes=w.model.nodes[:8] + w.model.nodes[9:])
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_hash_moves_with_the_meaning(change: object) -> None:
    assert workload_hash(change(LENET)) != workload_hash(LENET)  # type: ignore[operator]


def test_augmentation_is_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "augmented.toml"
    for augmentation in (
        W.Augmentation(pad=4, flip=True),
        W.Augmentation(area=(0.08, 1.0), flip=True),
        W.Augmentation(flip=True),
    ):
        augmented = replace(LENET, data=replace(LENET.data, augmentation=augmentation))
        files.write(augmented, path)
        assert files.read(path) == augmented
    assert "pad = " not in path.read_text()


#: An augmentation, the shape and kind of an input, and what is said of them.
UNFIT = {
    "below 0": (W.Augmentation(pad=-1), {"shape": (1, 28, 28)}, r"pad = -1 must be 0 or more"),
    "nothing of the image": (W.Augmentation(pad=20), {"shape": (1, 28, 20)}, r"smaller side.*, 20"),
    "no image": (W.Augmentation(flip=True), {"shape": (784,)}, r"reads real \[784\]"),
    "words": (W.Augmentation(pad=1), {"shape": (5,), "kind": "index"}, r"reads index \[5\]"),
    "more than all of it": (
        W.Augmentation(area=(0.5, 1.1)),
        {"shape": (1, 8, 8)},
        r"area.*above 1",
    ),
    "none of it": (W.Augmentation(area=(0.0, 1.0)), {"shape": (1, 8, 8)}, r"area.*above 0"),
    "least above largest": (
        W.Augmentation(aspect=(2.0, 1.0)),
        {"shape": (1, 8, 8)},
        r"aspect = \[2.0, 1.0\].*the smaller first",
    ),
    "endless": (W.Augmentation(aspect=(1.0, math.inf)), {"shape": (1, 8, 8)}, r"aspect"),
    "no number": (W.Augmentation(area=(math.nan, 1.0)), {"shape": (1, 8, 8)}, r"area"),
}


@pytest.mark.parametrize(("augmentation", "given", "says"), UNFIT.values(), ids=list(UNFIT))
def test_an_augmentation_that_does_not_fit_is_refused(
    augmentation: W.Augmentation, given: dict[str, object], says: str
) -> None:
    layers = [W.Flatten()] if len(given["shape"]) == 3 else []  # type: ignore[arg-type]
    if "kind" in given:
        layers = [W.Embedding(entries=9, features=4), W.ReduceMean()]
    nodes = [
        W.Node(name=f"{n}", layer=one) for n, one in enumerate([*layers, W.Linear(out_features=3)])
    ]
    unfit = replace(
        LENET,
        data=W.Data(name="any", augmentation=augmentation),
        model=W.Model(input=W.Input(**given), nodes=tuple(nodes)),
    )
    with pytest.raises(WorkloadError, match=f"data.augmentation.*{says}"):
        files.check(unfit, "unfit")


def test_a_default_written_out_is_the_default(tmp_path: Path) -> None:
    path = tmp_path / "lenet5.toml"
    files.write(LENET, path)
    short = path.read_text()
    assert "groups" not in short
    path.write_text(short.replace("out_channels = 32", "out_channels = 32\ngroups = 1"))
    assert "groups" in path.read_text()
    assert workload_hash(files.read(path)) == GOLDEN["lenet5"]


@given(st.binary(max_size=300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_no_workload_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.toml"
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match=r"odd\.toml(, line \d+)?: "):
        files.read(path)


@pytest.mark.parametrize("written", [False, True], ids=["by hand", "by dlb"])
def test_a_wrong_field_is_named_with_its_line(tmp_path: Path, written: bool) -> None:
    path = tmp_path / "wrong.toml"
    path.write_bytes((files.shipped_folder() / "lenet5.toml").read_bytes())
    if written:
        files.write(files.read(path), path)
    lines, named = path.read_text().splitlines(), 0
    for place, line in enumerate(lines):
        if not (field := re.search(r"\b(?!type\b)(\w+) = ", line)):
            continue
        changed = line.replace(field[0], f"{field[1]}_ = ", 1)
        path.write_text("\n".join([*lines[:place], changed, *lines[place + 1 :]]))
        with pytest.raises(WorkloadError) as wrong:
            files.read(path)
        assert f"wrong.toml, line {place + 1}: " in str(wrong.value), changed
        assert f"unknown field '{field[1]}_'" in str(wrong.value)
        named += 1
    assert named > 15


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("batch_size = 64", "batch_size = 0", "line 3: batch_size = 0 must be at least 1"),
        ("std = [0.3530]", "std = [0]", "line 9: data.mean and data.std need"),
        ('"relu1"', '"fc1"', "line 21: layer 'fc1': a name must be unique"),
        ('type = "flatten"', 'type = "relu"', "line 20: layer 'fc1' (linear) cannot take"),
        ('name = "mlp"', "name = 3", "wrong.toml, line 1: not a workload: name: expected `str`"),
        ("momentum = 0.9", 'momentum = 0.9\n"a.b" = """\n\n"""', "line 15: not a workload"),
        (
            "shape = [1, 28, 28]",
            "shape = 28",
            "expected `array`, got `int`; write a number for each axis",
        ),
        ("epochs = 1", "epochs = [\n1,\n2]", "line 4: not a workload: epochs: expected `int`"),
        ("batch_size = 64\n", "", "wrong.toml: not a workload: missing field 'batch_size'"),
        ("learning_rate = 0.05\n", "", "line 11: not a workload: optimizer: missing field"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    text = (Path(__file__).parents[1] / "workloads" / "mlp.toml").read_text()
    assert old in text
    path = tmp_path / "wrong.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(WorkloadError) as wrong:
        files.read(path)
    assert says in str(wrong.value)


def holders(document: Any) -> list[Any]:
    """Every table and list of a document."""
    held = document.values() if isinstance(document, dict) else document
    within = [each for one in held if isinstance(one, dict | list) for each in holders(one)]
    return [document, *within]


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.sampled_from(["type", "name", "`.$x[1]`"]), st.text(max_size=5)),
)  # fmt: skip


@given(workloads(), st.data())
@several
def test_a_change_anywhere_is_a_workload_or_named(
    workload: W.Workload, data: st.DataObject
) -> None:
    document = msgspec.json.decode(msgspec.json.encode(workload))
    held = data.draw(st.sampled_from([one for one in holders(document) if one]))
    at = data.draw(st.sampled_from(list(held) if isinstance(held, dict) else range(len(held))))
    if data.draw(st.booleans()):
        del held[at]
    elif isinstance(held, dict) and data.draw(st.booleans()):
        held[data.draw(st.text(max_size=5))] = data.draw(VALUES)
    else:
        held[at] = data.draw(VALUES)
    with contextlib.suppress(WorkloadError):
        assert isinstance(files.from_document(document), W.Workload)


def test_names(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'lenet5'"):
        files.load("lenet")
    path = tmp_path / "mine.toml"
    files.write(LENET, path)
    assert files.load("mine", {"mine": path}) == LENET == files.load(str(path))


LAYER = '  { name = "n%d", layer = { type = "relu" } },\n'
HEAD = """name = "w"
batch_size = 8
data = { name = "synthetic" }
optimizer = { type = "sgd", learning_rate = 0.1 }
model.input = { shape = [4] }
"""
LINEAR = '{ name = "l", layer = { type = "linear", out_features = %d } }'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a" + ".a" * 2_000_000 + " = 1", "larger than"),
        ("a" + ".a" * 200_000 + " = 1", "a key has more than 100 parts"),
        ("['a'" + ' . "a"' * 100_000 + "]", "a key has more than 100 parts"),
        ("a = " + "[" * 200_000, "not a workload"),
        ("a = " + "{b=" * 200_000, "not a workload"),
        ("a = 1" + "0" * 500_000, "not a workload"),
        (
            HEAD + "model.nodes = [\n" + "".join(LAYER % n for n in range(100_000)) + "]",
            "larger than",
        ),
        (
            HEAD + "model.nodes = [\n" + "".join(LAYER % n for n in range(20_000)) + "]",
            "has 20000 layers; at most 10000",
        ),
        (
            f"{HEAD}model.nodes = [{LINEAR % 2}]\ntitle = "
            + '"""'
            + "\n" * 300_000
            + '"""\nbatchsize = 1',
            "field 'batchsize'",
        ),
    ],
    ids=[
        "dots",
        "fewer dots",
        "quoted",
        "lists",
        "tables",
        "number",
        "many layers",
        "layers",
        "lines",
    ],
)
def test_what_takes_a_parser_long_is_refused_at_once(
    content: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "hostile.toml"
    path.write_text(content)
    start = time.perf_counter()
    with pytest.raises(WorkloadError, match=message) as refused:
        files.read(path)
    assert "\n" not in str(refused.value)
    assert time.perf_counter() - start < 20


def test_maps_are_outputs_of_every_loss(tmp_path: Path) -> None:
    path = tmp_path / "maps.toml"
    conv = '{ name = "c", layer = { type = "conv", out_channels = 2, kernel = [1, 1] } }'
    text = HEAD.replace("shape = [4]", "shape = [1, 3, 3]")
    for loss in ("huber", "softmax_cross_entropy"):
        path.write_text(f'loss = {{ type = "{loss}" }}\n{text}model.nodes = [{conv}]')
        assert files.read(path).loss
    flipped = text.replace('"synthetic"', '"synthetic", augmentation = { flip = true }')
    path.write_text(f"{flipped}model.nodes = [{conv}]")
    with pytest.raises(WorkloadError, match="not labels or targets that are maps"):
        files.read(path)
    windows = '{ name = "r", layer = { type = "reshape", shape = [2, 3, 3, 1] } }'
    path.write_text(f"{text}model.nodes = [{conv}, {windows}]")
    with pytest.raises(WorkloadError, match=r"\[2, 3, 3, 1\] a sample.*add a reshape"):
        files.read(path)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (LINEAR % 1, r"layer 'l': softmax .*one class.*binary_cross_entropy"),
        (
            '{ name = "dead", layer = { type = "relu" } }, '
            + LINEAR.replace(" }", ' }, inputs = ["input"] }', 1).removesuffix(" }") % 2,
            "layer 'dead': no layer reads its value",
        ),
        ('{ name = "r", layer = { type = "relu" } }', "no layer has weights"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_what_to_do(
    nodes: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(HEAD + f"model.nodes = [{nodes}]")
    with pytest.raises(WorkloadError, match=message):
        files.read(path)
