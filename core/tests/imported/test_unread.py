"""What a file computes that no layer does: with the size of the batch, and by rounding to a narrow type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from onnx import TensorProto, helper
from test_imported import graph, node, real, saved

from dlb.errors import UnsupportedError
from dlb.proof.certificate import Certificate
from dlb.proof.checks.file import check_file
from dlb.report.sentences import describe
from dlb_graph.comparing.read_facts import NarrowValues
from dlb_graph.files.read import import_file
from dlb_graph.options import Reading

FLOAT, HALF, BRAIN = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
HELD = {"W": real(4, 6), "b": real(6), "W2": real(6, 3), "b2": real(3), "0": np.array(0)}
SIZE = [
    node("Shape", ["h"], ["s"]),
    node("Gather", ["s", "0"], ["t"]),
    node("Cast", ["t"], ["u"], to=FLOAT),
]


def between(
    *nodes: onnx.NodeProto, shape: tuple[object, ...] = ("N", 4), **more: np.ndarray
) -> onnx.ModelProto:
    """Nodes from ``h`` to ``g``, of six numbers, between two linear layers."""
    first = node("Gemm", ["x", "W", "b"], ["h"])
    last = node("Gemm", ["g", "W2", "b2"], ["y"])
    return graph([first, *nodes, last], {**HELD, **more}, shape, opset=19)


def with_function(body: list[onnx.NodeProto]) -> onnx.ModelProto:
    """Nodes from ``h`` to ``g`` in a function of the file's own."""
    model = between(helper.make_node("Own", ["h"], ["g"], domain="own"))
    opsets = [helper.make_opsetid("", 19)]
    model.opset_import.append(helper.make_opsetid("own", 1))
    constant = node("Constant", [], ["0"], value=helper.make_tensor("", TensorProto.INT64, [], [0]))
    nodes = [constant, *body]
    model.functions.append(helper.make_function("own", "Own", ["h"], ["g"], nodes, opsets))
    return model


def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(
        [*nodes, node("Identity", ["v" if nodes else "h"], [name])],
        name,
        [],
        [helper.make_tensor_value_info(name, FLOAT, [None, 6])],
    )


def two_samples_alone() -> onnx.ModelProto:
    """A branch for batches of two samples."""
    double = branch("two", node("Add", ["h", "h"], ["v"]))
    equal = node("Equal", ["t", "2"], ["is"])
    chosen = node("If", ["is"], ["g"], then_branch=double, else_branch=branch("other"))
    return between(*SIZE[:2], equal, chosen, **{"2": np.array(2)})


COUNTS = {
    "a product": between(*SIZE, node("Mul", ["h", "u"], ["g"])),
    "a quotient": between(*SIZE, node("Div", ["h", "u"], ["g"])),
    "a bias": between(*SIZE, node("Add", ["h", "u"], ["g"])),
    "by the size of a value": between(
        node("Size", ["h"], ["t"]), SIZE[2], node("Div", ["h", "u"], ["g"])
    ),
    "in a function": with_function([*SIZE, node("Mul", ["h", "u"], ["g"])]),
    "a branch": two_samples_alone(),
    "at most two": between(
        *SIZE[:2],
        node("Min", ["t", "2"], ["m"]),
        node("Cast", ["m"], ["u"], to=FLOAT),
        node("Mul", ["h", "u"], ["g"]),
        **{"2": np.array(2)},
    ),
}


@pytest.mark.parametrize("name", COUNTS)
def test_the_size_of_the_batch_is_no_weight(name: str, tmp_path: Path) -> None:
    path = saved(tmp_path, COUNTS[name])
    with pytest.raises(UnsupportedError, match="it computes with the size of the batch; --size"):
        import_file(path)
    fixed = import_file(path, reading=Reading(sizes={"x:0": 4}))
    assert [cause.sizes for cause in fixed.read_as] == [(("x:0", 4),)]


def test_a_size_that_one_batch_has_is_none_of_every_batch(tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["h"], ["s"]),
        node("Reshape", ["h", "sizes"], ["r"]),
        node("Reshape", ["r", "s"], ["g"]),
    ]
    model = between(*nodes, sizes=np.array([2, 6]))
    with pytest.raises(UnsupportedError, match=r"can be run with 2 samples, and not with 3"):
        import_file(saved(tmp_path, model))


