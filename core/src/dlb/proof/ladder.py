"""Climbing the ladder with one adapter's workers: what to ask them, and which rung judges it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.errors import DlbError, PluginError, UnsupportedError, WorkerRaised
from dlb.proof import rungs
from dlb.proof.certificate import Rung
from dlb.proof.reference import Reference
from dlb.supervision.remote import RemoteModel
from dlb.workload import Dropout, Model, Workload, parameter_shapes
from dlb.workload.shapes import trained_names

__all__ = ["prove_export", "prove_float32", "prove_float64", "without_dropout"]

Array = npt.NDArray[Any]
EXPORTED = "ONNX Runtime on the exported file"


def without_dropout(workload: Workload) -> Workload:
    """The workload with every dropout at rate 0: masks cannot be matched across frameworks."""
    replace = msgspec.structs.replace
    nodes = tuple(
        replace(node, layer=Dropout(rate=0.0)) if isinstance(node.layer, Dropout) else node
        for node in workload.model.nodes
    )
    return replace(workload, model=replace(workload.model, nodes=nodes))


def timed(make: Callable[[], Rung]) -> Rung:
    """A rung with what it cost."""
    began = time.perf_counter()
    rung = make()
    return msgspec.structs.replace(rung, seconds=time.perf_counter() - began)


def prove_float64(
    model: RemoteModel, reference: Reference, adapter: str, seed: int
) -> tuple[list[Rung], dict[str, Array]]:
    """Weights, forward in both modes, and gradients of a model built in float64.

    Returns:
        its rungs, and its gradients for the comparison with other adapters.
    """
    layers = [node.name for node in reference.model.nodes]
    inputs = as_dtype(reference.inputs, "float64")
    found = [
        timed(
            lambda: rungs.weights_rung(adapter, "float64", model.weights()[0], reference.weights)
        ),
        timed(
            lambda: rungs.forward_rung(
                adapter,
                "forward float64",
                model.forward(inputs, layers=layers),
                reference.layers,
                rungs.FLOAT64_GATE,
            )
        ),
        timed(
            lambda: rungs.forward_rung(
                adapter,
                "forward float64, training",
                model.forward(inputs, training=True, layers=layers),
                reference.training_layers,
                rungs.FLOAT64_GATE,
            )
        ),
    ]
    gradients = model.gradients(inputs, reference.labels)
    check_gradients(gradients, reference.model)
    parameters = {name: array for name, array in gradients.items() if name not in ("loss", "input")}
    found.append(
        timed(
            lambda: rungs.slope_rung(
                adapter, reference.slopes(parameters, gradients.get("input"), seed)
            )
        )
    )
    return found, gradients


def check_gradients(found: Mapping[str, Array], model: Model) -> None:
    """See that no gradient is left out, which nothing that is there could tell.

    Raises:
        PluginError: the adapter gave others than the contract asks for.
    """
    shapes = parameter_shapes(model)
    wanted = {name: shapes[name] for name in trained_names(model)}
    if model.input.kind == "real":
        wanted["input"] = model.input.shape
    for name in {**wanted, **found}:
        if name == "loss":
            continue
        if name not in found or name not in wanted:
            kind = "no" if name in wanted else "a needless"
            raise PluginError(f"its adapter gave {kind} gradient of '{name}'")
        shape = found[name].shape[1:] if name == "input" else found[name].shape
        if shape != wanted[name]:
            raise PluginError(
                f"its adapter gave a gradient of shape {list(shape)} of '{name}', which has shape "
                f"{list(wanted[name])}"
            )


def prove_float32(model: RemoteModel, reference: Reference, adapter: str) -> list[Rung]:
    """Weights and the forward pass of the float32 object that is about to be timed."""
    inputs = as_dtype(reference.inputs, "float32")
    last = reference.model.nodes[-1].name
    return [
        timed(
            lambda: rungs.weights_rung(adapter, "float32", model.weights()[0], reference.weights)
        ),
        timed(
            lambda: rungs.forward_rung(
                adapter,
                "forward float32",
                model.forward(inputs),
                {last: reference.layers[last]},
                reference.float32_gate,
            )
        ),
    ]


def prove_export(
    model: RemoteModel, canonical: Any, adapter: str, inputs: Array, exported: Path
) -> list[Rung]:
    """Export the object as it now is, compare its structure, and run it against the object.

    Args:
        canonical: the canonical graph; only its structure counts.
        inputs: [batch_size of one worker, ...].
    """
    try:
        model.export(exported)
        check_exported(exported)
    except (UnsupportedError, WorkerRaised) as error:
        # A worker that raised is still there, and what it trained is still worth recording.
        return [
            rungs.not_run("structure", adapter, "canonical ONNX graph", str(error)),
            rungs.not_run("export", adapter, EXPORTED, str(error)),
        ]
    given = as_dtype(inputs, model.dtype)

    def compare() -> Rung:
        try:
            return rungs.structure_rung(adapter, canonical, exported)
        except DlbError as error:
            return rungs.not_run("structure", adapter, "canonical ONNX graph", str(error))

    def run() -> Rung:
        own = model.forward(given)[model.last]
        try:
            logits = run_exported(exported, given)
        except DlbError as error:
            return rungs.not_run("export", adapter, EXPORTED, str(error))
        return rungs.export_rung(adapter, model.dtype, logits, own)

    return [timed(compare), timed(run)]


def check_exported(exported: Path) -> None:
    """Raises UnsupportedError unless the file can be read as an ONNX model."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        onnx.load(str(exported), load_external_data=False)
    except (OSError, DecodeError) as error:
        raise UnsupportedError(f"what was exported is no ONNX model: {error}") from None


def run_exported(exported: Path, inputs: Array) -> Array:
    """Logits of an exported model by ONNX Runtime; by the neutral evaluator where it has no
    float64 kernels."""
    import onnx

    from dlb.graph.evaluate import evaluate
    from dlb.graph.runtime import run_model

    loaded = onnx.load(str(exported), load_external_data=False)
    held = {tensor.name for tensor in loaded.graph.initializer}
    name = next(value.name for value in loaded.graph.input if value.name not in held)
    given = {name: inputs}
    if inputs.dtype == np.float64:
        return next(iter(evaluate(loaded, given).values()))
    logits: Array = run_model(exported, given)[0]
    return logits


def as_dtype(inputs: Array, dtype: str) -> Array:
    """Real inputs in a dtype; integers as they are."""
    return inputs.astype(dtype) if inputs.dtype.kind == "f" else inputs
