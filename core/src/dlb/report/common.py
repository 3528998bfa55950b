"""Words for layers, shapes and baselines; sentences of findings that checks of every kind make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from dlb.proof.certificate import Baseline
from dlb.proof.findings import Finding, LayerFacts, common

__all__ = [
    "RENDERERS",
    "Renderer",
    "baseline_text",
    "difference_text",
    "layer_text",
    "native_layer_text",
    "node_text",
    "number_of_steps",
    "quoted",
    "renders",
    "shape_text",
    "shortened",
]

#: Makes a sentence from a cause, the finding that holds it, and the adapter's name.
Renderer = Callable[[Any, Finding, str], str]
#: Functions that make sentences, by type of cause.
RENDERERS: dict[type, Renderer] = {}
R = TypeVar("R", bound=Renderer)
_LONGEST = 160
#: Of a text among the attributes of a layer.
_LONGEST_TEXT = 40
#: Numbers of a list that are shown.
_MOST_NUMBERS = 12


def renders(kind: type) -> Callable[[R], R]:
    """Register the function that makes the sentence of a cause."""

    def mark(function: R) -> R:
        RENDERERS[kind] = function
        return function

    return mark


# --- words -----------------------------------------------------------------------------------


def shape_text(shape: Sequence[int] | None) -> str:
    """``[2, 3]``, or ``no array``."""
    return "no array" if shape is None else str(list(shape))


def quoted(names: Iterable[str]) -> str:
    """``'a', 'b'``."""
    return ", ".join(f"'{name}'" for name in names)


def number_of_steps(steps: int) -> str:
    """``1 step``, ``2 steps``."""
    return f"{steps} step{'s' if steps > 1 else ''}"


def shortened(value: Any) -> Any:
    """A value of an attribute; the beginning of what no table has room for, such as a mask's places."""
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return f"{value[:_LONGEST_TEXT]}..."
    if isinstance(value, tuple) and len(value) > _MOST_NUMBERS:
        return f"({', '.join(map(str, value[:_MOST_NUMBERS]))}, ... {len(value)} in all)"
    return value


def _value_text(value: Any) -> str:
    short = shortened(value)
    return str(list(short) if isinstance(short, tuple) else short)


def _attributes_text(layer: LayerFacts) -> str:
    return ", ".join(f"{name}={_value_text(value)}" for name, value in layer.attributes.items())


def described_text(layer: LayerFacts) -> str:
    """A layer of a workload: ``norm, lrn(size=5, alpha=0.01)``."""
    return f"{layer.name}, {layer.kind}({_attributes_text(layer)})"


def layer_text(layer: LayerFacts, adapter: str) -> str:
    """A layer of a workload, and what the framework built."""
    built = f"; in {adapter}: {layer.built}" if layer.built else ""
    return described_text(layer) + built


def native_layer_text(layer: LayerFacts, other: LayerFacts | None = None) -> str:
    """A layer of a user's model: ``'fc1' Linear(in_features=6)``.

    Args:
        other: the layer that it is compared with; attributes that both have alike are left out. One of None
            is shown only if the other has another value.
    """
    if not layer.type:
        return f"'{layer.name}'"
    its = other.attributes if other is not None else {}
    shown = {
        name: value
        for name, value in layer.attributes.items()
        if (value != "None" or name in its) and (name not in its or its[name] != value)
    }
    attributes = _attributes_text(msgspec.structs.replace(layer, attributes=shown))
    name = f"'{layer.name}' " if layer.name else ""
    return f"{name}{layer.type}" + (f"({attributes})" if attributes else "")


def node_text(node: LayerFacts) -> str:
    """A node of a file: ``Conv 'y' (kernel_shape=[3, 3])``."""
    text = _attributes_text(node)
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
    return f"{node.kind} '{node.name}'" + (f" ({text})" if text else "")


def difference_text(difference: common.StructureDifference) -> str:
    """``layer 'a': stride: expected 1, found 2``."""
    where = (
        f"layer '{difference.layer}'" if difference.layer else f"exported node '{difference.node}'"
    )
    return f"{where}: {difference.what}: expected {difference.expected}, found {difference.found}"


