"""PReLUs that exporters write as sums of ReLUs, recognised by their results."""

from __future__ import annotations

import numpy as np
import onnx

from dlb.graph.block_search import candidates, real_constants, run_nodes
from dlb.graph.blocks import Block
from dlb.graph.reader import Reader

__all__ = ["prelu"]

_BENT = ("Abs", "Relu")
_SUMS = ("Add", "Sub", "Sum")
_OPERATORS = {"Cast", "Mul", "Neg", *_BENT, *_SUMS}


def prelu(reader: Reader, end: onnx.NodeProto) -> Block | None:
    """The PReLU with a slope for each channel that ends in a node, or None.

    Sums of values, products with constants and bends at 0 keep factors above 0. So a function of single
    numbers that is made of them is known by its values at 1 and at -1.
    """
    trace = reader.trace
    for start, nodes in candidates(trace, end, _OPERATORS, _BENT):
        shape = trace.values[start].shape
        sizes = {constant.size for constant in real_constants(trace, nodes).values()}
        if max(sizes, default=1) == 1 or any(
            trace.values[node.output[0]].shape != shape
            or len(reader.live_inputs(node)) != (len(node.input) if node.op_type in _SUMS else 1)
            for node in nodes
        ):
            continue
        above, below = (
            run_nodes(trace, nodes, {start: np.full(shape, number)}, end.output[0])
            for number in (1.0, -1.0)
        )
        if (above == 1).all() and (below == below[:1]).all():
            count = max(sizes)
            weights = {"slope": -below[:1]}
            return Block("PRelu", {"slopes": count}, (start,), count, weights=weights)
    return None
