"""What is chosen of an ONNX file: open sizes, one input, one output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_imported import graph, node, real, saved

from dlb.catalogue import import_onnx
from dlb.errors import DlbError
from dlb.execution.kept_proofs import proof_key
from dlb.proof.checks.file import check_file
from dlb.request import Request
from dlb_graph.comparing.read_facts import AssumedValues, ReadAs
from dlb_graph.files.read import import_file
from dlb_graph.options import Reading
from dlb_graph.truth.evaluate import evaluate
from dlb_graph.truth.precision import in_precision


def two_of_all() -> onnx.ModelProto:
    """Tokens and kinds, both of open length, are embedded and added; a head, and the sequence."""
    nodes = [
        node("Gather", ["table", "ids"], ["a"]),
        node("Gather", ["kinds", "kind"], ["b"]),
        node("Add", ["a", "b"], ["c"]),
        node("Tanh", ["c"], ["hidden"]),
        node("ReduceMean", ["hidden"], ["mean"], axes=[1], keepdims=0),
        node("Gemm", ["mean", "w", "bias"], ["y"]),
        node("Neg", ["unread"], ["nothing"]),
    ]
    held = {"table": real(9, 6), "kinds": real(2, 6), "w": real(6, 4), "bias": real(4)}
    made = graph(nodes, held, ("N", "length"), rank=2)
    del made.graph.input[:]
    for name in ("ids", "kind"):
        value = helper.make_tensor_value_info(name, TensorProto.INT64, ("N", "length"))
        made.graph.input.append(value)
    made.graph.input.append(helper.make_tensor_value_info("unread", TensorProto.FLOAT, ("N", 3)))
    hidden = helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ("N", "length", 6))
    made.graph.output.append(hidden)
    return made


def read_as(path: Path, reading: Reading) -> tuple[tuple[int, ...], ReadAs]:
    found = import_file(path, reading=reading)
    (cause,) = [each.cause for each in check_file(found).findings if isinstance(each.cause, ReadAs)]
    return found.workload.model.input.shape, cause


def test_a_choice_makes_a_workload(tmp_path: Path) -> None:
    path = saved(tmp_path, two_of_all())
    shape, cause = read_as(path, Reading(sizes={"length": 5}, constants={"kind": 1.0}, output="y"))
    assert shape == (5,)
    assert cause.sizes == (("length", 5),) and not cause.defaults
    assert cause.constants == (("kind", 1.0),)
    assert cause.dropped == ("unread",) and cause.output == "y"


def test_a_state_has_the_batch_along_its_open_axis(tmp_path: Path) -> None:
    """Its first axis has a size of its own: that of layers, or of directions."""
    nodes = [
        node("MatMul", ["x", "w"], ["p"]),
        node("Gather", ["state", "first"], ["s"], axis=0),
        node("Add", ["p", "s"], ["h"]),
        node("Gemm", ["h", "v"], ["y"]),
    ]
    held = {"w": real(4, 3), "v": real(3, 2), "first": np.array(0)}
    made = graph(nodes, held, ("N", 4), rank=2)
    state = helper.make_tensor_value_info("state", TensorProto.FLOAT, (2, None, 3))
    made.graph.input.append(state)
    shape, cause = read_as(saved(tmp_path, made), Reading(constants={"state": 1.0}))
    assert shape == (4,) and not cause.defaults


def test_a_size_that_nobody_gives_is_told(tmp_path: Path) -> None:
    path = saved(tmp_path, two_of_all())
    shape, cause = read_as(path, Reading(constants={"kind": 0.0}, output="y"))
    assert shape == (16,) and cause.defaults == (("length", 16),)


def test_what_nobody_chose_is_told(tmp_path: Path) -> None:
    """The first output; 0 for an input that cannot be one with the first."""
    shape, cause = read_as(saved(tmp_path, two_of_all()), Reading())
    assert shape == (16,) and cause.output == "y" and cause.first_output
    assert cause.assumed == (("kind", 0.0),) and not cause.constants
    found = import_onnx(tmp_path / "model.onnx")
    told = " ".join(found.workload.source.split())
    assert "'kind' is 0 everywhere (as nobody chose, --constant gives another)" in told
    assert "output 'y' alone (the first of real numbers, --output-name chooses)" in told
    chosen = import_file(
        tmp_path / "model.onnx", reading=Reading(constants={"kind": 0.0}, output="y")
    )
    assert chosen.workload.model == found.workload.model
    (cause,) = [
        each.cause for each in check_file(chosen).findings if isinstance(each.cause, ReadAs)
    ]
    assert not cause.assumed and not cause.first_output and cause.output == "y"


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("attention_mask", TensorProto.INT64, 1.0),
        ("token_type_ids", TensorProto.INT64, 0.0),
        ("input_lengths", TensorProto.INT64, 128.0),
        ("state", TensorProto.FLOAT, 0.0),
    ],
)
def test_an_input_that_nobody_chose_is_what_its_name_says(
    name: str, kind: int, value: float, tmp_path: Path
) -> None:
    real_type = TensorProto.FLOAT
    nodes = [
        node("Cast", [name], ["c"], to=real_type),
        node("ReduceMax", ["c"], ["m"], keepdims=1),
        node("Squeeze", ["m"], ["s"]),
        node("MatMul", ["x", "w"], ["p"]),
        node("Add", ["p", "s"], ["y"]),
    ]
    made = graph(nodes, {"w": real(4, 3)}, ("N", 4))
    # It comes first, and has a batch of its own.
    others = list(made.graph.input)
    del made.graph.input[:]
    made.graph.input.append(helper.make_tensor_value_info(name, kind, (3,)))
    made.graph.input.extend(others)
    found = import_file(saved(tmp_path, made))
    (cause,) = [each.cause for each in check_file(found).findings if isinstance(each.cause, ReadAs)]
    assert cause.assumed == ((name, value),)
    assert (found.weights["p.bias"] == value).all() if value else "p.bias" not in found.weights


def test_a_constant_is_what_the_file_computes_with_it(tmp_path: Path) -> None:
    """Another constant is another model: the layers hold another row of the table."""
    path = saved(tmp_path, two_of_all())
    ids = np.random.default_rng(1).integers(0, 9, (3, 16))
    model = in_precision(onnx.load(str(path)), TensorProto.DOUBLE)
    biases = []
    for value in (0.0, 1.0):
        found = import_file(path, reading=Reading(constants={"kind": value}, output="y"))
        assert check_file(found).verdict == "passed"
        biases.append(found.weights)
        outputs = evaluate(
            model, {"ids": ids, "kind": np.full((3, 16), int(value)), "unread": np.zeros((3, 3))}
        )
        assert np.isfinite(outputs["y"]).all()
    assert any(not np.array_equal(biases[0][name], biases[1].get(name)) for name in biases[0])


@pytest.mark.parametrize("opset", [9, 17])
def test_inputs_of_real_numbers_are_one(opset: int, tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
        node("Flatten", ["c"], ["f"]),
        node("Concat", ["f", "z"], ["all"], axis=1),
        node("Gemm", ["all", "w", "b"], ["y"]),
    ]
    held = {"k": real(4, 2, 3, 3), "w": real(125, 3), "b": real(3)}
    made = graph(nodes, held, ("N", 2, 5, 6), opset=opset)
    made.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ("N", "more")))
    shape, cause = read_as(saved(tmp_path, made), Reading(sizes={"more": 5}))
    assert shape == (65,)
    assert cause.joined == (("x", (2, 5, 6)), ("z", (5,)))


def test_an_image_of_open_size(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "k"], ["c"], strides=[2, 2]),
        node("GlobalAveragePool", ["c"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("MatMul", ["f", "w"], ["y"]),
    ]
    made = graph(nodes, {"k": real(4, 2, 3, 3), "w": real(4, 3)}, ("N", 2, "height", None))
    path = saved(tmp_path, made)
    shape, cause = read_as(path, Reading(sizes={"x:3": 20}))
    assert shape == (2, 32, 20)
    assert cause.sizes == (("x:3", 20),) and cause.defaults == (("height", 32),)


@pytest.mark.parametrize(
    ("reading", "says"),
    [
        (Reading(output="z"), "--output-name z: the file has y, hidden"),
        (Reading(output="y", constants={"unread": 1.0}), "the output reads no such input"),
        (Reading(output="y", constants={"kind": 0.5}), "the input holds integers"),
        (Reading(output="y", constants={"kind": 1.0, "ids": 1.0}), "it has 0 inputs (none)"),
        (Reading(output="y", sizes={"width": 3}), "no such size; open are N, length"),
    ],
)
def test_a_choice_that_the_file_does_not_have(reading: Reading, says: str, tmp_path: Path) -> None:
    path = saved(tmp_path, two_of_all())
    with pytest.raises(DlbError) as refused:
        import_file(path, reading=reading)
    assert says in str(refused.value)


def test_an_initialiser_that_is_listed_as_an_input(tmp_path: Path) -> None:
    """So were all before IR 4; what is made of it is a constant."""
    shape = np.array([4, 3])
    made = graph(
        [
            node(
                "ConstantOfShape",
                ["shape"],
                ["w"],
                value=numpy_helper.from_array(np.float32([0.5])),
            )
        ]
        + [node("Gemm", ["x", "w", "b"], ["y"])],
        {"shape": shape, "b": real(3)},
        ("N", 4),
    )
    made.graph.input.append(helper.make_tensor_value_info("shape", TensorProto.INT64, (2,)))
    found = import_file(saved(tmp_path, made))
    assert (found.weights["y.weight"] == 0.5).all()


def test_a_slice_beyond_the_end_is_refused_in_one_line(tmp_path: Path) -> None:
    bounds = {name: np.array([at]) for name, at in (("a", 900), ("b", 1000), ("one", 1))}
    made = graph([node("Slice", ["x", "a", "b", "one"], ["y"])], bounds, ("N", 4, 3), rank=3)
    with pytest.raises(DlbError):
        import_file(saved(tmp_path, made), any_output=True)


def test_a_size_that_is_fixed(tmp_path: Path) -> None:
    made = graph([node("MatMul", ["x", "w"], ["y"])], {"w": real(4, 3)}, ("N", 4))
    with pytest.raises(DlbError, match="--size x:1=5: that axis has 4"):
        import_file(saved(tmp_path, made), reading=Reading(sizes={"x:1": 5}))


def test_a_proof_with_another_constant_is_another(tmp_path: Path) -> None:
    """The layers may be the same, and hold other weights."""
    path = saved(tmp_path, two_of_all())
    keys = set()
    for value in (0.0, 1.0, 0.0):
        found = import_file(path, reading=Reading(constants={"kind": value}, output="y"))
        request = Request(
            workload=found.workload,
            environments=(),
            batch_size=4,
            steps=2,
            warmup=0,
            threads=1,
            out=None,
            imported=found,
        )
        keys.add(proof_key(request))
    assert len(keys) == 2


def test_a_value_that_a_node_computes_may_be_a_constant(tmp_path: Path) -> None:
    """Positions that are counted without padding are those of a table, if no token is padding."""
    nodes = [
        node("Equal", ["x", "padding"], ["is_padding"]),
        node("Not", ["is_padding"], ["is_token"]),
        node("Cast", ["is_token"], ["ones"], to=TensorProto.INT64),
        node("CumSum", ["ones", "axis"], ["places"]),
        node("Gather", ["positions", "places"], ["p"]),
        node("Gather", ["table", "x"], ["t"]),
        node("Add", ["t", "p"], ["s"]),
        node("MatMul", ["s", "w"], ["y"]),
    ]
    held = {
        "padding": np.array(0),
        "axis": np.array(1),
        "positions": real(6, 4),
        "table": real(9, 4),
        "w": real(4, 3),
    }
    made = graph(nodes, held, ("N", 5), rank=3, kind=TensorProto.INT64)
    path = saved(tmp_path, made)
    assumed = import_file(path)
    (cause,) = [
        each.cause for each in check_file(assumed).findings if isinstance(each.cause, ReadAs)
    ]
    assert cause.assumed == (("is_padding", 0.0),) and not cause.constants
    found = import_file(path, reading=Reading(constants={"is_padding": 0.0}))
    assert found.workload.model == assumed.workload.model
    assert check_file(found).verdict == "passed"
    kinds = [type(each.layer).__name__ for each in found.workload.model.nodes]
    assert kinds == ["Embedding", "PositionEmbedding", "Linear"]
    position = next(each.name for each in found.workload.model.nodes[1:2])
    assert np.array_equal(found.weights[f"{position}.weight"], held["positions"][1:])
    (cause,) = [each.cause for each in check_file(found).findings if isinstance(each.cause, ReadAs)]
    assert cause.constants == (("is_padding", 0.0),)


def test_rows_that_are_the_steps_of_a_recurrence_are_one_sample(tmp_path: Path) -> None:
    """A file of one piece of sound, whose rows are its steps, has no batch."""
    nodes = [
        node("Conv", ["x", "k"], ["c"]),
        node("ReduceMax", ["c"], ["m"], axes=[2], keepdims=0),
        node("Unsqueeze", ["m", "second"], ["steps"]),
        node("LSTM", ["steps", "w", "r", "b"], ["all"], hidden_size=3),
        node("Squeeze", ["all", "middle"], ["rows"]),
        node("Gemm", ["rows", "v"], ["y"]),
    ]
    held = {
        **{"k": real(5, 2, 3), "w": real(1, 12, 5), "r": real(1, 12, 3), "b": real(1, 24)},
        **{"v": real(3, 4), "second": np.array([1]), "middle": np.array([1, 2])},
    }
    made = graph(nodes, held, ("steps", 2, 8), rank=2)
    path = saved(tmp_path, made)
    shape, cause = read_as(path, Reading())
    assert shape == (16, 2, 8) and cause.one_sample and cause.defaults == (("steps", 16),)
    shape, cause = read_as(path, Reading(sizes={"steps": 6}))
    assert shape == (6, 2, 8) and cause.one_sample and cause.sizes == (("steps", 6),)
    found = import_onnx(path)
    assert "the first axis of its input as one of a sample" in found.workload.source
    kinds = [type(each.layer).__name__ for each in found.workload.model.nodes]
    assert kinds[-2:] == ["LSTM", "Linear"]


def test_a_recurrence_with_a_batch_is_no_single_sample(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("LSTM", ["t", "w", "r", "b"], ["all", "h"], hidden_size=3),
        node("Squeeze", ["h", "first"], ["rows"]),
        node("Gemm", ["rows", "v"], ["y"]),
    ]
    held = {
        **{"w": real(1, 12, 5), "r": real(1, 12, 3), "b": real(1, 24)},
        **{"v": real(3, 4), "first": np.array([0])},
    }
    found = import_file(saved(tmp_path, graph(nodes, held, ("N", 6, 5), rank=2)))
    assert found.workload.model.input.shape == (6, 5)
    assert not any(isinstance(each.cause, ReadAs) for each in check_file(found).findings)


def test_real_numbers_that_are_cast_to_the_class_of_a_one_hot_table(tmp_path: Path) -> None:
    """Bytes of a file that an exporter of Keras reads as real numbers."""
    nodes = [
        node("Cast", ["x"], ["c"], to=TensorProto.INT64),
        node("OneHot", ["c", "depth", "values"], ["h"]),
        node("MatMul", ["h", "w"], ["m"]),
        node("ReduceMax", ["m"], ["p"], axes=[1], keepdims=0),
        node("Gemm", ["p", "v"], ["y"]),
    ]
    held = {
        **{"depth": np.array(9), "values": np.array([0, 1], "f4")},
        **{"w": real(9, 4), "v": real(4, 3)},
    }
    found = import_file(saved(tmp_path, graph(nodes, held, ("N", 5), rank=2)))
    assert found.workload.model.input.kind == "index"
    kinds = [type(each.layer).__name__ for each in found.workload.model.nodes]
    assert kinds == ["Embedding", "Linear", "Reduce", "Linear"]


@pytest.mark.parametrize("reads", [True, False])
def test_an_input_that_nobody_chose_is_no_proof(reads: bool, tmp_path: Path) -> None:
    """Unless the output is the same with another number."""
    nodes = [
        node("Gather", ["E", "x"], ["e"]),
        node("Gather", ["F", "z"], ["f"]),
        node("Concat", ["e", "f"], ["g"], axis=2),
        node("ReduceMean", ["g"], ["p"], axes=[1], keepdims=0),
        node("MatMul", ["p", "w"], ["y"]),
    ]
    second = real(2, 3) if reads else np.ones((2, 3), np.float32)
    held = {"E": real(9, 3), "F": second, "w": real(6, 2)}
    model = graph(nodes, held, ("N", 4), kind=TensorProto.INT64)
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.INT64, ("N", 4)))
    path = saved(tmp_path, model)
    check = check_file(import_file(path))
    assert check.verdict == ("not run" if reads else "passed")
    causes = [each.cause for each in check.findings if isinstance(each.cause, AssumedValues)]
    assert [cause.values for cause in causes] == ([(("z", 0.0),)] if reads else [])
    chosen = check_file(import_file(path, reading=Reading(constants={"z": 0.0})))
    assert chosen.verdict == "passed"
