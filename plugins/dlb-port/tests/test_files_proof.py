"""Two ONNX files: what computes the same is proven, and what does not is found at its node."""

from __future__ import annotations

from itertools import product

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest
from exported_models import EXPORTED_FILES, MODELS
from onnx import TensorProto, helper, numpy_helper

from dlb.catalogue import load_workload
from dlb.proof.certificate import Certificate, CheckResult
from dlb.report.explanations import explanation_lines
from dlb.report.sentences import describe
from dlb_graph import workload as DLB
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.workload import parameter_shapes
from dlb_port import compare_files
from dlb_port.check_tables import FILE


def drawn(model, seed=0):
    """Weights of which none is zero or one, variances positive."""
    draw = np.random.default_rng(seed)
    return {
        name: (draw.uniform(0.5, 1.5, shape) if name.endswith("variance") else
               draw.normal(0, 0.5, shape)).astype(np.float32)
        for name, shape in parameter_shapes(model).items()
    }  # fmt: skip


GRAPHS = {name: canonical_graph(model, drawn(model)) for name, model in MODELS.items()}
LENET5 = load_workload("lenet5").model
GRAPHS["lenet5"] = canonical_graph(LENET5, drawn(LENET5))


@pytest.fixture
def compare(tmp_path):
    def run(first, second, given=None, seed=0) -> Certificate:
        for name, model in (("a", first), ("b", second)):
            (tmp_path / f"{name}.onnx").write_bytes(model.SerializeToString())
        return compare_files(tmp_path / "a.onnx", tmp_path / "b.onnx", inputs=given, seed=seed)

    return run


def result(certificate: Certificate, name: str) -> CheckResult:
    (found,) = (each for each in certificate.checks if each.check == name)
    return found


def verdicts(certificate: Certificate) -> dict[str, str]:
    return {each.check: each.verdict for each in certificate.checks}


def copied(model):
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def node_of(model, name):
    (node,) = (each for each in model.graph.node if each.name == name)
    return node


def set_weight(model, name, change):
    (tensor,) = (each for each in model.graph.initializer if each.name == name)
    array = change(numpy_helper.to_array(tensor).copy())
    tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), name))


def changed(name, layer, **attributes):
    """The canonical graph of a model with attributes of one layer changed, weights the same."""
    model = MODELS[name]
    nodes = tuple(
        msgspec.structs.replace(node, layer=msgspec.structs.replace(node.layer, **attributes))
        if node.name == layer
        else node
        for node in model.wired()
    )
    return canonical_graph(msgspec.structs.replace(model, nodes=nodes), drawn(model))


# --- the same ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GRAPHS)
def test_a_model_is_proven_the_same_as_itself(name, compare):
    certificate = compare(GRAPHS[name], GRAPHS[name])
    assert certificate.status("b.onnx") == "proven"
    assert list(verdicts(certificate)) == [each for each in FILE if each != "layers"]
    assert all(each.relative_l2 == 0 for each in result(certificate, "forward float64").figures)
    # Two batches at least.
    assert len(result(certificate, "forward float64").figures) == 2
    assert certificate.workload == "a.onnx and b.onnx"
    assert certificate.adapters == dict.fromkeys(("a.onnx", "b.onnx"), "dlb, opset 17")


def renamed(model):
    """Every value and node under another name, the batch of another size, MatMul for Gemm."""
    copy = copied(model)
    graph = copy.graph
    names = {name: f"v{place}" for place, name in enumerate(
        dict.fromkeys(each for node in graph.node for each in (*node.input, *node.output) if each)
    )}  # fmt: skip
    nodes = []
    held = {tensor.name: tensor for tensor in graph.initializer}
    for place, node in enumerate(graph.node):
        if node.op_type == "Gemm":
            weight = numpy_helper.to_array(held[node.input[1]])
            held[node.input[1]].CopyFrom(numpy_helper.from_array(weight.T.copy(), node.input[1]))
            product = f"product{place}"
            nodes.append(helper.make_node("MatMul", node.input[:2], [product]))
            node = helper.make_node("Add", [node.input[2], product], node.output)
        nodes.append(node)
    for place, node in enumerate(nodes):
        node.name = f"n{place}"
        node.input[:] = [names.get(each, each) for each in node.input]
        node.output[:] = [names.get(each, each) for each in node.output]
    del graph.node[:]
    graph.node.extend(nodes)
    for each in (*graph.initializer, *graph.input, *graph.output):
        each.name = names[each.name]
    for each in (*graph.input, *graph.output):
        each.type.tensor_type.shape.dim[0].dim_value = 4
    copy.producer_name = "another"
    return copy


@pytest.mark.parametrize("name", ["lenet5", "lenet", "branches", "tokens"])
def test_names_layouts_and_operators_of_another_writer_do_not_matter(name, compare):
    certificate = compare(GRAPHS[name], renamed(GRAPHS[name]))
    assert certificate.status("b.onnx") == "proven", certificate.checks
    assert "paired by order" in describe(result(certificate, "forward float64"))
    assert certificate.adapters["b.onnx"].startswith("another")


