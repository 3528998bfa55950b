"""``dlb port``: two models written by hand, their maps, and every request that is bad.

The example adapter and the faulty one take models of ``dlb_example.native``; weights of its Dense
lie the other way round from those of its Linear.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from dlb_process import Dlb, Ended, said

from dlb.proof import certificate
from dlb.proof.explain import explain
from dlb.report.common import RENDERERS
from dlb_port.findings.port import SpanDiffers

HEAD = "from dlb_example.native import *\n"
OURS = """
def make():
    return Net(
        shape=(6,), fc1=Linear(6, 5, seed=1), act=ReLU(), fc2=Linear(5, 5, seed=2),
        tanh=Tanh(), fc3=Linear(5, 3, seed=3),
    )
"""
THEIRS = """
def make():
    return Net(
        a=Dense(6, 5, seed=4), b=ReLU(), c=Dense(5, 5, seed=5), d=Tanh(), e=Dense(5, 3, seed=6)
    )
"""
MAP = """
[models.faulty]
weights = [
  { from = "fc1.weight", to = "a.weight" },
  { from = "fc1.bias", to = "a.bias" },
  { from = "fc2.weight", to = "c.weight" },
  { from = "fc2.bias", to = "c.bias" },
  { from = "fc3.weight", to = "e.weight" },
  { from = "fc3.bias", to = "e.bias" },
]
"""
Verify = Callable[..., Ended]


@pytest.fixture
def verify(dlb: Dlb) -> Verify:
    """Two factories' models, in modules of the current folder."""

    def run(
        *words: object,
        ours: str = OURS,
        theirs: str = THEIRS,
        told: str = "",
        factory: str = "theirs:make",
        **options: Any,
    ) -> Ended:
        (dlb.folder / "ours.py").write_text(HEAD + ours)
        (dlb.folder / "theirs.py").write_text(HEAD + theirs)
        given = ["example=ours:make", f"faulty={factory}", "--threads", 1]
        if told:
            (dlb.folder / "map.toml").write_text(told)
            given += ["--map", "map.toml"]
        return dlb("port", *given, *words, **options)

    return run


def checks(ended: Ended) -> dict[str, dict[str, Any]]:
    return {result["check"]: result for result in ended.document["certificate"]["checks"]}


# --- tables ----------------------------------------------------------------------------------

TABLE = "np.sin(np.arange(6.0) / {})"
RIGHT, OTHER = TABLE.format(10), TABLE.format(20)


def test_a_table_that_code_computes_is_compared_before_it_is_carried(verify: Verify) -> None:
    """What a factory draws is carried, as weights are."""
    drawn = "np.random.default_rng().standard_normal(6)"
    head = "import numpy as np\n"
    for own, other, verdict in ((RIGHT, OTHER, "failed"), (drawn, drawn, "passed")):
        ended = verify(
            "--json",
            ours=head + OURS.replace("fc1=", f"pe=Table({own}), fc1="),
            theirs=head + THEIRS.replace("a=", f"pe=Table({other}), a="),
        )
        assert ended.status == (verdict == "failed"), ended.err
        assert checks(ended)["weights"]["verdict"] == checks(ended)["forward"]["verdict"] == verdict


def test_a_table_that_only_one_model_keeps_stays_and_outputs_show_whether_it_is_right(
    verify: Verify,
) -> None:
    """The other has it in its code: no parameter, and nothing to carry."""
    head = "import numpy as np\n"
    code = "class Plus(Layer):\n    def forward(self, x, training):\n        return x + {}\n"
    for table, status in ((RIGHT, 0), (OTHER, 1)):
        ended = verify(
            ours=head + OURS.replace("fc1=", f"pe=Table({RIGHT}), fc1="),
            theirs=head + code.format(table) + THEIRS.replace("a=", "pe=Plus(), a="),
        )
        assert ended.status == status, ended.err
        assert "left as they are: pe.table" in ended.out + ended.err


# --- proven ----------------------------------------------------------------------------------


def test_a_right_port_is_proven(dlb: Dlb, verify: Verify) -> None:
    ended = verify("--json")
    assert ended.status == 0, ended.err
    assert ended.document["proven"] and ended.document["map"] == "dlb-map.toml"
    found = checks(ended)
    assert list(found) == [
        "weights",
        "forward",
        "layers",
        "forward, training",
        "gradients",
        "trajectory",
        "forward float32",
        "gradients float32",
    ]
    assert {one["verdict"] for one in found.values()} == {"passed"}
    assert {one["tensor"] for one in found["layers"]["figures"]} == {"fc1", "fc2", "fc3"}
    compared = {one["tensor"] for one in found["gradients"]["figures"]}
    assert compared == {f"fc{n}.{of}" for n in (1, 2, 3) for of in ("weight", "bias")} | {"input"}


