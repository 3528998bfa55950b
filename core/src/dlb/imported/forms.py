"""Forms of a file's model that compute the same, of which one may be read where the others are not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto

from dlb.errors import UnsupportedError
from dlb.graph.control_flow import CONTROL_FLOW, without_control_flow
from dlb.graph.evaluate import Evaluator, NodeFailed
from dlb.graph.live_statistics import with_live_statistics
from dlb.graph.precision import in_precision
from dlb.graph.recurrent_steps import RECURRENT, with_steps
from dlb.graph.trace import default_inputs, trace
from dlb.imported.bodies import pair, part_constants, with_bodies
from dlb.imported.layers import UnsupportedNode, unsupported
from dlb.imported.real_numbers import as_real_numbers
from dlb.imported.real_rules import DYNAMIC
from dlb.imported.rules import READ_OPERATORS
from dlb.proof.distance import figures, passes
from dlb.proof.tolerances import FLOAT64_TOLERANCE

__all__ = ["NotRun", "forms"]

#: Operators of which some are written out where no layer is what they compute.
_WRITTEN_OUT = RECURRENT | {"BatchNormalization"}


class NotRun(UnsupportedNode):
    """A node cannot be run."""

    def __init__(self, error: NodeFailed) -> None:
        super().__init__(str(unsupported(error.node, f"{error}")))


def forms(
    model: onnx.ModelProto, *, trained: bool, with_numbers: bool
) -> Iterator[onnx.ModelProto]:
    """The model as it is, and then with more and more of its operators written out.

    Args:
        trained: something is trained.
        with_numbers: an input may be looked up and computed with.

    Raises:
        NotRun: it cannot be run.
        UnsupportedError: what is written out computes something else.
    """
    plain = _without_control_flow(model)
    yield from _forms(plain, trained=trained, with_numbers=with_numbers)
    written = _more_written_out(plain)
    if written is not None:
        yield from _forms(written, trained=trained, with_numbers=with_numbers)


def _without_control_flow(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the loops and branches that every input takes alike.

    Raises:
        NotRun: it cannot be run.
        UnsupportedError: what is written out computes something else.
    """
    given = model
    if model.functions:
        from onnx import inliner

        model = inliner.inline_local_functions(model)
    if CONTROL_FLOW.isdisjoint(node.op_type for node in model.graph.node):
        return given
    feed, batch = default_inputs(model)
    try:
        straight = without_control_flow(model, feed, one_sample=batch == 1)
        if straight is model:
            return given
    except NodeFailed as error:
        raise NotRun(error) from None
    _check_written_out("loops", model, straight)
    return straight


def _more_written_out(plain: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model with operators written out that no layer is, which are recurrent or normalise; None without.

    Raises:
        UnsupportedError: what is written out computes something else.
    """
    if _WRITTEN_OUT.isdisjoint(node.op_type for node in plain.graph.node):
        return None
    try:
        traced = trace(plain)
    except NodeFailed:
        return None
    written = with_steps(with_live_statistics(plain, traced), traced)
    if written is plain:
        return None
    _check_written_out("operators", plain, written)
    return written


def _check_written_out(
    what: str, model: onnx.ModelProto, written: onnx.ModelProto, *, one_sample: bool = False
) -> None:
    """Run both on noise: on one sample of a batch, or on all.

    Raises:
        NotRun: one cannot be run.
        UnsupportedError: they compute different outputs.
    """
    drawn, (feed, _) = np.random.default_rng(0), default_inputs(model)
    if one_sample:
        feed = {name: value[:1] for name, value in feed.items()}
    feed = {
        name: value if value.dtype.kind in "biu" else drawn.normal(size=value.shape)
        for name, value in feed.items()
    }
    try:
        expected, computed = (
            Evaluator(in_precision(one, TensorProto.DOUBLE)).run(feed) for one in (model, written)
        )
    except NodeFailed as error:
        raise NotRun(error) from None
    if not passes(figures(computed, expected), FLOAT64_TOLERANCE):
        raise UnsupportedError(f"its {what}, written out, compute something else than the file")


def _forms(
    model: onnx.ModelProto, *, trained: bool, with_numbers: bool
) -> Iterator[onnx.ModelProto]:
    """The model, with operators that ONNX defines by others as those, and with real numbers for truths.

    Where something is trained, dynamic quantisation is that of each sample.

    Raises:
        UnsupportedError: the real numbers are others.
    """
    dynamic = {DYNAMIC} if trained else set()
    plain = with_bodies(pair(model), READ_OPERATORS | dynamic)
    inner = with_bodies(plain, dynamic)
    for form in (plain, inner) if inner is not plain else (plain,):
        yield part_constants(form)
        by_samples = any(node.op_type == DYNAMIC for node in form.graph.node)
        if by_samples and not trained:  # an older onnx has not written it out
            continue
        try:
            real = as_real_numbers(form, of_indices=with_numbers)
        except UnsupportedError:
            continue
        if real is not None:
            if by_samples:
                _check_written_out("dynamic quantisation", form, real, one_sample=True)
            yield part_constants(real)
