"""What of an ONNX file is read: sizes that it leaves open, its inputs as one, and one of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dlb_graph.comparing.read_facts import ReadAs
from dlb_graph.errors import RequestError, UnsupportedError
from dlb_graph.files.joined import join_inputs, looked_up, sample_shape, why_not_joined, why_not_one
from dlb_graph.files.model_file import ModelFile, Port
from dlb_graph.options import Reading
from dlb_graph.rewriting.node_writer import prepend, writer_of
from dlb_graph.rewriting.recurrent_steps import RECURRENT
from dlb_graph.truth.liveness import keep_needed
from dlb_graph.truth.lookups import RANKING
from dlb_graph.truth.precision import REAL_TYPES
from dlb_graph.truth.trace import attributes_of

__all__ = ["ASSUMPTIONS", "SIZES", "Assumption", "choose", "padding_tests"]

#: The longest sequence of integers that is tried.
_TOKENS = 128
#: Open sizes that nobody gave, one after the other, where a file cannot be run with those before: of an image's
#: height and width, and of all else. Windows may be larger; lines of text have a height of 48,
#: and pieces of speech 512 samples.
SIZES = ((32, 16), (64, 32), (256, 128), (64, 512), (48, 1024), (64, 8192))


@dataclass(frozen=True)
class Assumption:
    """What is taken for granted of an input that the file does not describe.

    Attributes:
        reason: why it is tried, where those before it were refused.
        fits: whether it may help with a file.
        padding: tokens may be padding.
        one_sample: the file reads one sample: the first axis of its input is no batch.
    """

    reason: str
    fits: Callable[[ModelFile], bool]
    padding: bool = False
    one_sample: bool = False


def _may_be_one_sample(file: ModelFile) -> bool:
    """Whether a file may read one sample, whose first axis is steps, or rows that are reduced together.

    What is reduced along all axes, such as the loudest of a recording, is no number of a sample.
    """
    (shape,) = (port.shape for port in file.inputs)
    if shape is None or len(shape) < 2:
        return False
    return any(
        node.op_type in RECURRENT or (len(shape) == 2 and _reduces_everything(node))
        for node in file.model.graph.node
    )


def _reduces_everything(node: onnx.NodeProto) -> bool:
    named = len(node.input) > 1 or "axes" in attributes_of(node)
    return node.op_type.startswith("Reduce") and not named


#: In the order in which they are tried.
ASSUMPTIONS = (
    Assumption("nearly every file reads a batch", lambda file: True, padding=True),
    Assumption(
        "what depends on padding is no layer, and texts without any are read",
        lambda file: bool(padding_tests(file.model.graph)),
    ),
    Assumption("its first axis may be steps", _may_be_one_sample, one_sample=True),
)


def choose(
    file: ModelFile,
    reading: Reading,
    sizes: tuple[int, int] = SIZES[0],
    assumption: Assumption = ASSUMPTIONS[0],
    *,
    assume: bool = True,
) -> tuple[ModelFile, tuple[ReadAs, ...]]:
    """The file with one input, one output and no open size but the batch, and what was chosen.

    Open sizes that nobody gave are ``sizes``, of maps and of all else. Inputs that
    the output does not depend on are left out. Several that hold real numbers become one.

    Args:
        assume: of several outputs that nobody chose from, the first of real numbers is taken; inputs that
            cannot be one with the first are constants: 1 for a mask, the longest sequence for lengths, else 0.

    Raises:
        RequestError: a name that was given is none of the file's, or its size is another.
        UnsupportedError: there are several outputs, or inputs that cannot be one, and none was chosen.
    """
    model, one_sample = onnx.ModelProto(), assumption.one_sample
    model.CopyFrom(file.model)
    file, graph = replace(file, model=model), model.graph
    inputs, outputs = file.inputs, file.outputs
    _keep_output(graph, outputs, reading.output, assume)
    assumed = {} if assumption.padding else dict.fromkeys(padding_tests(graph), 0.0)
    assumed = {name: value for name, value in assumed.items() if name not in reading.constants}
    inner = _fix_values(file.model, {**reading.constants, **assumed})
    assumed = {name: value for name, value in assumed.items() if name in inner}
    keep_needed(graph)
    held = {tensor.name for tensor in graph.initializer}
    read = {value.name for value in graph.input}
    dropped = sorted(port.name for port in inputs if port.name not in read)
    file = replace(file)  # without what was read of the inputs before
    if assume:
        assumed |= _constants_by_default(graph, file.inputs, reading.constants)
    constants = {**reading.constants, **assumed}
    states = {port.name for port in file.inputs if _is_state(port, constants)}
    given = dict(reading.sizes)
    lengths = {}
    if one_sample:
        lengths = {
            port.shape[0] or f"{port.name}:0": sizes[1]
            for port in file.inputs
            if port.name not in constants and port.shape and not isinstance(port.shape[0], int)
        }
    lengths = {name: size for name, size in lengths.items() if name not in given}
    chosen, defaults = _set_sizes(graph, file.inputs, {**given, **lengths}, sizes, states)
    chosen = {name: size for name, size in chosen.items() if name in given}
    defaults |= lengths
    file = replace(file)
    ports = {port.name: port for port in file.inputs}
    for name in constants.keys() - inner:
        if name not in ports:
            listed = ", ".join(ports) or "none"
            raise RequestError(
                f"--constant {name}: the output reads no such input, and no node computes it; the inputs "
                f"are {listed}"
            )
    varied = [port for name, port in ports.items() if name not in constants]
    reason = why_not_joined(graph, varied) if len(varied) > 1 else ""
    if reason or not varied:
        listed = ", ".join(f"'{port.name}'" for port in varied) or "none"
        raise UnsupportedError(
            f"it has {len(varied)} inputs ({listed}); a workload has 1: --constant NAME=VALUE gives "
            f"an input one number everywhere{f' ({reason})' if reason else ''}"
        )
    for name, value in constants.items():
        if name not in inner:
            _fill(file.model, ports[name], value, varied[0])
    # Tables read an input of one axis.
    flat = len(varied[0].shape or ()) > 2 and looked_up(graph, varied[0])
    joined = tuple(varied) if len(varied) > 1 or flat else ()
    single = join_inputs(file.model, joined, file.opset) if joined else varied[0].name
    kept = [value for value in graph.input if value.name == single or value.name in held]
    del graph.input[:]
    graph.input.extend(kept)
    if one_sample:
        _add_batch(file.model)
    others = [port.name for port in outputs if port.name != graph.output[0].name]
    others += file.left_out
    if not (chosen or defaults or constants or joined or dropped or others or one_sample):
        return replace(file), ()
    fact = ReadAs(
        sizes=tuple(chosen.items()),
        defaults=tuple(defaults.items()),
        constants=tuple(reading.constants.items()),
        joined=tuple((port.name, sample_shape(port)) for port in joined),
        dropped=tuple(dropped),
        output=graph.output[0].name if others else "",
        assumed=tuple(assumed.items()),
        first_output=bool(others) and not reading.output,
        one_sample=one_sample,
    )
    return replace(file), (fact,)


def _add_batch(model: onnx.ModelProto) -> None:
    """Give the input another axis before its own, a batch of one sample."""
    graph = model.graph
    held = {tensor.name for tensor in graph.initializer}
    (value,) = (value for value in graph.input if value.name not in held)
    write = writer_of(model, f"{value.name}/of a sample")
    dims = value.type.tensor_type.shape.dim
    shape = [dim.dim_value for dim in dims]
    del dims[:]
    for size in (1, *shape):
        dims.add().dim_value = size
    for node in graph.node:
        node.input[:] = [
            write.node.output[0] if name == value.name else name for name in node.input
        ]
    write.add("Reshape", value.name, write.shape(-1, *shape[1:]), output=write.node.output[0])
    prepend(graph, write)


def _keep_output(graph: onnx.GraphProto, ports: Sequence[Port], chosen: str, assume: bool) -> None:
    names = [port.name for port in ports]
    if chosen and chosen not in names:
        raise RequestError(f"--output-name {chosen}: the file has {', '.join(names) or 'none'}")
    if not chosen and len(names) != 1 and not (assume and names):
        listed = ", ".join(f"'{name}'" for name in names) or "none"
        raise UnsupportedError(
            f"it has {len(names)} outputs ({listed}); a workload has 1: choose it with --output-name NAME"
        )
    usual = next((port.name for port in ports if port.element in REAL_TYPES), names[0])
    kept = [value for value in graph.output if value.name == (chosen or usual)]
    del graph.output[:]
    graph.output.extend(kept)


#: What an input is, by a word in its name, that nobody chose a number for; the others are 0.
_BY_NAME = {"mask": 1.0, "length": float(_TOKENS), "lens": float(_TOKENS)}


def _constants_by_default(
    graph: onnx.GraphProto, ports: Sequence[Port], given: Mapping[str, float]
) -> dict[str, float]:
    """Numbers for the inputs that nobody chose one for, and that cannot be one with the first.

    The first is the first with a batch. Those that can be one with it are of real numbers, with its batch.
    """
    varied = [port for port in ports if port.name not in given]
    if len(varied) < 2:
        return {}
    of_samples = [port for port in varied if len(port.shape or ()) > 1] or varied
    first = next((port for port in of_samples if "mask" not in port.name.lower()), of_samples[0])
    assumed = dict[str, float]()
    for port in varied:
        by_name = [number for word, number in _BY_NAME.items() if word in port.name.lower()]
        of_another_kind = (port.element in REAL_TYPES) != (first.element in REAL_TYPES)
        if port is not first and ((by_name and of_another_kind) or why_not_one(graph, first, port)):
            assumed[port.name] = (*by_name, 0.0)[0]
    return assumed


def _is_state(port: Port, constants: Mapping[str, float]) -> bool:
    """Whether an input that is a constant has its batch along an open axis: the first has another size."""
    shape = port.shape or ()
    return port.name in constants and isinstance(next(iter(shape), None), int) and len(shape) > 1


def _set_sizes(
    graph: onnx.GraphProto,
    ports: tuple[Port, ...],
    given: Mapping[str, int],
    usual: tuple[int, int],
    states: Collection[str],
) -> tuple[dict[str, int], dict[str, int]]:
    """Write sizes into the graph's inputs and outputs. Returns those given, and those by default."""
    unused, defaults = dict(given), dict[str, int]()
    by_name: dict[str, int] = {}
    values = {value.name: value for value in graph.input}
    for port in ports:
        for axis, size in enumerate(port.shape or ()):
            place = f"{port.name}:{axis}"
            name = size if isinstance(size, str) and size in given else place
            wanted = given.get(name)
            unused.pop(name, None)
            if isinstance(size, int):
                if wanted not in (None, size):
                    raise RequestError(f"--size {name}={wanted}: that axis has {size}")
                continue
            dim = values[port.name].type.tensor_type.shape.dim[axis]
            if wanted is None and axis > 0 and dim.HasField("dim_value"):
                raise UnsupportedError(
                    f"input {port} has a size of 0; --size {place}=N gives another"
                )
            if wanted is None and axis > 0:
                wanted = by_name.get(size or "")
                if wanted is None and port.name in states:
                    continue
                if wanted is None:
                    wanted = usual[len(port.shape or ()) <= 3]
                    if port.element not in REAL_TYPES:
                        wanted = min(wanted, _TOKENS)
                    defaults[size or place] = wanted
            if wanted is not None:
                dim.dim_value = wanted
                by_name.update({size: wanted} if size else {})
    if unused:
        open_sizes = {
            size or f"{port.name}:{axis}"
            for port in ports
            for axis, size in enumerate(port.shape or ())
            if not isinstance(size, int)
        }
        raise RequestError(
            f"--size {next(iter(unused))}: the output depends on no such size; open are "
            f"{', '.join(sorted(open_sizes)) or 'none'}"
        )
    for value in (*graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_param") and dim.dim_param in by_name:
                dim.dim_value = by_name[dim.dim_param]
    return dict(given), defaults


def padding_tests(graph: onnx.GraphProto) -> list[str]:
    """Values that say which tokens are one number, such as padding: Equal of an input and it.

    Not where such a token is replaced by another or its place is found, which is no padding.
    """
    held = {tensor.name: tensor for tensor in graph.initializer}
    held |= {
        node.output[0]: attribute.t
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
    }
    tokens = {value.name for value in graph.input} - held.keys()
    return [
        node.output[0]
        for node in graph.node
        if node.op_type == "Equal"
        and not tokens.isdisjoint(node.input)
        and any(name in held and np.prod(held[name].dims) == 1 for name in node.input)
        and not _replaces(graph, node.output[0], tokens)
    ]


def _replaces(graph: onnx.GraphProto, test: str, tokens: Collection[str]) -> bool:
    """Whether a Where chooses, by a test or its opposite, between a token and something else.

    So it is where the place of a token is found.
    """
    tests, replaced = {test}, False
    for node in graph.node:
        if node.op_type in ("Cast", "Identity", "Not") and node.input[0] in tests:
            tests.add(node.output[0])
        elif node.op_type == "Where" and node.input[0] in tests:
            replaced = replaced or any(name in tokens for name in node.input[1:])
        elif node.op_type in RANKING and node.input[0] in tests:
            return True
    return replaced


def _fix_values(model: onnx.ModelProto, constants: Mapping[str, float]) -> set[str]:
    """Replace values that nodes compute by one number in their shape. Returns their names."""
    graph = model.graph
    made = {name for node in graph.node for name in node.output if name} & constants.keys()
    if not made:
        return made
    inferred = onnx.shape_inference.infer_shapes(model).graph
    kinds = {
        value.name: value.type.tensor_type.elem_type
        for value in (*inferred.value_info, *inferred.output)
    }
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name not in made:
                continue
            if not kinds.get(name):
                raise UnsupportedError(
                    f"--constant {name}: the type of what '{node.op_type}' computes is unknown"
                )
            number = np.array([constants[name]]).astype(
                helper.tensor_dtype_to_np_dtype(kinds[name])
            )
            node.output[place] = f"{name}/dlb"
            write = writer_of(model, name)
            shape = write.add("Shape", node.output[place])
            value = numpy_helper.from_array(number, "value")
            write.add("ConstantOfShape", shape, output=name, value=value)
            nodes += write.nodes
    del graph.node[:]
    graph.node.extend(nodes)
    return made


def _fill(model: onnx.ModelProto, port: Port, value: float, varied: Port) -> None:
    """Replace an input by a constant, whose open axis is the batch of the input that is left."""
    shape = port.shape
    if shape is None or sum(not isinstance(size, int) for size in shape) > 1:
        raise UnsupportedError(f"input {port} has no fixed shape, so it cannot be a constant")
    kind = helper.tensor_dtype_to_np_dtype(port.element)
    if port.element not in REAL_TYPES and value != int(value):
        raise RequestError(f"--constant {port.name}={value}: the input holds integers")
    number = np.array([value]).astype(kind)
    write = writer_of(model, port.name)
    is_open = [not isinstance(size, int) for size in shape]
    sizes = write.tensor([1 if isinstance(size, str | None) else size for size in shape], np.int64)
    if any(is_open):
        batch = write.add("Slice", write.add("Shape", varied.name), write.shape(0), write.shape(1))
        sizes = write.add("Where", write.tensor(is_open, bool), batch, sizes)
    filling = numpy_helper.from_array(number, "value")
    write.add("ConstantOfShape", sizes, output=port.name, value=filling)
    prepend(model.graph, write)