def test_the_proposal_is_shown_and_can_be_given_back(dlb: Dlb, verify: Verify) -> None:
    ended = verify()
    assert ended.status == 0 and re.search(r"proof +proven", ended.out)
    assert "fc1.weight" in ended.out and "by shape" in ended.out
    written = dlb.folder / "dlb-map.toml"
    assert msgspec.toml.decode(written.read_text()) == msgspec.toml.decode(MAP)
    again = verify("--map", written, "--json")
    assert again.status == 0 and again.document["map"] is None


def test_two_models_of_one_adapter_have_names(dlb: Dlb) -> None:
    (dlb.folder / "ours.py").write_text(
        HEAD + OURS + OURS.replace("make", "other").replace("ReLU", "Tanh")
    )
    told = ["--input-shape", "6", "--threads", 1, "--json"]
    same = dlb("port", "example=ours:make", "example=ours:make", *told)
    assert same.status == 0, same.err
    assert list(same.document["models"]) == ["example", "example-2"]
    wrong = dlb("port", "example-old=ours:make", "example-new=ours:other", *told)
    assert wrong.status == 1
    certificate = wrong.document["certificate"]
    assert list(certificate["adapters"]) == ["example-old", "example-new"]
    assert "ReLU" in str(checks(wrong)["layers"]["findings"])


def test_a_map_that_is_there_is_left_as_it_is(dlb: Dlb, verify: Verify) -> None:
    (dlb.folder / "dlb-map.toml").write_text("# mine\n")
    ended = verify()
    assert ended.status == 0 and "was left as it is" in ended.err
    assert (dlb.folder / "dlb-map.toml").read_text() == "# mine\n"


def test_a_factory_may_be_named_by_its_file(dlb: Dlb, verify: Verify) -> None:
    package = dlb.folder / "deep" / "nets"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text(HEAD + THEIRS)
    (package / "theirs.py").write_text("from .part import make\n")
    for factory in ("theirs.py:make", "deep/nets/theirs.py:make"):
        ended = verify("-q", factory=factory)
        assert ended.status == 0, ended.err


def test_an_array_of_ones_own_is_used(dlb: Dlb, verify: Verify) -> None:
    np.savez(dlb.folder / "x.npz", anything=np.ones((4, 6), np.float32))
    assert verify("--input", "x.npz").status == 0


def test_the_certificate_is_written_and_explained(dlb: Dlb, verify: Verify) -> None:
    wrong = THEIRS.replace("b=ReLU()", "b=ReLU(slope=0.1)")
    assert verify("--certificate", "port.json", theirs=wrong).status == 1
    explained = dlb("explain", "port.json")
    assert "what is between 'fc1' and 'fc2'" in explained.out, explained.out + explained.err


#: Fields that hold text for people, or what a framework calls its types.
TEXTS = {"built", "message", "text", "log", "path"}


def blank(value: Any) -> Any:
    """A document with every text for people replaced."""
    if isinstance(value, dict):
        return {
            name: "?" if name in TEXTS and isinstance(part, str) and part else blank(part)
            for name, part in value.items()
        }
    return [blank(part) for part in value] if isinstance(value, (list, tuple)) else value