def folded(epsilon=1e-3):
    """The residual model with two batch normalisations folded into convolutions, in float32."""
    model = copied(GRAPHS["residual"])
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    for name in ("bn1", "bn2"):
        norm = node_of(model, name)
        conv = next(node for node in model.graph.node if norm.input[0] in node.output)
        scale, bias, mean, variance = (numpy_helper.to_array(held[n]) for n in norm.input[1:5])
        factor = scale / np.sqrt(variance + np.float32(epsilon))
        assert factor.dtype == np.float32
        weight = numpy_helper.to_array(held[conv.input[1]]) * factor.reshape(-1, 1, 1, 1)
        held[conv.input[1]].CopyFrom(numpy_helper.from_array(weight, conv.input[1]))
        added = numpy_helper.from_array(bias - mean * factor, f"{name}.folded")
        model.graph.initializer.append(added)
        conv.input.append(added.name)
        conv.output[0] = norm.output[0]
        model.graph.node.remove(norm)
    return model


@pytest.mark.parametrize("backwards", [False, True])
def test_folded_batch_normalisation_is_held_to_what_rounding_does(backwards, compare):
    pair = (GRAPHS["residual"], folded())
    certificate = compare(*(pair[::-1] if backwards else pair))
    assert certificate.status("b.onnx") == "proven", certificate.checks
    label = "a.onnx" if backwards else "b.onnx"
    assert f"{label} has folded or written out: 'bn1', 'bn2'" in (
        describe(result(certificate, "structure"))
    )
    assert 1e-10 < result(certificate, "forward float64").tolerance < 1e-5
    assert result(certificate, "weights").tolerance == 1e-6


@pytest.mark.parametrize("epsilon", [1.02e-3, 1e-5])
def test_batch_normalisation_folded_with_another_epsilon_is_found(epsilon, compare):
    certificate = compare(GRAPHS["residual"], folded(epsilon))
    assert certificate.status("b.onnx") == "deviates"
    assert result(certificate, "forward float64").verdict == "failed"
    assert result(certificate, "forward float64").tolerance == 1e-10
    assert "Conv 'conv1'" in describe(result(certificate, "layers"))


@pytest.mark.parametrize(("off", "word"), [(1e-7, "within rounding"), (1e-5, "deviates")])
def test_two_that_folded_with_other_roundings_are_the_same_within_them(off, word, compare):
    """Neither has the numbers that would tell which is exact, so it is told how to compare those."""
    other = folded()
    set_weight(other, "conv1.weight", lambda array: array * np.float32(1 + off))
    certificate = compare(folded(), other)
    assert certificate.status("b.onnx") == word
    told = "its normalisations kept" in describe(result(certificate, "weights"))
    assert told == (word == "within rounding")


def of(text, weights=(), shape=("N", 4), inputs=None, outputs=("y",), element=TensorProto.FLOAT):
    """A model from lines of ONNX's own text form."""
    graph = onnx.parser.parse_graph("g (float[N,4] x) => (float[N,4] y) {" + text + "}")
    del graph.input[:], graph.output[:]
    for name, kind, sizes in inputs or [("x", element, shape)]:
        graph.input.append(helper.make_tensor_value_info(name, kind, sizes))
    graph.output.extend(helper.make_tensor_value_info(name, element, None) for name in outputs)
    for name, array in dict(weights).items():
        graph.initializer.append(numpy_helper.from_array(array, name))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


W = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
SWISH = "h = MatMul (x, w) s = Sigmoid (h) y = Mul (h, s)"
PARTS = (
    "h = MatMul (x, w) n = Neg (h) e = Exp (n) one = Constant <value_float = 1.0> () "
    "d = Add (e, one) y = Div (h, d)"
)


def test_other_analytic_operators_are_decided_by_values(compare):
    certificate = compare(of(SWISH, {"w": W}), of(PARTS, {"w": W}))
    assert certificate.status("b.onnx") == "proven", certificate.checks
    assert "written differently" in describe(result(certificate, "structure"))


HARD = "h = MatMul (x, w) y = HardSwish (h)"
CLIPPED = (
    "h = MatMul (x, w) three = Constant <value_float = 3.0> () low = Constant <value_float = 0.0> () "
    "six = Constant <value_float = 6.0> () r = Add (h, three) c = Clip (r, low, six) "
    "p = Mul (h, c) y = Div (p, six)"
)
BOUNDED_LAST = (
    "h = MatMul (x, w) half = Constant <value_float = 0.5> () low = Constant <value_float = 0.0> () "
    "six = Constant <value_float = 6.0> () one = Constant <value_float = 1.0> () "
    "q = Div (h, six) r = Add (q, half) l = Max (r, low) c = Min (l, one) y = Mul (c, h)"
)


def test_a_hard_swish_may_be_written_out(compare):
    for first, second in product((HARD, CLIPPED, BOUNDED_LAST), repeat=2):
        certificate = compare(of(first, {"w": W}), of(second, {"w": W}))
        assert certificate.status("b.onnx") == "proven", certificate.checks


@pytest.mark.parametrize("what", ["z", "h"])
def test_a_bound_around_a_hard_swish_counts(what, compare):
    """Where no input went: of what it gives, or of one of its factors."""
    far = "t = Constant <value_float = 1e6> () "
    bounded = {
        "z": CLIPPED.replace("y = Div", far + "z = Div") + " y = Min (z, t)",
        "h": CLIPPED.replace("p = Mul (h, c)", far + "m = Min (h, t) p = Mul (m, c)"),
    }[what]
    for other in (HARD, CLIPPED):
        certificate = compare(of(other, {"w": W}), of(bounded, {"w": W}))
        assert verdicts(certificate)["forward float64"] == "passed"
        assert certificate.status("b.onnx") != "proven"