@pytest.mark.parametrize(
    "model",
    [
        between(*SIZE, node("Mul", ["h", "u"], ["m"]), node("Div", ["m", "u"], ["g"])),
        between(*SIZE, node("Mul", ["h", "u"], ["g"]), shape=(3, 4)),
        between(node("Shape", ["h"], ["s"]), node("Reshape", ["h", "s"], ["g"])),
        graph(
            [
                node("MatMul", ["x", "W"], ["h"]),
                node("Shape", ["h"], ["s"]),
                node("Reshape", ["h", "s"], ["r"]),
                node("Reshape", ["r", "rows"], ["y"]),
            ],
            {"W": real(4, 6), "rows": np.array([-1, 6])},
            ("N", 3, 4),
        ),
    ],
    ids=["that cancels", "that is fixed", "of a reshape", "of rows of all samples"],
)
def test_the_size_of_the_batch_may_be_read(model: onnx.ModelProto, tmp_path: Path) -> None:
    assert check_file(import_file(saved(tmp_path, model))).verdict == "passed"


def cast(name: str, kind: int, output: str) -> onnx.NodeProto:
    return node("Cast", [name], [output], to=kind)


def whole(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every number in float16."""
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = HALF
    for tensor in model.graph.initializer:
        if tensor.data_type == FLOAT:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return model


def in_a_branch() -> onnx.ModelProto:
    narrow = branch("narrow", cast("h", BRAIN, "n"), cast("n", FLOAT, "v"))
    chosen = node("If", ["yes"], ["g"], then_branch=narrow, else_branch=branch("other"))
    return between(chosen, yes=np.array(True))


NARROW = {
    "float16": between(cast("h", HALF, "n"), cast("n", FLOAT, "g")),
    "bfloat16": between(cast("h", BRAIN, "n"), cast("n", FLOAT, "g")),
    "an operator": between(cast("h", HALF, "n"), node("Tanh", ["n"], ["t"]), cast("t", FLOAT, "g")),
    "as another value": between(
        node("CastLike", ["h", "like"], ["n"]),
        node("CastLike", ["n", "b"], ["g"]),
        like=np.float16([1]),
    ),
    "in a function": with_function([cast("h", HALF, "n"), cast("n", FLOAT, "g")]),
    "in a branch": in_a_branch(),
    "a weight": between(
        cast("V", HALF, "n"), cast("n", FLOAT, "k"), node("MatMul", ["h", "k"], ["g"]), V=real(6, 6)
    ),
    "the whole file": whole(between(node("Relu", ["h"], ["g"]))),
}


@pytest.mark.parametrize("name", NARROW)
def test_a_rounding_that_no_layer_does_is_no_proof(name: str, tmp_path: Path) -> None:
    check = check_file(import_file(saved(tmp_path, NARROW[name])))
    (cause,) = (each.cause for each in check.findings if isinstance(each.cause, NarrowValues))
    assert cause.distance is not None and 1e-5 < cause.distance < 1e-2
    assert "to float16 or bfloat16, which no layer does" in describe(check)


HARMLESS = {
    "weights that are kept in float16": between(
        cast("V", FLOAT, "k"), node("MatMul", ["h", "k"], ["g"]), V=real(6, 6).astype("f2")
    ),
    "to float64 and back": between(cast("h", TensorProto.DOUBLE, "n"), cast("n", FLOAT, "g")),
    "to float32": between(cast("h", FLOAT, "g")),
    "a truth": between(
        node("Greater", ["h", "zero"], ["n"]),
        cast("n", HALF, "t"),
        cast("t", FLOAT, "u"),
        node("Mul", ["h", "u"], ["g"]),
        zero=np.float32(0),
    ),
    "the size of an axis": between(
        node("Shape", ["h"], ["s"], start=1),
        cast("s", HALF, "n"),
        cast("n", FLOAT, "u"),
        node("Div", ["h", "u"], ["g"]),
    ),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_cast_that_changes_no_number_rounds_none(name: str, tmp_path: Path) -> None:
    check = check_file(import_file(saved(tmp_path, HARMLESS[name])))
    assert not any(isinstance(each.cause, NarrowValues) for each in check.findings)


@pytest.mark.parametrize(("factor", "word"), [(1.0, "within rounding"), (1e6, "unproven")])
def test_the_word_for_a_file_whose_roundings_are_left_out(factor, word, tmp_path: Path) -> None:
    """A number of a million is infinite in float16."""
    model = between(
        node("Mul", ["h", "k"], ["m"]),
        cast("m", HALF, "n"),
        cast("n", FLOAT, "o"),
        node("Div", ["o", "k"], ["g"]),
        k=np.float32(factor),
    )
    check = replace(check_file(import_file(saved(tmp_path, model))), adapter="one")
    certificate = Certificate(
        workload="w", workload_hash="", seed=0, adapters={"one": ""}, checks=(check,)
    )
    assert certificate.status("one") == word
