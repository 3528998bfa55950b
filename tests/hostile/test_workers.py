"""Workers that say or write what no worker should: one line, and the other adapters go on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from dlb_process import Dlb, Ended, failure_line, said
from fake_worker import MODES, PASSED

from dlb import environments
from dlb.printable import UNSEEN

FAKE = Path(__file__).with_name("fake_worker.py")
#: Fake workers of one command, which are looked at side by side.
SLOTS = [f"fake{number}" for number in range(12)]
WORKLOAD = """
name = "softmax"
batch_size = 5
data = { name = "synthetic" }
optimizer = { type = "sgd", learning_rate = 0.1, momentum = 0.9 }
[model]
input = { shape = [16] }
nodes = [{ name = "fc", layer = { type = "linear", out_features = 3 } }]
"""
#: The groups of checks in which a mode shows, by the first word of its name; "weights" for others.
GROUPS = {
    **dict.fromkeys(("training", "clock", "audit", "predict", "progress", "event"), "audit"),
    **{name: name for name in ("forward", "gradients", "export")},
}


@pytest.fixture(scope="session")
def home(dlb_command: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """dlb's folder, in which a fake worker is registered under each of the names."""
    folder = tmp_path_factory.mktemp("slots")
    python = dlb_command.with_name("python")
    for name in SLOTS:
        script = folder / name
        script.write_text(
            f'#!/bin/sh\n[ "$1" = -m ] && exec "{python}" "{FAKE}" {name} "$@"\nexec "{python}" "$@"\n'
        )
        script.chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DLB_HOME", str(folder / "home"))
            environments.add(name, script)
    return folder / "home"


class Fakes:
    """Runs commands on fake workers, and on the example, which no fake worker may hurt."""

    def __init__(self, dlb: Dlb) -> None:
        self.dlb = dlb
        self.workload = dlb.folder / "softmax.toml"
        self.workload.write_text(WORKLOAD)

    def __call__(self, modes: Iterable[object], command: str, *words: object) -> Ended:
        """A command on a fake worker of each mode, and what holds for all of them."""
        fakes = dict(zip(SLOTS, map(str, modes)))
        on = chain.from_iterable(("--on", name) for name in [*fakes, "example"])
        fault = " ".join(f"{name}={mode}" for name, mode in fakes.items())
        words = (*on, "--threads", 1, *words)
        ended = self.dlb(command, self.workload, *words, fault=fault)
        assert ended.status in (0, 1), ended.err
        assert "a fault of dlb" not in ended.err
        assert shows_nothing_else(ended)
        # Output of workers that failed is kept; ONNX Runtime leaves a file of its own.
        rest = {each.name for each in self.dlb.folder.iterdir()}
        rest -= {self.workload.name, self.dlb.out.name, ".ses"}
        assert all("dlb-output-" in name for name in rest)
        return ended

    def outcomes(self, modes: Sequence[object], *words: object) -> dict[object, str]:
        """What a proof says of the fake worker of each mode."""
        document = self(modes, "verify", "--json", *words).document
        said = {record["adapter"]: outcome(document, record) for record in document["records"]}
        assert list(said) == [*SLOTS[: len(modes)], "example"]
        assert said.pop("example") == PASSED
        return dict(zip(modes, said.values()))


@pytest.fixture
def fakes(dlb_command: Path, home: Path, tmp_path: Path) -> Fakes:
    return Fakes(Dlb(dlb_command, tmp_path, home))


def shows_nothing_else(ended: Ended) -> bool:
    """Whether a command wrote what can be seen and ends of lines, and nothing else."""
    return set(UNSEEN.findall(ended.out + ended.err)) <= {"\n"}


def outcome(document: dict[str, Any], record: dict[str, Any]) -> str:
    """What is said of an adapter: its failure, and the checks that it did not pass."""
    lines = [failure_line(record["failure"])] if record["failure"] else []
    lines += [
        f"{check['check']} {check['verdict']}: {said(check)}"
        for check in document["certificate"]["checks"]
        if check["adapter"] == record["adapter"] and check["verdict"] != "passed"
    ]
    text = " | ".join(lines) or PASSED
    assert len(text.splitlines()) == 1
    return text


#: Modes in which a call is never answered.
LATE = ["id-other"]


