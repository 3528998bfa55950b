"""Operators of ai.onnx.ml, written out: next to what ONNX Runtime computes of them; and read as workloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb.proof.checks.file import check_file
from dlb.report.sentences import sentence
from dlb_graph.files.model_file import read_model_file
from dlb_graph.files.read import ImportedModel, import_file
from dlb_graph.rewriting.foreign_operators import foreign_operators
from dlb_graph.workload import BinaryCrossEntropy, SoftmaxCrossEntropy

Held = dict[str, np.ndarray]


def real(*shape: int) -> np.ndarray:
    draw = np.random.default_rng(len(shape) * 100 + sum(shape))
    return draw.normal(size=shape).astype(np.float32)


def node(operator: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    own = operator in MADE_BY_SKLEARN
    return helper.make_node(
        operator, inputs, outputs, operator, domain="ai.onnx.ml" if own else "", **attributes
    )


MADE_BY_SKLEARN = (
    *("ArrayFeatureExtractor", "Binarizer", "LinearClassifier", "LinearRegressor"),
    *("Normalizer", "Scaler", "ZipMap"),
)


def model(
    nodes: list[onnx.NodeProto], outputs: dict[str, Any], held: Held | None = None, opset: int = 17
) -> onnx.ModelProto:
    """Of rows of six numbers; outputs by name, with their element type or their whole type."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 6])],
        [
            helper.make_value_info(name, kind)
            if isinstance(kind, onnx.TypeProto)
            else helper.make_tensor_value_info(
                name, kind, [None] * (1 + (kind == TensorProto.FLOAT))
            )
            for name, kind in outputs.items()
        ],
        [numpy_helper.from_array(array, name) for name, array in (held or {}).items()],
    )
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 1)]
    made = helper.make_model(graph, opset_imports=sets, ir_version=8)
    return made


def single(
    operator: str, opset: int = 17, held: Held | None = None, **attributes: Any
) -> onnx.ModelProto:
    made = node(operator, ["x", *(held or {})], ["y"], **attributes)
    return model([made], {"y": TensorProto.FLOAT}, held, opset)


LINEAR = {"coefficients": real(3, 6).ravel().tolist(), "intercepts": real(3).tolist()}


def classifier(transform: str, **classes: Any) -> onnx.ModelProto:
    given = {"classlabels_ints": [7, 8, 9], **LINEAR, "post_transform": transform}
    if classes:
        given = {**given, **classes}
        del given["classlabels_ints"]
    made = node("LinearClassifier", ["x"], ["label", "y"], **given)
    label = TensorProto.STRING if classes else TensorProto.INT64
    return model([made], {"label": label, "y": TensorProto.FLOAT})


TEXT = {"classlabels_strings": ["first", "second", "third"]}


MODELS = {
    "Scaler": single("Scaler", offset=real(6).tolist(), scale=[0.5, 2.0, -1.0, 1.0, 3.0, 0.1]),
    "Scaler of one number": single("Scaler", offset=[0.5], scale=[2.0]),
    "Normalizer L1": single("Normalizer", norm="L1"),
    "Normalizer L2": single("Normalizer", norm="L2"),
    "Normalizer L2, opset 18": single("Normalizer", 18, norm="L2"),
    "Binarizer": single("Binarizer", threshold=0.25),
    "LinearRegressor": single("LinearRegressor", targets=3, **LINEAR),
    "LinearClassifier": classifier("NONE"),
    "LinearClassifier, softmax": classifier("SOFTMAX"),
    "LinearClassifier, logistic": classifier("LOGISTIC"),
    "LinearClassifier of text": classifier("SOFTMAX", **TEXT),
    "ArrayFeatureExtractor": single(
        "ArrayFeatureExtractor", held={"places": np.array([[4, 0, 4]])}
    ),
}


def rows() -> np.ndarray:
    """One of zeros among them."""
    found = real(5, 6)
    found[2] = 0
    return found


@pytest.mark.parametrize("name", MODELS)
def test_written_out_it_computes_the_same(name: str) -> None:
    made = MODELS[name]
    onnx.checker.check_model(made)
    written = foreign_operators(made) or made
    assert all(not each.domain for each in written.graph.node)
    onnx.checker.check_model(written)
    expected, found = (
        onnxruntime.InferenceSession(each.SerializeToString()).run(None, {"x": rows()})
        for each in (made, written)
    )
    for one, other in zip(expected, found, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        if one.dtype == object:
            assert one.tolist() == other.tolist()
        else:
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_the_largest_as_norm_stays() -> None:
    made = single("Normalizer", norm="MAX")
    assert (foreign_operators(made) or made).graph.node[0].op_type == "Normalizer"


CLASSES = {"w": real(6, 3), "b": real(3)}
SCORES = [node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "b"], ["s"])]
MAPS = helper.make_sequence_type_proto(
    helper.make_map_type_proto(
        TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    )
)


