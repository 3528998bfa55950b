"""The checks of a port: in float64, in float32, and of exported files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.errors import DlbError, UnsupportedError, WorkerRaised
from dlb.proof.certificate import Certificate, CheckResult
from dlb.proof.checks.export import check_export, check_is_onnx, run_exported
from dlb.proof.checks.float32 import gradient_errors, judge_multiples
from dlb.proof.engine import Check, judged, run, walk
from dlb.proof.findings import Finding
from dlb.proof.findings.common import FeatureMissing
from dlb_graph.comparing.tolerances import (
    FLOAT32_LEAST,
    FLOAT32_MULTIPLE,
    PERTURBED_MULTIPLE,
    Tensors,
)
from dlb_port.check_tables import EVALUATION_ONLY, FLOAT32_ONLY, NOT_OF_PORTS, PORT
from dlb_port.comparison import PortComparison
from dlb_port.culprit import owner_pairs
from dlb_port.findings.port import NotLoaded
from dlb_port.float32_constants import narrow_layers, with_constants_named
from dlb_port.inputs import Inputs, further_inputs, in_dtype, in_model_layout
from dlb_port.matching import is_state
from dlb_port.model import Model
from dlb_port.own_steps import Program
from dlb_port.reference_model import ReferenceModel
from dlb_port.session import PortSession
from dlb_port.states import compare_states
from dlb_port.statistics import compare_statistics
from dlb_port.subject import PortSubject
from dlb_port.varied import varied
from dlb_port.weight_map import Pair

__all__ = ["Questions", "check_float32_gradients", "prove"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Questions:
    """What decides the questions that the reference is asked, beside its inputs.

    Attributes:
        seed: seed of weights, cotangents and perturbations.
        further: whether :func:`~dlb_port.inputs.further_inputs` are compared, too.
    """

    seed: int
    further: bool


def prove(
    session: PortSession,
    pairs: Mapping[str, Sequence[Pair]],
    inputs: Inputs,
    questions: Questions,
    export: Path | None,
    program: Program | None,
) -> Certificate:
    """Carry the weights and run the checks, for each model except the reference."""
    reference, *models = session.models.values()
    parameters = reference.remote.parameters.items()
    carried = {name: each for name, each in parameters if name not in reference.leave}
    made = reference.remote.weights()
    own = varied(made, carried, questions.seed)
    # Rounded to float32, so that the same weights can be loaded in float32. What code computes is not:
    # another model's code computes it too.
    weights = {
        name: array
        if is_state(reference.remote.parameters[name])
        else array.astype(np.float32).astype(array.dtype)
        for name, array in own.items()
    }
    # The reference loads its own weights too, since it may return the sum of two biases as one.
    reference.remote.load_weights(weights)
    layers = [layer for matched in pairs.values() for layer in owner_pairs(matched)]
    for model in session.models.values():
        # What raises in training mode does so in the check of it, which says why.
        with suppress(WorkerRaised, UnsupportedError):
            model.record_dropout(inputs)
    session.report(f"{reference.name}: computing the reference")
    others = further_inputs(inputs) if questions.further else []
    truth = ReferenceModel(reference, inputs, others, questions.seed, list(dict.fromkeys(layers)))
    results: list[CheckResult] = []
    ports = []
    for model in models:
        session.report(f"{model.name}: comparing with {reference.name}")
        states = compare_states(
            reference,
            model,
            pairs[model.name],
            made,
            model.remote.weights(),
            partial(_made_again, session, (reference, model), inputs),
            partial(_moved, model, truth),
        )
        port = PortComparison(truth, model, states, weights, session.scratch / model.name)
        subject = PortSubject(port, program)
        # If the model raises, that costs one check alone.
        of_model = _located([*walk(PORT, subject, (WorkerRaised, UnsupportedError))])
        port.narrow = narrow_layers(port, of_model)
        results += of_model
        ports.append(subject)
    if session.recording is not None:
        truth.ask_further()
    results += _prove_float32(session, truth, ports, export)
    results = [each for subject in ports for each in _named(results, subject.port)] + [
        result for result in results if result.adapter == reference.name
    ]
    inapplicable = dict(NOT_OF_PORTS)
    if any("training" not in subject.abilities for subject in ports):
        inapplicable |= EVALUATION_ONLY
    if any("float64" not in subject.abilities for subject in ports):
        inapplicable |= FLOAT32_ONLY
    for group in {result.group for result in results} & set(inapplicable):
        del inapplicable[group]
    return Certificate(
        workload=" ".join(f"{name}={factory}" for name, factory in session.factories.items()),
        workload_hash=_digest({**weights, **{f" {name}": array for name, array in inputs.items()}}),
        seed=questions.seed,
        adapters=session.versions,
        checks=tuple(results),
        inapplicable=inapplicable,
    )


def _made_again(
    session: PortSession, models: tuple[Model, Model], inputs: Inputs
) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    reference, model = models
    return session.made_again(reference.name, inputs), session.made_again(model.name, inputs)


def _moved(model: Model, truth: ReferenceModel) -> Mapping[str, Array]:
    """The states of a model after a pass in training mode; none if it cannot be run so."""
    try:
        return model.gradients(truth.inputs, truth.cotangents, training=True).states
    except (WorkerRaised, UnsupportedError):
        return {}


def _named(results: Sequence[CheckResult], port: PortComparison) -> list[CheckResult]:
    """The results of one port; a difference that a constant in float32 explains is named as that."""
    of_model = [result for result in results if result.adapter == port.model.name]
    perturbed = port.truth.perturbed_passes if port.evaluation_only else port.perturbed
    if (
        not any(result.verdict == "failed" for result in of_model)
        or not perturbed
        or port.float32_only
    ):
        return of_model
    return with_constants_named(of_model, port)


def _located(results: Sequence[CheckResult]) -> list[CheckResult]:
    """Results without that of layers, if it was not run and no outputs differ: it has none to locate."""
    differ = any(result.group == "forward" and result.verdict != "passed" for result in results)
    run = [each for each in results if each.group != "layers" or each.verdict != "not run"]
    return [*results] if differ else run


def _prove_float32(
    session: PortSession, truth: ReferenceModel, ports: Sequence[PortSubject], export: Path | None
) -> Iterator[CheckResult]:
    """The float32 checks. They come last, since models are made again in float32."""
    session.report("comparing in float32")
    # Whatever happens here costs these checks alone: those in float64 are done.
    errors = (DlbError,)
    failed: dict[str, DlbError] = {}
    for subject in ports:
        port = subject.port
        try:
            training = not port.evaluation_only and port.randomness is None
            port.perturbed = truth.perturbed_gradients(
                training, port.weights, passes_only=port.evaluation_only
            )
        except errors as error:
            failed[subject.name] = error
    loaded: dict[str, Model | DlbError] = {}
    blamed: set[str] = set()
    for subject in ports:
        name, port = subject.name, subject.port
        for model_name, weights in ((truth.model.name, port.weights), (name, port.carried_weights)):
            if model_name not in loaded:
                try:
                    loaded[model_name] = session.load_float32(model_name, truth.inputs, weights)
                except errors as error:
                    loaded[model_name] = error
        subject.float32 = loaded[truth.model.name], loaded[name]
        kinds = ["forward float32"] + ["gradients float32"] * ("training" in subject.abilities)
        # A reference that is far from its own float64 is what is wrong, and not its port.
        for kind, place in product(kinds, (0, 1)):
            check = Check.of(PORT[kind], (truth.model.name, name)[place], truth.model.name)
            compare = judged(partial(subject.float32_outputs, place))
            if kind == "gradients float32":
                compare = partial(_float32_gradients, subject, place)
            if name in failed:
                result = check.raised(failed[name])
            else:
                result = run(check, compare, errors)
            if place or (name not in failed and kind not in blamed and result.verdict != "passed"):
                blamed |= set() if place else {kind}
                yield result
            if place and kind == kinds[0] and port.float32_only and result.verdict == "failed":
                layers = Check.of(PORT["layers"], name, *subject.references)
                yield run(layers, judged(subject.layers), errors)
        if port.float32_only and {"training", "statistics"} <= subject.abilities:
            statistics = Check.of(PORT["running statistics float32"], name, *subject.references)
            yield run(statistics, judged(partial(compare_statistics, port)), errors)
    if export is not None:
        made = {name: each for name, each in loaded.items() if isinstance(each, Model)}
        yield from _prove_exports(session, made, truth.inputs, export)


def _float32_gradients(subject: PortSubject, place: int, check: Check) -> CheckResult:
    port, (own, other) = subject.port, subject.float32_gradients(place)
    return check_float32_gradients(
        check, port.exact_gradients, own, other, port.perturbed_gradients
    )


def _prove_exports(
    session: PortSession, loaded: Mapping[str, Model], inputs: Inputs, folder: Path
) -> Iterator[CheckResult]:
    """Export every model in float32, the reference included, and compare files with models."""
    session.report("exporting and verifying")
    for name in session.groups:
        check = Check.of(PORT["export"], name)
        if "export_user_models" not in session.features[name]:
            yield check.not_run(Finding(cause=FeatureMissing(feature="export_user_models")))
        elif name in loaded:
            compare = partial(
                _export, model=loaded[name], path=folder / f"{name}.onnx", inputs=inputs
            )
            yield run(check, compare, (DlbError,))
        else:
            yield check.not_run(Finding(cause=NotLoaded(dtype="float32")))


def _export(check: Check, model: Model, path: Path, inputs: Inputs) -> CheckResult:
    """Export a model, and compare the outputs of the file with those of the model."""
    model.remote.export(path)
    check_is_onnx(path)
    feeds = in_model_layout(in_dtype(inputs, "float32"), model.input_layout, model.name)
    outputs, exported = model.remote.forward(feeds).outputs, run_exported(path, *feeds.values())
    names = [f"output {number}" for number in range(max(len(outputs), len(exported)))]
    return check_export(
        check, model.remote.dtype, dict(zip(names, exported)), dict(zip(names, outputs))
    )


def _digest(arrays: Mapping[str, Array]) -> str:
    """SHA-256 of names, dtypes, shapes and numbers."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def check_float32_gradients(
    check: Check, truth: Tensors, own: Tensors, other: Tensors | None, perturbed: Iterable[Tensors]
) -> CheckResult:
    """Compare the errors of float32 gradients of a model with those of the better one of two.

    Deep networks may have a value near a kink, and one model may have none. So errors as large as those of
    float64 gradients at perturbed weights are allowed too.

    Args:
        truth: the reference's gradients in float64.
        own, other: those of both in float32; None if the other has none.
        perturbed: in float64, at weights that differ by a few units in the last place of float32.
    """
    errors = gradient_errors(own, truth)
    moved: dict[str, float] = {}
    for gradients in perturbed:
        for error in gradient_errors(gradients, truth):
            moved[error.tensor] = max(moved.get(error.tensor, 0.0), error.relative_l2 or 0.0)
    allowed: dict[str, float] = {}
    for error in (*errors, *gradient_errors(other, truth)) if other is not None else errors:
        nearest = 0.0 if other is None else error.distance
        allowed[error.tensor] = min(allowed.get(error.tensor, np.inf), nearest)
    for name, size in allowed.items():
        by_kinks = moved.get(name, 0.0) * PERTURBED_MULTIPLE / FLOAT32_MULTIPLE
        allowed[name] = max(size, FLOAT32_LEAST, by_kinks)
    return judge_multiples(check, errors, allowed, "best_adapter")