@pytest.mark.parametrize("last", [0.0, 1e-3])
def test_a_constant_may_be_repeated_for_each_sample(last, compare):
    row = np.linspace(1, 2, 4).astype(np.float32)
    rows = np.tile(row, (3, 1))
    rows[-1, -1] += last
    text = "h = MatMul (x, w) y = Add (h, t)"
    once, each = (of(text, {"w": W, "t": t}, shape=(3, 4)) for t in (row, rows))
    for first, second in ((once, each), (each, once)):
        assert (compare(first, second).status("b.onnx") == "proven") == (not last)


@pytest.mark.parametrize(
    ("order", "word"), [(slice(None), "proven"), (slice(None, None, -1), "deviates")]
)
def test_numbers_of_a_whole_batch_may_be_taken_by_their_positions(order, word, compare):
    """As PyTorch's exporter writes strides; not if samples are exchanged."""
    plain = of("y = MatMul (x, w)", {"w": W}, shape=(3, 4))
    taken = "f = Reshape (x, all) g = Gather (f, places) y = MatMul (g, w)"
    places = np.arange(12).reshape(3, 4)[order]
    other = of(taken, {"w": W, "all": np.array([-1]), "places": places}, shape=(3, 4))
    for first, second in ((plain, other), (other, plain)):
        assert compare(first, second).status("b.onnx") == word


PRODUCT = "h = MatMul (x, w) "
NORM = "y = LayerNormalization <epsilon = 1e-12> (h, one)"
LENGTH = "a = Mul (h, h) s = ReduceSum (a, last) r = Sqrt (s) t = Add (r, tiny) y = Div (h, t)"
BRANCHES = (
    "a = LayerNormalization <epsilon = 1e-12> (h, one) "
    "b = LayerNormalization <epsilon = 2e-12> (h, one) e = Exp (b) y = Add (a, e)"
)
TURNED = (
    "b = LayerNormalization <epsilon = 2e-12> (h, one) e = Exp (b) "
    "a = LayerNormalization <epsilon = 1e-12> (h, one) y = Add (e, a)"
)
HELD = {"w": W, "one": np.ones(4, "f"), "last": np.array([1])}
HELD |= {name: np.float32(n) for name, n in {"tiny": 1e-12, "tiny2": 2e-12, "two": 2}.items()}


def with_held(text):
    return of(text, {name: array for name, array in HELD.items() if f" {name}" in text})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (PRODUCT + NORM, PRODUCT + NORM.replace("1e-12", "2e-12")),
        (PRODUCT + NORM, "h = Gemm (x, w) " + NORM.replace("1e-12", "2e-12")),
        (PRODUCT + BRANCHES, PRODUCT + BRANCHES.replace("2e-12", "3e-12")),
        (PRODUCT + LENGTH, PRODUCT + LENGTH.replace("tiny", "tiny2")),
    ],
    ids=["attribute", "after a product that is written otherwise", "of a branch", "constant"],
)
def test_another_number_of_the_same_operator_is_a_difference(first, second, compare):
    """However small its effect: values agree to less than the tolerance."""
    certificate = compare(with_held(first), with_held(second))
    assert result(certificate, "forward float64").verdict == "passed"
    assert certificate.status("b.onnx") == "deviates"
    assert "e-12, found" in describe(result(certificate, "structure"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("y = Elu (h)", "y = Elu <alpha = 1.0> (h)"),
        ("y = LayerNormalization (h, one)", "y = LayerNormalization <epsilon = 1e-5> (h, one)"),
        (BRANCHES, TURNED),
        (NORM, "g = Mul (h, two) " + NORM.replace("1e-12", "4e-12").replace("(h", "(g")),
        ("y = Celu <alpha = 0.3> (h)", "y = Celu <alpha = 0.30000001> (h)"),
    ],
)
def test_a_number_that_is_written_otherwise_is_none(first, second, compare):
    certificate = compare(with_held(PRODUCT + first), with_held(PRODUCT + second))
    assert certificate.status("b.onnx") == "proven", certificate.checks


@pytest.mark.parametrize(("off", "word"), [(1e-7, "proven"), (2e-6, "deviates")])
def test_alpha_of_a_response_normalisation_may_have_been_divided_and_multiplied(off, word, compare):
    text = "y = LRN <size = 3, alpha = 1e-4> (x)"
    first, second = (of(text, shape=("N", 4, 2, 2)) for _ in range(2))
    (alpha,) = (each for each in second.graph.node[0].attribute if each.name == "alpha")
    alpha.f *= 1 + off
    assert alpha.f != np.float32(1e-4)
    assert compare(first, second).status("b.onnx") == word


