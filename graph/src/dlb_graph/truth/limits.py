"""How much of a graph of unknown origin is computed: a small file can ask for any memory, and never end."""

from __future__ import annotations

import functools
import math
from contextvars import ContextVar
from typing import Any

import numpy as np
import onnx
import psutil
from onnx import defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

__all__ = ["MOST_INNER_NODES", "MOST_NODES", "MOST_NUMBERS", "LimitedEvaluator", "inner_nodes_left"]

#: Nodes of a file, once its functions are written out.
MOST_NODES = 10_000
#: Numbers of one value, unless the node reads one of as many.
MOST_NUMBERS = 1 << 27
#: Nodes that all rounds of all loops of a graph run together.
MOST_INNER_NODES = 50_000
#: From so many numbers on, a value must fit into the free memory.
_LARGE = 1 << 22
#: Numbers of one axis that may decide a shape: more than any value has axes.
_MOST_SIZES = 64

#: Nodes that graphs within nodes may still run, in a list of one number.
inner_nodes_left: ContextVar[list[int]] = ContextVar("inner_nodes_left")


class LimitedEvaluator(ReferenceEvaluator):  # type: ignore[misc, unused-ignore]
    """The reference evaluator, with limits.

    A node raises NotImplementedError before it makes a value that is too large, and a loop when it has run too
    many nodes.
    """

    def _load_impl(self, node: onnx.NodeProto, *types: Any) -> Any:
        implementation = super()._load_impl(node, *types)
        return _limited(implementation) if isinstance(implementation, type) else implementation

    def run(self, *args: Any, **options: Any) -> Any:
        """Run a graph within a node."""
        left = inner_nodes_left.get()
        left[0] -= 1 + len(self.rt_nodes_)
        if left[0] < 0:
            raise NotImplementedError(f"its loops run more than {MOST_INNER_NODES} nodes")
        return super().run(*args, **options)


class _Limited(OpRun):  # type: ignore[misc, unused-ignore]
    _checked: Any = None

    def run(self, *args: Any, **options: Any) -> Any:
        arrays = {
            name: array
            for name, array in zip(self.onnx_node.input, args)
            if name and isinstance(array, np.ndarray)
        }
        sizes = {
            name: array
            for name, array in arrays.items()
            if array.ndim < 2 and array.size <= _MOST_SIZES
        }
        # What is predicted follows from these.
        key: list[Any] = [(array.shape, array.dtype.num) for array in arrays.values()]
        key += [array.tobytes() for array in sizes.values()]
        if key != self._checked:
            _check_sizes(self.onnx_node, self.run_params["opsets"], arrays, sizes)
            self._checked = key
        return super().run(*args, **options)  # type: ignore[no-untyped-call, unused-ignore]


@functools.cache
def _limited(implementation: type) -> type:
    return type(implementation.__name__, (_Limited, implementation), {})


def _check_sizes(
    node: onnx.NodeProto,
    opsets: dict[str, int],
    arrays: dict[str, np.ndarray],
    sizes: dict[str, np.ndarray],
) -> None:
    """Refuse a node by the shapes that ONNX infers for what it makes, before it makes it."""
    try:
        inferred = onnx.shape_inference.infer_node_outputs(
            defs.get_schema(node.op_type, opsets[node.domain], node.domain),
            node,
            {
                name: helper.make_tensor_type_proto(
                    helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                )
                for name, array in arrays.items()
            },
            {name: numpy_helper.from_array(array) for name, array in sizes.items()},
            opset_imports=[helper.make_opsetid(*opset) for opset in opsets.items()],
        )
    except Exception:  # the node itself says what is wrong with it
        return
    most = max(MOST_NUMBERS, *(array.size for array in arrays.values()), 0)
    for name, kind in inferred.items():
        shape = [axis.dim_value for axis in kind.tensor_type.shape.dim]
        numbers = math.prod(shape)
        if abs(numbers) > most:
            raise NotImplementedError(f"'{name}' {shape} has more than {MOST_NUMBERS} numbers")
        if numbers > _LARGE and 8 * numbers > (free := psutil.virtual_memory().available):
            raise NotImplementedError(
                f"'{name}' {shape} needs {8 * numbers} bytes, and {free} are free"
            )
