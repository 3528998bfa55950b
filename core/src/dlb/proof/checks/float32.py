"""``float32``: the rounding errors of the forward pass, and of a port's gradients.

Each subject is compared with float64, and its error with the smallest error. Subjects are not compared with
each other, since two that round equally would prove each other. :mod:`dlb.proof.checks.float32_layers` has the
layers and gradients of built models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.errors import DlbError, UnsupportedError
from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.checks.forward import CANONICAL, name_outputs
from dlb.proof.checks.layers import infinite_causes, layers_result
from dlb.proof.checks.weights import GIVEN, check_weights
from dlb.proof.distance import figure, figures, worst_first
from dlb.proof.engine import Check, Keep, run
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.files import RunInFloat32, RuntimeDiffers
from dlb.proof.findings.workload import ConstantLogits, ErrorMultiple, Float32Baseline
from dlb.proof.port.comparison import PortComparison
from dlb.proof.port.inputs import in_dtype
from dlb.proof.port.model import Model as UserModel
from dlb.proof.reference import Reference
from dlb.proof.rounding import FLOAT32, Rounding
from dlb.proof.tolerances import (
    FLOAT32_LEAST,
    FLOAT32_MOST,
    FLOAT32_MULTIPLE,
    FLOAT32_SMALL,
    PERTURBED_MULTIPLE,
    ROUNDED,
    Tensors,
    norm_floor,
)
from dlb.proof.update_batches import as_dtype
from dlb.supervision.remote import RemoteModel
from dlb.workload import Model
from dlb_worker.contract import Gradients

if TYPE_CHECKING:
    from onnx import ModelProto

    from dlb.proof.files.runs import FilePair, Runs

__all__ = [
    "Float32Port",
    "check_file_float32",
    "check_float32_gradients",
    "check_forward_float32",
    "check_port_gradients_float32",
    "check_port_outputs_float32",
    "gradient_errors",
    "judge_multiples",
    "prove_timed_model",
]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Float32Port:
    """Both models of a port in float32, with the same weights.

    Attributes:
        reference, model: the models.
        perturbed: the reference's gradients in float64 at perturbed weights.
    """

    reference: UserModel
    model: UserModel
    perturbed: Sequence[Gradients]


def prove_timed_model(
    model: RemoteModel, seeded: Reference, adapter: str, keep: Keep, rounding: Rounding = FLOAT32
) -> None:
    """Check the weights and the forward pass of the float32 model, before it is timed.

    Args:
        rounding: the type that it computes in.
    """
    last = seeded.model.nodes[-1].name
    inputs = as_dtype(seeded.inputs, "float32")

    def weights(check: Check) -> CheckResult:
        return check_weights(adapter, "float32", model.weights()[0], seeded.weights)

    def forward_bfloat16(check: Check) -> CheckResult:
        compared = figures(model.forward(inputs), {last: seeded.logits})
        error = max(rounding.logits_error(seeded), rounding.least)
        return judge_multiples(
            check, compared, {last: error}, rounding.of, allowed=rounding.multiple
        )

    def forward(check: Check) -> CheckResult:
        return check_forward_float32(
            adapter,
            seeded.model,
            model.forward(inputs),
            {last: seeded.logits},
            seeded.float32_tolerance,
            seeded.float32_baseline,
            model.native_layers,
        )

    keep(run(Check("weights float32", "weights", adapter, GIVEN), weights))
    if rounding is FLOAT32:
        keep(run(_forward_check(adapter), forward))
    else:
        check = Check("forward bfloat16", "float32", adapter, CANONICAL)
        keep(run(check, forward_bfloat16))


def _forward_check(adapter: str) -> Check:
    return Check("forward float32", "float32", adapter, CANONICAL)


def check_forward_float32(
    adapter: str,
    model: Model,
    values: Tensors,
    truth: Tensors,
    tolerance: float,
    float32_baseline: float,
    native: Mapping[str, str],
) -> CheckResult:
    """Compare the logits of a float32 forward pass with the canonical graph's in float64.

    Args:
        float32_baseline: relative L2 error of ONNX Runtime's logits of the canonical graph.
        native: the framework's description of each layer, by name.
    """
    compared = figures(values, truth)
    finite = float32_baseline if np.isfinite(float32_baseline) else None
    facts = [Finding(cause=Float32Baseline(distance=finite))]
    if all(len(array) > 1 and (array == array[:1]).all() for array in truth.values()):
        facts.append(Finding(cause=ConstantLogits()))
    causes = infinite_causes(compared, values, truth)
    return layers_result(
        _forward_check(adapter), model, compared, tolerance, native, causes, *facts
    )


def check_float32_gradients(
    errors: Mapping[str, Sequence[Sequence[Figure]]], perturbed: Sequence[Sequence[Figure]]
) -> list[CheckResult]:
    """Compare each adapter's errors of float32 gradients with the smallest error of any adapter.

    A tensor's figure is that of the batch with the median error. Rounding may take a value across the kink
    of a ReLU, or make another element win a pooling; then a correct gradient jumps. A computation with too
    few digits has an error in every batch.

    Deep networks may have a value near a kink in every batch, and the best adapter may have none. So errors
    as large as those of float64 gradients at perturbed weights are allowed too.

    Args:
        errors: :func:`gradient_errors` of several batches in float32, by adapter.
        perturbed: those of one adapter in float64, at weights that differ by a few units in the last
            place of float32.
    """
    median = {adapter: _median_errors(batches) for adapter, batches in errors.items()}
    perturbed_errors: dict[str, float] = {}
    for batch in perturbed:
        for error in batch:
            perturbed_errors[error.tensor] = max(
                perturbed_errors.get(error.tensor, 0.0), error.relative_l2 or 0.0
            )
    best: dict[str, float] = {}
    for figures_of_adapter in median.values():
        for error in figures_of_adapter:
            size = np.inf if error.relative_l2 is None else error.relative_l2
            best[error.tensor] = min(best.get(error.tensor, np.inf), size)
    allowed = {
        name: max(
            size,
            FLOAT32_LEAST,
            perturbed_errors.get(name, 0.0) * PERTURBED_MULTIPLE / FLOAT32_MULTIPLE,
        )
        for name, size in best.items()
    }
    results = []
    for adapter, figures_of_adapter in median.items():
        check = Check("gradients float32", "float32", adapter, Baseline(kind="own_float64"))
        results.append(judge_multiples(check, figures_of_adapter, allowed, "best_adapter"))
    return results


def gradient_errors(gradients: Tensors, truth: Tensors) -> tuple[Figure, ...]:
    """Errors of one batch's loss and gradients against those in float64, worst first.

    The error of a gradient that is zero is relative to the whole gradient.
    """
    whole = norm_floor(truth, 1.0)
    nothing = np.full(1, np.nan)
    return worst_first(
        figure(
            name,
            gradients.get(name, nothing),
            array,
            whole if np.linalg.norm(array) <= ROUNDED * whole else FLOAT32_SMALL * whole,
        )
        for name, array in truth.items()
    )


def _median_errors(batches: Sequence[Sequence[Figure]]) -> tuple[Figure, ...]:
    """For each tensor, the figure of the batch with the median error.

    An infinite figure comes first, since no kink causes one.
    """
    by_tensor: dict[str, list[Figure]] = {}
    for batch in batches:
        for error in batch:
            by_tensor.setdefault(error.tensor, []).append(error)
    ordered = map(worst_first, by_tensor.values())
    return worst_first(
        errors[0 if errors[0].relative_l2 is None else len(errors) // 2] for errors in ordered
    )


def judge_multiples(
    check: Check,
    compared: Iterable[Figure],
    errors: Mapping[str, float],
    of: Literal["best_adapter", "numpy_float32", "numpy_bfloat16"],
    *notes: Finding,
    allowed: float = FLOAT32_MULTIPLE,
) -> CheckResult:
    """Judge each figure as a multiple of its tensor's own error, the largest multiple first.

    Each tensor has its own tolerance, so the tolerance of the result is that of the first figure.

    Args:
        errors: by tensor.
        allowed: how many times as much passes.
        of: whose errors they are.
        notes: facts about the comparison.
    """

    def multiple(error: Figure) -> float:
        return (np.inf if error.relative_l2 is None else error.relative_l2) / errors[error.tensor]

    ordered = tuple(sorted(compared, key=multiple, reverse=True))
    worst = ordered[0] if ordered else None
    largest = multiple(worst) if worst else 0.0
    tolerance = allowed * (errors[worst.tensor] if worst else FLOAT32_LEAST)
    cause = ErrorMultiple(
        of=of, multiple=largest if math.isfinite(largest) else None, allowed=allowed
    )
    findings = (Finding(cause=cause, figure=worst, tolerance=tolerance), *notes)
    passed = bool(ordered) and largest <= allowed
    return check.result(ordered, tolerance, findings, passed=passed)


def check_port_outputs_float32(
    check: Check, *, port: PortComparison, single: Float32Port
) -> CheckResult:
    """Compare the float32 errors of both models with the smaller one, for every output.

    Whichever is the reference, the model with the larger error fails.
    """
    truth = name_outputs(port.truth.evaluation_pass)
    inputs = in_dtype(port.truth.inputs, "float32")
    own, other = (
        figures(name_outputs(model.forward(inputs)), truth)
        for model in (single.reference, single.model)
    )
    largest = [error[0].relative_l2 for error in (own, other)]
    least = min((size for size in largest if size is not None), default=0.0)
    least = least if least < FLOAT32_MOST else 0.0
    of_reference = [
        msgspec.structs.replace(error, tensor=f"{error.tensor} of {single.reference.name}")
        for error in own
    ]
    compared = worst_first([*other, *of_reference])
    return check.result(compared, FLOAT32_MULTIPLE * max(least, FLOAT32_LEAST))


def check_port_gradients_float32(
    check: Check, *, port: PortComparison, single: Float32Port
) -> CheckResult:
    """Compare gradients of a user's model in float32; see :func:`check_float32_gradients`."""
    training = port.randomness is None
    inputs = in_dtype(port.truth.inputs, "float32")
    cotangents = [array.astype(np.float32) for array in port.truth.cotangents]
    truth = port.by_reference_names(port.truth.gradients(training), port.truth.model)
    errors = {
        model.name: [
            gradient_errors(
                port.by_reference_names(model.gradients(inputs, cotangents, training), model), truth
            )
        ]
        for model in (single.reference, single.model)
    }
    perturbed = [
        gradient_errors(port.by_reference_names(gradients, port.truth.model), truth)
        for gradients in single.perturbed
    ]
    results = check_float32_gradients(errors, perturbed)
    # The model with the larger error fails, whichever is the reference.
    results = sorted(
        results, key=lambda each: (each.verdict == "passed", each.adapter != check.subject)
    )
    return msgspec.structs.replace(results[0], adapter=check.subject, baseline=check.baseline)


