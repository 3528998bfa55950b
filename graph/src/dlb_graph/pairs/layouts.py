"""Inputs and outputs whose axes the second of two files has in another order, such as NHWC."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import onnx
from onnx import helper

from dlb_graph.comparing.distance import relative_l2
from dlb_graph.comparing.read_facts import Source, TurnedAxes
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE
from dlb_graph.errors import DlbError, RequestError
from dlb_graph.files.model_file import ModelFile, Port, nodes_within
from dlb_graph.layers.numbers import Array

__all__ = ["LAYOUTS", "in_layout_of"]

#: Layouts other than the canonical [N, C, ...] or [N, T, ...]: the order of the canonical axes.
LAYOUTS = {
    "NHWC": (0, 2, 3, 1),
    "NWC": (0, 2, 1),
    "NDHWC": (0, 2, 3, 4, 1),
    "TNC": (1, 0, 2),
    "TN": (1, 0),
}
Axes = tuple[int, ...]
#: By the name of a port, the axes of the file's in the order in which the other file has them.
Orders = Mapping[str, Axes]
#: Outputs of a file and its counterpart, on inputs that are the same.
Outputs = Sequence[tuple[str, Array, str, Array]]


def in_layout_of(
    first: ModelFile,
    second: ModelFile,
    pairs: Sequence[tuple[Port, Port]],
    layouts: Mapping[str, str],
    outputs_of: Callable[[ModelFile], Outputs],
) -> tuple[ModelFile, tuple[TurnedAxes, ...]]:
    """The second file with transposed inputs and outputs, where its axes have another order; and which.

    Without a declared layout, sizes say the order of an input. Where its own fits, it stays, since an order
    that is wrong is a fault; one with which both files compute the same is proposed. An output is transposed
    where its shape is another, or an input was.

    Args:
        pairs: inputs of both.
        layouts: declared for a file by its label, a name of :data:`LAYOUTS`.
        outputs_of: runs the first file, and the second with other inputs.

    Raises:
        RequestError: there is no such file or layout, or no input has as many axes.
    """
    orders = [_declared(first, second, pairs, layouts)] if layouts else list(_fitting(pairs))
    own = {port.name: tuple(range(len(port.shape or ()))) for _, port in pairs}
    found = list[tuple[ModelFile, tuple[TurnedAxes, ...]]]()
    for order in orders if orders != [own] or not _same_shapes(first, second) else ():
        inputs = {name: axes for name, axes in order.items() if axes != own[name]}
        file, outputs, same = _turned(second, inputs=inputs), dict[str, Axes](), True
        try:
            results = outputs_of(file)
        except DlbError:
            continue
        for _, expected, name, value in results:
            axes = _order(expected, value, bool(inputs))
            same = same and _agree(expected, value.transpose(axes))
            outputs |= {name: axes} if axes != tuple(range(value.ndim)) else {}
        how: Source = (
            "declared" if layouts else "sizes" if orders[0] != own or not inputs else "none"
        )
        facts = [
            TurnedAxes(
                file=second.label,
                port=name,
                axes=each,
                source=how if name in inputs or how == "none" else "sizes",
                layout=_named(first, second, each),
            )
            for name, each in (*inputs.items(), *outputs.items())
        ]
        if how == "none" and found:
            return (found[0][0], tuple(facts[:1])) if same else found[0]
        found.append((_turned(file, outputs=outputs), tuple(facts)))
        if same:
            return found[-1]
    return found[0] if found else (second, ())


def _named(first: ModelFile, second: ModelFile, axes: Axes) -> str:
    """What declares an order of the second file's axes: ``b.onnx=NHWC``."""
    for name, order in LAYOUTS.items():
        for label, each in (
            (second.label, tuple(np.argsort(order).tolist())),
            (first.label, order),
        ):
            if each == axes:
                return f"{label}={name}"
    return ""


