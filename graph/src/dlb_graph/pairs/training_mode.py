"""Nodes of a file that compute as in training: another function than the same model in evaluation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dlb_graph.comparing.read_facts import InTrainingMode
from dlb_graph.files.model_file import ModelFile
from dlb_graph.truth.held import array_of, is_held
from dlb_graph.truth.trace import attributes_of, node_name

__all__ = ["training_facts"]


def training_facts(*files: ModelFile) -> Iterator[InTrainingMode]:
    """A fact for each file with batch normalisations or dropout in training mode."""
    for file in files:
        nodes = tuple(_training_nodes(file))
        if nodes:
            yield InTrainingMode(file=file.label, nodes=nodes)


def _training_nodes(file: ModelFile) -> Iterator[str]:
    graph = file.model.graph
    # Flags are small, and so not held beside the graph.
    constants = {
        tensor.name: array_of(tensor) for tensor in graph.initializer if not is_held(tensor)
    }
    for node in graph.node:
        if node.op_type == "Constant" and "value" in attributes_of(node):
            constants[node.output[0]] = np.asarray(attributes_of(node)["value"])
        # BatchNormalization-14 has an attribute; Dropout-12 has an input.
        flag = attributes_of(node).get("training_mode", 0)
        if node.op_type == "Dropout" and len(node.input) > 2:
            flag = constants.get(node.input[2], np.zeros(1)).any()
        if node.op_type in ("BatchNormalization", "Dropout") and flag:
            yield node_name(node)
