"""Branches and loops that every input takes alike, written out.

An exporter writes an If for a setting, and a Loop or a Scan for the steps of a sequence: where no number of
the inputs decides, the graph computes the same without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from dlb_graph.layers.numbers import Array
from dlb_graph.rewriting.recurrent_loops import recurrence_of
from dlb_graph.truth.evaluate import Evaluator, names_read
from dlb_graph.truth.limits import MOST_NODES
from dlb_graph.truth.liveness import live_names
from dlb_graph.truth.precision import inlined
from dlb_graph.truth.trace import Trace, default_inputs, trace

__all__ = ["CONTROL_FLOW", "functions", "loops", "straight", "traced", "without_control_flow"]

Nodes = list[onnx.NodeProto]

#: Nodes that a graph may have before another loop is written out: loops within loops multiply.
MOST_OF_ALL = MOST_NODES
_ROUNDS = "dlb/rounds"
_OWN = ("", "ai.onnx")
_MAKE_SEQUENCES = {
    *("SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert"),
    *("SequenceMap", "SplitToSequence"),
}


def without_control_flow(
    model: onnx.ModelProto, feed: Mapping[str, Array], *, one_sample: bool = False
) -> onnx.ModelProto | None:
    """A model without its branches and loops; None if it has none that can be written out.

    An If whose condition depends on the inputs' numbers stays: other numbers take its other branch. So does a
    loop whose rounds depend on them, that has none, or whose rounds have more than ``MOST_NODES`` together.

    Args:
        model: without functions.
        feed: every input by name.
        one_sample: whether the file is of one sample, so that an If chooses for it alone: then it is a Where of
            both branches.

    Raises:
        NodeFailed: what decides about a branch or a loop cannot be evaluated.
    """
    original, stay = model, set[str]()
    while True:
        graph = model.graph
        if not any(node.op_type in _FORMS and _key(node) not in stay for node in graph.node):
            return None if model is original else model
        live = live_names(graph.node, feed)
        waiting = [
            node
            for node in graph.node
            if node.op_type in _FORMS
            and _key(node) not in {"", *stay}
            and (live.isdisjoint(_decisive(node)) or (one_sample and node.op_type == "If"))
        ]
        if not waiting:
            return None if model is original else model
        keys = _first_loops(graph.node, set(map(_key, waiting)))
        values = _values(model, feed, keys)
        opset = next(entry for entry in model.opset_import if entry.domain in _OWN)
        result = onnx.ModelProto()
        result.CopyFrom(model)
        del result.graph.node[:]
        known = _Known(values, live, _defined_names(graph), opset)
        replaced = False
        for node in graph.node:
            part = None
            if node.op_type in _FORMS and _key(node) in keys:
                if len(result.graph.node) < MOST_OF_ALL:
                    part = _FORMS[node.op_type](node, known)
                stay |= set() if part else {_key(node)}
            if part is None:
                result.graph.node.append(node)
                continue
            replaced = True
            known.used.update(_defined_names(part))
            result.graph.initializer.extend(part.initializer)
            result.graph.sparse_initializer.extend(part.sparse_initializer)
            result.graph.node.extend(part.node)
        if replaced:
            model = result


def straight(model: onnx.ModelProto, feed: Mapping[str, Array] | None = None) -> onnx.ModelProto:
    """A model without functions, and without the branches and loops that every input takes alike.

    Args:
        feed: every input by name; as of :func:`dlb_graph.truth.trace.trace` if left out.

    Raises:
        UnsupportedError: what decides about a branch or a loop cannot be evaluated, or a size is open.
    """
    model = inlined(model)
    if CONTROL_FLOW.isdisjoint(node.op_type for node in model.graph.node):
        return model
    feed = default_inputs(model)[0] if feed is None else feed
    return without_control_flow(model, feed) or model


def functions(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Write out a model's own functions."""
    return inlined(model) if model.functions else None


