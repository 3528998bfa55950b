"""ONNX files with Pad, Slice and Gather are read as layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_imported import graph, kinds, node, real, saved

from dlb.errors import UnsupportedError
from dlb.proof.checks.file import check_file
from dlb_graph import workload as W
from dlb_graph.files.read import import_file
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.workload.initial import initial_weights, proof_weights

CASES: dict[str, tuple[tuple[int, ...], tuple[W.Layer, ...]]] = {
    "pad": ((2, 4, 3), (W.Tanh(), W.Pad(pads=(1, 0, 2, 0, 1, 0), value=0.5))),
    "pad of a sequence": ((4, 3), (W.Pad(pads=(1, 0, 2, 1)),)),
    "slice": ((3, 6, 5), (W.Slice(starts=(0, 1, 0), ends=(3, 6, 4), steps=(2, 2, 1)),)),
    "slice of features": ((9,), (W.Tanh(), W.Slice(starts=(1,), ends=(8,), steps=(3,)))),
    "gather": ((4, 3), (W.Gather(indices=(3, 0, 1, 1)),)),
    "gather of features": ((4, 3), (W.Gather(axis=2, indices=(2, 0)),)),
    "select": ((4, 3), (W.Select(index=3),)),
    "one after another": (
        (3, 5, 4),
        (
            W.Slice(starts=(0, 1, 0), ends=(3, 5, 4)),
            W.Gather(axis=3, indices=(2, 0, 2)),
            W.Pad(pads=(0, 1, 0, 0, 0, 1), value=-1.0),
        ),
    ),
}


def model(shape: tuple[int, ...], layers: tuple[W.Layer, ...]) -> W.Model:
    """The layers, flattened where they make maps, and a classifier."""
    nodes = [W.Node(name=f"n{place}", layer=layer) for place, layer in enumerate(layers)]
    one = W.Model(input=W.Input(shape=shape), nodes=tuple(nodes))
    if len(W.infer_shapes(one)[nodes[-1].name]) == 3:
        nodes.append(W.Node(name="flat", layer=W.Flatten()))
    nodes.append(W.Node(name="logits", layer=W.Linear(out_features=5)))
    return W.Model(input=W.Input(shape=shape), nodes=tuple(nodes))


@pytest.mark.parametrize("name", CASES)
def test_a_canonical_graph_is_its_own_model(name: str, tmp_path: Path) -> None:
    described = model(*CASES[name])
    path = tmp_path / "model.onnx"
    graph = canonical_graph(described, proof_weights(initial_weights(described, 0), 0))
    path.write_bytes(graph.SerializeToString())
    assert import_file(path).workload.model.wired() == described.wired()


def written(path: Path, *nodes: onnx.NodeProto, **held: list[int]) -> Path:
    """Maps [N, 2, 4, 3] through nodes from x to y, 2 x 4 x 3 numbers or more, to logits."""
    random = np.random.default_rng(0)
    weight = random.standard_normal((24, 5)).astype(np.float32)
    tensors = [numpy_helper.from_array(np.array(each), name) for name, each in held.items()]
    last = [
        helper.make_node("Flatten", ["y"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["z"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2, 4, 3])
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 5])
    tensors.append(numpy_helper.from_array(weight, "w"))
    graph = helper.make_graph([*nodes, *last], "g", [x], [z], tensors)
    opsets = [helper.make_opsetid("", 17)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())
    return path


def test_a_slice_that_runs_backwards_is_a_gather(tmp_path: Path) -> None:
    backwards = helper.make_node("Slice", ["x", "from", "to", "axes", "by"], ["y"])
    numbers = {"from": [3], "to": [-9], "axes": [2], "by": [-1]}
    found = import_file(written(tmp_path / "m.onnx", backwards, **numbers)).workload.model
    assert found.nodes[0].layer == W.Gather(axis=2, indices=(3, 2, 1, 0))


def test_what_reads_a_map_with_channels_last_is_put_right(tmp_path: Path) -> None:
    nodes = (
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("Transpose", ["t"], ["l"], perm=[0, 2, 3, 1]),
        helper.make_node("Gather", ["l", "i"], ["g"], axis=3),
        helper.make_node("Transpose", ["g"], ["y"], perm=[0, 3, 1, 2]),
    )
    found = import_file(written(tmp_path / "m.onnx", *nodes, i=[1, 0])).workload.model
    assert found.nodes[1].layer == W.Gather(axis=1, indices=(1, 0))


@pytest.mark.parametrize(
    ("node", "held", "says"),
    [
        (helper.make_node("Pad", ["x", "p"], ["y"], name="c"), [1, *[0] * 7], "pads the batch"),
        (
            helper.make_node("Gather", ["x", "p"], ["y"], name="c"),
            [1, 0],
            "selects samples of the batch",
        ),
    ],
)
def test_what_is_not_covered_is_named(
    node: onnx.NodeProto, held: list[int], says: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=f"node 'c' .*{says}"):
        import_file(written(tmp_path / "m.onnx", node, p=held))


def rows_of_features(*nodes: onnx.NodeProto, **held: np.ndarray) -> onnx.ModelProto:
    """An input [N, 24] times a matrix, as maps ``m`` [N, 2, 3, 4]; then nodes that make ``y``."""
    held |= {"w": real(24, 24), "sizes": np.array([-1, 2, 3, 4])}
    first = [node("MatMul", ["x", "w"], ["f"]), node("Reshape", ["f", "sizes"], ["m"])]
    return graph([*first, *nodes], held, ("N", 24), rank=4)


#: Where the second of a batch's samples would be written to, too: indices name the sample.
def scattered(places: list[list[int]], batch: int = 2) -> np.ndarray:
    return np.array([[number, *place] for number in range(batch) for place in places])


@pytest.mark.parametrize("updates", ["live", "constant"])
def test_numbers_that_are_put_into_a_value(updates: str, tmp_path: Path) -> None:
    """By ScatterND, with the part [0, 1:3] of each sample's maps in the place of [1, 0:2]."""
    part = [
        node("Slice", ["m", "from", "to", "axes"], ["p"]),
        node("Reshape", ["p", "of_rows"], ["u"]),
    ]
    held = {
        "from": np.array([0, 1]),
        "to": np.array([1, 3]),
        "axes": np.array([1, 2]),
        "of_rows": np.array([4, 4]),
        "i": scattered([[1, 0], [1, 1]]),
    }
    if updates == "constant":
        part, held = [], {"i": held["i"], "u": np.full((4, 4), 0.25, np.float32)}
    model = rows_of_features(*part, node("ScatterND", ["m", "i", "u"], ["y"]), **held)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    found = import_file(saved(tmp_path, model))
    assert check_file(found).verdict == "passed"
    assert "gather" in kinds(found.workload.model)