def batches() -> list[Any]:
    """A few modes at a time, all of one group."""
    by_group: dict[str, list[str]] = {}
    for mode in [mode for mode in MODES if mode not in LATE]:
        by_group.setdefault(GROUPS.get(mode.split("-")[0], "weights"), []).append(mode)
    found = [pytest.param("weights", LATE, id=LATE[0])]
    for group, modes in by_group.items():
        for first in range(0, len(modes), len(SLOTS)):
            batch = modes[first : first + len(SLOTS)]
            found.append(pytest.param(group, batch, id=f"{batch[0]}..{batch[-1]}"))
    return found


@pytest.mark.parametrize(("group", "modes"), batches())
def test_a_fake_worker_costs_one_line_of_its_own(
    fakes: Fakes, group: str, modes: list[str]
) -> None:
    patience = 3 if modes == LATE else 60
    outcomes = fakes.outcomes(modes, "--group", group, "--timeout", patience)
    wrong = {mode: text for mode, text in outcomes.items() if MODES[mode][1] not in text}
    assert wrong == {}


def test_what_a_worker_writes_is_shown_as_text(fakes: Fakes) -> None:
    """By the run itself, and by whoever reads its records."""
    modes = ["describe-bad", "start-bad", "start-csv", "training-observed", "error-raised-bad"]
    out = ("--rounds", 0, "--steps", 5, "--out", fakes.dlb.out)
    ended = fakes(modes, "run", *out)
    assert "<script>alert(1)</script>" in ended.out
    for words in (("list",), ("export",), ("export", "--format", "mllog")):
        ended = fakes.dlb("results", *words, "--in", fakes.dlb.out)
        assert ended.status == 0 and shows_nothing_else(ended)
        assert not any(cell.startswith("=") for cell in ended.out.replace("\n", ",").split(","))
    records = [fakes.dlb.out / record["name"] for record in fakes.dlb.records().values()]
    assert len(records) == len(modes) + 1
    for record in records:
        ended = fakes.dlb("show", record.with_suffix(".json"))
        assert ended.status in (0, 1) and shows_nothing_else(ended)


#: Seeds of mutations, those of one command together; the default run has some.
SEEDS = [range(first, first + 10) for first in range(0, 200, 10)]


@pytest.mark.parametrize(
    "seeds",
    [*SEEDS[:6], *(pytest.param(seeds, marks=pytest.mark.long) for seeds in SEEDS[6:])],
    ids=lambda seeds: f"{seeds[0]}..{seeds[-1]}",
)
def test_a_changed_answer_costs_one_line_at_most(fakes: Fakes, seeds: range) -> None:
    outcomes = fakes.outcomes(seeds, "--timeout", 10)
    # Of ten changes one at least is no longer an answer.
    assert {*outcomes.values()} != {PASSED}


MODEL = """
from dlb_example.native import Dense, Linear, Net, Tanh

def make():
    return Net(shape=(6,), first={}(6, 5, seed={}), act=Tanh(), last=Linear(5, 3, seed=3))
"""


@pytest.mark.parametrize(
    "seed",
    [*range(1000, 1006), *(pytest.param(n, marks=pytest.mark.long) for n in range(1006, 1060))],
)
def test_a_changed_answer_ends_a_port_in_one_line(fakes: Fakes, seed: int) -> None:
    dlb = fakes.dlb
    for name, layer in (("ours", "Linear"), ("theirs", "Dense")):
        (dlb.folder / f"{name}.py").write_text(MODEL.format(layer, len(name)))
    words = (f"{SLOTS[0]}=ours:make", "example=theirs:make", "--threads", 1, "--timeout", 5)
    ended = dlb("port", *words, fault=f"{SLOTS[0]}={seed}")
    assert ended.status in (0, 1, 2) and shows_nothing_else(ended)
    assert "a fault of dlb" not in ended.err
    complaints = [line for line in ended.err.splitlines() if line.startswith("dlb: fake0: ")]
    assert len(complaints) <= bool(ended.status)
    rest = {each.name for each in dlb.folder.iterdir() if "dlb-output-" not in each.name}
    assert rest <= {"softmax.toml", "ours.py", "theirs.py", "dlb-map.toml", ".ses"}
