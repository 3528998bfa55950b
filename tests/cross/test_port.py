"""Models written by hand in four frameworks: ports that are right, and each with one error."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import ADAPTERS, Dlb
from dlb.proof.certificate import CheckResult
from dlb.report.sentences import describe
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE

PORTS = Path(__file__).parent / "ports"
#: Words with which each kind of model is run.
INPUTS = {
    "image": ("--input-shape", "3,16,16"),
    "text": ("--input-shape", "7", "--tokens", "50"),
    "cell": ("--input-shape", "7,6"),
}
Verify = Callable[..., dict[str, Any]]


@pytest.fixture
def verify(dlb: Dlb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verify:
    """``dlb port`` of factories of the modules beside, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return verifier(dlb, tmp_path)


@pytest.fixture(scope="module")
def verify_once(dlb: Dlb, tmp_path_factory: pytest.TempPathFactory) -> Verify:
    """The same for what several tests look at: each command is run once."""
    documents: dict[object, dict[str, Any]] = {}

    def run(*factories: str, status: int, words: tuple[str, ...] = ()) -> dict[str, Any]:
        key = factories, words
        if key not in documents:
            folder = tmp_path_factory.mktemp("port")
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                documents[key] = verifier(dlb, folder)(*factories, status=status, words=words)
        return documents[key]

    return run


def verifier(dlb: Dlb, folder: Path) -> Verify:
    """``dlb port`` in that folder, which is the current one."""
    for module in PORTS.glob("*.py"):
        shutil.copy(module, folder)

    def run(*factories: str, status: int, words: tuple[str, ...] = ()) -> dict[str, Any]:
        """Factories as ``torch:image``, the reference first."""
        given = []
        for one in factories:
            adapter, _, name = one.partition(":")
            given += [f"{adapter}={adapter}_port:{name}"]
            if adapter == "tf" and "3,16,16" in words and "--map" not in words:
                given += ["--layout", "tf=NHWC"]
        done = dlb("port", *given, *words, "--threads", "1", "--json")
        assert done.returncode == status, done.stderr + done.stdout[-3000:]
        assert "Traceback" not in done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    return run


def said(result: dict[str, Any]) -> str:
    """The sentences of a result."""
    return describe(msgspec.convert(result, CheckResult))


def check(document: dict[str, Any], name: str, adapter: str) -> dict[str, Any]:
    results = document["certificate"]["checks"]
    (found,) = (one for one in results if (one["check"], one["adapter"]) == (name, adapter))
    return dict(found)


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


@pytest.fixture(scope="module")
def images(verify_once: Verify, exports: Path) -> dict[str, Any]:
    """The right models of images, next to torch's, and their exports."""
    words = (*INPUTS["image"], "--export", str(exports))
    return verify_once(*[f"{one}:image" for one in ADAPTERS], status=0, words=words)


@pytest.mark.parametrize("kind", INPUTS)
def test_right_ports_are_proven(verify: Verify, kind: str, request: pytest.FixtureRequest) -> None:
    if kind == "image":
        document = request.getfixturevalue("images")
    else:
        document = verify(*[f"{one}:{kind}" for one in ADAPTERS], status=0, words=INPUTS[kind])
    assert document["proven"]
    checks = [one for one in document["certificate"]["checks"] if one["check"] != "export"]
    for one in checks:
        assert one["verdict"] == "passed", one
        if one["tolerance"] == FLOAT64_TOLERANCE:
            assert one["figures"][0]["relative_l2"] < 1e-11, one
    assert {one["adapter"] for one in checks} == set(ADAPTERS[1:])


def test_exports_are_verified(images: dict[str, Any], exports: Path) -> None:
    for adapter in ADAPTERS:
        assert check(images, "export", adapter)["verdict"] == "passed"
        assert (exports / f"{adapter}.onnx").exists()


def test_an_export_that_the_framework_cannot_write_is_not_run(
    verify: Verify, tmp_path: Path
) -> None:
    words = (*INPUTS["text"], "--export", str(tmp_path / "exported"))
    document = verify("torch:text", "mxnet:text", status=1, words=words)
    assert check(document, "export", "torch")["verdict"] == "passed"
    assert "hybrid blocks only" in said(check(document, "export", "mxnet"))