_BASELINES = {
    "canonical_graph": "the canonical graph in float64",
    "canonical_layers": "the canonical layer in float64, given the adapter's own inputs to it",
    "canonical_structure": "the canonical ONNX graph",
    "given_weights": "the weights it was given, bit for bit",
    "optimizer_definition": "the optimizer's definition in float64, on the adapter's own gradients",
    "finite_differences": "finite differences of the canonical graph's loss in float64",
    "canonical_backward": "the backward pass of the canonical layers, from the adapter's own values",
    "dropout_definition": "the definition, of what the framework itself draws, in float64",
    "own_float64": "its own in float64, as a multiple of the best adapter's error",
    "own_model": "the model that was exported",
    "trained_weights": "the trained weights, bit for bit",
    "timed_model": "the timed model's own predictions",
    "onnx_runtime": "ONNX Runtime on the exported file",
    "sample_order": "the samples that the order says",
    "step_definition": "the workload's step in float64, on the same batch",
    "core_clock": "dlb's own clock",
    "single_worker": "one worker on the same global batches, in float64",
}
_NAMED_BASELINES = {
    "adapters": "{}",
    "onnx_file": "{}",
    "model": "{}, with the same weights",
    "model_weights": "the weights of {}, bit for bit",
    "model_statistics": "the batch normalisations of {}, after a step of training",
    "note": "{}",
}


def baseline_text(baseline: Baseline) -> str:
    """The baseline of a check, in words."""
    text = _BASELINES.get(baseline.kind) or _NAMED_BASELINES[baseline.kind].format(
        ", ".join(baseline.names)
    )
    text += " in float64" if baseline.float64 else ""
    return text + (f", SHA-256 {baseline.sha256}" if baseline.sha256 else "")


# --- sentences -------------------------------------------------------------------------------


def at_layer(fault: str, finding: Finding, adapter: str) -> str:
    """A fault with its layer, if it has one."""
    if finding.layer is None:
        return fault
    return f"first layer past the tolerance: {layer_text(finding.layer, adapter)}; {fault}"


@renders(common.ShapeMismatch)
def _shape_mismatch(cause: common.ShapeMismatch, finding: Finding, adapter: str) -> str:
    shapes = f"{shape_text(cause.found)}, and should be {shape_text(cause.expected)}"
    if finding.layer is not None:
        return at_layer(f"its shape is {shapes}", finding, adapter)
    tensor = f"the shape of {finding.figure.tensor}" if finding.figure else "a shape"
    return f"{tensor} is {shapes}"


@renders(common.NotFinite)
def _not_finite(cause: common.NotFinite, finding: Finding, adapter: str) -> str:
    if finding.layer is not None:
        return at_layer("it holds a NaN or an infinity", finding, adapter)
    return f"{finding.figure.tensor if finding.figure else 'a tensor'} holds a NaN or an infinity"


@renders(common.Missing)
def _missing(cause: common.Missing, finding: Finding, adapter: str) -> str:
    if finding.layer is not None:
        return at_layer("its value is missing", finding, adapter)
    return f"no value, or one of another shape, of {', '.join(cause.names)}"


@renders(common.BitsDiffer)
def _bits_differ(cause: common.BitsDiffer, finding: Finding, adapter: str) -> str:
    return f"not the same bits: {', '.join(cause.tensors)}"


@renders(common.StepsCompared)
def _steps_compared(cause: common.StepsCompared, finding: Finding, adapter: str) -> str:
    return number_of_steps(cause.steps)


@renders(common.CannotRun)
def _cannot_run(cause: common.CannotRun, finding: Finding, adapter: str) -> str:
    return cause.failure.line


@renders(common.FeatureMissing)
def _feature_missing(cause: common.FeatureMissing, finding: Finding, adapter: str) -> str:
    several = len(cause.because) > 1
    need = (
        f"layers {quoted(cause.because)} need"
        if several
        else f"layer {quoted(cause.because)} needs"
    )
    because = f", which {need}" if cause.because else ""
    return f"the adapter does not have the feature '{cause.feature}'{because}"


@renders(common.Note)
def _note(cause: common.Note, finding: Finding, adapter: str) -> str:
    return cause.text


@renders(common.StructuresDiffer)
def _structures_differ(cause: common.StructuresDiffer, finding: Finding, adapter: str) -> str:
    listed = "; ".join(map(difference_text, cause.differences))
    listed += f"; and {cause.more} more" if cause.more else ""
    if cause.decided_by == "values":
        return f"written differently, in analytic operators, so that values decide: {listed}"
    if cause.decided_by == "nothing":
        return (
            "written differently, and equal where it was tried; that shows nothing about inputs that "
            f"take another side of {', '.join(cause.undecided)}: {listed}"
        )
    return listed
