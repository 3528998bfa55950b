"""The passes: each leaves the model that it is given, and one that writes something else is named."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from dlb.errors import UnsupportedError
from dlb_graph.files.readings import READINGS
from dlb_graph.reading.rules import READ_OPERATORS
from dlb_graph.rewriting.passes import Pass, Rewriter, passes_for
from dlb_graph.truth.evaluate import Evaluator

PASSES = passes_for(READ_OPERATORS, trained=True, of_indices=True)
HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
#: By the pass that changes it.
MODELS = {
    "functions": """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[N, 3] x) => (float[N, 3] y) { y = own.twice (x) }
        <domain: "own", opset_import: ["" : 17]> twice (a) => (b) { b = Add (a, a) }""",
    "loops": HEAD
    + """(float[N, 3] x) => (float[N, 3] y) { yes = Constant <value = bool {1}> () y = If (yes) <
        then_branch = a () => (float[N, 3] p) { p = Relu (x) },
        else_branch = b () => (float[N, 3] q) { q = Tanh (x) }> }""",
    "pairs": HEAD
    + "(float[N, 3] x) => (float[N, 3] y) { h = Tanh (x) k = Relu (x) y = Max (x, h, k) }",
    "definitions": HEAD
    + "(float[N, 3] x) => (float[N, 3] y) { y = MeanVarianceNormalization <axes = [1]> (x) }",
    "real numbers": HEAD
    + """(float[N, 3] x) => (float[N, 3] y) <float zero = {0.0}>
        { t = Greater (x, zero) f = Cast <to = 1> (t) y = Mul (x, f) }""",
    "separate constants": HEAD
    + "(float[N, 3] x) => (float[N, 3] y) <float k = {0.7}> { h = Mul (x, k) y = Add (h, k) }",
}


@pytest.mark.parametrize("name", MODELS)
def test_a_pass_writes_another_model_that_computes_the_same(name: str) -> None:
    model = parser.parse_model(MODELS[name])
    before = model.SerializeToString(deterministic=True)
    written, changed = Rewriter(model, PASSES).run(without=())
    assert name in changed
    assert model.SerializeToString(deterministic=True) == before
    x = np.random.default_rng(0).normal(size=(2, 3))
    expected = Evaluator(model).run({"x": x.astype(np.float32)})["y"]
    kind = np.float64 if name == "real numbers" else np.float32
    computed = Evaluator(written).run({"x": x.astype(kind)})["y"]
    np.testing.assert_allclose(computed, expected, rtol=1e-6)


def test_nothing_to_do_is_nothing() -> None:
    model = parser.parse_model(HEAD + "(float[N, 3] x) => (float[N, 3] y) { y = Tanh (x) }")
    assert [one.name for one in PASSES if one.rewrite(model) is not None] == []
    assert Rewriter(model, PASSES).run(without=()) == (model, ())


def test_a_pass_that_writes_something_else_is_named() -> None:
    def wrong(model: onnx.ModelProto) -> onnx.ModelProto:
        other = onnx.ModelProto.FromString(model.SerializeToString())
        other.graph.node[0].op_type = "Tanh"
        return other

    model = parser.parse_model(HEAD + "(float[N, 3] x) => (float[N, 3] y) { y = Relu (x) }")
    passes = (Pass("right", lambda model: None, "loops"), Pass("wrong", wrong, "steps"))
    with pytest.raises(UnsupportedError, match="its steps, written out, compute something else"):
        Rewriter(model, passes).run(without=())


def test_what_readings_begin_with_is_run_once() -> None:
    runs = list[str]()
    passes = tuple(Pass(one.name, lambda model, name=one.name: runs.append(name)) for one in PASSES)
    rewriter = Rewriter(onnx.ModelProto(), passes)
    for reading in READINGS:
        assert rewriter.run(reading.without)[1] == ()
    assert runs.count("functions") == runs.count("loops") == 1
    assert len(READINGS) == runs.count("separate constants") == 8


def test_a_reading_leaves_out_passes_that_there_are() -> None:
    names = {one.name for one in PASSES}
    assert all(reading.without < names for reading in READINGS)
    assert len({reading.without for reading in READINGS}) == len(READINGS)