@pytest.mark.parametrize(("off", "word"), [(1e-7, "proven"), (5e-7, "deviates")])
def test_scores_of_attention_may_be_divided_by_a_root(off, word, compare):
    """Of heads of three features, whose root no float32 is."""
    described = DLB.Model(
        input=DLB.Input(shape=(4, 6)),
        nodes=(DLB.Node(name="attention", layer=DLB.Attention(heads=2)),),
    )
    canonical = canonical_graph(described, drawn(described))
    other = copied(canonical)
    (node,) = (each for each in other.graph.node if "attention/scale" in each.input)
    node.op_type = "Div"
    set_weight(other, "attention/scale", lambda scale: 1 / scale.astype(float) * (1 + off))
    certificate = compare(canonical, other)
    assert certificate.status("b.onnx") == word, certificate.checks


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_a_gelu_may_be_written_out_with_roots_that_are_rounded(approximate, compare):
    whole = f'h = MatMul (x, w) y = Gelu <approximate = "{approximate}"> (h)'
    model = of(whole, {"w": W})
    model.opset_import[0].version = 20
    layers = (DLB.Linear(out_features=4, bias=False), DLB.GELU(approximate=approximate))
    nodes = [DLB.Node(name=f"layer{place}", layer=layer) for place, layer in enumerate(layers)]
    described = DLB.Model(input=DLB.Input(shape=(4,)), nodes=tuple(nodes))
    canonical = canonical_graph(described, {"layer0.weight": W.T})
    for first, second in ((model, canonical), (canonical, model)):
        certificate = compare(first, second)
        assert certificate.status("b.onnx") == "proven", certificate.checks


@pytest.mark.parametrize(("off", "word"), [(1e-7, "proven"), (5e-7, "deviates")])
def test_a_root_further_off_than_rounding_is_another(off, word, compare):
    text = "y = Gelu (x)"
    whole = of(text)
    whole.opset_import[0].version = 20
    parts = "s = Div (x, root) e = Erf (s) r = Add (e, one) h = Mul (x, half) y = Mul (h, r)"
    numbers = {"root": np.sqrt(2) * (1 + off), "one": 1.0, "half": 0.5}
    numbers = {name: np.array(number, np.float32) for name, number in numbers.items()}
    assert compare(whole, of(parts, numbers)).status("b.onnx") == word


def test_attention_may_be_written_out_in_another_way(compare):
    """One matrix for three, and a mask that chooses for one that is added."""
    described = DLB.Model(
        input=DLB.Input(shape=(4, 6)),
        nodes=(
            DLB.Node(name="attention", layer=DLB.Attention(heads=2, causal=True, bias=False)),
            DLB.Node(name="mean", layer=DLB.ReduceMean()),
            DLB.Node(name="logits", layer=DLB.Linear(out_features=3)),
        ),
    )
    weights = drawn(described)
    canonical = canonical_graph(described, weights)
    other = copied(canonical)
    (masked,) = (node for node in other.graph.node if node.name.endswith("/masked"))
    (mask,) = (each for each in other.graph.initializer if each.name == masked.input[1])
    may = numpy_helper.to_array(mask) == 0
    mask.CopyFrom(numpy_helper.from_array(may, mask.name))
    least = numpy_helper.from_array(np.float32(-1e9), "least")
    other.graph.initializer.append(least)
    scores = masked.input[0]
    masked.CopyFrom(
        helper.make_node("Where", [mask.name, scores, "least"], masked.output, name=masked.name)
    )
    certificate = compare(canonical, other)
    assert certificate.status("b.onnx") == "proven", certificate.checks
    # One that lets the first step see the second is another.
    may[0, 1] = True
    mask.CopyFrom(numpy_helper.from_array(may, mask.name))
    assert compare(canonical, other).status("b.onnx") == "deviates"


def test_one_matrix_for_three_holds_the_same_numbers(compare):
    text = "q = MatMul (x, a) k = MatMul (x, b) v = MatMul (x, c) p = Mul (q, k) y = Add (p, v)"
    parts = {name: W + place for place, name in enumerate("abc")}
    merged = "m = MatMul (x, w) q, k, v = Split <axis = 1> (m, n) p = Mul (q, k) y = Add (v, p)"
    whole = {"w": np.concatenate(list(parts.values()), axis=1), "n": np.array([4, 4, 4])}
    certificate = compare(of(text, parts), of(merged, whole))
    assert certificate.status("b.onnx") == "proven", certificate.checks


@pytest.mark.parametrize("second", ["float64", "float16"])
def test_a_file_of_another_precision(second, compare):
    element = {"float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16}[second]
    narrow = of(SWISH, {"w": W.astype(second)}, element=element)
    certificate = compare(of(SWISH, {"w": W}), narrow)
    if second == "float64":
        assert certificate.status("b.onnx") == "proven", certificate.checks
        assert "run in float32" in describe(result(certificate, "forward float32"))
    else:
        assert verdicts(certificate)["weights"] == "failed"
        assert verdicts(certificate)["forward float64"] == "failed"


def test_inputs_that_are_given(compare, tmp_path):
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    certificate = compare(of(SWISH, {"w": W}), of(SWISH, {"w": W}), tmp_path / "x.npz")
    assert certificate.status("b.onnx") == "proven"
    assert "x.npz" in describe(result(certificate, "forward float64"))
    other = of(SWISH.replace("(x,", "(z,"), {"w": W}, inputs=[("z", 1, ("N", 4))])
    assert compare(other, of(SWISH, {"w": W}), tmp_path / "x.npz").status("b.onnx") == "proven"


def test_indices_that_one_reads_as_real_numbers(compare):
    """As MXNet has them."""
    table = np.arange(20, dtype=np.float32).reshape(5, 4)
    real = of("k = Cast <to = 6> (i) y = Gather (t, k)", {"t": table}, inputs=[("i", 1, ("N",))])
    whole = of("y = Gather (t, i)", {"t": table}, inputs=[("i", TensorProto.INT64, ("N",))])
    for pair in ((real, real), (real, whole), (whole, real)):
        assert compare(*pair).status("b.onnx") == "proven"


RARE = "s = Equal (i, seven) k = Where (s, three, i) y = Gather (t, k)"
MAPPED = "k = Gather (m, i) y = Gather (t, k)"
ENTRIES = 10_000


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        ("y = Gather (t, i)", RARE, "unproven"),
        (RARE, "y = Gather (t, i)", "unproven"),
        (RARE, RARE.replace("three", "four"), "unproven"),
        (RARE, RARE, "proven"),
        (MAPPED, MAPPED.replace("(m,", "(n,"), "unproven"),
        (MAPPED, MAPPED, "proven"),
    ],
)
def test_one_rare_index_is_enough_to_be_another_model(first, second, word, compare):
    held = {
        "t": np.random.default_rng(0).normal(size=(ENTRIES, 4)).astype(np.float32),
        "m": np.arange(ENTRIES),
        "n": np.arange(ENTRIES),
        **{name: np.array(number) for name, number in (("three", 3), ("four", 4), ("seven", 7))},
    }
    held["n"][[3, 7]] = 7, 3
    pair = [of(text, held, inputs=[("i", TensorProto.INT64, ("N",))]) for text in (first, second)]
    certificate = compare(*pair)
    assert certificate.status("b.onnx") == word, certificate.checks


