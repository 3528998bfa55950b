"""ONNX files with Pad, Slice and Gather are read as layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb import workload as W
from dlb.errors import UnsupportedError
from dlb.graph.canonical import canonical_graph
from dlb.imported.read import import_file
from dlb.workload.initial import initial_weights, proof_weights

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
