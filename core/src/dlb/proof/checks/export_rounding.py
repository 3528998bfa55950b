"""Whether float32 explains how far an exported file's outputs are from the model's.

Float32 may lose most digits of a value: of the difference between a number and a mean that is close to it,
for example. Then two right computations are further apart than the tolerance, and a wrong weight cannot be
seen in float32. It can in float64, where both the file and the canonical graph are evaluated.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlb.errors import DlbError
from dlb.proof.certificate import CheckResult
from dlb.proof.engine import Check
from dlb.proof.findings import Finding
from dlb.proof.findings.workload import MixedExport, RoundedExport
from dlb.proof.rounding import Rounding, to_bfloat16
from dlb_graph.comparing.distance import figure, passes, relative_l2
from dlb_graph.comparing.tolerances import (
    EXPORT_TOLERANCES,
    FLOAT32_LEAST,
    FLOAT32_MOST,
    FLOAT32_MULTIPLE,
    Tensors,
)

if TYPE_CHECKING:
    import onnx

__all__ = ["input_names", "judge_mixed", "judge_rounding", "run_in_numpy"]

Array = npt.NDArray[Any]


def judge_rounding(
    check: Check,
    failed: CheckResult,
    canonical: onnx.ModelProto,
    weights: Tensors,
    exported: Path,
    inputs: Array,
    outputs: Array,
    own: Array,
) -> CheckResult:
    """A failed comparison in float32, judged again in float64.

    Args:
        failed: the result in float32.
        canonical: the canonical graph.
        weights: of the exported model, by the canonical graph's names.
        inputs: in canonical layout, float32.
        outputs: of the file, as ONNX Runtime computes them in float32.
        own: of the model, in float32.

    Returns:
        A passed result if the file computes in float64 what the canonical graph does, and if the model's
        outputs are as far from that as float32 rounding of the file's own operators makes them, and the
        file's as far as that or as ONNX Runtime's own error on the canonical graph makes them; else ``failed``.
    """
    import onnx

    from dlb_graph.truth.evaluate import Evaluator
    from dlb_graph.truth.precision import in_precision

    loaded, double = onnx.load(str(exported)), onnx.TensorProto.DOUBLE
    try:
        exact = run_in_numpy(in_precision(loaded, double), inputs.astype(np.float64))[0]
        rounded = run_in_numpy(loaded, inputs)[0]
        described = Evaluator(in_precision(canonical, double)).run(
            {input_names(canonical)[0]: inputs, **weights}
        )[canonical.graph.output[0].name]
        # Its sigmoid is off by some 1e-7 of 1, for example, however small the result is.
        runtime = relative_l2(_run_canonical(canonical, weights, inputs), described)
    except DlbError:
        return failed  # float32 shows a difference, and nothing explains it
    tolerance = EXPORT_TOLERANCES["float32"]
    compared = (figure("logits in float64", exact, described),)
    error, of_model, rounding = (relative_l2(each, exact) for each in (outputs, own, rounded))
    allowed, of_runtime = (
        min(FLOAT32_MOST, FLOAT32_MULTIPLE * max(each, FLOAT32_LEAST))
        for each in (rounding, max(rounding, runtime))
    )
    if not (passes(compared, tolerance) and of_model <= allowed and error <= of_runtime):
        return failed
    cause = RoundedExport(error=error, rounding=rounding)
    return check.result(compared, tolerance, (Finding(cause=cause, figure=failed.figures[0]),))


def _run_canonical(canonical: onnx.ModelProto, weights: Tensors, inputs: Array) -> Array:
    """What ONNX Runtime computes of the canonical graph with these weights, in float32."""
    from dlb_graph.truth.canonical import with_weights
    from dlb_graph.truth.runtime import run_model

    model = with_weights(canonical, weights)
    return run_model(model.SerializeToString(), {input_names(model)[0]: inputs})[0]


def judge_mixed(
    check: Check,
    canonical: onnx.ModelProto,
    weights: Tensors,
    exported: Path,
    inputs: Array,
    outputs: Array,
    rounding: Rounding,
) -> CheckResult:
    """Judge the file of a model that rounds more than its weights: the file itself does not.

    The file must compute in float64 what the canonical graph does, and the model's outputs must be as far from
    that as rounding weights and inputs makes them.

    Args:
        weights: of the exported model, by the canonical graph's names.
        inputs: in canonical layout, float32.
        outputs: of the model.
    """
    import onnx

    from dlb_graph.truth.evaluate import Evaluator
    from dlb_graph.truth.precision import in_precision

    double, output = onnx.TensorProto.DOUBLE, canonical.graph.output[0].name
    try:
        real = inputs.astype(np.float64) if inputs.dtype.kind == "f" else inputs
        exact = run_in_numpy(in_precision(onnx.load(str(exported)), double), real)[0]
        evaluator = Evaluator(in_precision(canonical, double))
        feeds = {input_names(canonical)[0]: inputs, **weights}
        described = evaluator.run(feeds)[output]
        rounded = evaluator.run({name: to_bfloat16(array) for name, array in feeds.items()})[output]
    except DlbError as raised:
        return check.raised(raised)
    tolerance = EXPORT_TOLERANCES["float32"]
    compared = figure("logits in float64", exact, described)
    own = figure("logits", outputs, described)
    error, least = relative_l2(outputs, described), relative_l2(rounded, described)
    allowed = rounding.multiple * max(least, rounding.least)
    if not error <= allowed:
        return check.result((own, compared), allowed, passed=False)
    cause = MixedExport(error=error, rounding=least)
    return check.result((compared,), tolerance, (Finding(cause=cause, figure=own),))


def run_in_numpy(model: onnx.ModelProto, *inputs: Array) -> list[Array]:
    """Outputs of an exported model, computed by dlb in the model's types, of inputs in the file's order."""
    from dlb_graph.truth.evaluate import evaluate
    from dlb_graph.truth.runtime import run_in_parts

    names = input_names(model)
    first = next(value for value in model.graph.input if value.name == names[0])
    fixed = [axis.dim_value for axis in first.type.tensor_type.shape.dim[:1]]
    feeds = dict(zip(names, inputs))
    return run_in_parts(lambda batch: list(evaluate(model, batch).values()), feeds, fixed)


def input_names(model: onnx.ModelProto) -> list[str]:
    """The names of a model's inputs that are no initialisers, in order."""
    initialisers = {tensor.name for tensor in model.graph.initializer}
    return [str(value.name) for value in model.graph.input if value.name not in initialisers]