def test_numbers_that_are_put_into_zeros(tmp_path: Path) -> None:
    """By ScatterElements along the rows of each map: a value among zeros."""
    held = {
        "i": np.broadcast_to(np.array([4, 0, 2])[:, None], (2, 2, 3, 4)).copy(),
        "zeros": np.zeros((2, 2, 5, 4), np.float32),
    }
    model = rows_of_features(node("ScatterElements", ["zeros", "i", "m"], ["y"], axis=2), **held)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    found = import_file(saved(tmp_path, model))
    assert "pad" in kinds(found.workload.model)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [({"reduction": "add"}, "adds numbers up"), ({}, "selects other numbers of each sample")],
)
def test_numbers_that_are_put_elsewhere(
    attributes: dict[str, str], reason: str, tmp_path: Path
) -> None:
    indices = scattered([[0, 0], [0, 1]])
    indices[2:, 1] = 1  # of the second sample into other maps
    held = {"i": indices, "u": np.full((4, 4), 0.25, np.float32)}
    model = rows_of_features(node("ScatterND", ["m", "i", "u"], ["y"], **attributes), **held)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    with pytest.raises(UnsupportedError, match=reason):
        import_file(saved(tmp_path, model))


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("matrices", [(2, 1), (1, 3), (2, 3), (3,)], ids=str)
def test_a_value_times_several_matrices(
    side: str, matrices: tuple[int, ...], tmp_path: Path
) -> None:
    """[N, 2, 3, 4, 1] by a matrix for each map, each row, or each of both."""
    held = {"five": np.array([-1, 2, 3, 4, 1] if side == "left" else [-1, 2, 3, 1, 4])}
    held["a"] = real(*matrices, 5, 4) if side == "left" else real(*matrices, 4, 5)
    names = ["a", "v"] if side == "left" else ["v", "a"]
    nodes = [node("Reshape", ["m", "five"], ["v"]), node("MatMul", names, ["y"])]
    found = import_file(saved(tmp_path, rows_of_features(*nodes, **held)))
    (conv,) = [each.layer for each in found.workload.model.nodes if isinstance(each.layer, W.Conv)]
    assert conv.groups == np.prod(matrices)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("samples", [1, 0], ids=["once", "none"])