def check_file_float32(check: Check, pair: FilePair, runs: Runs, agree: bool) -> CheckResult:
    """Run both files in ONNX Runtime, and compare the larger error with the smaller.

    Args:
        agree: whether the files agree in float64.

    Raises:
        DlbError: a file cannot be run.
    """
    from onnx import TensorProto

    from dlb.graph.evaluate import evaluate
    from dlb.graph.held import array_of, is_held, weights_as_inputs
    from dlb.graph.precision import in_precision
    from dlb.graph.runtime import run_model

    def run_in_runtime(model: ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
        content = weights_as_inputs(model).SerializeToString()
        weights = {
            tensor.name: array_of(tensor) for tensor in model.graph.initializer if is_held(tensor)
        }
        outputs = run_model(content, feeds, weights=weights, threads=1)
        return {port.name: value for port, value in zip(model.graph.output, outputs)}

    findings: list[Finding] = []
    models: list[tuple[ModelProto, tuple[dict[str, Array], ...]]] = []
    for file, batches in ((pair.first, pair.inputs.first), (pair.second, pair.inputs.second)):
        model = file.model
        if _is_float64(model):
            model = in_precision(model, TensorProto.FLOAT)
            findings.append(Finding(cause=RunInFloat32(file=file.label)))
        models.append((model, batches))
    errors = [
        _file_errors(pair, runs, side, model, batches, run_in_runtime)
        for side, (model, batches) in enumerate(models)
    ]
    largest = [_largest(compared) for compared in errors]
    if agree and max(largest) > FLOAT32_MOST:
        # For example the last window of an average pooling in ceil mode, before version 1.31, and a
        # sigmoid close to 0.
        distance = max(largest) if math.isfinite(max(largest)) else None
        errors = [
            _file_errors(pair, runs, side, model, batches, evaluate)
            for side, (model, batches) in enumerate(models)
        ]
        largest = [_largest(compared) for compared in errors]
        own = max(largest) if math.isfinite(max(largest)) else None
        judged = max(largest) <= FLOAT32_MOST
        findings.append(Finding(cause=RuntimeDiffers(distance=distance, own=own, judged=judged)))
        if not judged:
            return check.not_run(*findings)
    least = min(largest)
    tolerance = FLOAT32_MULTIPLE * max(least if math.isfinite(least) else 0.0, FLOAT32_LEAST)
    ordered = worst_first([*errors[0], *errors[1]])
    return check.result(ordered, tolerance, findings)


def _file_errors(
    pair: FilePair,
    runs: Runs,
    side: int,
    model: ModelProto,
    batches: tuple[dict[str, Array], ...],
    evaluate: Callable[[ModelProto, dict[str, Array]], dict[str, Array]],
) -> list[Figure]:
    """The distance of a file's outputs from the first file's outputs in float64.

    Args:
        evaluate: computes the outputs of a model, by name, in the model's types.
    """
    from onnx import helper

    file = (pair.first, pair.second)[side]
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    errors = []
    for batch, truth in zip(batches, runs.values[0]):
        feeds = {
            name: array.astype(helper.tensor_dtype_to_np_dtype(types[name]))
            for name, array in batch.items()
        }
        try:
            values = evaluate(model, feeds)
        except DlbError as error:
            raise UnsupportedError(f"{file.label}: {error}") from None
        errors += [
            figure(f"{names[0]} of {file.label}", values[names[side]], truth[names[0]])
            for names in pair.outputs
        ]
    return errors


def _largest(compared: list[Figure]) -> float:
    worst = worst_first(compared)[0].relative_l2
    return math.inf if worst is None else worst


def _is_float64(model: ModelProto) -> bool:
    from onnx import TensorProto

    double = TensorProto.DOUBLE
    return any(tensor.data_type == double for tensor in model.graph.initializer) or any(
        value.type.tensor_type.elem_type == double
        for value in (*model.graph.input, *model.graph.output)
    )