def test_sequences_in_each_frameworks_own_way_are_proven(verify: Verify) -> None:
    """Steps on the first axis in torch; a list of sequences in Chainer; the last step in Keras."""
    models = ("tf:text", "torch:text_steps", "chainer:text_steps")
    document = verify(*models, status=0, words=(*INPUTS["text"], "--layout", "torch=TN"))
    assert document["proven"]
    (bias,) = (one for one in document["weights"]["torch"] if one["from"] == "lstm.bias")
    assert bias["to"] == "lstm.bias_ih_l0 + lstm.bias_hh_l0"


def test_recurrent_units_are_proven_with_and_without_gates(verify: Verify) -> None:
    document = verify("torch:gated", "tf:gated", "mxnet:gated", status=0, words=INPUTS["cell"])
    assert document["proven"]
    (bias,) = (one for one in document["weights"]["tf"] if one["from"].startswith("gru.bias"))
    assert bias == {"from": "gru.bias_ih_l0 | gru.bias_hh_l0", "to": "gru.bias"}
    (bias,) = (one for one in document["weights"]["tf"] if one["from"].startswith("rnn.bias"))
    assert bias == {"from": "rnn.bias_ih_l0 + rnn.bias_hh_l0", "to": "simple_rnn.bias"}


SEQUENCE = ("--input-shape", "7,8")


@pytest.mark.parametrize("models", [("torch", "tf"), ("tf", "torch")])
def test_attention_is_proven_between_its_native_layers(
    verify: Verify, models: tuple[str, str]
) -> None:
    document = verify(*[f"{one}:encoder" for one in models], status=0, words=SEQUENCE)
    assert document["proven"]
    pairs = {(one["from"], one["to"]) for one in document["weights"][models[1]]}
    native = ("0.self_attn.in_proj_weight", "{0}.query.kernel | {0}.key.kernel | {0}.value.kernel")
    names = native[0], native[1].format("encoder.attention")
    assert (names if models[0] == "torch" else names[::-1]) in pairs


def test_attention_with_steps_first_is_proven(verify: Verify) -> None:
    words = (*SEQUENCE, "--layout", "torch=TNC")
    assert verify("tf:attends", "torch:attends", status=0, words=words)["proven"]


def test_a_normalisation_after_the_attention_is_named(verify: Verify) -> None:
    document = verify("tf:encoder", "torch:post_norm", status=1, words=SEQUENCE)
    assert "norm1" in said(check(document, "layers", "torch"))


#: The kind of error, the reference, the model that has it, and what must be told of its place.
ERRORS = [
    (
        "epsilon",
        "torch",
        "tf",
        r"first layer past the tolerance: bn1, batch_norm.*epsilon=1e-05 by eps.*epsilon=0.001",
    ),
    (
        "epsilon",
        "torch",
        "mxnet",
        r"first layer past the tolerance: bn1, batch_norm.*'1' BatchNorm\(.*epsilon=0.001 by eps",
    ),
    (
        "epsilon",
        "torch",
        "chainer",
        r"first layer past the tolerance: bn1, batch_norm.*epsilon=2e-05 by eps",
    ),
    (
        "epsilon",
        "tf",
        "torch",
        r"first layer past the tolerance: bn1, batch_norm.*epsilon=1e-05.*epsilon=0.001 by eps",
    ),
    (
        "padding",
        "torch",
        "tf",
        r"past the tolerance: conv2, conv.*'conv2' Conv2d.*'conv2' Conv2D\(.*padding=same",
    ),
    ("padding", "torch", "mxnet", r"between 'max_pool2d\(\)' and 'conv2':.*'4' Pad of mxnet"),
    ("padding", "torch", "chainer", r"between 'bn1' and 'conv2':.*'Pad\(\)' of chainer"),
    ("padding", "tf", "torch", r"and 'conv2': 'zero_padding2d'.*'pad\(\)' of torch"),
    ("activation", "torch", "tf", r"between 'bn1' and 'conv2':.*'act1' Activation\(activation=elu"),
    ("activation", "torch", "mxnet", r"between 'bn1' and 'conv2': 'relu\(\)'.*act_type=softrelu"),
    ("activation", "torch", "chainer", r"'bn1' and 'conv2': 'relu\(\)' of torch, 'ELU\(\)' of"),
    ("activation", "mxnet", "torch", r"between '1' and '4': '2' Activation.*'elu\(\)' of torch"),
    ("gates", "torch", "tf", r"'lstm.h2h, call 2': the code of 'lstm' HandLSTM.*of tf"),
    ("gates", "torch", "mxnet", r"'lstm.h2h, call 2': the code of 'lstm' HandLSTM.*of mxnet"),
    ("gates", "torch", "chainer", r"'lstm.h2h, call 2': the code of 'lstm' HandLSTM.*of chainer"),
    ("gates", "chainer", "torch", r"'lstm.h2h, call 2': the code of 'lstm' HandLSTM.*of torch"),
]