def test_a_value_times_matrices_that_repeat_it(side: str, samples: int, tmp_path: Path) -> None:
    """As capsules do: three matrices for each row, which no layer has. They are a value of their own."""
    held = {"five": np.array([-1, 2, 1, 12, 1] if side == "left" else [-1, 2, 1, 1, 12])}
    asked = real(2, 3, 5, 12) if side == "left" else real(2, 3, 12, 5)
    held["a"] = asked[None] if samples else asked
    names = ["a", "v"] if side == "left" else ["v", "a"]
    nodes = [node("Reshape", ["m", "five"], ["v"]), node("MatMul", names, ["y"])]
    found = import_file(saved(tmp_path, rows_of_features(*nodes, **held)))
    assert any(np.array_equal(array, asked) for array in found.weights.values())


def test_a_constant_between_values_is_a_value(tmp_path: Path) -> None:
    held = {"a": real(1, 2, 1, 4)}
    nodes = [
        node("Relu", ["m"], ["r"]),
        node("Tanh", ["m"], ["t"]),
        node("Shape", ["m"], ["size"]),
        node("Expand", ["a", "size"], ["e"]),
        node("Concat", ["r", "e", "t"], ["y"], axis=2),
    ]
    found = import_file(saved(tmp_path, rows_of_features(*nodes, **held)))
    assert any(np.array_equal(array, held["a"][0]) for array in found.weights.values())


def test_rows_times_several_matrices_each_are_refused(tmp_path: Path) -> None:
    held = {"three": np.array([-1, 1, 24]), "a": real(2, 1, 1, 24, 2)}
    nodes = [node("Reshape", ["m", "three"], ["v"]), node("MatMul", ["v", "a"], ["y"])]
    with pytest.raises(UnsupportedError, match="only a value times constant matrices of its rows"):
        import_file(saved(tmp_path, rows_of_features(*nodes, **held)))


@pytest.mark.parametrize("windows", ["together", "apart"])
@pytest.mark.parametrize("operator", ["Conv", "MaxPool"])
@pytest.mark.parametrize("axes", [1, 2])
def test_maps_of_windows_are_a_film(windows: str, operator: str, axes: int, tmp_path: Path) -> None:
    """[2 N, C, ...]: two maps of each sample, beside each other, or with those of other samples between."""
    merged = [-1, 2, 6] if axes == 1 else [-1, 1, 3, 4]
    apart = [node("Transpose", ["v"], ["t"], perm=[1, 0, *range(2, axes + 3)])]
    held = {"five": np.array([-1, 2, *merged[1:]]), "merged": np.array(merged)}
    held["k"] = real(3, merged[1], *[2] * axes)
    nodes = [
        node("Reshape", ["m", "five"], ["v"]),
        *(apart if windows == "apart" else []),
        node("Reshape", ["t" if windows == "apart" else "v", "merged"], ["s"]),
        node("Conv", ["s", "k"], ["c"], pads=[1, 0] * axes)
        if operator == "Conv"
        else node("MaxPool", ["s"], ["c"], kernel_shape=[2] * axes, strides=[2] * axes),
        node("Relu", ["c"], ["y"]),
    ]
    found = import_file(saved(tmp_path, rows_of_features(*nodes, **held)))
    layers = [each.layer for each in found.workload.model.nodes]
    (layer,) = [each for each in layers if isinstance(each, W.Conv | W.MaxPool)]
    assert layer.kernel == (1, *[2] * axes)
