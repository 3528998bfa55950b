"""A model in float32 is compared on small batches and on the one that is timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dlb.proof.certificate import CheckResult
from dlb.proof.checks.float32_layers import Float32Errors
from dlb.proof.reference import Reference
from dlb.proof.rounding import to_bfloat16
from dlb.samples import proof_inputs, proof_labels
from dlb_graph.workload import BatchNorm, Flatten, Input, Linear, Model, Node, ReLU
from dlb_graph.workload.initial import initial_weights, proof_weights

Array = npt.NDArray[Any]
SMALL, LARGE = 4, 48
MODEL = Model(
    input=Input(shape=(3, 4, 4)),
    nodes=(
        Node(name="norm", layer=BatchNorm()),
        Node(name="flat", layer=Flatten()),
        Node(name="hidden", layer=Linear(out_features=12)),
        Node(name="relu", layer=ReLU()),
        Node(name="logits", layer=Linear(out_features=5)),
    ),
)
WEIGHTS = proof_weights(initial_weights(MODEL, 0), 0)


class NumpyModel:
    """A model in NumPy's float32, as a worker's is asked, which may be wrong above 16 samples."""

    dtype = "float32"
    native_layers: Mapping[str, str] = {}

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def forward(self, inputs: Array, *, training: bool, layers: Sequence[str]) -> dict[str, Array]:
        exact = reference(inputs)
        values = (
            exact.training_values("float32")
            if training
            else exact._values(list(layers), training=False, dtype="float32")
        )
        if self.fault == "bfloat16" and training and len(inputs) > 16:
            values["hidden"] = to_bfloat16(values["hidden"])
            values["relu"] = np.maximum(values["hidden"], 0)
            weight, bias = WEIGHTS["logits.weight"], WEIGHTS["logits.bias"]
            values["logits"] = values["relu"] @ weight.T + bias
        return values

    def gradients(self, inputs: Array, labels: Array) -> dict[str, Array]:
        values = self.forward(inputs, training=True, layers=[node.name for node in MODEL.nodes])
        found = reference(inputs).gradients(values, dtype="float32")
        if self.fault == "kernel" and len(inputs) > 16:
            found["hidden.weight"] = found["hidden.weight"] * np.float32(1.01)
        return found


def reference(inputs: Array) -> Reference:
    return Reference(MODEL, WEIGHTS, inputs, proof_labels(MODEL, 0, len(inputs)))


def results(fault: str, *, timed: bool) -> dict[str, CheckResult]:
    errors, model = Float32Errors(MODEL), NumpyModel(fault)
    small, large = (
        reference(proof_inputs(MODEL, 0, samples).astype(np.float32)) for samples in (SMALL, LARGE)
    )
    errors.collect(model, (small,), WEIGHTS)  # type: ignore[arg-type]
    if timed:
        errors.collect(model, (large,), WEIGHTS, growth=(LARGE / SMALL) ** 0.5)  # type: ignore[arg-type]
    found: list[CheckResult] = []
    errors.keep("numpy", found.append)
    return {result.check: result for result in found}


def test_a_right_model_passes() -> None:
    assert {each.verdict for each in results("", timed=True).values()} == {"passed"}


@pytest.mark.parametrize(
    ("fault", "check"),
    [("kernel", "gradients float32"), ("bfloat16", "isolated layers float32")],
)
def test_a_kernel_that_is_wrong_for_large_batches_is_found_at_that_size(
    fault: str, check: str
) -> None:
    assert {each.verdict for each in results(fault, timed=False).values()} == {"passed"}
    result = results(fault, timed=True)[check]
    assert result.verdict == "failed"
    assert any(each.layer and each.layer.name == "hidden" for each in result.findings)
