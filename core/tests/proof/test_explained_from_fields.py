"""An explanation follows from fields alone: with every text replaced it is the same.

The certificates are real: checks that compare a wrong model with a right one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dlb.errors import RecordError
from dlb.failure import Failure
from dlb.proof import explain as explanations
from dlb.proof.certificate import Certificate, CheckResult, read, write
from dlb.proof.checks.built import given_weights
from dlb.proof.checks.dropout import check_dropout
from dlb.proof.checks.layers import isolated_layers, layer_values
from dlb.proof.checks.updates import check_changes
from dlb.proof.engine import Check, judge
from dlb.proof.explain import explain
from dlb.proof.findings import Finding, Unknown, causes
from dlb.proof.findings.common import CannotRun
from dlb.proof.reference import Reference
from dlb.report.common import RENDERERS
from dlb.report.explanations import explanation_line, not_run_texts, reason_text
from dlb.report.sentences import describe
from dlb_graph.comparing.updates import Updates
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.workload import LRN, SGD, Dropout, Flatten, Input, Linear, Model, Node, ReLU
from dlb_graph.workload.initial import initial_weights
from dlb_port import compare_files

#: Fields that hold text for people, by name, wherever they are.
TEXTS = {"built", "message", "text", "log", "path"}


def model(alpha: float = 1e-4, rate: float = 0.3) -> Model:
    layers = {
        "norm": LRN(size=3, alpha=alpha, beta=0.75, bias=1.0),
        "act": ReLU(),
        "drop": Dropout(rate=rate),
        "flat": Flatten(),
        "fc": Linear(out_features=5),
    }
    nodes = tuple(Node(name=name, layer=layer) for name, layer in layers.items())
    return Model(input=Input(shape=(4, 3, 3)), nodes=nodes)


def wrong_layer() -> list[CheckResult]:
    """An LRN of another alpha: its value, and all that follow."""
    described, built = model(), model(alpha=0.5)
    weights = dict(initial_weights(described, 0))
    inputs = np.random.default_rng(0).standard_normal((6, 4, 3, 3)).astype(np.float32)
    truth, own = (Reference(one, weights, inputs, np.zeros(6, int)) for one in (described, built))
    native = {"norm": "LocalResponseNorm(3, alpha=0.5)"}
    values = own.layers
    held = {name: array.astype(np.float64) for name, array in weights.items()}
    isolated = isolated_layers(described, values, truth.isolated_layers(values), native)
    return [
        judge(Check.of("weights float64", "wrong"), given_weights(held, weights, "float64")),
        forward(described, values, truth, native),
        judge(Check.of("isolated layers", "wrong"), isolated),
    ]


def forward(
    described: Model, values: dict[str, Any], truth: Reference, native: dict[str, str]
) -> CheckResult:
    sides = layer_values(described, values, truth.layers, native)
    return judge(Check.of("forward float64", "wrong"), sides)


def not_a_number() -> list[CheckResult]:
    """A layer whose value holds a NaN, one that is missing, and a check that raised."""
    described = model()
    weights = dict(initial_weights(described, 0))
    inputs = np.ones((2, 4, 3, 3), np.float32)
    truth = Reference(described, weights, inputs, np.zeros(2, int))
    values = {**truth.layers, "act": np.full_like(truth.layers["act"], np.nan)}
    del values["fc"]
    failure = Failure(kind="WorkerRaised", message="the kernel burst", adapter="wrong", log="x.log")
    reason = Finding(cause=CannotRun(failure=failure))
    return [
        forward(described, values, truth, {}),
        Check.of("structure", "wrong").not_run(reason),
    ]


def wrong_dropout() -> list[CheckResult]:
    """A dropout that drops twice as often as it should."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((64, 4, 3, 3))
    passes: list[dict[str, Any]] = [
        {"act": x, "drop": x * (draw.random(x.shape) >= 0.6) / 0.7} for _ in range(2)
    ]
    return [
        check_dropout(
            Check.of("dropout", "wrong"),
            model(),
            *passes,
            {"act": x, "drop": x},
            {"drop": "Dropout(0.6)"},
        )
    ]


def wrong_update() -> list[CheckResult]:
    """SGD whose first step is right, and whose momentum is not; and one of another rate."""
    draw = np.random.default_rng(0)
    start = {"a.weight": draw.standard_normal((5, 4)), "a.bias": draw.standard_normal(4)}
    described = SGD(learning_rate=0.1, momentum=0.9)
    truth, own = (Updates(one, start) for one in (described, SGD(learning_rate=0.1, momentum=0.8)))
    results = []
    for steps, name in ((1, "update"), (2, "trajectory")):
        gradients = {tensor: draw.standard_normal(array.shape) for tensor, array in start.items()}
        for one in (truth, own):
            one.step(gradients, 0.1 if one is truth else 0.1001)
        found, expected = ({**one.weights, **one.state} for one in (own, truth))
        check = Check.of(name, "wrong")
        results.append(check_changes(check, steps, start, found, expected, {}))
    return results


MADE: dict[str, Callable[[], list[CheckResult]]] = {
    "a layer": wrong_layer,
    "not a number": not_a_number,
    "dropout": wrong_dropout,
    "an update": wrong_update,
}


