"""ONNX files that are no workload: refused before any work, in one line that names the node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from test_imported import (
    CONV,
    EXPORTED,
    POOLED,
    STRIDES,
    WRITTEN,
    before_head,
    conv,
    graph,
    node,
    real,
    saved,
)

from dlb import cli
from dlb.errors import DlbError, RequestError
from dlb.proof.checks.file import check_file
from dlb.request import Request, check
from dlb_graph.files.read import import_file
from dlb_graph.reading.rules import RULES
from dlb_graph.truth.layout import LAYOUT


def after_conv(
    operator: str, *inputs: str, held: dict | None = None, **attributes
) -> onnx.ModelProto:
    nodes = [conv(), node(operator, ["c", *inputs], ["h"], name="culprit", **attributes)]
    return before_head(nodes, {**CONV, **(held or {})}, 120)


DILATED = {"kernel_shape": [2, 2], "dilations": [2, 2], "pads": [0, 1, 1, 0]}


def two_inputs(second: int = TensorProto.DOUBLE) -> onnx.ModelProto:
    nodes = [node("Cast", ["z"], ["c"], to=TensorProto.FLOAT), node("Add", ["x", "c"], ["y"])]
    made = graph(nodes, {}, ("N", 4))
    made.graph.input.append(helper.make_tensor_value_info("z", second, ("N", 4)))
    return made


def two_outputs() -> onnx.ModelProto:
    made = graph([node("Relu", ["x"], ["y"]), node("Tanh", ["x"], ["z"])], {}, ("N", 4))
    made.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ("N", 4)))
    return made


def recurrent(operator: str, **attributes: object) -> onnx.ModelProto:
    rows = 3 * {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node(operator, ["t", "w", "r", "b"], ["d"], name="culprit", hidden_size=3, **attributes),
        node("Squeeze", ["d", "one"], ["s"]),
        node("Transpose", ["s"], ["y"], perm=[1, 0, 2]),
    ]
    held = {"w": real(1, rows, 2), "r": real(1, rows, 3), "b": real(1, 2 * rows)}
    held["one"] = np.array([1])
    return graph(nodes, held, ("N", 4, 2), rank=3)


def choosing() -> onnx.ModelProto:
    """A model whose sign depends on the sum of its input."""
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(operator, ["l"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("N", 2, 3))],
        )
        for name, operator in (("then", "Neg"), ("else", "Identity"))
    }
    nodes = [
        node("MatMul", ["x", "w"], ["l"]),
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Greater", ["most", "bound"], ["is"]),
        node("If", ["is"], ["y"], name="culprit", **branches),
    ]
    return graph(nodes, {"w": real(7, 3), "bound": np.float32(1e6)}, ("N", 2, 7))


def dropping_out() -> onnx.ModelProto:
    """A dropout whose training mode depends on the input."""
    nodes = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Greater", ["most", "bound"], ["is"]),
    ]
    dropout = node("Dropout", ["x", "half", "is"], ["d"], name="culprit")
    last = node("MatMul", ["d", "w"], ["y"])
    held = {"w": real(7, 3), "bound": np.float32(1e6), "half": np.float32(0.5)}
    return graph([*nodes, dropout, last], held, ("N", 7))


PAIRED = [
    conv(),
    node("Reshape", ["c", "pairs"], ["s"], name="culprit"),
    node("Conv", ["s", "v"], ["h"]),
]

REFUSED = {
    "a branch that the input chooses": (choosing(), "node 'most' (ReduceMax): reduces the batch"),
    "training that the input turns on": (dropping_out(), "node 'culprit' (Dropout)"),
    "samples that are exchanged": (
        before_head(
            POOLED, {**STRIDES, "strides": STRIDES["strides"][::-1]}, 4, shape=(2, 2, 6, 5)
        ),
        "node 'culprit' (Gather): selects samples of the batch",
    ),
    "numbers of a batch that are taken twice": (
        before_head(POOLED, {**STRIDES, "strides": STRIDES["strides"] // 2}, 4, shape=(2, 2, 6, 5)),
        "node 'culprit' (Gather)",
    ),
    "an operator without a layer": (
        after_conv("Hardmax"),
        "node 'culprit' (Hardmax): dlb has no layer for this operator",
    ),
    "a product of too many numbers": (
        before_head(
            [conv(), node("ReduceProd", ["c"], ["h"], name="culprit", axes=[2])],
            CONV,
            24,
            shape=(2, 2, 100, 6),
        ),
        "node 'culprit' (ReduceProd): dlb does not read it with these attributes or sizes",
    ),
    "the first of several": (
        before_head(
            [
                conv(),
                node("Hardmax", ["c"], ["l"], name="culprit"),
                node("Erf", ["l"], ["e"]),
                node("Div", ["e", "l"], ["h"]),
            ],
            CONV,
            120,
        ),
        "node 'culprit' (Hardmax): dlb has no layer for this operator",
    ),
    "constant features": (
        graph(
            [
                node("Concat", ["x", "more"], ["h"], name="culprit", axis=1),
                node("MatMul", ["h", "v"], ["y"]),
            ],
            {"more": real(2, 3), "v": real(9, 3)},
            (2, 6),
        ),
        "node 'culprit' (Concat): its constant differs between samples",
    ),
    "a split whose sizes depend on the input": (
        graph(
            [
                node("ReduceMax", ["x"], ["most"], keepdims=0),
                node("Cast", ["most"], ["whole"], to=TensorProto.INT64),
                node("Mul", ["whole", "zero"], ["none"]),
                node("Add", ["none", "two"], ["sizes"]),
                node("MatMul", ["x", "w"], ["m"]),
                node("Split", ["m", "sizes"], ["l", "h"], name="culprit", axis=1),
                node("MatMul", ["h", "v"], ["y"]),
            ],
            {"w": real(7, 8), "v": real(4, 3), "zero": np.array([0]), "two": np.array([4, 4])},
            ("N", 7),
        ),
        "node 'culprit' (Split): its indices depend on the input",
    ),
    "a normalisation without epsilon": (
        before_head(
            [
                conv(),
                node("InstanceNormalization", ["c", "b", "b"], ["h"], name="culprit", epsilon=0.0),
            ],
            CONV,
            120,
        ),
        "node 'culprit' (InstanceNormalization): normalises",
    ),
    "a mean of the batch": (
        before_head(
            [
                conv(),
                node("ReduceMean", ["c"], ["m"], axes=[0, 3]),
                node("Mul", ["c", "m"], ["h"], name="culprit"),
            ],
            CONV,
            120,
        ),
        "node 'm' (ReduceMean): reduces the batch",
    ),
    "infinity": (
        after_conv("Add", "m", held={"m": np.where(real(5, 6) > 0, 0, np.inf).astype("f4")}),
        "node 'culprit' (Add): adds or multiplies by infinity",
    ),
    "a mask of everything": (
        after_conv("Add", "m", held={"m": np.full((5, 6), -np.inf, "f4")}),
        "node 'culprit' (Add): adds or multiplies by infinity",
    ),
    "dilated averages": (
        before_head(
            [conv(), node("AveragePool", ["c"], ["h"], name="culprit", **DILATED)],
            CONV,
            80,
            opset=19,
        ),
        "node 'culprit' (AveragePool): dilations = [2, 2]",
    ),
    "an even response normalisation": (after_conv("LRN", size=4), "size = 4 must be odd"),
    "training mode": (
        before_head(
            [
                node(
                    "BatchNormalization",
                    ["x", "s", "s", "s", "v"],
                    ["h", "a", "b"],
                    name="culprit",
                    training_mode=1,
                )
            ],
            {"s": real(2), "v": np.abs(real(2))},
            60,
        ),
        "node 'culprit' (BatchNormalization): in training mode",
    ),
    "samples that are mixed": (
        before_head(PAIRED, {**CONV, "pairs": np.array([-1, 8, 5, 6]), "v": real(4, 8, 1, 1)}, 120),
        "node 'culprit' (Reshape): ",
    ),
    "no layers": (
        graph([node("Identity", ["x"], ["y"])], {"unread": real(4)}, ("N", 4)),
        "output 'y' is the input",
    ),
    "no weights": (
        graph([node("Relu", ["x"], ["y"], name="culprit")], {}, ("N", 4)),
        "it holds no weights, so there is nothing to train",
    ),
    "an operator that no layer has, before anything is run": (
        graph(
            [
                node(
                    "MaxUnpool", ["x", "p", "sizes"], ["huge"], name="culprit", kernel_shape=[2, 2]
                ),
                node("GlobalAveragePool", ["huge"], ["m"]),
                node("Flatten", ["m"], ["f"]),
                node("MatMul", ["f", "w"], ["y"]),
            ],
            {
                "sizes": np.array([1, 2, 1 << 20, 1 << 20]),
                "p": np.arange(32).reshape(1, 2, 4, 4),
                "w": real(2, 3),
            },
            (1, 2, 4, 4),
        ),
        "node 'culprit' (MaxUnpool): dlb has no layer",
    ),
    **{
        name: (
            graph(
                [
                    node("Resize", ["x", "", "", "sizes"], ["r"], name="culprit", mode=mode),
                    node("GlobalAveragePool", ["r"], ["m"]),
                    node("Flatten", ["m"], ["f"]),
                    node("MatMul", ["f", "w"], ["y"]),
                ],
                {"sizes": np.array([1, 2, *sizes]), "w": real(2, 3)},
                (1, 2, 4, 4),
            ),
            message,
        )
        for name, mode, sizes, message in (
            (
                "a map that no memory holds",
                "nearest",
                (1 << 20, 1 << 20),
                "value 'r' [1, 2, 1048576, 1048576] has 2199023255552 numbers; at most 134217728 are computed",
            ),
        )
    },
    "an LSTM with a bound": (
        recurrent("LSTM", clip=1.0),
        "node 'culprit' (LSTM): the graph cannot be evaluated: LSTM with clip",
    ),
    "units of another activation": (
        recurrent("RNN", activations=["Sigmoid"]),
        "node 'culprit' (RNN): the graph cannot be evaluated: RNN with activations",
    ),
    "rectified units backwards": (
        recurrent("RNN", activations=["Relu"], direction="reverse"),
        "node 'culprit' (RNN): Relu backwards",
    ),
    "a GRU with another activation": (
        recurrent("GRU", activations=["Sigmoid", "Relu"]),
        "node 'culprit' (GRU): the graph cannot be evaluated: GRU with activations",
    ),
    "a variance below zero": (
        before_head(
            [node("BatchNormalization", ["x", "s", "s", "s", "v"], ["h"])],
            {"s": real(2), "v": np.float32([1, -1])},
            60,
        ),
        "outputs NaN or infinity on noise",
    ),
    "an input that is too large": (
        graph([node("Relu", ["x"], ["y"])], {}, ("N", 1 << 20, 1 << 20), rank=3),
        "value 'x' [N, 1048576, 1048576] has 1099511627776 numbers; at most 134217728 are",
    ),
    "a SELU with other constants": (
        after_conv("Selu", alpha=2.0, gamma=3.0),
        "node 'culprit' (Selu): alpha, gamma other than ONNX's own",
    ),
    "two inputs without weights": (two_inputs(TensorProto.FLOAT), "it holds no weights"),
    "two outputs without weights": (two_outputs(), "it holds no weights"),
    **{
        f"{operator} of {axes} axes": (
            graph(
                [node(operator, ["x", "w"], ["y"], name="culprit")],
                {"w": real(2, 2, *(2,) * axes)},
                ("N", 2, *(5,) * axes),
                rank=2 + axes,
            ),
            f"node 'culprit' ({operator}): has {axes} spatial axes",
        )
        for operator, axes in (("Conv", 4), ("ConvTranspose", 4))
    },
    "a weight that is no number": (
        graph([node("MatMul", ["x", "w"], ["y"])], {"w": np.full((7, 3), np.nan, "f4")}, ("N", 7)),
        "weight 'y.weight' has a NaN",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_covered_is_named(name: str, tmp_path: Path, capfd) -> None:
    model, message = REFUSED[name]
    path = saved(tmp_path, model)
    assert cli.call(["show", str(path)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"dlb: {path}: ") and line.count(str(path)) == 1
    assert message in line


@pytest.mark.parametrize("command", ["run", "verify", "show"])
def test_no_work_is_begun_with_a_file_that_is_none(command: str, tmp_path: Path, capfd) -> None:
    good = WRITTEN["channels last"][0].SerializeToString()
    path = tmp_path / "model.onnx"
    for content in (b"", b"not an ONNX model", good[: len(good) // 2]):
        path.write_bytes(content)
        assert cli.call([command, str(path)]) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert str(path) in line
    assert cli.call([command, str(tmp_path / "none.onnx")]) == 2
    assert "none.onnx: No such file" in capfd.readouterr().err


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_file_that_was_altered_is_read_rightly_or_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Another operator, another input or another attribute: whatever is read is the file."""
    path = data.draw(st.sampled_from(EXPORTED))
    model = onnx.load(str(path))
    for _ in range(data.draw(st.integers(1, 2))):
        altered = data.draw(st.sampled_from(list(model.graph.node)))
        values = [name for each in model.graph.node for name in each.output]
        what = data.draw(st.sampled_from(["operator", "input", "attribute", "left out"]))
        if what == "operator":
            altered.op_type = data.draw(st.sampled_from([*RULES, *sorted(LAYOUT), "Softmax"]))
        elif what == "input" and altered.input:
            place = data.draw(st.integers(0, len(altered.input) - 1))
            altered.input[place] = data.draw(st.sampled_from(values))
        elif what == "attribute" and altered.attribute:
            attribute = data.draw(st.sampled_from(list(altered.attribute)))
            attribute.i = data.draw(st.integers(-1, 3))
            attribute.ints[:] = [data.draw(st.integers(-1, 3)) for _ in attribute.ints]
        elif altered.input:
            del altered.input[-1]
    try:
        found = import_file(saved(tmp_path_factory.mktemp("altered"), model))
    except DlbError as refused:
        assert refused.exit_status == 2
        assert "compute something else" not in str(refused)
    else:
        assert check_file(found).verdict == "passed"


def test_weights_outside_the_folder_are_not_read(tmp_path: Path, capfd) -> None:
    model = graph([node("MatMul", ["x", "w"], ["y"])], {"w": real(7, 3)}, ("N", 7))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../weights.bin")
    assert cli.call(["verify", str(saved(tmp_path, model))]) == 2
    assert "outside the model's folder" in capfd.readouterr().err


def test_a_recorded_workload_is_not_run_without_its_weights(tmp_path: Path) -> None:
    model, _ = WRITTEN["channels last"]
    found = import_file(saved(tmp_path, model))
    request = Request(
        workload=found.workload,
        environments=(),
        out=None,
        batch_size=4,
        steps=3,
        warmup=0,
        threads=1,
    )
    with pytest.raises(RequestError, match=found.workload.onnx):
        check(request)
    check(replace(request, imported=found))