EXPORTED = sorted(EXPORTED_FILES.glob("*.onnx"))


@pytest.mark.parametrize("path", EXPORTED, ids=lambda path: path.stem)
def test_what_frameworks_export_is_proven_the_same_as_itself(path, compare):
    word = compare(onnx.load(str(path)), onnx.load(str(path))).status("b.onnx")
    assert word == "proven"


@pytest.mark.parametrize("name", ["lenet", "residual", "branches"])
def test_two_exporters_of_one_framework_are_proven_the_same(name, compare):
    pair = [onnx.load(str(EXPORTED[0].parent / f"{each}-{name}.onnx")) for each in TORCH]
    certificate = compare(*pair)
    assert certificate.status("b.onnx") == "proven", certificate.checks
    set_weight(pair[1], "fc.bias" if name != "lenet" else "9.bias", lambda array: array * 1.000001)
    assert compare(*pair).status("b.onnx") == "deviates"


TORCH = ("torch", "torch-script")


def test_padding_on_its_own_is_held_against_the_layer_that_pads(compare):
    conv = "y = Conv <kernel_shape = [3, 3], pads = [0, 0, {}, 1]> (x, w)"
    apart = "p = Pad (x, n) y = Conv <kernel_shape = [3, 3]> (p, w)"
    kernel = np.random.default_rng(0).normal(size=(2, 1, 3, 3)).astype(np.float32)
    around = {"w": kernel, "n": np.array([0, 0, 0, 0, 0, 0, 1, 1])}
    padded = of(apart, around, shape=("N", 1, 5, 5))
    for after, word in ((1, "proven"), (0, "deviates")):
        within = of(conv.format(after), {"w": kernel}, shape=("N", 1, 5, 5))
        certificate = compare(within, padded)
        assert certificate.status("b.onnx") == word, certificate.checks
    detail = describe(result(certificate, "layers"))
    assert detail == "Conv 'y': pads is [0, 0, 0, 1] in a.onnx and none in b.onnx"


def test_two_inputs_of_which_one_is_an_index(compare):
    text = "e = Gather (t, i) y = Mul (e, x)"
    inputs = [("x", TensorProto.FLOAT, ("N", 4)), ("i", TensorProto.INT64, ("N",))]
    model = of(text, {"t": np.vstack([W, W + 1, W + 2])}, inputs=inputs)
    assert compare(model, model).status("b.onnx") == "proven"


# --- what differs ------------------------------------------------------------------------------


def with_weight(name, weight, place, by):
    def moved(array):
        array.flat[place] *= 1 + by
        return array

    model = copied(GRAPHS[name])
    set_weight(model, weight, moved)
    return model


def with_weights_exchanged():
    model = copied(GRAPHS["residual"])
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    one, other = held["bn1.mean"], held["bn2.mean"]
    one.name, other.name = other.name, one.name
    return model


def with_inputs_reversed(name, node):
    model = copied(GRAPHS[name])
    inputs = node_of(model, node).input
    inputs[:] = list(inputs)[::-1]
    return model


def with_operator(name, node, operator):
    model = copied(GRAPHS[name])
    node_of(model, node).op_type = operator
    return model