def certificate(results: list[CheckResult]) -> Certificate:
    return Certificate(
        workload="w", workload_hash="0", seed=0, adapters={"wrong": "W 1"}, checks=tuple(results)
    )


def replaced(value: Any) -> Any:
    """The document with every text for people replaced."""
    if isinstance(value, dict):
        return {
            name: "?" if name in TEXTS and isinstance(part, str) and part else replaced(part)
            for name, part in value.items()
        }
    return [replaced(part) for part in value] if isinstance(value, (list, tuple)) else value


def check_stable(
    held: Certificate, monkeypatch: pytest.MonkeyPatch
) -> list[explanations.Explanation]:
    """The explanations, which must be the same once no text is what it was."""
    before = explain(held)
    assert before, "nothing to explain"
    for kind in RENDERERS:
        monkeypatch.setitem(RENDERERS, kind, lambda cause, finding, adapter: "something else")
    blind = msgspec.convert(replaced(msgspec.to_builtins(held)), Certificate)
    after = explain(blind)
    # What the framework wrote is quoted, and is all that may differ.
    assert replaced(msgspec.to_builtins(after)) == replaced(msgspec.to_builtins(before))
    return before


@pytest.mark.parametrize("name", MADE)
def test_an_explanation_is_the_same_without_any_text(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held = certificate(MADE[name]())
    path = tmp_path / "certificate.json"
    write(held, path)
    assert read(path) == held
    check_stable(read(path), monkeypatch)


def test_the_explanation_of_two_files_is_the_same_without_any_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, alpha in (("a.onnx", 1e-4), ("b.onnx", 0.5)):
        described = model(alpha=alpha)
        graph = canonical_graph(described, dict(initial_weights(described, 0)))
        (tmp_path / name).write_bytes(graph.SerializeToString())
    held = compare_files(tmp_path / "a.onnx", tmp_path / "b.onnx")
    (explained,) = check_stable(held, monkeypatch)
    assert explained.finding is not None and explained.finding.cause.node.kind == "LRN"
    assert explained.finding.cause.attributes == ("alpha",)


def test_what_is_explained() -> None:
    held = certificate(wrong_layer())
    (explained,) = explain(held)
    assert (explained.group, explained.check) == ("layers", "isolated layers")
    assert explained.finding is not None and explained.finding.layer is not None
    assert (explained.finding.layer.name, explained.finding.layer.kind) == ("norm", "lrn")
    assert explained.reasons == (explanations.LayerKind(kind="lrn"),)
    assert explained.failed_too == ("forward float64",)
    assert "layer norm, lrn(size=3, alpha=0.0001" in explanation_line(explained, held)
    assert "alpha" in reason_text(explained)


def test_a_value_that_is_not_finite_and_one_that_is_missing_are_told_apart() -> None:
    forward, structure = not_a_number()
    (finding,) = forward.findings
    assert type(finding.cause).__name__ == "NotFinite"
    assert finding.layer is not None and finding.layer.name == "act"
    (explained,) = explain(certificate([forward, structure]))
    assert not_run_texts(explained) == ["structure: the kernel burst; output: x.log"]


def test_the_pattern_of_an_update_is_explained() -> None:
    (explained,) = explain(certificate(wrong_update()))
    assert explained.check == "update"
    assert isinstance(explained.reasons[0], explanations.SameFactor)
    assert explained.reasons[0].size == pytest.approx(1e-3)


def test_every_cause_has_a_sentence() -> None:
    assert {*causes().values(), Unknown} == set(RENDERERS)
    for results in MADE.values():
        for result in results():
            assert result.verdict == "passed" or result.findings == () or describe(result)


@pytest.mark.parametrize(
    ("code", "package"), [("dlb-other.parted", "dlb-other"), ("of_a_later_version", "dlb-port")]
)
def test_a_finding_of_a_package_that_is_not_installed_is_shown_and_kept(
    code: str, package: str, tmp_path: Path
) -> None:
    path, again = tmp_path / "certificate.json", tmp_path / "again.json"
    write(certificate(wrong_update()), path)
    document = json.loads(path.read_bytes())
    document["checks"][0]["findings"] = [{"cause": {"code": code, "places": [1, {"a": None}]}}]
    path.write_text(json.dumps(document))
    read_certificate = read(path)
    first = read_certificate.checks[0]
    assert describe(first) == (
        f"{code}, a finding of the package {package}, which is not installed or is older: "
        f"pip install --upgrade {package}"
    )
    assert explain(read_certificate) and read_certificate.status("wrong") == "deviates"
    passed = msgspec.structs.replace(first, verdict="passed")
    assert certificate([passed]).status("wrong") == "within rounding"
    write(read_certificate, again)
    assert json.loads(again.read_bytes()) == document and read(again) == read_certificate


@pytest.mark.parametrize(
    "cause", [3, None, {}, {"code": 1}, {"code": "steps_compared", "steps": "x"}]
)
def test_a_cause_that_is_none_is_refused(cause: Any, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    write(certificate(wrong_update()), path)
    document = json.loads(path.read_bytes())
    document["checks"][0]["findings"] = [{"cause": cause}]
    path.write_text(json.dumps(document))
    with pytest.raises(RecordError, match=r"not a certificate: .*checks\[0\]\.findings\[0\]"):
        read(path)