def test_the_explanation_follows_from_fields_alone(
    dlb: Dlb, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = THEIRS.replace("b=ReLU()", "b=ReLU(slope=0.1)")
    assert verify("--certificate", "port.json", theirs=wrong).status == 1
    held = certificate.read(dlb.folder / "port.json")
    (before,) = explain(held)
    assert before.finding is not None and isinstance(before.finding.cause, SpanDiffers)
    assert (before.finding.cause.after, before.finding.cause.before) == ("fc1", "fc2")
    for kind in RENDERERS:
        monkeypatch.setitem(RENDERERS, kind, lambda cause, finding, adapter: "something else")
    document = blank(msgspec.to_builtins(held))
    (after,) = explain(msgspec.convert(document, certificate.Certificate))
    assert blank(msgspec.to_builtins(after)) == blank(msgspec.to_builtins(before))


def test_from_python(dlb: Dlb) -> None:
    (dlb.folder / "ours.py").write_text(HEAD + OURS)
    (dlb.folder / "theirs.py").write_text(HEAD + THEIRS)
    program = (
        "import dlb_port\n"
        "found = dlb_port.verify_port({'example': 'ours:make', 'faulty': 'theirs:make'}).certificate\n"
        "print(found.status('faulty'), len(found.results_of('faulty')), found.adapters['example'][:5])\n"
    )
    python = dlb.command.with_name("python")
    done = subprocess.run(
        [python, "-c", program],
        cwd=dlb.folder,
        env=dlb.environment(),
        capture_output=True,
        text=True,
    )
    assert done.stdout == "proven 8 NumPy\n", done.stderr
    assert not (dlb.folder / "dlb-map.toml").exists()


# --- named -----------------------------------------------------------------------------------

#: A model that is wrong: what is changed in it, and what the check of layers must say.
WRONG = {
    "activation": (
        "b=ReLU()",
        "b=ReLU(slope=0.1)",
        "between 'fc1' and 'fc2': 'act' ReLU(slope=0.0) of example, 'b' ReLU(slope=0.1) of faulty",
    ),
    "missing": (
        "d=Tanh(),",
        "",
        "between 'fc2' and 'fc3': 'tanh' Tanh of example, the code of Net",
    ),
    "last": ("seed=6)", "seed=6), f=Tanh()", "between 'fc3' and the output: the code of Net"),
}


@pytest.mark.parametrize(("old", "new", "says"), WRONG.values(), ids=list(WRONG))
def test_the_first_layer_that_differs_is_named(
    verify: Verify, old: str, new: str, says: str
) -> None:
    assert old in THEIRS
    ended = verify("--json", theirs=THEIRS.replace(old, new), told=MAP)
    assert ended.status == 1 and not ended.document["proven"]
    found = checks(ended)
    assert found["weights"]["verdict"] == "passed"
    assert found["forward"]["verdict"] == found["layers"]["verdict"] == "failed"
    assert says in said(found["layers"])


def test_a_layer_that_computes_otherwise_is_named(verify: Verify) -> None:
    odd = "class Odd(Dense):\n    def forward(self, x, training):\n"
    odd += "        return super().forward(x, training) * (1 + 1e-6)\n"
    ended = verify("--json", theirs=odd + THEIRS.replace("c=Dense", "c=Odd"), told=MAP)
    assert ended.status == 1
    layers = checks(ended)["layers"]
    cause = layers["findings"][0]["cause"]
    assert cause["code"] == "port_layer_differs"
    assert (cause["reference"]["name"], cause["other"]["type"]) == ("fc2", "Odd")
    text = said(layers)
    assert text.startswith("first layer past the tolerance: fc2, linear(example: 'fc2' Linear(")
    assert "; faulty: 'c' Odd(seed=5)" in text  # what both have alike is left out


def test_a_detached_gradient_is_no_fault_of_the_forward_pass(verify: Verify) -> None:
    ended = verify("--json", theirs=THEIRS.replace("e=Dense", "d2=Detached(), e=Dense"), told=MAP)
    assert ended.status == 1
    failed = {name for name, one in checks(ended).items() if one["verdict"] != "passed"}
    assert failed == {"gradients", "trajectory", "gradients float32"}


#: A layer that takes another gradient once its weights have moved.
STUBBORN = """
class Stubborn(Dense):
    def backward(self, dy):
        self.first = getattr(self, "first", self.weight.copy())
        moved = (abs(self.weight - self.first) > 1e-3).any()
        down, own = super().backward(dy)
        return down, {name: (2 if moved else 1) * array for name, array in own.items()}
"""
#: A layer that keeps three digits, in float32 alone.
COARSE = """
class Coarse(Dense):
    def forward(self, x, training):
        y = super().forward(x, training)
        return y if y.dtype == "float64" else y.astype("float16").astype(y.dtype)
"""


@pytest.mark.parametrize(
    ("code", "name", "found"),
    [(STUBBORN, "Stubborn", "trajectory"), (COARSE, "Coarse", "forward float32")],
)
def test_a_fault_after_the_first_step_or_in_float32_alone_is_found(
    verify: Verify, code: str, name: str, found: str
) -> None:
    ended = verify("--json", theirs=code + THEIRS.replace("c=Dense", f"c={name}"), told=MAP)
    assert ended.status == 1
    by_name = checks(ended)
    assert by_name[found]["verdict"] == "failed", by_name[found]
    others = {one for one, result in by_name.items() if result["group"] != by_name[found]["group"]}
    assert {by_name[one]["verdict"] for one in others} == {"passed"}


#: A layer that ends its process in float32.
DYING = """
import os, sys
class Dying(Dense):
    def forward(self, x, training):
        if x.dtype == "float32":
            print("the end", file=sys.stderr, flush=True)
            os._exit(7)
        return super().forward(x, training)
"""


@pytest.mark.parametrize(
    ("code", "name", "verdict"), [(COARSE, "Coarse", "failed"), (DYING, "Dying", "not run")]
)
def test_a_reference_that_is_wrong_in_float32_fails_itself_and_not_its_port(
    verify: Verify, code: str, name: str, verdict: str
) -> None:
    ended = verify("--json", ours=code + OURS.replace("fc2=Linear", f"fc2={name}"), told=MAP)
    assert ended.status == 1 and not ended.document["proven"]
    found = ended.document["certificate"]["checks"]
    assert {each["verdict"] for each in found if each["adapter"] == "faulty"} == {"passed"}
    of_reference = {each["check"]: each for each in found if each["adapter"] == "example"}
    assert of_reference["forward float32"]["verdict"] == verdict
    assert of_reference["forward float32"]["baseline"]["names"] == ["example"]
    assert {each["group"] for each in of_reference.values()} == {"float32"}


def test_a_worker_that_dies_in_float32_costs_the_float32_checks(verify: Verify) -> None:
    ended = verify("--json", theirs=DYING + THEIRS.replace("c=Dense", "c=Dying"), told=MAP)
    assert ended.status == 1, ended.err
    found = checks(ended)
    assert found["trajectory"]["verdict"] == "passed"
    for name in ("forward float32", "gradients float32"):
        assert found[name]["verdict"] == "not run"
        failure = found[name]["findings"][0]["cause"]["failure"]
        assert "the end" in Path(failure["log"]).read_text("utf-8")


def test_what_does_not_apply_is_told_with_the_reason(verify: Verify) -> None:
    ended = verify()
    assert "update, since a user's model has no optimizer" in ended.out
    reasons = verify("--json").document["certificate"]["inapplicable"]
    assert reasons["update"] == "no_optimizer" and reasons["distributed"] == "one_worker"


def test_a_model_that_is_float64_whatever_is_asked_is_not_proven(verify: Verify) -> None:
    fixed = "class Fixed(Dense):\n    def __init__(self, *sizes, seed):\n"
    fixed += "        super().__init__(*sizes, seed=seed)\n"
    fixed += "        self.weight = self.weight.astype('float64')\n"
    ended = verify("--json", theirs=fixed + THEIRS.replace("c=Dense", "c=Fixed"), told=MAP)
    assert ended.status == 1
    found = checks(ended)
    assert found["forward float32"]["verdict"] == "not run"
    assert "parameter 'c.weight' is float64" in said(found["forward float32"])
    assert found["trajectory"]["verdict"] == "passed"


def test_weights_in_another_order_are_carried_as_told(verify: Verify) -> None:
    ours = "def make():\n    return Net(shape=(6,), fc=Linear(6, 4, seed=1))\n"
    theirs = "def make():\n    return Net(mix=Mix(6, 4), plus=Shift(4))\n"
    shift = "class Shift(Layer):\n    trained = ('bias',)\n    def __init__(self, n):\n"
    shift += "        self.bias = 0 * Linear(1, n).bias\n    def forward(self, x, training):\n"
    shift += "        return x + self.bias\n    def backward(self, dy):\n"
    shift += "        return dy, {'bias': dy.sum(axis=0)}\n"
    told = (
        '[models.faulty]\nweights = [{ from = "fc.weight", to = "mix.table", transpose = [1, 0] }'
    )
    told += ', { from = "fc.bias", to = "plus.bias" }]\n'
    ended = verify("--json", ours=ours, theirs=shift + theirs, told=told)
    assert ended.status == 0 and ended.document["proven"]
    # The layers that share the parameters are no counterparts, and nothing differs to locate.
    assert "layers" not in checks(ended)


def test_dropout_is_not_run_and_never_proven(verify: Verify) -> None:
    ended = verify(
        "--json", theirs=THEIRS.replace("b=ReLU()", "b=ReLU(), b2=Dropout(0.5)"), told=MAP
    )
    assert ended.status == 1
    found = checks(ended)
    assert found["forward, training"]["verdict"] == "not run"
    assert "'b2' Dropout(rate=0.5)" in said(found["forward, training"])
    assert found["gradients"]["verdict"] == "passed"
    assert "evaluation mode" in said(found["gradients"])
    assert not ended.document["proven"]


#: Stochastic depth: the first sample is dropped.
DEPTH = """
class Depth(Layer):
    def __init__(self, rate, scaled=True):
        self.rate, self.scaled = rate, scaled

    def forward(self, x, training):
        if not training:
            return x
        y = x / (1 - self.rate) if self.scaled else x.copy()
        y[0] = 0
        return y
"""


@pytest.mark.parametrize(
    ("theirs", "verdict", "says"),
    [
        ("Depth(0.25)", "passed", "the same dropout in one place"),
        ("Depth(0.75)", "failed", "0.25 of samples at 'act2' of example and 0.75 of samples"),
        ("Depth(0.25, scaled=False)", "failed", "0.125 of samples, not scaled at 'b2' of faulty"),
        ("ReLU()", "failed", "0.25 of samples at 'act2' of example and nothing in the other"),
        ("Dropout(0.25)", "not run", "0.25 of samples at 'act2' of example and nothing in the"),
    ],
)
def test_stochastic_depth_is_compared_by_its_rate_and_never_proven(
    verify: Verify, theirs: str, verdict: str, says: str
) -> None:
    ended = verify(
        "--json",
        ours=DEPTH + OURS.replace("act=ReLU()", "act=ReLU(), act2=Depth(0.25)"),
        theirs=DEPTH + THEIRS.replace("b=ReLU()", f"b=ReLU(), b2={theirs}"),
        told=MAP,
    )
    assert ended.status == 1
    found = checks(ended)
    assert found["settings"]["verdict"] == verdict
    assert says in said(found["settings"])
    assert found["forward, training"]["verdict"] == "not run"
    assert "'act2' Depth(rate=0.25" in said(found["forward, training"])


# --- what cannot be matched ------------------------------------------------------------------


def test_a_square_that_lies_in_an_unknown_way_is_not_guessed(dlb: Dlb, verify: Verify) -> None:
    ours = OURS.replace("fc2=Linear(5, 5, seed=2)", "fc2=Mix(5, 5)")
    theirs = THEIRS.replace("c=Dense(5, 5, seed=5)", "c=Mix(5, 5)")
    ended = verify(ours=ours, theirs=theirs)
    assert ended.status == 2
    assert "could not be matched unambiguously" in ended.complaint
    assert "fc2.table of Mix, [5, 5], lying in a way that is not known" in ended.complaint
    written = (dlb.folder / "dlb-map.toml").read_text()
    assert (
        '{ from = "fc1.weight", to = "a.weight" }' in written and "# example: fc2.table" in written
    )
    whole = written.replace("weights = [", 'weights = [\n{ from = "fc2.table", to = "c.table" },')
    assert verify(ours=ours, theirs=theirs, told=whole).status == 0


def test_a_parameter_without_a_counterpart_can_be_left(verify: Verify) -> None:
    theirs = THEIRS.replace("d=Tanh()", "d=Tanh(), extra=Mix(5, 5)")
    ended = verify(theirs=theirs)
    assert ended.status == 2 and "extra.table" in ended.complaint
    told = MAP.replace("[models.faulty]", '[models.faulty]\nleave = ["extra.table"]')
    ended = verify("--json", theirs=theirs, told=told)
    assert ended.status == 1  # it multiplies by what it was made with
    assert "left as they are: extra.table" in said(checks(ended)["weights"])


def test_layers_alike_in_another_order_are_not_guessed(verify: Verify) -> None:
    ours = "def make():\n    return Net(shape=(4,), a=Linear(4, 4), m=Linear(4, 7), b=Linear(7, 4),"
    ours += " c=Linear(4, 4))\n"
    theirs = (
        "def make():\n    return Net(x=Dense(4, 4), y=Dense(4, 4), m=Dense(4, 7), z=Dense(7, 4))\n"
    )
    ended = verify(ours=ours, theirs=theirs)
    assert ended.status == 2
    assert "a.weight of Linear, [4, 4] could be x.weight or y.weight" in ended.complaint


# --- bad maps --------------------------------------------------------------------------------

#: A replacement in the map, and what the line must say.
MAPS = {
    "missing": (
        '  { from = "fc2.bias", to = "c.bias" },\n',
        "",
        ("'fc2.bias' of example is missing", "'c.bias' of faulty is missing", "leave"),
    ),
    "doubled": ('"c.bias"', '"a.bias"', ("'a.bias' of faulty is in several entries",)),
    "doubled source": ('"fc2.bias"', '"fc1.bias"', ("'fc1.bias' of example is in several",)),
    "unknown": (
        '"c.bias"',
        '"c.bais"',
        ("'c.bais' is no parameter of faulty (did you mean 'c.bias'?)",),
    ),
    "shape": (
        'to = "e.weight"',
        'to = "c.weight"',
        ("'fc3.weight' -> 'c.weight': [3, 5]", "[5, 5]"),
    ),
    "transpose": (
        'to = "e.weight"',
        'to = "e.weight", transpose = [1, 0]',
        ("[5, 3] is carried to [3, 5] in canonical layout",),
    ),
    "axes": (
        'to = "e.weight"',
        'to = "e.weight", transpose = [1, 1]',
        ("transpose = [1, 1] is no order of the axes",),
    ),
    "reshape": (
        'to = "e.weight"',
        'to = "e.weight", reshape = [4, 4]',
        ("reshape = [4, 4] does not hold",),
    ),
    "left and told": (
        "[models.faulty]",
        '[models.faulty]\nleave = ["a.bias"]',
        ("'a.bias' of faulty is in an entry and left",),
    ),
    "model": ("[models.faulty]", "[models.fautly]", ("[models.fautly]", "example, faulty")),
    "reference": ("[models.faulty]", "[models.example]", ("is the reference",)),
    "field": ('to = "c.bias"', 'too = "c.bias"', ("map.toml", "not a map", "too")),
    "type": ('to = "c.bias"', "to = 3", ("map.toml", "not a map")),
    "layout": ("[models.faulty]", '[models.faulty]\ninput = "NHCW"', ("'NHCW'", "NHWC")),
    "axes of layout": (
        "[models.faulty]",
        '[models.faulty]\ninput = "NHWC"',
        ("layout NHWC, which has 4 axes", "[8, 6]"),
    ),
    "not TOML": ("weights = [", "weights [", ("map.toml", "not a map", "line")),
}


@pytest.mark.parametrize(("old", "new", "says"), MAPS.values(), ids=list(MAPS))
def test_bad_map(verify: Verify, old: str, new: str, says: tuple[str, ...]) -> None:
    assert old in MAP
    ended = verify(told=MAP.replace(old, new, 1))
    assert ended.status == 2
    assert all(word in ended.complaint for word in says), ended.complaint
    assert ended.out == ""


@pytest.mark.parametrize("path", ["nowhere.toml", "/", "/dev/zero"])
def test_path_that_is_no_map(verify: Verify, path: str) -> None:
    ended = verify("--map", path)
    assert ended.status == 2 and path in ended.complaint


# --- bad factories ---------------------------------------------------------------------------

#: The factory's spelling, its module, and what the line must say.
FACTORIES = {
    "no colon": ("theirs.make", THEIRS, ("'theirs.make' must be MODULE:FACTORY",)),
    "path": (
        "./nowhere/theirs.py:make",
        THEIRS,
        ("faulty=./nowhere/theirs.py:make: there is no file",),
    ),
    "no module": ("their:make", THEIRS, ("no module 'their'", "run dlb in the folder")),
    "no package": ("pkg.theirs:make", THEIRS, ("no module 'pkg'",)),
    "needs another": (
        "theirs:make",
        "import no_such_thing\n",
        ("needs 'no_such_thing'", "install"),
    ),
    "no factory": ("theirs:mkae", THEIRS, ("'theirs' has no 'mkae'; it has make",)),
    "no function": ("theirs:make", "make = 3\n", ("'theirs:make' is a int",)),
    "arguments": ("theirs:make", "def make(n):\n    return n\n", ("needs arguments: (n)", "none")),
    "raises": (
        "theirs:make",
        "def make():\n    raise ValueError('too\\nbad')\n",
        ("'theirs:make' raised ValueError: too bad (theirs.py, line 3)", "output: "),
    ),
    "raises at import": (
        "theirs:make",
        "1 / 0\n",
        ("importing 'theirs' raised ZeroDivisionError",),
    ),
    "syntax": ("theirs:make", "def make(:\n", ("importing 'theirs' raised SyntaxError",)),
    "exits": ("theirs:make", "import sys\nsys.exit('no')\n", ("raised SystemExit: no",)),
    "nothing": ("theirs:make", "def make():\n    pass\n", ("returned None; it must return",)),
    "wrong": (
        "theirs:make",
        "def make():\n    return 'net'\n",
        ("returned a str; it must return",),
    ),
    "type": (
        "theirs:make",
        THEIRS.replace("seed=5", 'seed=5, dtype="float32"'),
        ("'c.weight' is float32 although float64 was asked for",),
    ),
    "dies": (
        "theirs:make",
        "import os\ndef make():\n    os._exit(5)\n",
        ("worker 0 ended with exit status 5",),
    ),
}


@pytest.mark.parametrize(("factory", "theirs", "says"), FACTORIES.values(), ids=list(FACTORIES))
def test_bad_factory(verify: Verify, factory: str, theirs: str, says: tuple[str, ...]) -> None:
    ended = verify(factory=factory, theirs=theirs)
    assert ended.status == 2
    assert all(word in ended.complaint for word in says), ended.complaint
    assert ended.out == ""


def test_output_of_a_factory_that_raised_is_kept(verify: Verify) -> None:
    ended = verify(theirs="def make():\n    print('hello')\n    raise ValueError('bad')\n")
    log = Path(ended.complaint.partition("output: ")[2])
    text = log.read_text()
    assert "hello" in text and "ValueError: bad" in text


def test_a_factory_that_hangs_is_ended(verify: Verify) -> None:
    theirs = "import time\ndef make():\n    time.sleep(3600)\n"
    ended = verify("--timeout", 3, theirs=theirs)
    assert ended.status == 2 and "made no progress in 'load' for 3 s" in ended.complaint


def test_a_model_that_cannot_read_the_input(verify: Verify) -> None:
    ended = verify(theirs=THEIRS.replace("a=Dense(6", "a=Dense(7"), told=MAP)
    assert ended.status == 2
    assert "faulty: ValueError" in ended.complaint and "input of shape [8, 6]" in ended.complaint


def test_an_adapter_that_cannot_take_models_in(verify: Verify) -> None:
    ended = verify(fault="no-user-models")
    assert ended.status == 2
    assert "faulty: the adapter does not have the feature 'user_models'" in ended.complaint


# --- bad requests ----------------------------------------------------------------------------

TWO = ["example=ours:make", "faulty=theirs:make"]
#: Words after ``dlb port``, and what the line must say.
REQUESTS: dict[str, tuple[list[object], tuple[str, ...]]] = {
    "one": (["example=ours:make"], ("two models or more",)),
    "twice": (
        ["example-new=ours:make", "example-new=theirs:make"],
        ("'example-new' is ours:make already",),
    ),
    "no name": (["example=ours:make", "example-/x=theirs:make"], ("'example-/x' must be",)),
    "unknown": (["exampel=a:b", "faulty=a:b"], ("did you mean 'example'",)),
    "no adapter": (["ours:make", "faulty=a:b"], ("ADAPTER=MODULE:FACTORY",)),
    "workload": (["lenet5", *TWO], ("ADAPTER=MODULE:FACTORY",)),
    "on": ([*TWO, "--on", "example"], ("No such option", "--on")),
    "dtype": ([*TWO, "--dtype", "float16"], ("--dtype", "float32")),
    "none": ([], ("two models or more",)),
    "group": ([*TWO, "--group", "forward"], ("No such option", "--group")),
    "no folder": ([*TWO, "--certificate", "nowhere/c.json"], ("there is no folder nowhere",)),
    "layout of none": ([*TWO, "--layout", "torch=NHWC"], ("no model 'torch'",)),
    "layout": ([*TWO, "--layout", "faulty=CHWN"], ("'CHWN'", "NHWC")),
    "layout of nothing": ([*TWO, "--layout", "NHWC"], ("ADAPTER=...", "tf=NHWC")),
    "a trainer alone": (
        [*TWO, "--trainer", "faulty=theirs:train"],
        ("'example' has no training program", "--trainer example="),
    ),
    "no batches": (
        [*TWO, "--trainer", "faulty=theirs:train", "--trainer", "example=ours:train"],
        ("--batches FILE",),
    ),
    "trainer of none": ([*TWO, "--trainer", "torch=a:b"], ("no model of 'torch'",)),
    "shape": ([*TWO, "--input-shape", "6,x"], ("--input-shape 6,x", "3,32,32")),
    "no shape": ([*TWO, "--input-shape", "0"], ("every number must be 1 or more",)),
    "two inputs": ([*TWO, "--input", "x.npz", "--input-shape", "6"], ("--input excludes",)),
    "threads": ([*TWO, "--threads", 0], ("--threads is 0",)),
    "no samples": ([*TWO, "--batch-size", 0], ("0 samples",)),
    "wrong shape": ([*TWO, "--input-shape", "7"], ("samples of shape [6]", "given [7]")),
}


@pytest.mark.parametrize(("words", "says"), REQUESTS.values(), ids=list(REQUESTS))
def test_bad_request(dlb: Dlb, words: list[object], says: tuple[str, ...]) -> None:
    (dlb.folder / "ours.py").write_text(HEAD + OURS)
    (dlb.folder / "theirs.py").write_text(HEAD + THEIRS)
    ended = dlb("port", *words)
    assert ended.status == 2
    assert all(word in ended.complaint for word in says), ended.complaint
    assert ended.out == ""


#: Arguments of dlb verify that are missing, or too many.
ARGUMENTS = {
    "files": (["verify", "a.onnx", "b.onnx"], "files have a command: dlb diff a.onnx b.onnx"),
    "others": (["verify", "lenet5", "ptb-lstm"], "unexpected extra argument (ptb-lstm)"),
    "no workload": (["verify"], "Missing argument 'WORKLOAD'"),
}


@pytest.mark.parametrize(("words", "says"), ARGUMENTS.values(), ids=list(ARGUMENTS))
def test_arguments_of_verify_are_one_workload(dlb: Dlb, words: list[object], says: str) -> None:
    ended = dlb(*words)
    assert ended.status == 2 and says in ended.complaint and ended.out == ""


@pytest.mark.parametrize("json", [True, False])
def test_a_bad_request_is_one_line_or_one_document(dlb: Dlb, json: bool) -> None:
    ended = dlb("port", "example=ours:make", *(["--json"] if json else []))
    assert len(ended.err.splitlines()) == 1
    if json:
        assert ended.document == {"error": ended.complaint[5:], "exit_status": 2}


def test_nobody_tells_the_shape_of_the_input(verify: Verify) -> None:
    ended = verify(ours=OURS.replace("shape=(6,), ", ""))
    assert ended.status == 2
    assert "none of the models tells" in ended.complaint and "--input-shape" in ended.complaint
    deferred = OURS.replace("shape=(6,), ", "").replace("Linear(6, 5", "Linear(None, 5")
    ended = verify(ours=deferred)
    assert ended.status == 2 and "'fc1.weight' has no shape" in ended.complaint
    assert verify("--input-shape", "6", ours=deferred).status == 0


#: What is in a file that is no input, and what the line must say.
INPUTS: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "none": (lambda path: None, ("no such file",)),
    "text": (lambda path: path.write_text("1, 2, 3"), ("not an .npz file",)),
    "empty": (lambda path: path.write_bytes(b""), ("not an .npz file",)),
    "cut short": (
        lambda path: (
            np.savez(path, x=np.ones((2, 6))),
            path.write_bytes(path.read_bytes()[:200]),
        ),
        ("not an .npz file",),
    ),
    "no arrays": (lambda path: np.savez(path), ("holds no arrays",)),
    "objects": (
        lambda path: np.savez(path, x=np.array([None, {}], dtype=object)),
        ("file of plain numbers",),
    ),
    "words": (lambda path: np.savez(path, x=np.array(["a"])), ("no array of numbers",)),
    "no batch": (lambda path: np.savez(path, x=np.float64(3)), ("[batch, ...] is needed",)),
    "no samples": (lambda path: np.savez(path, x=np.ones((0, 6))), ("[0, 6]",)),
    "not a number": (lambda path: np.savez(path, x=np.full((2, 6), np.nan)), ("a NaN",)),
}


@pytest.mark.parametrize(("write", "says"), INPUTS.values(), ids=list(INPUTS))
def test_bad_input(
    dlb: Dlb, verify: Verify, write: Callable[[Path], object], says: tuple[str, ...]
) -> None:
    write(dlb.folder / "x.npz")
    ended = verify("--input", "x.npz")
    assert ended.status == 2
    assert all(word in ended.complaint for word in ("x.npz", *says)), ended.complaint


def test_a_map_that_cannot_be_written(dlb: Dlb, verify: Verify) -> None:
    (dlb.folder / "dlb-map.toml").symlink_to("/nowhere/map.toml")
    ended = verify()
    assert ended.status == 2 and "cannot write the map" in ended.complaint