#: The first file; the second; checks that fail besides forward and layers; the operators and names
#: of the nodes that part; what is said of how they differ.
PLANTED = {
    "epsilon": ("residual", changed("residual", "bn2", epsilon=1.1e-3), {"structure"},
                "BatchNormalization 'bn2': epsilon is 0.001 in a.onnx and 0.0011 in b.onnx"),
    "epsilon by little": ("residual", changed("residual", "bn2", epsilon=1.00001e-3), {"structure"},
                          "'bn2': epsilon is 0.001 in a.onnx and 0.00100001 in b.onnx"),
    "one weight": ("lenet", with_weight("lenet", "fc2.weight", 7, 1.2e-7), {"weights"},
                   "Gemm 'fc2': constants 'fc2.weight' differ by 1.5e-08"),
    "one weight of a renamed file":
        ("lenet", renamed(with_weight("lenet", "fc1.weight", 3, 1e-6)), {"weights"},
         "Gemm 'fc1' (transB=1) of a.onnx, Add 'n8' of b.onnx"),
    "a running mean": ("residual", with_weight("residual", "bn3.mean", 0, 1e-6), {"weights"},
                       "BatchNormalization 'bn3': constants 'bn3.mean' differ by 3e-07"),
    "side of the padding": ("branches", changed("branches", "conv1", pads=(1, 1, 0, 0)),
                            {"structure"}, "Conv 'conv1': pads is [0, 1, 1, 0] in a.onnx and [1, 1, 0, 0] in"),
    "padding that counts": ("branches", changed("branches", "pool1", count_include_pad=False),
                            {"structure"}, "AveragePool 'pool1': count_include_pad is 1 in a.onnx and 0 in"),
    "a pair of weights": ("residual", with_weights_exchanged(), set(),
                          "BatchNormalization 'bn1': constants 'bn1.mean' differ by 1.1"),
    "a pair of inputs": ("branches", with_inputs_reversed("branches", "concat"), {"structure"},
                         "Concat 'concat': reads pool1, tanh2, and tanh2, pool1 in b.onnx"),
    "an activation": ("branches", with_operator("branches", "tanh2", "Sigmoid"), {"structure"},
                      "Tanh 'tanh2' of a.onnx, Sigmoid 'tanh2' of b.onnx"),
    "a scale": ("branches", changed("branches", "lrn", alpha=1.001e-2), {"structure"},
                "LRN 'lrn': alpha is 0.01 in a.onnx and 0.01001 in b.onnx"),
    "recurrent weight": ("tokens", with_weight("tokens", "lstm.recurrent_weight", 0, 1e-6),
                         {"weights"}, "LSTM 'lstm': constants "),
}  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_difference_is_found_at_its_node(planted, compare):
    name, second, more, differs = PLANTED[planted]
    certificate = compare(GRAPHS[name], second)
    assert certificate.status("b.onnx") == "deviates"
    failed = {each for each, word in verdicts(certificate).items() if word == "failed"}
    assert failed - {"forward float32"} == {"forward float64", "layers", *more}, certificate.checks
    detail = describe(result(certificate, "layers"))
    assert differs in detail
    assert result(certificate, "layers").worst.relative_l2 > 1e-10


def test_one_bit_of_one_weight_among_thousands_is_found(compare):
    """What it does to the outputs is below the gate; the weights themselves tell."""
    certificate = compare(GRAPHS["lenet5"], with_weight("lenet5", "conv2.weight", 7, 1.2e-7))
    assert certificate.status("b.onnx") == "deviates"
    assert result(certificate, "weights").worst.tensor == "conv2.weight"
    of = "1 of 51,200 elements of 'conv2.weight' [64, 32, 5, 5] of Conv 'conv2'"
    said = f"{of} differ, worst at [0, 0, 1, 2] by 9.3e-10"
    assert said in describe(result(certificate, "weights"))
    (line,) = explanation_lines(certificate, short=True)
    assert line.startswith(f"b.onnx differs first in weights: {said}")


def test_of_weights_that_differ_the_first_and_the_worst_elements_are_named(compare):
    other = with_weight("lenet5", "conv2.weight", 2000, 0.5)
    set_weight(other, "conv2.weight", lambda array: np.where(array == array.flat[2001], 9, array))
    said = describe(result(compare(GRAPHS["lenet5"], other), "weights"))
    assert (
        "2 of 51,200 elements" in said
        and "first at [2, 16, 0, 0], worst at [2, 16, 0, 1] by" in said
    )


def test_a_number_that_is_not_finite_is_named_where_it_is(compare):
    certificate = compare(of(SWISH, {"w": W}), of(SWISH, {"w": np.where(W[2, 1] == W, np.nan, W)}))
    said = describe(result(certificate, "weights"))
    assert "1 of 16 elements of 'w'" in said and "worst at [2, 1] which is not finite" in said


def test_a_kernel_with_axes_in_another_order_is_said_to_be_that(compare):
    other = copied(GRAPHS["lenet5"])
    set_weight(other, "conv2.weight", lambda array: array.transpose(0, 1, 3, 2))
    certificate = compare(GRAPHS["lenet5"], other)
    said = describe(result(certificate, "layers"))
    assert said.endswith("the same numbers, in b.onnx transposed by [0, 1, 3, 2]")


def test_an_attribute_that_is_written_at_its_default_is_no_difference(compare):
    text = "y = Conv <{}kernel_shape = [1]> (x, w)"
    kernel = np.ones((4, 4, 1), np.float32)
    written = of(text.format('auto_pad = "NOTSET", group = 1, '), {"w": 2 * kernel}, ("N", 4, 4))
    certificate = compare(of(text.format(""), {"w": kernel}, ("N", 4, 4)), written)
    assert describe(result(certificate, "layers")) == "Conv 'y': constants 'w' differ by 1"


