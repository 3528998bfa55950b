"""Writing a model whose weights are put in last."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, checker, helper, numpy_helper

from dlb.errors import UnsupportedError
from dlb_graph.truth.runtime import run_model
from dlb_worker.onnx_file import write_model

WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)
GIVEN = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)


def graph(
    nodes: list[onnx.NodeProto],
    weights: dict[str, Any],
    output: tuple[Any, ...] = ("batch", 3),
    constants: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    """From ``input`` [batch, 4] to ``output``; weights are inputs, constants are inside."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in weights.items()}
    inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, ("batch", 4))]
    inputs += [
        helper.make_tensor_value_info(name, kinds[name], value.shape)
        for name, value in weights.items()
    ]
    outputs = [helper.make_tensor_value_info("output", TensorProto.FLOAT, output)]
    inside = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    made = helper.make_graph(nodes, "test", inputs, outputs, inside)
    opset = helper.make_opsetid("", 17)
    return helper.make_model(made, opset_imports=[opset], ir_version=8, producer_name="test")


def written(path: Path, model: onnx.ModelProto, weights: dict[str, Any]) -> onnx.ModelProto:
    """What is read back, after ONNX Runtime has read it too."""
    write_model(path, model, {name: partial(np.asarray, value) for name, value in weights.items()})
    checker.check_model(path, full_check=True)
    run_model(path, {"input": GIVEN})
    return onnx.load(path)