#: One of each error, in each framework.
SHORT = (("epsilon", "tf"), ("padding", "mxnet"), ("activation", "chainer"), ("gates", "torch"))
#: Of these, those of images: next to torch's, all in one command.
WRONG_IMAGES = tuple(f"{wrong}:{error}" for error, wrong in SHORT[:3])


@pytest.mark.parametrize(
    ("error", "reference", "wrong", "says"),
    [
        pytest.param(
            *each,
            id="-".join(each[:3]),
            marks=[] if (each[0], each[2]) in SHORT else [pytest.mark.long],
        )
        for each in ERRORS
    ],
)
def test_an_error_is_named_where_it_is(
    verify_once: Verify, error: str, reference: str, wrong: str, says: str
) -> None:
    kind = "cell" if error == "gates" else "image"
    models = (f"{wrong}:{error}",)
    if reference == "torch" and models[0] in WRONG_IMAGES:
        models = WRONG_IMAGES
    document = verify_once(f"{reference}:{kind}", *models, status=1, words=INPUTS[kind])
    assert not document["proven"]
    assert check(document, "weights", wrong)["verdict"] == "passed"
    for name in ("forward", "layers", "gradients"):
        assert check(document, name, wrong)["verdict"] == "failed"
    assert re.search(says, said(check(document, "layers", wrong)))


@pytest.mark.parametrize(
    ("first", "second"), [("torch:image", "tf:flat"), ("tf:flat", "torch:image")]
)
def test_features_flattened_in_another_order_are_told_and_carried(
    verify: Verify, tmp_path: Path, first: str, second: str
) -> None:
    """Keras flattens [H, W, C]: what the map needs is told, and with it the port is proven."""
    other = second.partition(":")[0]
    document = verify(first, second, status=1, words=INPUTS["image"])
    detail = said(check(document, "layers", other))
    entry = re.search(r"\{ from = .* \}", detail)
    assert entry is not None, detail
    proposed = tmp_path / "dlb-map.toml"
    lines = proposed.read_text().splitlines()
    start = entry[0].partition(", reshape")[0]
    assert sum(line.strip().startswith(start) for line in lines) == 1
    told = [f"  {entry[0]}," if line.strip().startswith(start) else line for line in lines]
    (tmp_path / "told.toml").write_text("\n".join(told))
    words = (*INPUTS["image"], "--map", "told.toml")
    assert verify(first, second, status=0, words=words)["proven"]


#: The reference, the model that moves its running statistics otherwise, and what must be told.
MOVED = [
    ("torch", "tf:momentum", r"'bn1' of torch keeps 0.9 .*of tf 0.99"),
    ("torch", "mxnet:momentum", r"'bn1' of torch keeps 0.9 .*of mxnet 0.1"),
    ("torch", "chainer:momentum", r"'bn1' of torch keeps 0.9 .*of chainer 0.1"),
    ("chainer", "torch:variance", ""),
    ("tf", "torch:variance", ""),
]
#: Next to torch's, all in one command.
MOMENTA = tuple(wrong for reference, wrong, _ in MOVED if reference == "torch")


