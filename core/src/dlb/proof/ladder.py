"""Climbing the ladder with one adapter's workers: what to ask them, and which rung judges it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.errors import DlbError, PluginError, UnsupportedError, WorkerRaised
from dlb.proof import rungs
from dlb.proof.certificate import Level, Rung
from dlb.proof.distance import norm, pieces
from dlb.proof.divergence import Changes, looked_at
from dlb.proof.dropout import dropout_rung
from dlb.proof.reference import Reference
from dlb.proof.updates import Updates
from dlb.samples import noise
from dlb.supervision.remote import RemoteModel
from dlb.workload import (
    Dropout,
    Model,
    infer_shapes,
    learning_rate,
    parameter_shapes,
    state_names,
)
from dlb.workload.shapes import trained_names

__all__ = [
    "Practice",
    "batch_gradients",
    "prove_dropout",
    "prove_export",
    "prove_float32",
    "prove_float32_updates",
    "prove_float64",
    "prove_updates",
    "without_dropout",
]

Array = npt.NDArray[Any]
#: Takes each rung as it is climbed, so that none is lost to what comes after it.
Keep = Callable[[Rung], None]
EXPORTED = "ONNX Runtime on the exported file"
#: Batches that float32 gradients are compared on: of one sample, so that most meet no kink; or of as
#: many as a step has, where something is normalised over them.
SINGLE_BATCHES, FEW_BATCHES = 8, 3
#: Steps that float32 updates are compared after: the second is the first that momentum shows in.
FEW_STEPS = 2
#: What the same gradient may differ by in float32, in units of its norm, where a step computes it once
#: more in other code.
GRADIENT_NOISE = 1e-6
#: Elements that a native dropout should drop, so that their number tells its rate to about a tenth of
#: it; and the least and the most samples that are taken for that.
DROPPED, LEAST_SAMPLES, MOST_SAMPLES = 2048, 16, 256


@dataclass(frozen=True)
class Practice:
    """What updates are proven on.

    Attributes:
        folder: with an .npz file of ``inputs`` and ``labels`` in each dtype.
        inputs: [samples, ...] float64 or int64; labels: int64 [samples] or [samples, T].
        order: int64 [steps, batch].
    """

    folder: Path
    inputs: Array
    labels: Array
    order: Array

    @property
    def batch(self) -> int:
        """Samples of a step: few, so that few of them meet a kink."""
        return int(self.order.shape[1])

    def path(self, dtype: str) -> Path:
        """The file of a dtype."""
        return self.folder / f"practice-{dtype}.npz"


def without_dropout(model: Model) -> Model:
    """The model with every dropout at rate 0, for adapters that take no masks."""
    replace = msgspec.structs.replace
    nodes = tuple(
        replace(node, layer=Dropout(rate=0.0)) if isinstance(node.layer, Dropout) else node
        for node in model.nodes
    )
    return replace(model, nodes=nodes)


def timed(make: Callable[[], Rung]) -> Rung:
    """A rung with what it cost."""
    began = time.perf_counter()
    rung = make()
    return msgspec.structs.replace(rung, seconds=time.perf_counter() - began)


def prove_float64(
    model: RemoteModel,
    reference: Reference,
    adapter: str,
    seed: int,
    levels: Collection[Level],
    keep: Keep,
) -> dict[str, Array]:
    """Weights, forward in both modes, layers alone, and gradients of a model built in float64.

    Returns:
        its gradients, for the comparison with other adapters; none where no level asks for them.
    """
    if "weights" in levels:
        keep(
            timed(
                lambda: rungs.weights_rung(
                    adapter, "float64", model.weights()[0], reference.weights
                )
            )
        )
    if {"forward", "layers"} & set(levels):
        for training in (False, True):
            _prove_layers(model, reference, adapter, training, keep)
    if "gradients" not in levels:
        return {}
    gradients = model.gradients(as_dtype(reference.inputs, "float64"), reference.labels)
    check_gradients(gradients, reference.model)
    moved = {name: own for name, own in gradients.items() if name not in ("loss", "input")}
    along = gradients.get("input")
    keep(timed(lambda: rungs.slope_rung(adapter, reference.slopes(moved, along, seed))))
    return gradients


def prove_dropout(
    model: RemoteModel, described: Model, adapter: str, seed: int, keep: Keep
) -> None:
    """What dropouts draw by themselves, of a model built in float64 that was given no masks."""
    shapes, source = infer_shapes(described), described.input.name
    drops = [
        (node, math.prod(shapes[node.name]) * node.layer.rate)
        for node in described.wired()
        if isinstance(node.layer, Dropout) and node.layer.rate > 0
    ]
    # As many samples as it takes for the least of them to drop enough.
    asked = math.ceil(DROPPED / min(each for _, each in drops))
    samples = max(LEAST_SAMPLES, min(asked, MOST_SAMPLES))
    read = {name for node, _ in drops for name in (node.name, *node.inputs)} - {source}

    def draw() -> Rung:
        inputs = as_dtype(noise(described, seed, samples), "float64")
        first, second, evaluated = (
            {source: inputs, **model.forward(inputs, training=training, layers=sorted(read))}
            for training in (True, True, False)
        )
        native = model.native_layers
        return dropout_rung(adapter, described, first, second, evaluated, native)

    keep(timed(draw))


def batch_gradients(model: RemoteModel, practice: Practice) -> Iterator[dict[str, Array]]:
    """Loss and gradients of a few small batches, in the model's own dtype."""
    inputs = as_dtype(practice.inputs, model.dtype)
    normalised = state_names(model.workload.model)
    size, count = (practice.batch, FEW_BATCHES) if normalised else (1, SINGLE_BATCHES)
    for start in range(0, count * size, size):
        few = slice(start, start + size)
        found = model.gradients(inputs[few], practice.labels[few])
        check_gradients(found, model.workload.model)
        yield found


