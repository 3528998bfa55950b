"""What a file computes that no layer does: with the number of samples, and by rounding to a narrow type.

Layers compute each sample alone, and in one type. So the file itself is run once more where it reads how many
samples a batch has, or keeps a value in float16 or bfloat16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto

from dlb_graph.comparing.distance import figure, figures, passes
from dlb_graph.comparing.narrow import narrow_values
from dlb_graph.comparing.read_facts import AssumedValues, NarrowValues
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE, MOST_NARROWED
from dlb_graph.errors import UnsupportedError
from dlb_graph.files.check import has_fixed_batch, to_input_type, where_defined
from dlb_graph.files.model_file import nodes_within
from dlb_graph.files.quantised import by_sample
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.evaluate import Evaluator, NodeFailed
from dlb_graph.truth.precision import in_precision
from dlb_graph.truth.trace import default_inputs
from dlb_graph.workload.model import Model
from dlb_graph.workload.noise import noise

__all__ = ["assumed_values_of", "check_batch_size", "is_judged", "narrow_values_of"]


#: Operators whose result depends on how many samples they read.
_COUNTS = ("EyeLike", "Shape", "Size")


def check_batch_size(source: onnx.ModelProto, model: Model, axes: Sequence[int]) -> None:
    """Check that a sample's output is the same whatever the number of samples, where the file leaves it open.

    Args:
        source: the file's model.
        model: the layers that it is read as.
        axes: of the file's input, in the order in which the layers read them.

    Raises:
        UnsupportedError: it is not, or the file cannot be run with another number of samples.
    """
    counts = any(
        node.op_type in _COUNTS
        for nodes in (source.graph.node, *(function.node for function in source.functions))
        for node in nodes_within(nodes)
    )
    name, batch = _input_of(source)
    # Scales of dynamic quantisation are those of a batch, which the certificate says.
    if not counts or axes[0] or has_fixed_batch(source, name) or by_sample(source):
        return
    wide = in_precision(source, TensorProto.DOUBLE)
    (output,) = (value.name for value in wide.graph.output)
    inputs = _noise(wide, model, axes, batch + 1)[name]
    evaluator = Evaluator(wide)
    advice = f"--size {name}:0=N reads it for batches of N samples"
    outputs = {batch: evaluator.run({name: inputs[:batch]})[output].astype(np.float64)}
    for samples in (1, batch + 1):
        try:
            value = evaluator.run({name: inputs[:samples]})[output].astype(np.float64)
        except NodeFailed as error:
            if samples == 1:  # an axis of size 1 may be left out
                continue
            raise UnsupportedError(
                f"it can be run with {batch} samples, and not with {samples} ({error}); {advice}"
            ) from None
        outputs[samples] = value
        fewer, more = sorted((batch, samples))
        compared = [
            figure(output, *where_defined([(same, outputs[fewer])])[0])
            for same in _of_first_samples(outputs[more], outputs[fewer].shape, fewer, more)
        ]
        if any(passes((each,), FLOAT64_TOLERANCE) for each in compared):
            continue
        if samples == 1 and not compared:
            continue
        distances = [each.relative_l2 for each in compared if each.relative_l2 is not None]
        by = f"; those of the same samples differ by {min(distances):.1e}" if distances else ""
        raise UnsupportedError(
            f"its outputs with a batch of {samples} are others than with one of {batch}{by}: it computes with "
            f"the size of the batch; {advice}"
        )


def _of_first_samples(value: Array, shape: tuple[int, ...], fewer: int, more: int) -> list[Array]:
    """The numbers of the first samples in a value of more samples, in each order that they may have.

    Samples may be along any axis, among other numbers: steps may come before them, or windows after.

    Args:
        value: of ``more`` samples.
        shape: of the value of ``fewer`` samples.
    """
    if value.ndim != len(shape) or value.size * fewer != math.prod(shape) * more:
        return []
    axes = [axis for axis, size in enumerate(shape) if value.shape[axis] != size]
    if len(axes) != 1:
        return []
    (axis,), found = axes, []
    numbers = shape[axis] // fewer
    for inner in range(1, numbers + 1):
        if numbers % inner == 0:
            sizes = (*shape[:axis], numbers // inner, more, inner, *shape[axis + 1 :])
            found.append(value.reshape(sizes).take(range(fewer), axis + 1).reshape(shape))
    return found


def narrow_values_of(
    source: onnx.ModelProto, model: Model, axes: Sequence[int]
) -> NarrowValues | None:
    """The values that a file rounds to a narrow type, which layers do not; None without any.

    Args:
        source, model, axes: as of :func:`check_batch_size`.
    """
    return narrow_values(source, _noise(source, model, axes, _input_of(source)[1]))


def is_judged(fact: AssumedValues | NarrowValues) -> bool:
    """Whether layers can be judged that leave out what a file computes.

    Not if the output depends on a number that nobody chose, or if roundings move it by more than their types
    round.
    """
    if isinstance(fact, AssumedValues):
        return False
    return fact.distance is not None and fact.distance <= MOST_NARROWED


def assumed_values_of(
    source: onnx.ModelProto, model: Model, axes: Sequence[int], assumed: Mapping[str, float]
) -> AssumedValues | None:
    """The inputs that are one number everywhere, as nobody chose; None unless the output depends on any.

    What the file computes of other numbers is in no layer.

    Args:
        source, model, axes: as of :func:`check_batch_size`.
        assumed: the number of each input, and of each value that is one number, by name.
    """
    if not assumed:
        return None
    wide = in_precision(source, TensorProto.DOUBLE)
    feed = _noise(source, model, axes, _input_of(source)[1])
    expected = Evaluator(wide).run(feed)
    deciding = []
    for name, number in assumed.items():
        other = onnx.ModelProto()
        other.CopyFrom(wide)
        for node in other.graph.node:
            if name in node.output:  # a ConstantOfShape
                (value,) = node.attribute
                array = np.full_like(onnx.numpy_helper.to_array(value.t), number == 0)
                value.t.CopyFrom(onnx.numpy_helper.from_array(array))
        try:
            same = passes(figures(Evaluator(other).run(feed), expected), FLOAT64_TOLERANCE)
        except UnsupportedError:
            same = False
        deciding += [] if same else [(name, number)]
    return AssumedValues(values=tuple(deciding)) if deciding else None


def _input_of(source: onnx.ModelProto) -> tuple[str, int]:
    """The name of the file's input, and the samples of a batch that it is read with."""
    feed, batch = default_inputs(source)
    (name,) = feed
    return name, batch


def _noise(
    source: onnx.ModelProto, model: Model, axes: Sequence[int], batch: int
) -> Mapping[str, Array]:
    """Noise for the file's input, in its type."""
    name, _ = _input_of(source)
    array = noise(model, 1, batch).transpose(np.argsort(axes))
    return {name: to_input_type(source, name, array)}
