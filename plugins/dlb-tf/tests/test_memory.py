"""Memory of models that were dropped."""

from __future__ import annotations

import gc

import tensorflow as tf
from keras.src.backend.common.variables import AutocastScope

from dlb.catalogue import load_workload
from dlb_graph.workload.initial import initial_weights
from dlb_graph.workload.lower import lower
from dlb_tf.model import TFModel
from dlb_worker.contract import BuildRequest


def test_a_model_that_is_dropped_inside_a_layer_of_another_precision_leaves_no_memory() -> None:
    described = load_workload("lenet5")
    request = BuildRequest(
        workload=lower(described),
        weights=initial_weights(described.model, 0),
        dtype="float32",
        device="cpu",
        batch_size=3,
    )
    model = TFModel(request, compile="graph", precision="bfloat16")
    kept = [variable.value for variable in model.network.model.variables]
    assert all(tf.size(variable) > 0 for variable in kept)
    with AutocastScope("bfloat16"):
        del model
        gc.collect()
    assert not any(tf.size(variable.read_value()) for variable in kept)