def linear(*inputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node("Gemm", inputs, ["output"], **attributes)


def test_is_the_model_that_has_them_inside(tmp_path: Path) -> None:
    bias = np.ones(3, np.float32)
    model = graph([linear("input", "w", "b", transB=1)], {"w": WEIGHT, "b": bias})
    before = model.SerializeToString()

    found = written(tmp_path / "model.onnx", model, {"w": WEIGHT, "b": bias})

    assert model.SerializeToString() == before
    expected = onnx.ModelProto()
    expected.CopyFrom(model)
    del expected.graph.input[1:]
    expected.graph.initializer.extend(
        [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(bias, "b")]
    )
    assert found == expected
    (logits,) = run_model(tmp_path / "model.onnx", {"input": GIVEN})
    np.testing.assert_allclose(logits, GIVEN @ WEIGHT.T + 1, rtol=1e-5)


@pytest.mark.parametrize("size", [1, 31, 32, 127, 128, 16_384, 600_000])
def test_lengths_of_every_width(tmp_path: Path, size: int) -> None:
    weight = np.arange(4 * size, dtype=np.float32).reshape(4, size)
    model = graph([linear("input", "w")], {"w": weight}, ("batch", size))

    (tensor,) = written(tmp_path / "model.onnx", model, {"w": weight}).graph.initializer

    np.testing.assert_array_equal(numpy_helper.to_array(tensor), weight)


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_lie_as_they_like(tmp_path: Path, order: str) -> None:
    weight = np.asarray(WEIGHT.T, order=order)  # type: ignore[call-overload]
    weight = weight.astype(weight.dtype.newbyteorder(">"))
    model = graph([linear("input", "w")], {"w": WEIGHT.T})

    (tensor,) = written(tmp_path / "model.onnx", model, {"w": weight}).graph.initializer

    np.testing.assert_array_equal(numpy_helper.to_array(tensor), WEIGHT.T)


def test_what_arranges_a_weight_is_done_to_it(tmp_path: Path) -> None:
    flat, shape = WEIGHT.reshape(-1), np.array([3, 4])
    nodes = [
        helper.make_node("Reshape", ["w", "shape"], ["square"]),
        helper.make_node("Transpose", ["square"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["input", "turned"], ["output"]),
    ]
    model = graph(nodes, {"w": flat}, constants={"shape": shape})

    found = written(tmp_path / "model.onnx", model, {"w": flat}).graph

    assert [node.op_type for node in found.node] == ["MatMul"]
    assert [each.name for each in found.initializer] == ["w"]
    np.testing.assert_array_equal(numpy_helper.to_array(found.initializer[0]), WEIGHT.T)


def test_a_weight_that_others_read_stays_one(tmp_path: Path) -> None:
    square = np.eye(4, dtype=np.float32)
    nodes = [
        helper.make_node("MatMul", ["input", "w"], ["hidden"]),
        helper.make_node("Transpose", ["w"], ["turned"]),
        helper.make_node("MatMul", ["hidden", "turned"], ["output"]),
    ]
    model = graph(nodes, {"w": square}, ("batch", 4))

    found = written(tmp_path / "model.onnx", model, {"w": square}).graph

    assert [each.name for each in found.initializer] == ["w"]
    assert [node.op_type for node in found.node] == ["MatMul", "Transpose", "MatMul"]


def test_what_others_read_is_arranged_no_further(tmp_path: Path) -> None:
    flat, shape = np.eye(4, dtype=np.float32).reshape(-1), np.array([4, 4])
    nodes = [
        helper.make_node("Reshape", ["w", "shape"], ["square"]),
        helper.make_node("MatMul", ["input", "square"], ["hidden"]),
        helper.make_node("Transpose", ["square"], ["turned"]),
        helper.make_node("MatMul", ["hidden", "turned"], ["output"]),
    ]
    model = graph(nodes, {"w": flat}, ("batch", 4), {"shape": shape})

    found = written(tmp_path / "model.onnx", model, {"w": flat}).graph

    assert [list(each.dims) for each in found.initializer] == [[4, 4]]
    assert [node.op_type for node in found.node] == ["MatMul", "Transpose", "MatMul"]


def test_an_output_keeps_its_name(tmp_path: Path) -> None:
    turned = helper.make_node("Transpose", ["w"], ["also"])
    model = graph([linear("input", "v", transB=1), turned], {"w": WEIGHT, "v": WEIGHT})
    model.graph.output.append(helper.make_tensor_value_info("also", TensorProto.FLOAT, (4, 3)))

    written(tmp_path / "model.onnx", model, {"w": WEIGHT, "v": WEIGHT})

    found = run_model(tmp_path / "model.onnx", {"input": GIVEN})[1]
    np.testing.assert_array_equal(found, WEIGHT.T)


def test_a_weight_read_within_a_branch_stays(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("chosen", TensorProto.FLOAT, ("batch", 3))
    nodes = [helper.make_node("Gemm", ["input", "w"], ["chosen"], transB=1)]
    branch = helper.make_graph(nodes, "branch", [], [value])
    choice = helper.make_node("If", ["yes"], ["output"], then_branch=branch, else_branch=branch)
    model = graph([choice], {"w": WEIGHT}, constants={"yes": np.array(True)})

    found = written(tmp_path / "model.onnx", model, {"w": WEIGHT}).graph

    assert [each.name for each in found.initializer] == ["yes", "w"]


def test_what_nothing_reads_is_left_out(tmp_path: Path) -> None:
    unread = np.zeros(5, np.float32)
    model = graph(
        [linear("input", "w", transB=1)],
        {"w": WEIGHT, "unread": unread},
        constants={"neither": unread},
    )

    found = written(tmp_path / "model.onnx", model, {"w": WEIGHT, "unread": unread}).graph

    assert [each.name for each in found.initializer] == ["w"]
    assert [each.name for each in found.input] == ["input"]


def test_the_model_is_checked(tmp_path: Path) -> None:
    model = graph([linear("input", "w")], {"w": WEIGHT})  # 4 columns by 3 rows

    with pytest.raises(Exception, match=r"[Ss]hape"):
        write_model(tmp_path / "model.onnx", model, {"w": lambda: WEIGHT})


def test_more_than_a_file_holds(tmp_path: Path) -> None:
    huge = np.broadcast_to(np.float32(1), (4, 1 << 28))
    model = graph([linear("input", "w")], {"w": huge}, ("batch", 1 << 28))

    with pytest.raises(UnsupportedError, match="weights up to w take more than 2 GB"):
        write_model(tmp_path / "model.onnx", model, {"w": lambda: huge})

    assert not (tmp_path / "model.onnx").exists()
