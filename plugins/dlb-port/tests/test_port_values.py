"""Values that two models have in common, and the first calls that part."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dlb.proof.certificate import Certificate
from dlb.proof.engine import Check, judge
from dlb.proof.findings import Figure, LayerFacts
from dlb.report.records import certificate_table, further_lines
from dlb_port.attributes import ENTRIES, catalogue_entries
from dlb_port.check_tables import PORT
from dlb_port.comparison import PortComparison
from dlb_port.culprit import Side, compare_layers
from dlb_port.findings.port import CodeSpan, SpanDiffers
from dlb_port.inputs import further_inputs
from dlb_port.sentences.port import native_layer_text, span_text
from dlb_port.subject import PortSubject, layout_of
from dlb_port.values import KnownValues, find_parting
from dlb_port.weight_map import Pair
from dlb_worker.contract import ForwardPass, LayerCall, ParameterDescription, UserLayer

DRAW = np.random.default_rng(0)


def known(calls: list[LayerCall]) -> KnownValues:
    return KnownValues(calls, (), 1e-10)


def test_a_value_is_known_in_any_order_of_its_axes() -> None:
    value = DRAW.standard_normal((2, 3, 4, 4))
    values = known([LayerCall("a", None, value)])
    assert value.transpose(0, 2, 3, 1) in values
    assert value * (1 + 1e-8) not in values
    assert np.where(value > 1, 0, value) not in values
    assert np.full_like(value, np.nan) not in values
    assert None not in values


def test_constants_are_not_known() -> None:
    assert np.zeros((2, 3)) not in known([LayerCall("a", None, np.zeros((2, 3)))])


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float16])
def test_values_of_any_dtype_are_known(dtype: type) -> None:
    value = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    values = known([LayerCall("mask", value, ~value if dtype is np.bool_ else value + dtype(1))])
    assert value in values and np.zeros((2, 3), dtype) not in values


def test_an_error_while_locating_leaves_the_verdict(tmp_path: Path) -> None:
    port = object.__new__(PortComparison)
    port._layers, port.logs = {}, tmp_path / "tf"
    port.model = SimpleNamespace(name="tf", remote=SimpleNamespace(dtype="float64"))
    assert not hasattr(port, "truth")  # so that comparing layers raises
    subject = object.__new__(PortSubject)
    subject.port = port
    result = judge(Check.of(PORT["layers"], "tf", "torch"), subject.layers())
    assert result.verdict == "not run"
    failure = result.findings[0].cause.failure
    assert "could not be determined" in failure.message
    assert "'truth'" in Path(failure.log).read_text()


def test_the_calls_that_part_are_those_that_read_the_same() -> None:
    """The sum reads what has parted; the branch that agrees is passed over."""
    x = DRAW.standard_normal((2, 5))

    def calls(slope: float) -> list[LayerCall]:
        leaky, plain = np.where(x > 0, x, slope * x), np.maximum(x, 0)
        return [
            LayerCall("relu", x, plain),
            LayerCall("leaky", x, leaky),
            LayerCall("sum", plain, plain + leaky, (leaky,)),
        ]

    ours, theirs = calls(0.25), calls(0.5)
    parting = find_parting(ours, theirs, known(ours), known(theirs))
    assert parting is not None and [call.layer for call in parting] == ["leaky", "leaky"]


def test_a_layer_that_is_cut_in_two_does_not_part() -> None:
    x = DRAW.standard_normal((2, 5))
    ours = [LayerCall("scale", x, 2 * x), LayerCall("shift", 2 * x, 2 * x + 1)]
    theirs = [LayerCall("both", x, 2 * x + 1)]
    assert find_parting(ours, theirs, known(ours), known(theirs)) is None


def test_a_call_that_returns_a_constant_does_not_part() -> None:
    """The first step of a recurrence reads a state of zeros."""
    zeros, x = np.zeros((2, 5)), DRAW.standard_normal((2, 5))
    ours, theirs = ([LayerCall("step", zeros, zeros), LayerCall("last", x, k * x)] for k in (2, 3))
    parting = find_parting(ours, theirs, known(ours), known(theirs))
    assert parting is not None and parting[0].layer == "last"


def sides(*passes: list[LayerCall], kinds: dict[str, str]) -> list[Side]:
    """Two models of the same layers, whose last call returns the output."""
    return [
        Side(
            name,
            {layer: UserLayer(layer, kind, {}, kind) for layer, kind in kinds.items()},
            ForwardPass((calls[-1].output,), tuple(calls)),
        )
        for name, calls in zip(("one", "other"), passes)
    ]


def matched(*layers: str) -> list[Pair]:
    described = [
        ParameterDescription(f"{layer}.weight", layer, "weight", (1,), (1,), "float64", True)
        for layer in layers
    ]
    return [Pair(each, each, "by name") for each in described]


def two_linear(value: np.ndarray, *between: LayerCall) -> list[LayerCall]:
    """Two linear layers, and what the second reads."""
    x = np.random.default_rng(1).standard_normal((4, 5))
    return [LayerCall("up", x, 2 * x), *between, LayerCall("down", value, 3 * value)]


def test_a_function_that_one_model_shows_is_compared_with_the_code_of_the_other() -> None:
    x = two_linear(DRAW.standard_normal((4, 5)))[0].output
    assert x is not None
    y = np.tanh(x)
    ours = two_linear(y, LayerCall("gelu()", x, y))
    for off in (1e-8, 1e-2):
        theirs = two_linear(y * (1 + off))
        kinds = {"up": "linear", "down": "linear"}
        compared = compare_layers(*sides(ours, theirs, kinds=kinds), matched("up", "down"), 1e-10)
        (cause,) = (finding.cause for finding in compared.culprit)
        assert isinstance(cause, SpanDiffers) and cause.distance == pytest.approx(off, rel=1e-6)
        assert [layer.name for layer in cause.reference.layers] == ["gelu()"]


def test_values_within_a_tolerance_are_passed_to_the_first_beyond_it() -> None:
    x = two_linear(DRAW.standard_normal((4, 5)))[0].output
    assert x is not None
    passes = []
    for off, factor in ((0, 1), (1e-9, 1.5)):
        act = np.tanh(x) * (1 + off)
        calls = (LayerCall("act", x, act), LayerCall("pool", act, act**2 * factor))
        passes.append(two_linear(act**2 * factor, *calls))
    kinds = {"up": "linear", "act": "relu", "pool": "pool", "down": "linear"}
    for tolerance, place in ((1e-10, "act"), (1e-7, "pool")):
        compared = compare_layers(*sides(*passes, kinds=kinds), matched("up", "down"), tolerance)
        cause = compared.culprit[0].cause
        assert isinstance(cause, SpanDiffers)
        assert [span.layers[0].name for span in (cause.reference, cause.other)] == [place] * 2


def test_a_layer_that_holds_others_and_agrees_ends_what_is_named() -> None:
    """A bidirectional layer is two layers in one model, whose values the other does not have."""
    x = two_linear(DRAW.standard_normal((4, 5)))[0].output
    assert x is not None
    first, second = np.sin(x), np.cos(x)
    both = np.concatenate([first, second], 1)
    parts = [LayerCall("rnn.a", x, first), LayerCall("rnn.b", x, second), LayerCall("rnn", x, both)]
    ours = two_linear(both[:, :5], *parts, LayerCall("pool", both, both[:, :5]))
    theirs = two_linear(both[:, 5:], LayerCall("rnn", x, both))
    kinds = dict.fromkeys(("up", "rnn", "rnn.a", "rnn.b", "pool", "down"), "layer")
    compared = compare_layers(*sides(ours, theirs, kinds=kinds), matched("up", "down"), 1e-10)
    cause = compared.culprit[0].cause
    assert isinstance(cause, SpanDiffers) and cause.after == "rnn"
    assert [layer.name for layer in cause.reference.layers] == ["pool"]


def test_attributes_that_are_alike_are_not_shown_and_none_is_where_it_differs() -> None:
    one, other = (
        LayerFacts(name="pool", type="Pool", attributes={"size": "2", "pad": pad, "axis": "None"})
        for pad in ("None", "1")
    )
    assert native_layer_text(one, other) == "'pool' Pool(padding=None by pad)"
    assert native_layer_text(one) == "'pool' Pool(size=2)"
    differs = SpanDiffers(
        after="",
        before="",
        reference=CodeSpan(model="one", layers=(one,)),
        other=CodeSpan(model="other", layers=(other,)),
    )
    assert span_text(differs).endswith(
        "'pool' Pool(padding=None by pad) of one, 'pool' Pool(padding=1 by pad) of other"
    )


def norm(kept: float, **attributes: str) -> LayerFacts:
    return LayerFacts(name="n", kind="batch_norm", type="BN", attributes=attributes, momentum=kept)


def test_attributes_are_compared_and_shown_in_canonical_terms() -> None:
    torch = norm(0.9, eps="1e-05", momentum="0.1", affine="True")
    keras = norm(0.9, epsilon="0.001", momentum="0.9", axis="-1")
    assert native_layer_text(torch, keras) == "'n' BN(epsilon=1e-05 by eps)"
    assert native_layer_text(keras, torch) == "'n' BN(epsilon=0.001)"
    assert [*catalogue_entries(torch, keras)] == ["batch-norm-default-epsilon"]
    copied = norm(0.1, epsilon="1e-5", momentum="0.1", axis="-1")
    # Evaluation does not show a momentum, so whatever else differs may be the cause.
    assert native_layer_text(torch, copied) == "'n' BN(momentum=0.9 by momentum=0.1, affine=True)"
    assert native_layer_text(copied, torch) == "'n' BN(momentum=0.1, axis=-1)"
    strided = (LayerFacts(name="c", type="Conv", attributes=each) for each in (
        {"stride": "(2, 2)", "padding": "(1, 1)", "out_channels": "8"},
        {"strides": "(2, 2)", "padding": "same", "filters": "8"},
    ))  # fmt: skip
    assert native_layer_text(*strided) == "'c' Conv(padding=1)"


def test_entries_of_the_catalogue_exist() -> None:
    folder = Path(__file__).parents[3] / "tests" / "framework_differences" / "entries"
    assert all((folder / f"{entry}.toml").exists() for entry in ENTRIES.values())


def test_a_check_that_failed_elsewhere_shows_no_figure_that_passed() -> None:
    check = Check.of(PORT["layers"], "tf", "torch")
    within = Figure(tensor="fc", relative_l2=1e-16, largest=1e-16)
    result = check.result((within,), 1e-10, passed=False)
    certificate = Certificate(
        workload="w", workload_hash="0", seed=0, adapters={"tf": "1"}, checks=(result,)
    )
    assert certificate_table(certificate).rows[0][-1] == "failed"
    assert not any("worst" in line for line in further_lines(certificate))


@pytest.mark.parametrize(
    ("axes", "noise", "layout"),
    [((0, 2, 3, 1), 0.0, "NHWC"), ((0, 2, 3, 1), 1.0, ""), ((0, 1, 2, 3), 0, "")],
)
def test_the_layout_of_an_output_is_proposed_where_its_numbers_are_the_same(
    axes: tuple[int, ...], noise: float, layout: str
) -> None:
    generator = np.random.default_rng(0)
    expected = generator.standard_normal((2, 3, 4, 4))
    actual = (expected + noise * generator.standard_normal(expected.shape)).transpose(axes)
    assert layout_of(ForwardPass((actual,), ()), ForwardPass((expected,), ())) == layout


def test_whole_windows_of_further_inputs_have_one_sign() -> None:
    noise = np.random.default_rng(0).standard_normal((4, 3, 9, 9))
    further = dict(further_inputs({"image": noise, "ids": np.zeros((4, 2), np.int64)}))
    around = further["inputs around one value a channel"]
    below = (around["image"].max((2, 3)) < 0).mean()
    assert 0.2 < below < 0.7 and (around["ids"] == 0).all()
    assert not further_inputs({"ids": np.zeros((4, 2), np.int64)})
