"""``dlb capture`` and ``dlb port --against``: a reference that does not run where its port does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from dlb_process import Dlb, Ended, said
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from test_port import HEAD, OURS, THEIRS, checks

SAME = ("--threads", 1, "--json")


@pytest.fixture(scope="module")
def captured(dlb_command: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of the example's model, made once."""
    folder = tmp_path_factory.mktemp("captured")
    (folder / "ours.py").write_text(HEAD + OURS)
    ended = Dlb(dlb_command, folder)("capture", "ref.safetensors", "example=ours:make", *SAME)
    assert ended.status == 0, ended.err
    assert ended.document["repeatable"]
    assert {one["verdict"] for one in checks(ended).values()} == {"passed"}
    return folder / "ref.safetensors"


def port(dlb: Dlb, against: Path, *words: object, theirs: str = THEIRS) -> Ended:
    """A port, in a folder that does not hold the reference's code."""
    (dlb.folder / "theirs.py").write_text(HEAD + theirs)
    return dlb("port", "--against", against, "faulty=theirs:make", *words, *SAME)


def test_a_right_port_is_proven_without_its_reference(dlb: Dlb, captured: Path) -> None:
    ended = port(dlb, captured)
    assert ended.status == 0, ended.err
    assert ended.document["reference"] == "example"
    assert set(checks(ended)) >= {
        "weights",
        "layers",
        "gradients",
        "trajectory",
        "gradients float32",
    }
    assert {one["verdict"] for one in checks(ended).values()} == {"passed"}


def test_the_layer_that_computes_otherwise_is_named(dlb: Dlb, captured: Path) -> None:
    ended = port(dlb, captured, theirs=THEIRS.replace("b=ReLU()", "b=ReLU(slope=0.1)"))
    assert ended.status == 1
    cause = checks(ended)["layers"]["findings"][0]["cause"]
    assert (
        cause["code"] == "span_differs"
        and "'fc1' and 'fc2'"
        in dlb("port", "--against", captured, "faulty=theirs:make", "--threads", 1).out
    )


def test_a_port_in_float32_only_is_within_rounding(dlb: Dlb, captured: Path) -> None:
    ended = port(dlb, captured, "--dtype", "float32")
    assert ended.status == 0 and not ended.document["proven"], ended.err
    found = checks(ended)
    assert list(found) == ["weights", "forward float32", "gradients float32"]
    assert found["forward float32"]["figures"][0]["relative_l2"] < 1e-6
    certificate = ended.document["certificate"]
    assert certificate["inapplicable"]["trajectory"] == "float32_only"
    wrong = port(
        dlb, captured, "--dtype", "float32", theirs=THEIRS.replace("b=ReLU()", "b=ReLU(slope=0.1)")
    )
    assert wrong.status == 1
    assert "'fc1' and 'fc2'" in said(checks(wrong)["layers"])


def test_a_difference_at_large_inputs_alone_is_located(dlb: Dlb, captured: Path) -> None:
    """Values of layers are recorded for inputs of other scales, too."""
    capped = "class Capped(ReLU):\n    def forward(self, x, training):\n"
    capped += "        return np.minimum(super().forward(x, training), 40.0)\n"
    theirs = "import numpy as np\n" + capped + THEIRS.replace("b=ReLU()", "b=Capped()")
    ended = port(dlb, captured, theirs=theirs)
    assert ended.status == 1
    assert checks(ended)["layers"]["verdict"] == "failed"


def test_what_a_capture_has_is_not_asked_for(dlb: Dlb, captured: Path) -> None:
    for words in (("--seed", 3), ("--input-shape", "6"), ("--batch-size", 4)):
        ended = port(dlb, captured, *words)
        assert ended.status == 2 and "its own inputs and seed" in ended.err
    ended = port(dlb, captured, "--trainer", "faulty=theirs:train")
    assert ended.status == 2 and "capture it with --trainer" in ended.err


def test_files_that_are_no_capture(dlb: Dlb, captured: Path) -> None:
    (dlb.folder / "text.safetensors").write_text("hello")
    (dlb.folder / "cut.safetensors").write_bytes(captured.read_bytes()[:-100])
    (dlb.folder / "empty.safetensors").write_bytes(b"")
    save_file({"a": np.ones(3)}, dlb.folder / "other.safetensors")
    arrays = load_file(captured)
    with safe_open(captured, framework="np") as opened:
        document = json.loads(opened.metadata()["dlb"])
    for name, wrong in (
        ("later", {**document, "format": document["format"] + 1}),
        ("field", {**document, "seed": "0"}),
        ("array", {**document, "inputs": {"input": "no such"}}),
    ):
        save_file(arrays, dlb.folder / f"{name}.safetensors", {"dlb": json.dumps(wrong)})
    save_file(arrays, dlb.folder / "json.safetensors", {"dlb": "{"})
    for path in (*sorted(dlb.folder.glob("*.safetensors")), dlb.folder / "nowhere"):
        ended = port(dlb, path)
        assert ended.status == 2, (path, ended.out)
        assert "Traceback" not in ended.err and "a fault of dlb" not in ended.err, ended.err
        assert path.name in ended.err


def test_a_damaged_answer_costs_its_check(dlb: Dlb, captured: Path) -> None:
    """A capture without an answer is no proof of what it would say."""
    with safe_open(captured, framework="np") as opened:
        document = json.loads(opened.metadata()["dlb"])
    answers = document["models"]["float64"]["answers"]
    for question, found in list(answers.items()):
        if found[0]["type"] == "gradients":
            del answers[question]
    path = dlb.folder / "less.safetensors"
    save_file(load_file(captured), path, {"dlb": json.dumps(document)})
    ended = port(dlb, path)
    assert ended.status == 1
    assert checks(ended)["gradients"]["verdict"] == "not run"
    assert checks(ended)["forward"]["verdict"] == "passed"


def test_a_model_that_draws_random_numbers_is_told(dlb: Dlb) -> None:
    (dlb.folder / "ours.py").write_text(HEAD + OURS.replace("act=ReLU()", "act=Dropout(0.5)"))
    ended = dlb("capture", "ref.safetensors", "example=ours:make", *SAME)
    assert ended.status == 1 and not ended.document["repeatable"], ended.err
    assert "random" in said(checks(ended)["forward, training"])
    assert (dlb.folder / "ref.safetensors").exists()


@pytest.mark.parametrize(
    ("to", "words", "says"),
    [
        ("no/ref.safetensors", (), "there is no folder"),
        ("ref.safetensors", ("--threads", 0), "--threads is 0"),
        ("ref.safetensors", ("--from", "."), "add --provision"),
        ("ref.safetensors", ("--layout", "CHWN"), "'CHWN'"),
    ],
)
def test_bad_requests(dlb: Dlb, to: str, words: tuple[object, ...], says: str) -> None:
    (dlb.folder / "ours.py").write_text(HEAD + OURS)
    ended = dlb("capture", to, "example=ours:make", *words)
    assert ended.status == 2 and says in ended.complaint
    assert not (dlb.folder / to).exists()