@pytest.mark.parametrize(
    ("reference", "wrong", "says"), MOVED, ids=[f"{one}-{two}" for one, two, _ in MOVED]
)
def test_running_statistics_that_move_otherwise_fail_alone(
    verify_once: Verify, reference: str, wrong: str, says: str
) -> None:
    """torch's momentum is one minus everybody else's, and Keras' default is another. A layer that
    says the same of itself may do something else all the same."""
    models = MOMENTA if wrong in MOMENTA else (wrong,)
    document = verify_once(f"{reference}:image", *models, status=1, words=INPUTS["image"])
    adapter = wrong.partition(":")[0]
    results = [one for one in document["certificate"]["checks"] if one["adapter"] == adapter]
    (failed,) = (one for one in results if one["verdict"] != "passed")
    assert failed["check"] == "running statistics"
    assert re.search(says, said(failed))
    past = {one["tensor"] for one in failed["figures"] if one["relative_l2"] > 1e-3}
    if says:
        assert past == {"bn1", "bn1.running_mean", "bn1.running_var"}
    else:
        assert past == {"bn1.avg_var" if reference == "chainer" else "bn1.moving_variance"}


@pytest.mark.parametrize(("other", "differs"), [("tf", True), ("mxnet", True), ("chainer", False)])
def test_the_batchs_variance_over_one_less_is_told(
    images: dict[str, Any], other: str, differs: bool
) -> None:
    """torch and Chainer move the running variance by another one than Keras and MXNet."""
    found = check(images, "running statistics", other)
    assert {one["tensor"] for one in found["figures"]} == {
        "bn1",
        "bn1.running_mean",
        "bn1.running_var",
    }
    sentence = f"over n - 1 values in torch and over n in {other}"
    assert (sentence in said(found)) == differs


def test_channels_last_is_never_guessed(dlb: Dlb, verify: Verify) -> None:
    models = ("torch=torch_port:image", "tf=tf_port:image")
    told = dlb("port", *models, "--input-shape", "3,16,16")
    assert told.returncode == 2
    assert "samples of shape [16, 16, 3]" in told.stderr and "--layout tf=NHWC" in told.stderr
    asked = dlb("port", *models)
    assert asked.returncode == 2 and "The shape is what 'tf' tells" in asked.stderr


@pytest.mark.parametrize(
    "adapter", ["torch", *(pytest.param(each, marks=pytest.mark.long) for each in ADAPTERS[1:])]
)
def test_what_is_no_model_of_the_framework_is_refused(
    dlb: Dlb, verify: Verify, adapter: str
) -> None:
    """That each adapter refuses it, the conformance suite shows."""
    Path("odd.py").write_text("def make():\n    return 'a model'\n")
    other = "torch" if adapter != "torch" else "chainer"
    models = (f"{other}={other}_port:cell", f"{adapter}=odd:make")
    done = dlb("port", *models, *INPUTS["cell"])
    assert done.returncode == 2 and "the factory returned a str" in done.stderr
    assert "Traceback" not in done.stderr


def test_dropout_in_one_model_is_named_and_the_rest_compared_without_it(verify: Verify) -> None:
    dropping = "import torch_port\nfrom torch import nn\n\n\ndef make():\n"
    dropping += (
        "    model = torch_port.Cell()\n    model.out = nn.Sequential(nn.Dropout(0.5), model.out)\n"
    )
    Path("torch_port_dropping.py").write_text(dropping + "    return model\n")
    Path("torch_port.py").write_text(
        Path("torch_port.py").read_text() + "\n\nfrom torch_port_dropping import make as dropping\n"
    )
    document = verify("chainer:cell", "torch:dropping", status=1, words=INPUTS["cell"])
    settings = check(document, "settings", "torch")
    assert settings["verdict"] == "failed"
    assert "0.5 of elements at 'out.0' of torch and nothing in the other model" in said(settings)
    for name in ("forward", "forward, training", "gradients"):
        assert check(document, name, "torch")["verdict"] == "passed"