def test_a_row_that_is_never_looked_up_counts(compare):
    """A table has more rows than two batches reach."""
    table = np.random.default_rng(0).normal(size=(5000, 4)).astype(np.float32)
    inputs = [("i", TensorProto.INT64, ("N",))]
    text = "y = Gather (t, i)"
    for place in (4000, 4001):
        other = table.copy()
        other[place, 0] *= 1 + 1e-6
        certificate = compare(
            of(text, {"t": table}, inputs=inputs), of(text, {"t": other}, inputs=inputs)
        )
        assert verdicts(certificate)["forward float64"] == "passed"
        assert verdicts(certificate)["weights"] == "failed"
    exchanged = table.copy()
    exchanged[[4000, 4001]] = exchanged[[4001, 4000]]
    certificate = compare(
        of(text, {"t": table}, inputs=inputs), of(text, {"t": exchanged}, inputs=inputs)
    )
    assert verdicts(certificate)["weights"] == "failed"


def test_a_bound_that_no_input_reached_leaves_the_files_unproven(compare):
    bounded = "h = MatMul (x, w) t = Constant <value_float = 1e6> () y = Min (h, t)"
    certificate = compare(of("y = MatMul (x, w)", {"w": W}), of(bounded, {"w": W}))
    assert verdicts(certificate)["forward float64"] == "passed"
    assert verdicts(certificate)["structure"] == "not run"
    assert "Min" in describe(result(certificate, "structure"))
    assert certificate.status("b.onnx") == "unproven"
    six = "h = MatMul (x, w) t = Constant <value_float = 6.0> () y = Min (h, t)"
    certificate = compare(of("y = MatMul (x, w)", {"w": W}), of(six, {"w": W}))
    assert certificate.status("b.onnx") == "deviates"


@pytest.mark.parametrize("by", [1e-7, 1e-3])
@pytest.mark.parametrize("size", [1, 4])
def test_a_bound_that_no_input_reached_is_compared(by, size, compare):
    text = "h = MatMul (x, w) y = Min (h, t)"
    bounds = np.linspace(1e6, 2e6, size).astype(np.float32)
    other = bounds.copy()
    other[-1] *= np.float32(1 + by)
    assert other[-1] != bounds[-1]
    certificate = compare(of(text, {"w": W, "t": bounds}), of(text, {"w": W, "t": other}))
    assert verdicts(certificate)["forward float64"] == "passed"
    assert certificate.status("b.onnx") != "proven"
    # Not as a set either: each is of a channel.
    if size > 1:
        certificate = compare(
            of(text, {"w": W, "t": bounds}), of(text, {"w": W, "t": bounds[::-1]})
        )
        assert certificate.status("b.onnx") != "proven"


def test_a_bound_that_is_an_attribute_is_compared(compare):
    text = "y = ThresholdedRelu <alpha = {}> (x)"
    certificate = compare(of(text.format("-1e6")), of(text.format("-1000000.1")))
    assert verdicts(certificate)["forward float64"] == "passed"
    assert verdicts(certificate)["weights"] == "failed"


def test_a_branch_that_depends_on_the_input_is_not_compared(compare):
    text = (
        "m = ReduceMax <keepdims = 0> (x) t = Constant <value_float = 1e6> () c = Greater (m, t) "
        "y = If (c) <then_branch = a () => (float[N,4] p) {p = Neg (x)}, "
        "else_branch = b () => (float[N,4] q) {q = Identity (x)}>"
    )
    certificate = compare(of("y = Identity (x)"), of(text))
    assert verdicts(certificate)["forward float64"] == "passed"
    assert verdicts(certificate)["structure"] == "not run"
    assert certificate.status("b.onnx") == "unproven"
    assert compare(of(text), of(text)).status("b.onnx") == "proven"


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("both", [False, True])
def test_what_is_not_finite_differs_even_from_itself(number, both, compare):
    bad = with_weight("lenet", "conv1.weight", 0, number)
    certificate = compare(bad if both else GRAPHS["lenet"], bad)
    assert certificate.status("b.onnx") == "deviates"
    assert "a NaN or an infinity in" in describe(result(certificate, "forward float64"))
    assert result(certificate, "forward float64").worst.relative_l2 is None
    assert verdicts(certificate)["forward float32"] == "failed"


def test_an_operator_that_cannot_be_evaluated_leaves_the_files_unproven(compare):
    text = "y, i = MaxPool <kernel_shape = [2]> (x)"
    model = of(text, shape=("N", 2, 4))
    certificate = compare(model, model)
    assert certificate.status("b.onnx") == "unproven"
    assert set(verdicts(certificate).values()) == {"not run"}
    assert all("indices" in describe(each) for each in certificate.checks)


def test_outputs_that_are_exchanged_are_found(compare):
    text = "y = Tanh (x) z = Sigmoid (x)"
    other = "y = Sigmoid (x) z = Tanh (x)"
    certificate = compare(of(text, outputs=("y", "z")), of(other, outputs=("y", "z")))
    assert certificate.status("b.onnx") == "deviates"
    assert "Tanh 'y'" in describe(result(certificate, "layers"))


def test_an_output_of_another_shape_differs(compare):
    certificate = compare(of("y = Identity (x)"), of("y = Transpose (x)"))
    assert verdicts(certificate)["forward float64"] == "failed"
    assert result(certificate, "forward float64").worst.relative_l2 is None


@pytest.mark.parametrize("name", ["vit", "cnn", "gemm"])
def test_a_file_that_onnx_runtime_optimised_is_the_same(name: str, compare, tmp_path) -> None:
    """At the level that joins operators into ones of its own."""
    model = OPTIMISED[name]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    optimised = onnx.load(tmp_path / "optimised.onnx")
    assert "com.microsoft" in {node.domain for node in optimised.graph.node}
    certificate = compare(model, optimised)
    assert certificate.status("b.onnx") == "proven", certificate.checks