def _prove_layers(
    model: RemoteModel, reference: Reference, adapter: str, training: bool, keep: Keep
) -> None:
    """Every layer's value in one mode: as errors accumulate, and each layer by itself."""
    mode = ", training" if training else ""
    truth = reference.training_layers if training else reference.layers
    values: dict[str, Array] = {}

    def forward() -> Rung:
        inputs = as_dtype(reference.inputs, "float64")
        values.update(model.forward(inputs, training=training, layers=list(truth)))
        name = f"forward float64{mode}"
        return rungs.forward_rung(
            adapter, name, reference.model, values, truth, model.native_layers
        )

    def alone() -> Rung:
        name = f"layers alone{mode}"
        missing = [
            layer
            for layer, value in truth.items()
            if layer not in values or values[layer].shape != value.shape
        ]
        if missing:
            reason = f"no value, or one of another shape, of {', '.join(missing)}"
            return rungs.not_run(name, "layers", adapter, rungs.ALONE, reason)
        found = reference.alone(values, training=training)
        return rungs.alone_rung(adapter, name, reference.model, values, found, model.native_layers)

    keep(timed(forward))
    keep(timed(alone))


def prove_updates(
    model: RemoteModel,
    reference: Reference,
    practice: Practice,
    adapter: str,
    *,
    via: str,
    levels: Collection[Level],
    keep: Keep,
    folder: Path,
) -> dict[int, Changes]:
    """What the first step changes, and what all do, in a model built in float64 that has not trained.

    Each step's gradients are taken from the adapter before it steps, and NumPy steps with them.

    Args:
        folder: to make.

    Returns:
        what so many steps changed, for the comparison with other adapters and with float32; nothing
        where only the first was asked for.
    """
    workload = model.workload
    last = len(practice.order) - 1 if "trajectory" in levels else 0
    looks = looked_at(last + 1) if "trajectory" in levels else ()
    changes: dict[int, Changes] = {}
    folder.mkdir()
    states, start = state_names(reference.model), reference.weights
    trained = {name: start[name] for name in trained_names(reference.model)}
    updates = Updates(workload.optimizer, trained)
    moved: set[str] = set()
    began = time.perf_counter()
    for step, rows in enumerate(practice.order[: last + 1]):
        inputs, labels = practice.inputs[rows], practice.labels[rows]
        judged = step in (0, last)
        running: dict[str, Array] = {}
        if judged and states:
            before = start if step == 0 else model.weights()[0]
            running = reference.running(before, inputs)
        gradients = model.gradients(inputs, labels)
        check_gradients(gradients, reference.model)
        sizes = {name: float(np.linalg.norm(gradients[name])) for name in trained}
        whole = float(np.linalg.norm(list(sizes.values())))
        # Adam makes steps of rounding too, and other ones in every adapter. Not "above", so that a
        # NaN is not taken for rounding.
        moved |= {name for name, size in sizes.items() if not size <= rungs.ROUNDED * whole}
        updates.step(gradients, learning_rate(workload.optimizer, workload.schedule, step))
        # To start a pipeline for one step costs more than the step: where nothing is judged, it
        # comes from memory.
        source = via if judged else "memory"
        model.train(practice.path(model.dtype), rows[None], via=source, first_step=step)
        if not judged and step + 1 not in looks:
            continue
        after = model.weights()[0]
        if step + 1 in looks:
            path = folder / f"{step + 1}.npz"
            changes[step + 1] = Changes.write(path, trained, after, frozenset(moved))
        if not judged:
            continue
        after |= model.optimizer_state()
        truth = updates.weights | updates.state
        for at, judge in ((0, rungs.update_rung), (last, rungs.trajectory_rung)):
            if step == at:
                took = time.perf_counter() - began
                rung = judge(adapter, step + 1, start, after, truth, running)
                keep(msgspec.structs.replace(rung, seconds=took))
                if step == last and rung.verdict == "not run":
                    # Of rounding alone, which no two adapters need agree in.
                    changes = {each: Changes(one.path) for each, one in changes.items()}
    return changes


