"""Operators of ONNX that are read as compositions compute what ONNX says, and are read as layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dlb_graph.files.read import import_file
from dlb_graph.rewriting.compositions import RULES, rule_of
from dlb_graph.rewriting.foreign_operators import foreign_operators
from dlb_graph.truth.lookups import RANKING
from dlb_graph.truth.operators import OPERATORS

SHAPES = {
    "ArgMax": ((2, 5, 4),),
    "ArgMin": ((2, 5, 4),),
    "DepthToSpace": ((2, 12, 3, 5),),
    "SpaceToDepth": ((2, 3, 4, 6),),
    "CumSum": ((2, 5, 4),),
    "Einsum": ((2, 5, 4), (2, 4, 3), (2, 5)),
    "GridSample": ((2, 3, 4, 5), (2, 3, 6, 2)),
    "LayerNormalization": ((2, 5, 4),),
    "Col2Im": ((2, 12, 6),),
    "DFT": ((2, 6, 5, 2),),
    "STFT": ((2, 40, 1),),
    "ReduceProd": ((2, 3, 4),),
}
#: Constants behind the inputs.
HELD = {
    "last-axis": {"length": None, "axis": np.int64(-2)},
    "padded": {"length": np.int64(9), "axis": np.int64(1)},
    "windows": {
        "step": np.int64(3),
        "window": np.hanning(8).astype("float32"),
        "length": np.int64(8),
    },
    "frames": {"step": np.int64(7), "window": None, "length": np.int64(10)},
    "blocks-side-by-side": {"image": np.int64([4, 9]), "block": np.int64([2, 3])},
    "blocks-that-overlap": {"image": np.int64([3, 5]), "block": np.int64([2, 3])},
    "blocks-of-places": {"image": np.int64([3, 6]), "block": np.int64([2, 3])},
    "product-of-one": {"axes": np.int64([-1])},
    "product-of-several": {"axes": np.int64([1, 2])},
}
#: What drawn numbers, which are from -9 to 8, are divided by.
DIVISORS = {"GridSample": 6.1}
CASES = {
    "last-largest": ("ArgMax", {"select_last_index": 1, "axis": 1}, None),
    "last-smallest": ("ArgMin", {"select_last_index": 1, "axis": -1, "keepdims": 0}, None),
    "depth": ("DepthToSpace", {"blocksize": 2}, None),
    "depth-first": ("DepthToSpace", {"blocksize": 2, "mode": "DCR"}, None),
    "columns-first": ("DepthToSpace", {"blocksize": 2, "mode": "CRD"}, None),
    "space-behind-channels": ("SpaceToDepth", {"blocksize": 2, "mode": "CRD"}, None),
    "space": ("SpaceToDepth", {"blocksize": 2}, None),
    "sum": ("CumSum", {}, 1),
    "sum-of-the-last": ("CumSum", {}, -1),
    "sum-reverse": ("CumSum", {"reverse": 1}, 1),
    "sum-exclusive": ("CumSum", {"exclusive": 1}, 1),
    "sum-of-later-ones": ("CumSum", {"exclusive": 1, "reverse": 1}, 2),
    "norm": ("LayerNormalization", {"axis": 1, "epsilon": 0.01}, None),
    **{
        f"grid-{mode}-{padding}-{aligned}": (
            "GridSample",
            {"mode": mode, "padding_mode": padding, "align_corners": aligned},
            None,
        )
        for mode in ("linear", "cubic", "nearest")
        for padding in ("zeros", "border", "reflection")
        for aligned in (0, 1)
    },
    **{
        f"transform-{inverse}-{onesided}-{place}": (
            "DFT",
            {"inverse": inverse, "onesided": onesided},
            place,
        )
        for inverse in (0, 1)
        for onesided in (0, 1)
        for place in ("last-axis", "padded")
    },
    "columns": ("Col2Im", {"strides": [2, 3]}, "blocks-side-by-side"),
    "columns-overlapping": ("Col2Im", {}, "blocks-that-overlap"),
    "columns-apart": (
        "Col2Im",
        {"strides": [1, 2], "dilations": [1, 2], "pads": [0, 1, 0, 2]},
        "blocks-of-places",
    ),
    "frames": ("STFT", {"onesided": 0}, "frames"),
    "windows": ("STFT", {}, "windows"),
    "product": ("ReduceProd", {"keepdims": 0}, "product-of-one"),
    "product-kept": ("ReduceProd", {}, "product-of-several"),
    "products": ("Einsum", {"equation": "bnd,bde,bn->bne"}, None),
}


def model(case: str, *layers: onnx.NodeProto, real: int = TensorProto.FLOAT) -> onnx.ModelProto:
    operator, attributes, axis = CASES[case]
    names = [f"x{place}" for place in range(len(SHAPES[operator]))]
    named = {"axis": np.int64(axis)} if isinstance(axis, int) else HELD.get(axis, {})
    held = [numpy_helper.from_array(np.asarray(n), k) for k, n in named.items() if n is not None]
    if operator == "LayerNormalization":
        numbers = np.arange(40.0).astype(helper.tensor_dtype_to_np_dtype(real)).reshape(2, 5, 4)
        held += [numpy_helper.from_array(array, f"held{at}") for at, array in enumerate(numbers)]
    extra = [
        "" if name in named and named[name] is None else name
        for name in (*named, *(each.name for each in held if each.name not in named))
    ]
    node = helper.make_node(operator, [*names, *extra], ["y"])
    node.attribute.extend(helper.make_attribute(*each) for each in attributes.items())
    whole = operator in RANKING and not layers
    kind = TensorProto.INT64 if whole else real
    graph = helper.make_graph(
        [node, *layers],
        "composition",
        [
            helper.make_tensor_value_info(name, real, ["n", *shape[1:]])
            for name, shape in zip(names, SHAPES[operator])
        ],
        [helper.make_tensor_value_info("z" if layers else "y", kind, None)],
        held,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_every_composition_has_a_case() -> None:
    assert {operator for operator, _, _ in CASES.values()} == set(RULES) == set(SHAPES)


@pytest.mark.parametrize("case", CASES)
def test_what_is_written_computes_the_same(case: str) -> None:
    # ONNX's reference computes places of a grid, and weights of their neighbours, in float32.
    narrow = CASES[case][0] == "GridSample"
    kind, tolerance = ("float32", 1e-6) if narrow else ("float64", 1e-12)
    given = model(case, real=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
    window = next((held for held in given.graph.initializer if held.name == "window"), None)
    if window is not None:
        window.CopyFrom(numpy_helper.from_array(np.hanning(8), "window"))
    written = foreign_operators(given) or given
    operator = CASES[case][0]
    assert not any(map(rule_of, written.graph.node))
    assert len(written.graph.node) > len(given.graph.node)
    draw = np.random.default_rng(0)
    feed = {
        f"x{place}": (draw.integers(-9, 9, shape) / DIVISORS.get(operator, 1)).astype(kind)
        for place, shape in enumerate(SHAPES[operator])
    }
    (wanted,) = ReferenceEvaluator(given).run(None, feed)
    (found,) = ReferenceEvaluator(written, new_ops=list(OPERATORS)).run(None, feed)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize("case", CASES)
def test_it_is_read_as_layers(case: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    flat = helper.make_node("Flatten", ["y"], ["flat"])
    real = helper.make_node("Cast", ["flat"], ["real"], to=TensorProto.FLOAT)
    linear = helper.make_node("Gemm", ["real", "weight"], ["z"])
    given = model(case, flat, real, linear)
    feed = {
        f"x{place}": np.ones(shape, "float32") for place, shape in enumerate(SHAPES[CASES[case][0]])
    }
    (y,) = ReferenceEvaluator(model(case)).run(None, feed)
    weight = np.random.default_rng(0).standard_normal((y[0].size, 3)).astype("float32")
    given.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
    onnx.save(given, path)
    read = import_file(path)
    assert any(array.shape[::-1] == weight.shape for array in read.weights.values())


def test_a_grid_has_other_names_in_older_operator_sets_and_places_of_three_axes() -> None:
    given = model("grid-linear-zeros-0")
    named = model("grid-linear-zeros-0")
    next(each for each in named.graph.node[0].attribute if each.name == "mode").s = b"bilinear"
    assert (foreign_operators(named) or named).graph.node == (
        foreign_operators(given) or given
    ).graph.node
    for place, sizes in enumerate(((2, 3, 4, 5, 3), (2, 3, 2, 4, 3))):
        shape = given.graph.input[place].type.tensor_type.shape
        del shape.dim[:]
        for size in sizes:
            shape.dim.add().dim_value = size
    draw = np.random.default_rng(0)
    value, grid = draw.uniform(-1.5, 1.5, (2, 3, 4, 5, 3)), draw.uniform(-1.5, 1.5, (2, 3, 2, 4, 3))
    feed = {"x0": value.astype("float32"), "x1": grid.astype("float32")}
    written = foreign_operators(given) or given
    assert "GridSample" not in {node.op_type for node in written.graph.node}
    (wanted,) = ReferenceEvaluator(given).run(None, feed)
    (found,) = ReferenceEvaluator(written, new_ops=list(OPERATORS)).run(None, feed)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("opset", [9, 13])
def test_an_older_operator_set_has_no_composition(opset: int) -> None:
    operator = "DepthToSpace" if opset == 9 else "CumSum"
    given = model("depth" if opset == 9 else "sum")
    given.opset_import[0].version = opset
    assert [node.op_type for node in (foreign_operators(given) or given).graph.node] == [operator]


def test_an_axis_may_be_a_constant_node() -> None:
    given = model("sum")
    (axis,) = given.graph.initializer
    held = helper.make_node("Constant", [], ["axis"], value=axis)
    nodes = [held, *given.graph.node]
    del given.graph.initializer[:], given.graph.node[:]
    given.graph.node.extend(nodes)
    assert "CumSum" not in {node.op_type for node in (foreign_operators(given) or given).graph.node}


REFUSED = {
    "no strides": ("columns", "strides", [0, 0]),
    "axes that are nowhere": ("product", "", ""),
    "a mode that is none": ("grid-linear-zeros-0", "mode", "sinc"),
    "padding that is none": ("grid-linear-zeros-0", "padding_mode", "mirror"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_composition_stays(name: str) -> None:
    case, attribute, value = REFUSED[name]
    given = model(case)
    (node,) = given.graph.node
    if name == "axes that are nowhere":
        node.input[1] = "nowhere"
    else:
        (own,) = (each for each in node.attribute if each.name == attribute)
        own.CopyFrom(helper.make_attribute(attribute, value))
    written = foreign_operators(given) or given
    assert [each.op_type for each in written.graph.node] == [node.op_type]
