"""The passes, in the order in which they run, and what runs and checks them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto

from dlb_graph.comparing.distance import figures, passes
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE
from dlb_graph.errors import UnsupportedError
from dlb_graph.rewriting.control_flow import functions, loops
from dlb_graph.rewriting.definitions import definitions, live_statistics, pairs, separate_constants
from dlb_graph.rewriting.real_numbers import real_numbers
from dlb_graph.rewriting.real_rules import DYNAMIC
from dlb_graph.rewriting.recurrent_steps import recurrent_steps
from dlb_graph.truth.evaluate import Evaluator
from dlb_graph.truth.precision import in_precision
from dlb_graph.truth.trace import default_inputs

__all__ = ["Pass", "Rewriter", "passes_for"]


@dataclass(frozen=True)
class Pass:
    """A rewrite of a graph to another that computes the same.

    Attributes:
        name: of the pass.
        rewrite: returns the model rewritten; None if there is nothing to do.
        checked: what is written out, in the message that it computes something else. Both models are run on
            noise. Empty for a pass that only copies nodes, or writes what ONNX defines.
        by_sample: only a model with dynamic quantisation is checked, which is another function of a batch, and
            the same of one sample.
    """

    name: str
    rewrite: Callable[[onnx.ModelProto], onnx.ModelProto | None]
    checked: str = ""
    by_sample: bool = False


def passes_for(operators: Collection[str], *, trained: bool, of_indices: bool) -> tuple[Pass, ...]:
    """Every pass, in their order. A reading leaves some out (:mod:`dlb_graph.files.readings`).

    Args:
        operators: that rules read as they are.
        trained: something is trained, so that dynamic quantisation is that of each sample.
        of_indices: integers of the input that look up rows of a table may be computed with, too.
    """
    dynamic = {DYNAMIC} if trained else set()
    return (
        Pass("functions", functions),
        Pass("loops", loops, "loops"),
        Pass("live statistics", live_statistics, "operators"),
        Pass("steps", recurrent_steps, "operators"),
        Pass("pairs", pairs),
        Pass("definitions", partial(definitions, staying={*operators, *dynamic})),
        Pass("all definitions", partial(definitions, staying=dynamic)),
        Pass(
            "real numbers",
            partial(real_numbers, of_indices=of_indices, by_sample=trained),
            "dynamic quantisation",
            by_sample=True,
        ),
        Pass("separate constants", separate_constants),
    )


class Rewriter:
    """Runs passes on one model. What several readings begin with is run once."""

    def __init__(self, model: onnx.ModelProto, passes: Sequence[Pass]) -> None:
        self._passes = passes
        self._rewritten: dict[tuple[str, ...], tuple[onnx.ModelProto, tuple[str, ...]]]
        self._rewritten = {(): (model, ())}

    def run(self, without: Collection[str]) -> tuple[onnx.ModelProto, tuple[str, ...]]:
        """The model after all passes but some, and the names of those that changed it.

        Raises:
            NodeFailed: what a pass must know of the model cannot be evaluated.
            UnsupportedError: what a pass wrote computes something else than the file.
        """
        return self._run([one for one in self._passes if one.name not in without])

    def _run(self, chosen: Sequence[Pass]) -> tuple[onnx.ModelProto, tuple[str, ...]]:
        key = tuple(one.name for one in chosen)
        if key not in self._rewritten:
            model, names = self._run(chosen[:-1])
            written = chosen[-1].rewrite(model)
            if written is not None:
                _check(chosen[-1], model, written)
                model, names = written, (*names, key[-1])
            self._rewritten[key] = model, names
        return self._rewritten[key]


def _check(by: Pass, model: onnx.ModelProto, written: onnx.ModelProto) -> None:
    """Run both on noise.

    Raises:
        NodeFailed: one cannot be run.
        UnsupportedError: they compute different outputs.
    """
    if not by.checked or (by.by_sample and DYNAMIC not in {n.op_type for n in model.graph.node}):
        return
    drawn, (feed, _) = np.random.default_rng(0), default_inputs(model)
    for name, value in feed.items():
        value = value[:1] if by.by_sample else value
        feed[name] = value if value.dtype.kind in "biu" else drawn.normal(size=value.shape)
    expected, computed = (
        Evaluator(in_precision(one, TensorProto.DOUBLE)).run(feed) for one in (model, written)
    )
    if not passes(figures(computed, expected), FLOAT64_TOLERANCE):
        raise UnsupportedError(
            f"its {by.checked}, written out, compute something else than the file"
        )
