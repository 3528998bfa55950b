"""Operators of ``ai.onnx.ml`` around scikit-learn's networks and linear models, in ONNX's own.

Their meaning: https://onnx.ai/onnx/operators/index_ml.html.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from dlb_graph.rewriting.node_writer import NodeWriter, Rule
from dlb_graph.truth.trace import attributes_of

__all__ = ["CLASSICAL", "RULES"]

#: The domain of these operators.
CLASSICAL = "ai.onnx.ml"


def _scaler(write: NodeWriter) -> bool:
    (name,) = write.node.input
    if offset := write.attributes.get("offset"):
        name = write.add("Sub", name, write.tensor(offset))
    if scale := write.attributes.get("scale"):
        name = write.add("Mul", name, write.tensor(scale))
    return write.end(name)


def _normalizer(write: NodeWriter) -> bool:
    """Rows over a norm of their own; rows of zeros stay."""
    (name,), norm = write.node.input, write.attributes.get("norm", "MAX")
    operator = {"L1": "ReduceL1", "L2": "ReduceL2"}.get(norm)
    if operator is None:
        return False
    if norm == "L1" and _is_softmax(write.producer(0)):
        return write.end(name)
    least = write.tensor(np.finfo(np.float32).tiny)
    return write.end(write.add("Div", name, write.add("Max", write.reduced(operator, name), least)))


def _is_softmax(node: onnx.NodeProto | None) -> bool:
    """Whether a node gives shares of classes, whose sum is 1."""
    if node is None or node.op_type == "Softmax":
        return node is not None
    return attributes_of(node).get("post_transform") == "SOFTMAX"


def _array_feature_extractor(write: NodeWriter) -> bool:
    """Columns that are known."""
    columns = write.constant(1)
    if columns is None or write.rank(write.input(0)) in (None, 1):
        return False
    places = write.tensor(np.ravel(columns), np.int64)
    return write.end(write.add("Gather", write.input(0), places, axis=-1))


def _binarizer(write: NodeWriter) -> bool:
    (name,) = write.node.input
    above = write.add("Greater", name, write.tensor(write.attributes.get("threshold", 0.0)))
    return write.end(write.add("Cast", above, to=write.element))


def _linear_regressor(write: NodeWriter) -> bool:
    scores = _linear(write, int(write.attributes.get("targets", 1)))
    return scores is not None and write.end(scores)


def _linear_classifier(write: NodeWriter) -> bool:
    """Scores of all classes, and the class of the largest: an integer, or text."""
    attributes = write.attributes
    names = [name.decode() for name in attributes.get("classlabels_strings", ())]
    classes = np.array(attributes.get("classlabels_ints") or names, object if names else np.int64)
    scores = _linear(write, len(classes))
    if scores is None:
        return False
    if write.uses(0):
        largest = write.add("ArgMax", scores, axis=1, keepdims=0)
        write.end(write.add("Gather", write.tensor(classes, classes.dtype), largest))
    return write.end(scores, 1)


def _linear(write: NodeWriter, count: int) -> str | None:
    """Rows times coefficients, plus intercepts, after ``post_transform``; None if that is not supported."""
    coefficients = np.reshape(write.attributes["coefficients"], (count, -1))
    name = write.add("MatMul", write.input(0), write.tensor(coefficients.T))
    if intercepts := write.attributes.get("intercepts"):
        name = write.add("Add", name, write.tensor(intercepts))
    operator = _TRANSFORMS.get(write.attributes.get("post_transform", "NONE"))
    return write.add(operator, name) if operator else name if operator == "" else None


#: What a linear model does with its scores, by ``post_transform``.
_TRANSFORMS = {"NONE": "", "LOGISTIC": "Sigmoid", "SOFTMAX": "Softmax"}


def _zip_map(write: NodeWriter) -> bool:
    """The numbers that are put into maps; the maps are no tensors."""
    return write.end(write.input(0))


RULES: Mapping[str, Rule] = {
    "ArrayFeatureExtractor": _array_feature_extractor,
    "Binarizer": _binarizer,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "Scaler": _scaler,
    "ZipMap": _zip_map,
}