def classified(nodes: list[onnx.NodeProto], shape: list, held: dict) -> onnx.ModelProto:
    kinds = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, size)
        for name, size in (("x", shape), ("y", None))
    ]
    tensors = [numpy_helper.from_array(array, key) for key, array in held.items()]
    graph = helper.make_graph(nodes, "g", kinds[:1], kinds[1:], tensors)
    sets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


NODE = helper.make_node
OPTIMISED = {
    "cnn": classified(
        [
            NODE("Conv", ["x", "w", "b"], ["c"], "c"),
            NODE("Relu", ["c"], ["r"], "r"),
            NODE("Conv", ["r", "v"], ["d"], "d"),
            NODE("Sigmoid", ["d"], ["s"], "s"),
            NODE("Mul", ["d", "s"], ["y"], "y"),
        ],
        ["N", 2, 6, 6],
        {"w": numbers(3, 2, 3, 3), "b": numbers(3), "v": numbers(4, 3, 2, 2)},
    ),
    "gemm": classified(
        [NODE("Gemm", ["x", "w", "b"], ["h"], "h"), NODE("Tanh", ["h"], ["y"], "y")],
        ["N", 5],
        {"w": numbers(5, 4), "b": numbers(4)},
    ),
    # A class token that is repeated for each sample, a sum that is normalised, and scaled products.
    "vit": classified(
        [
            NODE("Expand", ["token", "sizes"], ["t"], "t"),
            NODE("Concat", ["t", "x"], ["a"], "a", axis=1),
            NODE("Add", ["a", "places"], ["p"], "p"),
            NODE("LayerNormalization", ["p", "scale", "shift"], ["n"], "n"),
            NODE("MatMul", ["n", "q"], ["nq"], "nq"),
            NODE("MatMul", ["n", "k"], ["nk"], "nk"),
            NODE("Transpose", ["nk"], ["kt"], "kt", perm=[0, 2, 1]),
            NODE("MatMul", ["nq", "kt"], ["m"], "m"),
            NODE("Mul", ["m", "half"], ["ms"], "ms"),
            NODE("Softmax", ["ms"], ["soft"], "soft", axis=-1),
            NODE("MatMul", ["soft", "n"], ["o"], "o"),
            NODE("Add", ["o", "n"], ["y"], "y"),
        ],
        [2, 4, 8],
        {
            "token": numbers(1, 1, 8),
            "sizes": np.array([2, 1, 8]),
            "places": numbers(1, 5, 8),
            "scale": numbers(8),
            "shift": numbers(8),
            "q": numbers(8, 6),
            "k": numbers(8, 6) + 1,
            "half": np.float32(0.5),
        },
    ),
}


def test_weights_that_are_joined_beside_one_that_is_kept_once(compare) -> None:
    """As onnxsim writes queries and keys, and torch's exporter normalisations that start equal."""
    norm = numbers(8)
    held = {"q": numbers(8, 6), "k": numbers(8, 6) + 1, "scale": norm, "same": norm}

    def model(products: list[onnx.NodeProto], scale: str, **more: np.ndarray) -> onnx.ModelProto:
        nodes = [
            NODE("LayerNormalization", ["x", "scale"], ["m"], "m"),
            NODE("LayerNormalization", ["m", scale], ["n"], "n"),
            *products,
            NODE("Sub", ["nq", "nk"], ["y"], "y"),
        ]
        names = {name for node in nodes for name in node.input}
        return classified(
            nodes, [2, 4, 8], {k: v for k, v in {**held, **more}.items() if k in names}
        )

    apart = [NODE("MatMul", ["n", "q"], ["nq"], "nq"), NODE("MatMul", ["n", "k"], ["nk"], "nk")]
    joined = [
        NODE("MatMul", ["n", "both"], ["b"], "b"),
        NODE("Split", ["b", "sizes"], ["nq", "nk"], "s", axis=-1),
    ]
    both = np.concatenate([held["q"], held["k"]], axis=1)
    sizes = np.array([6, 6])
    certificate = compare(model(apart, "same"), model(joined, "scale", both=both, sizes=sizes))
    assert result(certificate, "weights").verdict == "passed"
    both[0, 0] += 1e-3
    certificate = compare(model(apart, "same"), model(joined, "scale", both=both, sizes=sizes))
    assert result(certificate, "weights").verdict == "failed"


def test_copies_of_weights_in_each_others_place_differ(compare) -> None:
    """Each file has both weights, one of them twice: the check of the weights tells that they are others."""
    held = {"v": numbers(8, 8), "w": numbers(8, 8) + 1}

    def model(*names: str) -> onnx.ModelProto:
        # Copies under names of their own.
        own = {f"{name}{place}": held[name] for place, name in enumerate(names)}
        nodes, last = [], "x"
        for place, name in enumerate(own):
            output = "y" if place == len(own) - 1 else f"h{place}"
            nodes.append(NODE("MatMul", [last, name], [output], f"m{place}"))
            last = output
        return classified(nodes, [2, 8], own)

    certificate = compare(model("v", "v", "w"), model("v", "w", "w"))
    assert result(certificate, "weights").verdict == "failed"