def loops(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Write out branches and loops that every input takes alike; in a file of one sample every branch.

    Raises:
        NodeFailed: what decides about a branch or a loop cannot be evaluated.
    """
    if CONTROL_FLOW.isdisjoint(node.op_type for node in model.graph.node):
        return None
    feed, batch = default_inputs(model)
    return without_control_flow(model, feed, one_sample=batch == 1)


def traced(model: onnx.ModelProto, feed: Mapping[str, Array] | None = None) -> Trace:
    """Run a foreign model once, without its branches and loops; arguments and errors as of :func:`straight`."""
    return trace(straight(model, feed), feed)


def _first_loops(nodes: Iterable[onnx.NodeProto], keys: set[str]) -> set[str]:
    """Of what waits, all but the loops behind another: the shape of what that one gives is not known yet."""
    behind, later = set[str](), set[str]()
    for node in nodes:
        after = not behind.isdisjoint(names_read(node))
        loop = node.op_type in ("Loop", "Scan") and _key(node) in keys
        if after and loop:
            later.add(_key(node))
        if after or loop:
            behind.update(filter(None, node.output))
    return keys - later


def _key(node: onnx.NodeProto) -> str:
    return next(filter(None, node.output), "")


def _decisive(node: onnx.NodeProto) -> set[str]:
    """Names on which it depends what a node runs."""
    return set(node.input[: {"If": 1, "Loop": 2}.get(node.op_type, 0)])


def _body(node: onnx.NodeProto, name: str = "body") -> onnx.GraphProto:
    body: onnx.GraphProto = next(one.g for one in node.attribute if one.name == name)
    return body


def _values(model: onnx.ModelProto, feed: Mapping[str, Array], keys: set[str]) -> dict[str, Array]:
    """What decides about branches and loops: conditions, sequences, and a list of the rounds of each loop."""
    counted = onnx.ModelProto()
    counted.CopyFrom(model)
    nodes, names, defined = Nodes(), set[str](), _tensors(model.graph) | feed.keys()
    for node in counted.graph.node:
        if node.op_type == "Loop" and _key(node) in keys:
            names.add(f"{_key(node)}/{_ROUNDS}")
            names |= names_read(node) & defined
            nodes.append(_bound(node, counted.graph))
        elif node.op_type in _FORMS and _key(node) in keys:
            names |= _decisive(node) or set(_sequences(node)[:1])
        nodes.append(node)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del counted.graph.node[:]
    counted.graph.node.extend(copies)
    return Evaluator(counted).run(feed, sorted(names))


def _tensors(graph: onnx.GraphProto) -> set[str]:
    """Names of the values that a graph defines and that are no sequences of values."""
    sequences = set[str]()
    for node in graph.node:
        makes = node.op_type in _MAKE_SEQUENCES
        if makes or (node.op_type in ("Identity", "Loop") and not sequences.isdisjoint(node.input)):
            sequences.update(node.output)
    return _defined_names(graph) - sequences - {""}


def _bound(node: onnx.NodeProto, graph: onnx.GraphProto) -> onnx.NodeProto:
    """Let a Loop list its rounds, and end where they are too many. Returns a node that runs before it."""
    body, name = _body(node), f"{_key(node)}/{_ROUNDS}"
    most = np.array(_most_rounds(body) + 1, np.int64)
    body.node.append(helper.make_node("Identity", [body.input[0].name], [f"{name}/inner"]))
    body.output.append(helper.make_tensor_value_info(f"{name}/inner", TensorProto.INT64, []))
    left_out = len(body.output) - 2 - len(node.output)
    node.output.extend([*("" for _ in range(left_out)), name])
    graph.initializer.append(numpy_helper.from_array(most, f"{name}/most"))
    asked, node.input[0] = node.input[0] or f"{name}/most", f"{name}/asked"
    return helper.make_node("Min", [asked, f"{name}/most"], [f"{name}/asked"])


@dataclass(frozen=True)
class _Known:
    """What is known of a model: values that decide, what depends on the inputs' numbers, and names in use."""

    values: Mapping[str, Array]
    live: set[str]
    used: set[str]
    opset: onnx.OperatorSetIdProto


def _branch(node: onnx.NodeProto, known: _Known) -> onnx.GraphProto | None:
    """The branch that an If takes; both, and a Where, if its condition depends on the inputs' numbers."""
    names = ["then_branch", "else_branch"]
    chosen = node.input[0] not in known.live
    if chosen:
        names = [names[0 if bool(known.values[node.input[0]].all()) else 1]]
    part = onnx.GraphProto()
    results = []
    for name in names:
        branch = _body(node, name)
        # Branches are scopes of their own, so that two may give one name to two values.
        defined = _defined_names(branch)
        taken = known.used | _defined_names(part)
        renamed = (
            {} if taken.isdisjoint(defined) else {n: f"{_key(node)}/{name}/{n}" for n in defined}
        )
        part.node.extend(_renamed(inner, renamed) for inner in branch.node)
        _hold(part, branch, renamed)
        results.append([renamed.get(value.name, value.name) for value in branch.output])
    if chosen:
        part.node.extend(_copies(results[0], node.output))
    else:
        part.node.extend(
            helper.make_node("Where", [node.input[0], *both], [outer], node.name)
            for *both, outer in zip(*results, node.output)
            if outer
        )
    return part


def _loop(node: onnx.NodeProto, known: _Known) -> onnx.GraphProto | None:
    """The rounds of a Loop."""
    body, key = _body(node), _key(node)
    rounds = len(known.values[f"{key}/{_ROUNDS}"])
    recurrence = recurrence_of(node, known.values, known.live, known.opset)
    if recurrence is not None:
        return recurrence
    states = list(node.input[2:])

    def read(number: int) -> dict[str, str]:
        held[f"{key}/{number}"] = np.array(number, np.int64)
        return {body.input[0].name: f"{key}/{number}", body.input[1].name: f"{key}/true"}

    held: dict[str, Array] = {f"{key}/true": np.array(True)}
    places = [value.name for value in body.input[2:]]
    unrolled = _rounds(node, rounds, states, places, 1, read)
    if unrolled is None:
        return None
    nodes, ends, lists, conditions = unrolled
    if not live_names(nodes, known.live).isdisjoint(conditions):
        return None
    return _part(node, [*nodes, *_ends(node, ends, lists, known.opset, held)], held)


def _scan(node: onnx.NodeProto, known: _Known) -> onnx.GraphProto | None:
    """The rounds of a Scan, along first axes from their start: no other is computed by ONNX's reference."""
    settings = {one.name: one for one in node.attribute}
    # Before set 9, the first input is the lengths of the sequences.
    if known.opset.version < 9 or any(any(one.ints) for one in settings.values()):
        return None
    body, key = _body(node), _key(node)
    sequences = _sequences(node)
    states = list(node.input[: len(node.input) - len(sequences)])
    places = [value.name for value in body.input]
    held: dict[str, Array] = {}
    steps: Nodes = []

    def read(number: int) -> dict[str, str]:
        held[f"{key}/{number}"] = np.array(number, np.int64)
        names = {}
        for place, sequence in zip(places[len(states) :], sequences):
            names[place] = f"{key}/{number}/{place}"
            steps.append(helper.make_node("Gather", [sequence, f"{key}/{number}"], [names[place]]))
        return names

    rounds = len(known.values[sequences[0]])
    unrolled = _rounds(node, rounds, states, places[: len(states)], 0, read)
    if unrolled is None:
        return None
    nodes, ends, lists, _ = unrolled
    return _part(node, [*steps, *nodes, *_ends(node, ends, lists, known.opset, held)], held)


#: What each kind of node is replaced by.
_FORMS: dict[str, Callable[..., onnx.GraphProto | None]] = {
    "If": _branch,
    "Loop": _loop,
    "Scan": _scan,
}
CONTROL_FLOW = frozenset(_FORMS)


def _sequences(node: onnx.NodeProto) -> list[str]:
    number = next(one.i for one in node.attribute if one.name == "num_scan_inputs")
    return list(node.input[len(node.input) - number :])


def _rounds(
    node: onnx.NodeProto,
    rounds: int,
    states: Sequence[str],
    places: Sequence[str],
    conditions: int,
    read: Callable[[int], dict[str, str]],
) -> tuple[Nodes, list[str], list[list[str]], list[str]] | None:
    """The nodes of all rounds, the last states, the values of each list, and the conditions; None if too many.

    Args:
        node: with a body.
        rounds: how many.
        states: names of the first states.
        places: names of the body's inputs for them.
        conditions: outputs of the body before its states.
        read: names of a round's other inputs, by those of the body.
    """
    body, key = _body(node), _key(node)
    fixed = [one for one in body.node if one.op_type == "Constant"]
    inner = [one for one in body.node if one.op_type != "Constant"]
    if not 0 < rounds <= _most_rounds(body):
        return None
    shared = {name: f"{key}/{name}" for name in _held(body)}
    shared |= {one.output[0]: f"{key}/{one.output[0]}" for one in fixed}
    nodes = [_renamed(one, shared) for one in fixed]
    current = list(states)
    lists: list[list[str]] = [[] for _ in body.output[conditions + len(states) :]]
    ended = []
    for number in range(rounds):
        names = {**shared, **read(number), **dict(zip(places, current))}
        names |= {name: f"{key}/{number}/{name}" for one in inner for name in one.output if name}
        nodes += [_renamed(one, names) for one in inner]
        outputs = [names.get(value.name, value.name) for value in body.output]
        ended += outputs[:conditions]
        current = outputs[conditions : conditions + len(states)]
        for one, name in zip(lists, outputs[conditions + len(states) :]):
            one.append(name)
    return nodes, current, lists, ended


def _most_rounds(body: onnx.GraphProto) -> int:
    nodes = sum(1 for one in body.node if one.op_type != "Constant")
    return MOST_NODES // max(1, nodes)


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A copy of a node that reads and computes values of other names, in its subgraphs too."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(name, name) for name in node.input]
    copy.output[:] = [names.get(name, name) for name in node.output]
    for graph in _graphs(copy):
        _rename(graph, names)
    return copy


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    inner = _defined_names(graph) | {value.name for value in graph.input}
    outer = {name: new for name, new in names.items() if name not in inner}
    nodes = [_renamed(node, outer) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in graph.output:
        value.name = outer.get(value.name, value.name)


def _graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _ends(
    node: onnx.NodeProto,
    states: Sequence[str],
    lists: Sequence[Sequence[str]],
    opset: onnx.OperatorSetIdProto,
    held: dict[str, Array],
) -> Nodes:
    """The outputs of a loop: its last states, and lists of what each round computes."""
    key = _key(node)
    nodes = _copies(states, node.output)
    for outer, values in zip(node.output[len(states) :], lists):
        if not outer:
            continue
        parts = [f"{outer}/{number}" for number in range(len(values))]
        for value, part in zip(values, parts):
            if opset.version < 13:
                nodes.append(helper.make_node("Unsqueeze", [value], [part], axes=[0]))
            else:
                held[f"{key}/axis"] = np.array([0], np.int64)
                nodes.append(helper.make_node("Unsqueeze", [value, f"{key}/axis"], [part]))
        nodes.append(helper.make_node("Concat", parts, [outer], axis=0))
    return nodes


def _copies(inner: Sequence[str], outer: Sequence[str]) -> Nodes:
    return [helper.make_node("Identity", [a], [b]) for a, b in zip(inner, outer) if b]


def _part(node: onnx.NodeProto, nodes: Nodes, held: Mapping[str, Array]) -> onnx.GraphProto:
    """Nodes, what they hold, and what the body of a node holds."""
    body, key = _body(node), _key(node)
    part = onnx.GraphProto()
    part.node.extend(nodes)
    part.initializer.extend(numpy_helper.from_array(array, name) for name, array in held.items())
    _hold(part, body, {name: f"{key}/{name}" for name in _held(body)})
    return part


def _hold(part: onnx.GraphProto, graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Let a graph hold what another holds, by other names."""
    for tensor in graph.initializer:
        part.initializer.add().CopyFrom(tensor)
        part.initializer[-1].name = names.get(tensor.name, tensor.name)
    for sparse in graph.sparse_initializer:
        part.sparse_initializer.add().CopyFrom(sparse)
        name = sparse.values.name
        part.sparse_initializer[-1].values.name = names.get(name, name)


def _held(graph: onnx.GraphProto) -> set[str]:
    names = {tensor.name for tensor in graph.initializer}
    return names | {tensor.values.name for tensor in graph.sparse_initializer}


def _defined_names(graph: onnx.GraphProto) -> set[str]:
    """Names of the values that a graph defines, those of its subgraphs excluded."""
    return _held(graph) | {name for node in graph.node for name in node.output if name}
