"""The readings of a graph that are tried, one after the other, and why one is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlb_graph.errors import UnsupportedError
from dlb_graph.reading.layers import UnsupportedNode, unsupported
from dlb_graph.truth.evaluate import NodeFailed

__all__ = ["READINGS", "GraphReading", "Refusal", "refusal_of"]

#: Passes that only some readings have: they write out what a rule might read, or in other numbers.
_OPTIONAL = frozenset({"live statistics", "steps", "all definitions", "real numbers"})


@dataclass(frozen=True)
class GraphReading:
    """A graph as it is after some passes, which computes the same as the file.

    Attributes:
        reason: why it is tried, where those before it were refused.
        without: passes of :data:`dlb_graph.rewriting.passes.passes_for` that it leaves out.
    """

    reason: str
    without: frozenset[str]


def _with(reason: str, *passes: str) -> GraphReading:
    return GraphReading(reason, _OPTIONAL - {*passes})


_STEPS = "live statistics", "steps"
#: In the order in which they are tried. One whose passes change nothing more is not.
READINGS = (
    _with("a rule for each operator"),
    _with("layers compute no truths and no integers", "real numbers"),
    _with("a rule may fit some uses of an operator; ONNX defines all of them", "all definitions"),
    _with("both", "all definitions", "real numbers"),
    _with("recurrent operators and norms that no layer is, one step after the other", *_STEPS),
    _with("their numbers may be no real ones", *_STEPS, "real numbers"),
    _with("they may be next to such uses of operators", *_STEPS, "all definitions"),
    _with("all of these", *_STEPS, "all definitions", "real numbers"),
)


@dataclass(frozen=True)
class Refusal:
    """Why a file is not read in one way.

    Attributes:
        error: what a user is told, if no other way is left.
        about: a node that cannot be ``run``, perhaps for a size that nobody gave; a ``node`` that no rule fits;
            or the ``file``, which is then the same in every other way.
    """

    error: UnsupportedError
    about: Literal["run", "node", "file"]


def refusal_of(error: UnsupportedNode | UnsupportedError, *, run: bool = False) -> Refusal:
    """The refusal that an exception stands for.

    Args:
        run: it was raised where the graph is run, and not where it is compared.
    """
    if isinstance(error, UnsupportedNode):
        return Refusal(UnsupportedError(str(error)), "node")
    if run and isinstance(error, NodeFailed):
        return Refusal(UnsupportedError(str(unsupported(error.node, str(error)))), "run")
    # Frames hold all values of the graph.
    error.__context__ = None
    return Refusal(error.with_traceback(None), "file")