def _declared(
    first: ModelFile,
    second: ModelFile,
    pairs: Sequence[tuple[Port, Port]],
    layouts: Mapping[str, str],
) -> Orders:
    labels = [first.label, second.label]
    for label, layout in layouts.items():
        if label not in labels or layout not in LAYOUTS:
            raise RequestError(
                f"--layout {label}={layout}: name one of {', '.join(labels)}, and one of {', '.join(LAYOUTS)}"
            )
    orders = {}
    for _, port in pairs:
        rank = len(port.shape or ())
        ours, theirs = (
            axes if len(axes := LAYOUTS.get(layouts.get(label, ""), ())) == rank else range(rank)
            for label in labels
        )
        orders[port.name] = tuple(list(theirs).index(axis) for axis in ours)
    ranks = {len(port.shape or ()) for _, port in pairs}
    if any(len(LAYOUTS[layout]) not in ranks for layout in layouts.values()):
        raise RequestError(f"--layout {layouts}: no input has as many axes")
    return orders


def _orders_of(rank: int) -> Iterator[Axes]:
    yield tuple(range(rank))
    for axes in LAYOUTS.values():
        if len(axes) == rank > 2:
            yield from dict.fromkeys((tuple(np.argsort(axes).tolist()), axes))


def _fitting(pairs: Sequence[tuple[Port, Port]]) -> Iterator[Orders]:
    """Orders in which most sizes of each input are known to be equal, and none differs; its own first."""
    choices = []
    for port, counterpart in pairs:
        shape, other = port.shape or (), counterpart.shape or ()
        equal = dict[Axes, int]()
        for axes in _orders_of(len(other)) if len(shape) == len(other) else ():
            sizes = [(size, other[axis]) for size, axis in zip(shape, axes)]
            known = [
                one == two for one, two in sizes if isinstance(one, int) and isinstance(two, int)
            ]
            if all(known):
                equal[axes] = len(known)
        most = max(equal.values(), default=0)
        best = [axes for axes, count in equal.items() if count == most]
        choices.append(best or [tuple(range(len(other)))])
    for chosen in product(*choices):
        yield {port.name: axes for (_, port), axes in zip(pairs, chosen)}


def _same_shapes(first: ModelFile, second: ModelFile) -> bool:
    """Whether the declared shapes of outputs leave no doubt about their order."""
    both = zip(first.outputs, second.outputs)
    return all(
        len(shape := one.shape or ()) < 3
        or (shape[1:] == (other.shape or ())[1:] and None not in shape[1:])
        for one, other in both
    )


def _agree(expected: Array, value: Array) -> bool:
    return expected.shape == value.shape and relative_l2(value, expected) <= FLOAT64_TOLERANCE


def _order(expected: Array, value: Array, turned: bool) -> Axes:
    """The order of axes in which a value has the expected shape, its own if that does and no input was turned.

    Of several the first in which it is the expected value.
    """
    orders = [
        axes for axes in _orders_of(value.ndim) if value.transpose(axes).shape == expected.shape
    ]
    own = tuple(range(value.ndim))
    if not orders or (orders[0] == own and not turned):
        return own
    return next((axes for axes in orders if _agree(expected, value.transpose(axes))), orders[0])


def _turned(
    file: ModelFile, *, inputs: Orders | None = None, outputs: Orders | None = None
) -> ModelFile:
    """The file with transposed inputs and outputs of the same names."""
    if not inputs and not outputs:
        return file
    model = onnx.ModelProto()
    model.CopyFrom(file.model)
    before, after = list[onnx.NodeProto](), list[onnx.NodeProto]()
    for orders, values in ((inputs, model.graph.input), (outputs, model.graph.output)):
        for value in values:
            axes = (orders or {}).get(value.name)
            if axes is None:
                continue
            name, inner = value.name, f"{value.name}/as written"
            for node in nodes_within(model.graph.node):
                for names in (node.input, node.output):
                    names[:] = [inner if each == name else each for each in names]
            dims = list(value.type.tensor_type.shape.dim)
            if dims:
                del value.type.tensor_type.shape.dim[:]
                value.type.tensor_type.shape.dim.extend(dims[axis] for axis in axes)
            if orders is inputs:
                back = np.argsort(axes).tolist()
                before.append(helper.make_node("Transpose", [name], [inner], perm=back))
            else:
                after.append(helper.make_node("Transpose", [inner], [name], perm=axes))
    nodes = [*before, *model.graph.node, *after]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return replace(file, model=model)
