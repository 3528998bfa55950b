"""Words for layers, shapes and baselines; sentences of findings that checks of every kind make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from string import Formatter
from typing import Any, TypeVar

from dlb.proof.findings import AnyCause, Cause, Finding, LayerFacts, Unknown, code_of, common

__all__ = [
    "PLACES",
    "RENDERERS",
    "Renderer",
    "attributes_text",
    "difference_text",
    "lateness",
    "layer_text",
    "number_of_steps",
    "quoted",
    "renders",
    "says",
    "shape_text",
    "shortened",
]

#: Makes a sentence from a cause, the finding that holds it, and the adapter's name.
Renderer = Callable[[Any, Finding, str], str]
#: Functions that make sentences, by type of cause.
RENDERERS: dict[type, Renderer] = {}
#: Of causes that say where a difference is: the place in words, and what the framework built there, or "".
PLACES: dict[type, Callable[[Any], tuple[str, str]]] = {}
R = TypeVar("R", bound=Renderer)
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


def says(kind: type[Cause], words: str) -> None:
    """Register the sentence of a cause in which its fields stand as they are, in braces; names are listed."""
    fields = {name for _, name, _, _ in Formatter().parse(words) if name is not None}
    assert fields <= {*kind.__struct_fields__}, f"{kind.__name__} has not all of {fields}"

    def render(cause: Cause, finding: Finding, adapter: str) -> str:
        values = {name: getattr(cause, name) for name in fields}
        listed = {name: ", ".join(each) for name, each in values.items() if isinstance(each, tuple)}
        return words.format(**{**values, **listed})

    RENDERERS[kind] = render


# --- words -----------------------------------------------------------------------------------


def shape_text(shape: Sequence[int] | None) -> str:
    """``[2, 3]``, or ``no array``."""
    return "no array" if shape is None else str(list(shape))


def quoted(names: Iterable[str]) -> str:
    """``'a', 'b'``."""
    return ", ".join(f"'{name}'" for name in names)


def lateness(staleness: Sequence[int]) -> str:
    """``9 pushes came after 0 of peers since their pull, 3 after 1, 1 after 2``, or ``1 push``."""
    first, *others = staleness
    later = [f"{count} after {lag}" for lag, count in enumerate(others, 1) if count]
    shown = later[:_MOST_NUMBERS] + ["..."] * (len(later) > _MOST_NUMBERS)
    came, own = ("push", "its") if first == 1 else ("pushes", "their")
    return ", ".join([f"{first} {came} came after 0 of peers since {own} pull", *shown])


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


def attributes_text(layer: LayerFacts) -> str:
    return ", ".join(f"{name}={_value_text(value)}" for name, value in layer.attributes.items())


def described_text(layer: LayerFacts) -> str:
    """A layer of a workload: ``norm, lrn(size=5, alpha=0.01)``."""
    return f"{layer.name}, {layer.kind}({attributes_text(layer)})"


def layer_text(layer: LayerFacts, adapter: str) -> str:
    """A layer of a workload, and what the framework built."""
    built = f"; in {adapter}: {layer.built}" if layer.built else ""
    return described_text(layer) + built


def difference_text(difference: common.StructureDifference) -> str:
    """``layer 'a': stride: expected 1, found 2``."""
    where = (
        f"layer '{difference.layer}'" if difference.layer else f"exported node '{difference.node}'"
    )
    return f"{where}: {difference.what}: expected {difference.expected}, found {difference.found}"


# --- sentences -------------------------------------------------------------------------------


def at_layer(fault: str, finding: Finding, adapter: str) -> str:
    """A fault with its layer, if it has one."""
    if finding.layer is None:
        return fault
    return f"first layer past the tolerance: {layer_text(finding.layer, adapter)}; {fault}"


@renders(Unknown)
def _of_package(cause: AnyCause, finding: Finding, adapter: str) -> str:
    # A code is PACKAGE.NAME, but for those of dlb-port, which were dlb-core's.
    code = code_of(cause)
    package = code.rpartition(".")[0] or "dlb-port"
    return (
        f"{code}, a finding of the package {package}, which is not installed or is older: "
        f"pip install --upgrade {package}"
    )


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


says(common.BitsDiffer, "not the same bits: {tensors}")


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