def prove_float32_updates(
    model: RemoteModel, weights: Mapping[str, Array], practice: Practice, adapter: str, seed: int
) -> Rung:
    """What a few steps change in a float32 model that has not trained.

    NumPy steps with the adapter's own gradients in float64; and in float32, with gradients as far
    beside as rounding may put them, for what float32 may make of it.
    """
    began = time.perf_counter()
    workload, generator = model.workload, np.random.default_rng(seed)
    start = {name: weights[name] for name in trained_names(workload.model)}
    truth = Updates(workload.optimizer, start)
    witness = Updates(workload.optimizer, start, "float32")
    inputs = as_dtype(practice.inputs, model.dtype)
    order = practice.order[:FEW_STEPS]
    for step, rows in enumerate(order):
        found = model.gradients(inputs[rows], practice.labels[rows])
        check_gradients(found, workload.model)
        gradients = {name: found[name] for name in start}
        rate = learning_rate(workload.optimizer, workload.schedule, step)
        truth.step(gradients, rate)
        whole = rungs.floor(gradients, rungs.FLOAT32_SMALL)
        witness.step({name: beside(one, whole, generator) for name, one in gradients.items()}, rate)
        model.train(practice.path(model.dtype), rows[None], via="memory", first_step=step)
    after = model.weights()[0]
    rung = rungs.update_float32_rung(
        adapter,
        len(order),
        start,
        {name: after[name] for name in start if name in after} | model.optimizer_state(),
        truth.weights | truth.state,
        witness.weights | witness.state,
    )
    return msgspec.structs.replace(rung, seconds=time.perf_counter() - began)


def beside(gradient: Array, least: float, generator: np.random.Generator) -> Array:
    """A gradient with noise of GRADIENT_NOISE of its norm; zeros stay what they are.

    Args:
        least: of a smaller norm it is noise of GRADIENT_NOISE of this, since what is summed up and
            cancels leaves the rounding of what is summed up.
    """
    size = GRADIENT_NOISE * max(norm([gradient]), least) / math.sqrt(max(gradient.size, 1))
    found = np.empty(gradient.size, gradient.dtype)
    done = 0
    for (some,) in pieces(gradient):
        noise = generator.standard_normal(some.size)
        found[done : done + some.size] = some + np.where(some == 0, 0.0, size * noise)
        done += some.size
    return found.reshape(gradient.shape)


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


def prove_float32(model: RemoteModel, seeded: Reference, adapter: str, keep: Keep) -> None:
    """Weights and the forward pass of the float32 object that is about to be timed."""
    last = seeded.model.nodes[-1].name
    inputs = as_dtype(seeded.inputs, "float32")
    keep(timed(lambda: rungs.weights_rung(adapter, "float32", model.weights()[0], seeded.weights)))
    keep(
        timed(
            lambda: rungs.rounding_rung(
                adapter,
                seeded.model,
                model.forward(inputs),
                {last: seeded.logits},
                seeded.float32_gate,
                seeded.witness,
                model.native_layers,
            )
        )
    )


def prove_export(
    model: RemoteModel, canonical: Any, adapter: str, inputs: Array, exported: Path, keep: Keep
) -> None:
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
        reason = str(error)
        keep(rungs.not_run("structure", "structure", adapter, "canonical ONNX graph", reason))
        keep(rungs.not_run("export", "export", adapter, EXPORTED, reason))
        return
    given = as_dtype(inputs, model.dtype)

    def compare() -> Rung:
        try:
            return rungs.structure_rung(adapter, canonical, exported, lambda: model.weights()[0])
        except DlbError as error:
            reason = str(error)
            return rungs.not_run("structure", "structure", adapter, "canonical ONNX graph", reason)

    def run() -> Rung:
        own = model.forward(given)[model.last]
        try:
            logits = run_exported(exported, given)
        except DlbError as error:
            return rungs.not_run("export", "export", adapter, EXPORTED, str(error))
        rung = rungs.export_rung(adapter, model.dtype, logits, own)
        if np.isfinite(own).all():
            return rung
        detail = (
            "what was trained computes NaN or infinity, which is like nothing; where every adapter's "
            "does, lower optimizer.learning_rate or raise the batch size"
        )
        return msgspec.structs.replace(rung, detail=detail)

    keep(timed(compare))
    keep(timed(run))


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
    from dlb.graph.runtime import in_parts, run_model

    loaded = onnx.load(str(exported), load_external_data=False)
    held = {tensor.name for tensor in loaded.graph.initializer}
    source = next(value for value in loaded.graph.input if value.name not in held)
    if inputs.dtype != np.float64:
        return run_model(exported, {source.name: inputs})[0]
    fixed = [axis.dim_value for axis in source.type.tensor_type.shape.dim[:1]]
    return in_parts(
        lambda given: list(evaluate(loaded, given).values()), {source.name: inputs}, fixed
    )[0]


def as_dtype(inputs: Array, dtype: str) -> Array:
    """Real inputs in a dtype; integers as they are."""
    return inputs.astype(dtype) if inputs.dtype.kind == "f" else inputs