def saved(folder: Path, made: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    onnx.save(made, path)
    return path


@pytest.mark.parametrize("maps", [False, True])
def test_a_classifier_is_read_by_its_probabilities(tmp_path: Path, maps: bool) -> None:
    """As skl2onnx writes a network: the class first, then probabilities, as a tensor or in maps."""
    last = "p" if maps else "probabilities"
    nodes = [
        *SCORES,
        node("Softmax", ["s"], [last], axis=1),
        node("ArgMax", [last], ["place"], axis=1),
        node("ArrayFeatureExtractor", ["classes", "place"], ["name"]),
        node("Reshape", ["name", "all"], ["label"]),
    ]
    if maps:
        nodes.append(node("ZipMap", ["p"], ["probabilities"], classlabels_int64s=[7, 8, 9]))
    held = {**CLASSES, "classes": np.array([7, 8, 9]), "all": np.array([-1])}
    kind = MAPS if maps else TensorProto.FLOAT
    outputs = {"label": TensorProto.INT64, "probabilities": kind}
    imported = import_file(saved(tmp_path, model(nodes, outputs, held)))
    assert [each.name for each in imported.workload.model.nodes] == ["MatMul"]
    assert isinstance(imported.workload.loss, SoftmaxCrossEntropy)
    told = " ".join(sentence(each, "") for each in check_file(imported).findings)
    assert "output 'probabilities' alone (the first of real numbers" in told
    assert "Softmax" in told


def test_names_of_classes_are_left_out(tmp_path: Path) -> None:
    """An output that is text is no number; neither is the table that it is looked up in."""
    nodes = [
        *SCORES,
        node("Softmax", ["s"], ["probabilities"], axis=1),
        node("ArgMax", ["probabilities"], ["place"], axis=1),
        node("ArrayFeatureExtractor", ["classes", "place"], ["label"]),
    ]
    held = {**CLASSES, "classes": np.array(["first", "second", "third"], object)}
    outputs = {"label": TensorProto.STRING, "probabilities": TensorProto.FLOAT}
    path = saved(tmp_path, model(nodes, outputs, held))
    file = read_model_file(path, "file")
    assert file.left_out == ("label",)
    assert [each.name for each in file.outputs] == ["probabilities"]
    assert {each.name for each in file.model.graph.initializer} == {"w", "b"}
    assert len(import_file(path).workload.model.nodes) == 1


def two_classes(folder: Path, whole: float) -> ImportedModel:
    """Of a share p: ``whole`` - p, and p."""
    nodes = [
        *SCORES,
        node("Sigmoid", ["s"], ["p"]),
        node("Sub", ["whole", "p"], ["rest"]),
        node("Concat", ["rest", "p"], ["y"], axis=1),
    ]
    held = {"w": real(6, 1), "b": real(1), "whole": np.array([whole], np.float32)}
    return import_file(saved(folder, model(nodes, {"y": TensorProto.FLOAT}, held)))


def test_a_linear_classifier_of_text_is_read_by_its_scores(tmp_path: Path) -> None:
    imported = import_file(saved(tmp_path, classifier("SOFTMAX", **TEXT)))
    assert len(imported.workload.model.nodes) == 1


def test_two_classes_are_one_share(tmp_path: Path) -> None:
    """1 - p and p are the probabilities of two classes whose logits are 0 and one number."""
    imported = two_classes(tmp_path, 1)
    assert [each.name for each in imported.workload.model.nodes] == ["MatMul"]
    assert isinstance(imported.workload.loss, BinaryCrossEntropy)
    # What comes after the logits gives the file's own outputs.
    after = imported.layout.postprocessing
    assert after is not None
    logits = real(4, 1).astype(np.float64)
    (found,) = onnx.reference.ReferenceEvaluator(after).run(
        None, {after.graph.input[0].name: logits}
    )
    share = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(found, np.hstack([1 - share, share]), rtol=1e-12)


def test_a_rest_of_another_number_is_no_share(tmp_path: Path) -> None:
    assert len(two_classes(tmp_path, 2).workload.model.nodes) > 1
