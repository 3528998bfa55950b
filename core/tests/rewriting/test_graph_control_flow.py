"""Branches and loops that every input takes alike, written out: next to what ONNX's reference computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from dlb_graph.rewriting import control_flow
from dlb_graph.rewriting.control_flow import CONTROL_FLOW, without_control_flow
from dlb_graph.truth.evaluate import Evaluator
from dlb_graph.truth.limits import MOST_NODES

LOOP = """
    s, l = Loop (trips, cond, start)
    <body = b (int64 i, bool go, float[N,3] h) => (bool on, float[N,3] k, float[N,3] o) {
        on = Identity (go)
        x = Gather <axis = 0> (steps, i)
        w = Constant <value = float[3,3] {1.0,2.0,0.5,0.1,0.2,0.3,0.4,0.5,0.6}> ()
        m = MatMul (h, w)
        k = Add (m, x)
        o = Tanh (k)
    }>
"""
HEAD = (
    '<ir_version: 8, opset_import: ["" : {opset}]> g (float[4,N,3] steps) => (float[N,3] s, float[4,N,3] l) '
    "<int64 trips = {{{trips}}}, bool cond = {{1}}, float[1,3] zeros = {{0.0,0.0,0.0}}> {{"
    "first = Constant <value = int64 {{0}}> () one = Gather <axis = 0> (steps, first) start = Mul (one, zeros) "
)


def parsed(text: str) -> onnx.ModelProto:
    return parser.parse_model(text)


def written_out(model: onnx.ModelProto, feed: dict[str, Any]) -> onnx.ModelProto:
    """The model without control flow, which must compute the same."""
    straight = without_control_flow(model, feed) or model
    drawn = {
        name: np.random.default_rng(1).normal(size=v.shape).astype(v.dtype)
        for name, v in feed.items()
    }
    expected = Evaluator(model).run(drawn)
    for name, value in Evaluator(straight).run(drawn).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5)
        assert value.shape == expected[name].shape
    return straight


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


STEPS = {"steps": np.zeros((4, 2, 3), np.float32)}


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("trips", [1, 3])
def test_a_loop_of_a_constant_number_of_rounds_is_written_out(opset: int, trips: int) -> None:
    model = parsed(HEAD.format(opset=opset, trips=trips) + LOOP + "}")
    straight = written_out(model, STEPS)
    assert CONTROL_FLOW.isdisjoint(operators(straight))
    assert operators(straight).count("Tanh") == trips
    assert operators(straight).count("Constant") == 2  # the matrix is one for all rounds


@pytest.mark.parametrize(
    ("last", "rounds"),
    [("on = Less (i, two)", 3), ("on = Identity (go)", 4)],
    ids=["a condition ends it", "all rounds"],
)
def test_a_loop_may_end_by_its_own_condition(last: str, rounds: int) -> None:
    text = HEAD.format(opset=17, trips=4) + LOOP.replace(
        "on = Identity (go)", f"two = Constant <value = int64 {{2}}> () {last}"
    )
    straight = written_out(parsed(text + "}"), STEPS)
    assert operators(straight).count("Tanh") == rounds


def test_a_loop_stays_whose_rounds_depend_on_the_numbers() -> None:
    text = HEAD.format(opset=17, trips=4) + LOOP.replace(
        "on = Identity (go)",
        "t = ReduceSum <keepdims = 0> (h) five = Constant <value = float {5.0}> () on = Less (t, five)",
    )
    model = parsed(text + "}")
    assert without_control_flow(model, STEPS) is None


def test_a_loop_without_an_end_stays() -> None:
    text = HEAD.format(opset=17, trips=4).replace("int64 trips = {4}", f"int64 trips = {{{2**62}}}")
    never = LOOP.replace("(steps, i)", "(steps, first)")
    model = parsed(text + never + "}")
    assert without_control_flow(model, STEPS) is None


def test_a_loop_of_too_many_nodes_stays() -> None:
    text = HEAD.format(opset=17, trips=MOST_NODES // 4 + 1) + LOOP.replace(
        "(steps, i)", "(steps, first)"
    )
    model = parsed(text + "}")
    assert without_control_flow(model, STEPS) is None
    fewer = HEAD.format(opset=17, trips=40) + LOOP.replace("(steps, i)", "(steps, first)")
    assert operators(without_control_flow(parsed(fewer + "}"), STEPS) or model).count("Tanh") == 40


def test_loops_within_loops_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_flow, "MOST_OF_ALL", 100)
    inner = (
        "o = Loop (ten, , k) <body = n (int64 j, bool c, float[N,3] a) => (bool d, float[N,3] e) "
        "{d = Identity (c) e = Sin (a)}>"
    )
    text = HEAD.format(opset=17, trips=40) + LOOP.replace("(steps, i)", "(steps, first)").replace(
        "o = Tanh (k)", f"ten = Constant <value = int64 {{10}}> () {inner}"
    )
    written = without_control_flow(parsed(text + "}"), STEPS)
    assert written is not None
    found = operators(written)
    assert 0 < found.count("Sin") < 400 and found.count("Loop") > 0


def test_a_branch_in_a_loop_is_taken_in_each_round() -> None:
    text = HEAD.format(opset=17, trips=4) + LOOP.replace(
        "o = Tanh (k)",
        "two = Constant <value = int64 {2}> () early = Less (i, two) "
        "o = If (early) <then_branch = a () => (float[N,3] p) {p = Neg (k)}, "
        "else_branch = e () => (float[N,3] p) {p = Sin (k)}>",
    )
    straight = written_out(parsed(text + "}"), STEPS)
    assert CONTROL_FLOW.isdisjoint(operators(straight))
    assert (operators(straight).count("Neg"), operators(straight).count("Sin")) == (2, 2)


def test_a_branch_of_numbers_in_a_loop_stays_one() -> None:
    text = HEAD.format(opset=17, trips=2) + LOOP.replace(
        "o = Tanh (k)",
        "t = ReduceSum <keepdims = 0> (k) z = Constant <value = float {0.0}> () up = Less (z, t) "
        "o = If (up) <then_branch = a () => (float[N,3] p) {p = Neg (k)}, "
        "else_branch = e () => (float[N,3] p) {q = Sin (k) p = Add (q, x)}>",
    )
    straight = written_out(parsed(text + "}"), STEPS)
    assert operators(straight).count("If") == 2 and "Loop" not in operators(straight)


def scan(**settings: Any) -> onnx.ModelProto:
    body = parser.parse_graph(
        "b (float[2,3] h, float[2,3] x) => (float[2,3] k, float[2,3] o) "
        "{ m = Mul (h, x) k = Add (m, x) o = Sin (k) }"
    )
    node = helper.make_node(
        "Scan", ["start", "steps"], ["s", "l"], body=body, num_scan_inputs=1, **settings
    )
    held = numpy_helper.from_array(np.ones((2, 3), np.float32), "start")
    kinds = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, size)
        for name, size in (("steps", [4, 2, 3]), ("s", [2, 3]), ("l", [4, 2, 3]))
    ]
    graph = helper.make_graph([node], "g", kinds[:1], kinds[1:], [held])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_a_scan_is_written_out() -> None:
    assert operators(written_out(scan(scan_input_axes=[0]), STEPS)).count("Sin") == 4


def weights(seed: int, *shape: int) -> str:
    return ",".join(map(str, np.random.default_rng(seed).normal(size=shape).ravel().round(3)))


GRU = {
    True: """
        a = MatMul (x, w) a2 = Add (a, b) b2 = MatMul (h, u) c2 = Add (b2, c)
        xz, xr, xh = Split <axis = 1> (a2, parts) hz, hr, hh = Split <axis = 1> (c2, parts)
        zz = Add (xz, hz) z = Sigmoid (zz) rr = Add (xr, hr) r = Sigmoid (rr)
        rh = Mul (r, hh) nn = Add (xh, rh) n = Tanh (nn)
        one = Constant <value = float {1.0}> () v = Sub (one, z) p = Mul (v, n) q = Mul (z, h) k = Add (p, q)
    """,
    False: """
        a = MatMul (x, w) a2 = Add (b, a) xz, xr, xh = Split <axis = 1> (a2, parts)
        uzr, uh = Split <axis = 1> (u, two) b2 = MatMul (h, uzr) hz, hr = Split <axis = 1> (b2, both)
        zz = Add (xz, hz) z = Sigmoid (zz) rr = Add (xr, hr) r = Sigmoid (rr)
        rh = Mul (r, h) m = MatMul (rh, uh) nn = Add (xh, m) n = Tanh (nn)
        one = Constant <value = float {1.0}> () v = Sub (one, z) p = Mul (v, n) q = Mul (z, h) k = Add (p, q)
    """,
}


def recurrence(body: str) -> onnx.ModelProto:
    """A loop as an exporter writes it: a counter beside the state, and a matrix that is passed on."""
    return parsed(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[5,N,2] steps) => (float[N,3] s, float[5,N,3] l) '
        f"<int64 trips = {{5}}, bool cond = {{1}}, int64 zero = {{0}}, float[2,9] w = {{{weights(0, 2, 9)}}}, "
        f"float[3,9] uu = {{{weights(1, 3, 9)}}}, "
        f"float[9] b = {{{weights(2, 9)}}}, float[9] c = {{{weights(3, 9)}}}, "
        "int64[3] parts = {3,3,3}, int64[2] two = {6,3}, int64[2] both = {3,3}, int64 inc = {1}, "
        "int64[1] width = {3}, int64[1] at = {1}, int64[1] to = {2}> {"
        "shape = Shape (steps) n = Slice (shape, at, to) sizes = Concat <axis = 0> (n, width) "
        "start = ConstantOfShape (sizes) "
        "end, s, kept, l = Loop (trips, cond, zero, start, uu) "
        "<body = f (int64 i, bool go, int64 count, float[N,3] h, float[3,9] u) "
        "=> (bool on, int64 next, float[N,3] k2, float[3,9] u2, float[N,3] o) {"
        f"on = Identity (go) next = Add (count, inc) u2 = Identity (u) x = Gather (steps, count) {body} "
        "k2 = Identity (k) o = Identity (k) }> }"
    )


SEQUENCE = {"steps": np.zeros((5, 2, 2), np.float32)}


@pytest.mark.parametrize("before", [True, False])
def test_a_loop_that_is_a_gru_is_one(before: bool) -> None:
    straight = written_out(recurrence(GRU[before]), SEQUENCE)
    found = next(node for node in straight.graph.node if node.op_type == "GRU")
    assert {a.name: a.i for a in found.attribute}["linear_before_reset"] == before


def test_a_loop_that_is_an_lstm_with_a_mask_of_ones_is_one() -> None:
    """As Keras writes one: the state three times, of which one is the output, with what is masked kept."""
    body = (
        "wm = Constant <value = float[2,12] {" + weights(4, 2, 12) + "}> () "
        "um = Constant <value = float[3,12] {" + weights(5, 3, 12) + "}> () "
        "bm = Constant <value = float[12] {" + weights(6, 12) + "}> () "
        "a = MatMul (x, wm) d = MatMul (h, um) e = Add (a, d) f = Add (e, bm) "
        "four = Constant <value = int64[4] {3,3,3,3}> () i0, f0, g0, o0 = Split <axis = 1> (f, four) "
        "i1 = Sigmoid (i0) f1 = Sigmoid (f0) g1 = Tanh (g0) o1 = Sigmoid (o0) "
        "p = Mul (i1, g1) q = Mul (f1, cell) c1 = Add (p, q) t1 = Tanh (c1) h1 = Mul (o1, t1) "
        "m0 = Gather (mask, count) "
        "hn = Where (m0, h1, h) cn = Where (m0, c1, cell) k = Where (m0, h1, last)"
    )
    text = onnx.printer.to_text(recurrence(body))
    for before, after in (
        (
            "end, s, kept, l = Loop (trips, cond, zero, start, uu)",
            "end, s, hh, cc, l = Loop (trips, cond, zero, start, start, start)",
        ),
        ("float[N,3] h, float[3,9] u)", "float[N,3] last, float[N,3] h, float[N,3] cell)"),
        ("float[N,3] k2, float[3,9] u2,", "float[N,3] k2, float[N,3] hn, float[N,3] cn,"),
        ("u2 = Identity (u)", ""),
    ):
        assert text.count(before) == 1, text
        text = text.replace(before, after)
    model = parsed(text)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((5, 1, 1), bool), "mask"))
    found = next(n for n in written_out(model, SEQUENCE).graph.node if n.op_type == "LSTM")
    assert {a.name for a in found.attribute} == {"hidden_size"}


def test_loops_behind_each_other_are_layers() -> None:
    """The second starts from zeros whose number is that of what the first gives."""
    text = onnx.printer.to_text(recurrence(GRU[True]))
    body = GRU[True].replace("MatMul (x, w)", "MatMul (x, w3)")
    second = (
        "shape2 = Shape (l) n2 = Slice (shape2, at, to) sizes2 = Concat <axis = 0> (n2, width) "
        "start2 = ConstantOfShape (sizes2) "
        "last, all = Loop (trips, cond, start2) <body = second (int64 j, bool going, float[N,3] h) "
        "=> (bool on2, float[N,3] k2, float[N,3] o2) { on2 = Identity (going) x = Gather (l, j) "
        f"{body.replace('(h, u)', '(h, uu)')} k2 = Identity (k) o2 = Identity (k) }}> }}"
    )
    text = text[: text.rindex("}")] + second
    model = parsed(text.replace("float[5,N,3] l)", "float[5,N,3] l, float[N,3] last)", 1))
    model.graph.initializer.append(
        numpy_helper.from_array(np.float32(np.random.default_rng(9).normal(size=(3, 9))), "w3")
    )
    assert operators(written_out(model, SEQUENCE)).count("GRU") == 2


@pytest.mark.parametrize("activation", ["Tanh", "Relu"])
def test_a_loop_that_is_an_rnn_is_one(activation: str) -> None:
    body = (
        "wx, w2 = Split <axis = 1> (w, cut) ux, u3 = Split <axis = 1> (u, cut) "
        f"a = MatMul (x, wx) b2 = MatMul (h, ux) y = Add (a, b2) k = {activation} (y)"
    )
    model = recurrence(body)
    model.graph.initializer.append(numpy_helper.from_array(np.array([3, 6]), "cut"))
    assert "RNN" in operators(written_out(model, SEQUENCE))


@pytest.mark.parametrize(
    "change",
    [
        ("q = Mul (z, h)", "q = Mul (v, h)"),
        ("n = Tanh (nn)", "n = Sigmoid (nn)"),
        ("(steps, count)", "(steps, zero)"),
        ("next = Add (count, inc)", "next = Identity (count)"),
        ("z = Sigmoid (zz)", "z = HardSigmoid (zz)"),
    ],
    ids=lambda change: change[1],
)
def test_a_loop_that_is_almost_a_gru_is_none(change: tuple[str, str]) -> None:
    model = recurrence(GRU[True])
    text = onnx.printer.to_text(model)
    assert text.count(change[0]) == 1
    straight = written_out(parsed(text.replace(*change)), SEQUENCE)
    assert {"GRU", "Loop"}.isdisjoint(operators(straight))


CHOICE = """
    <ir_version: 8, opset_import: ["" : 17]> g (float[1,3] x) => (float[1,3] y, float[1,3] z)
    <float[1] zero = {0.0}, float[1,3] w = {0.5, -1.0, 2.0}> {
        sum = ReduceSum <keepdims = 0> (x)
        is = Greater (sum, zero)
        y = If (is) <
            then_branch = t () => (float[1,3] p) {p = Mul (x, w)},
            else_branch = e () => (float[1,3] p) {q = Sin (x) p = Add (q, w)}
        >
        z = If (is) <
            then_branch = t () => (float[1,3] p) {p = Neg (x)},
            else_branch = e () => (float[1,3] p) {p = Add (x, w)}
        >
    }
"""


@pytest.mark.parametrize("sign", [1, -1])
def test_a_choice_for_one_sample_is_one_between_both_branches(sign: int) -> None:
    model = parsed(CHOICE)
    feed = {"x": sign * np.float32([[1, 2, 3]])}
    assert without_control_flow(model, feed) is None
    straight = without_control_flow(model, feed, one_sample=True)
    assert operators(straight).count("Where") == 2 and "If" not in operators(straight)
    expected = Evaluator(model).run(feed)
    for name, value in Evaluator(straight).run(feed).items():
        np.testing.assert_array_equal(value, expected[name])


def test_branches_with_the_same_names_read_values_around_them() -> None:
    model = parsed(CHOICE.replace("is = Greater (sum, zero)", "is = Cast <to = 9> (zero)"))
    straight = written_out(model, {"x": np.zeros((1, 3), np.float32)})
    assert operators(straight).count("Add") == 2 and "Where" not in operators(straight)
