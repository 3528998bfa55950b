"""Reading an ONNX file of unknown origin: a model that can be run, or one line that says why not."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
from onnx import TensorProto, defs, helper
from onnx.external_data_helper import load_external_data_for_tensor

from dlb_graph.errors import DataError, UnsupportedError
from dlb_graph.layers.numbers import Array
from dlb_graph.rewriting.foreign_operators import foreign_operators
from dlb_graph.truth.evaluate import names_read
from dlb_graph.truth.exported import ExportedFacts, check_exported, with_opset
from dlb_graph.truth.held import HELD_BYTES, array_of, hold, is_held, weights_as_inputs
from dlb_graph.truth.limits import MOST_NODES, MOST_NUMBERS
from dlb_graph.truth.liveness import keep_needed
from dlb_graph.truth.precision import REAL_TYPES, in_precision
from dlb_graph.truth.runtime import load_model

__all__ = ["SCALES", "ModelFile", "Port", "nodes_within", "read_model_file", "tensors_of"]


#: Most bytes of the file without its external data: the limit of protobuf.
LARGEST_BYTES = 2**31 - 1
#: Memory relative to the size of the model. It is held as written, in float64 and in the runtime, and so is
#: what was read from it. VGG-19 needs 11 times its size when it becomes a workload.
MEMORY_MULTIPLE = 6
OLDEST_OPSET = 7
#: Standard deviation of each batch of noise. The second batch reaches bounds that are far from zero.
SCALES = (1.0, 8.0)
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
_RANDOM = frozenset(
    (
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    )
)


@dataclass(frozen=True)
class Port:
    """An input or an output of a model.

    Attributes:
        name: name of the value.
        element: its ``TensorProto`` element type.
        shape: for each axis a size, the name of an open size, or None for an open size without a name.
            None if the model does not declare a shape.
    """

    name: str
    element: int
    shape: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"'{self.name}'"
        return f"'{self.name}' [{', '.join('?' if n is None else str(n) for n in self.shape)}]"


@dataclass(frozen=True)
class ModelFile:
    """An ONNX file that was read.

    Attributes:
        label: name of the file in messages.
        model: the model as written, with an operator set that fits. Large weights are held beside it
            (:mod:`dlb_graph.truth.held`).
        facts: what the file says about itself.
        sha256: SHA-256 of the .onnx file, followed by those of its external weights, if it has any.
        held: the large weights.
        left_out: outputs that are no tensors of numbers, and that were removed.
    """

    label: str
    model: onnx.ModelProto
    facts: ExportedFacts
    sha256: str
    held: tuple[Array, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def opset(self) -> int:
        """The operator set that the model is read with."""
        return _opset(self.model)

    @property
    def description(self) -> str:
        """Producer and operator set."""
        read = f", read as {self.opset}" if self.opset != self.facts.opset else ""
        return f"{self.facts.producer or 'unnamed producer'}, opset {self.facts.opset}{read}"

    @cached_property
    def float64(self) -> onnx.ModelProto:
        """The model in float64."""
        return in_precision(self.model, TensorProto.DOUBLE)

    @cached_property
    def inputs(self) -> tuple[Port, ...]:
        """Inputs of the model, without initialisers that are also listed as inputs."""
        initialisers = {tensor.name for tensor in self.model.graph.initializer}
        return tuple(
            _port(value) for value in self.model.graph.input if value.name not in initialisers
        )

    @cached_property
    def outputs(self) -> tuple[Port, ...]:
        return tuple(_port(value) for value in self.model.graph.output)


def read_model_file(path: Path, label: str) -> ModelFile:
    """Read a file, and check that dlb can evaluate its graph.

    Some files declare an operator set that does not fit their operators, so ONNX Runtime refuses them. They
    are read with the newest earlier operator set that fits.

    Args:
        label: name of the file in messages.

    Raises:
        DataError: there is no file, it is not a valid ONNX model, it keeps weights outside its folder, or
            it needs more memory than is free.
        UnsupportedError: an operator set or an operator is not ONNX's own, an operator draws random
            numbers, or an input or output is no tensor of numbers.
    """
    _check_size(path)
    model = load_model(path)
    _check_count(model, path)
    if not _is_text(model):
        raise DataError("not an ONNX model: a name in it is no text", path=path)
    _check_external(model, path)
    sha256 = _digest(model, path)
    held = [*_load_external(model, path), *_hold(model, path)]
    # The memory of what a message held is freed with the message.
    model, whole = onnx.ModelProto(), model
    model.CopyFrom(whole)
    del whole
    _check_opset(model, path)
    model = foreign_operators(model) or model
    _check_operators(model, path)
    _open_negative_sizes(model.graph)
    others = _leave_out_others(model.graph)
    for value in (*model.graph.input, *model.graph.output):
        if not _is_numbers(value):
            raise UnsupportedError(
                f"'{value.name}' is no tensor of real numbers, integers or booleans", path=path
            )
    _check_shapes(model, path)
    facts = check_exported(model)
    # A missing kernel of ONNX Runtime, for example in float64, does not make a model invalid.
    missing_kernel = ("NOT_IMPLEMENTED", "Failed to find kernel")
    refused = facts.runtime_error and not any(
        word in facts.runtime_error for word in missing_kernel
    )
    if facts.checker_error and refused:
        if facts.newest_consistent is None:
            raise DataError(f"not a valid ONNX model: {facts.checker_error}", path=path)
        model = with_opset(model, facts.newest_consistent)
    return ModelFile(label, model, facts, sha256, tuple(held), others)


def _check_count(model: onnx.ModelProto, path: Path) -> None:
    """Count the nodes before a program writes functions out: thirty that call the next twice are 10^9."""
    calls = defaultdict[Any, Counter[Any]](Counter, {None: _operators(model.graph.node)})
    for function in model.functions:
        calls[_domain(function.domain), function.name] |= _operators(function.node)
    counts: Counter[Any] = Counter()
    try:
        for operator in TopologicalSorter(calls).static_order():
            inner = calls[operator].items() if operator in calls else ()
            counts[operator] = max(1, sum(number * counts[each] for each, number in inner))
    except CycleError:
        raise DataError("a function of its own calls itself", path=path) from None
    if counts[None] > MOST_NODES:
        raise UnsupportedError(
            f"has {counts[None]} nodes, its functions written out; at most {MOST_NODES} are read",
            path=path,
        )


def _operators(nodes: Iterable[onnx.NodeProto]) -> Counter[Any]:
    return Counter((_domain(node.domain), node.op_type) for node in nodes_within(nodes))


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _check_shapes(model: onnx.ModelProto, path: Path) -> None:
    """Refuse values that are too large by the shapes that ONNX infers, before one is computed."""
    try:
        graph = onnx.shape_inference.infer_shapes(weights_as_inputs(model)).graph
    except Exception:  # the check of the model says what is wrong
        return
    # A weight may be larger, and moved.
    most = max(MOST_NUMBERS, *(math.prod(tensor.dims) for tensor in model.graph.initializer), 0)
    for value in (*graph.input, *graph.value_info, *graph.output):
        port = _port(value)
        numbers = math.prod(size for size in port.shape or () if isinstance(size, int))
        if numbers > most:
            raise UnsupportedError(
                f"value {port} has {numbers} numbers; at most {MOST_NUMBERS} are computed",
                path=path,
            )


def _is_numbers(value: onnx.ValueInfoProto) -> bool:
    """Whether a value is a tensor that dlb can read."""
    kind = value.type.tensor_type.elem_type
    return value.type.HasField("tensor_type") and kind in _ELEMENTS


def _leave_out_others(graph: onnx.GraphProto) -> tuple[str, ...]:
    """Remove outputs that are no tensors of numbers, if there are others, and all that only they read.

    Classifiers have the class as text beside its probability. Returns the names.
    """
    kept = [value for value in graph.output if _is_numbers(value)]
    others = tuple(value.name for value in graph.output if not _is_numbers(value))
    if kept and others:
        del graph.output[:]
        graph.output.extend(kept)
        keep_needed(graph)
        read = {value.name for value in kept}.union(*map(names_read, graph.node))
        held = [tensor for tensor in graph.initializer if tensor.name in read]
        del graph.initializer[:]
        graph.initializer.extend(held)
    return others if kept else ()


_ELEMENTS = REAL_TYPES | {
    TensorProto.BOOL,
    TensorProto.INT8,
    TensorProto.INT16,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.UINT8,
    TensorProto.UINT16,
    TensorProto.UINT32,
    TensorProto.UINT64,
}
#: Types of which NumPy reads a file as it is.
_READ_AS_IS = _ELEMENTS - {TensorProto.BFLOAT16}


def _check_size(path: Path) -> None:
    try:
        size = path.stat().st_size
        regular = path.is_file()
    except OSError as error:
        raise DataError(
            f"{error.strerror or error}; give the path of a .onnx file", path=path
        ) from None
    if not regular:
        raise DataError("not a file; give the path of a .onnx file", path=path)
    if not size:
        raise DataError("empty, not an ONNX model", path=path)
    if size > LARGEST_BYTES:
        raise DataError(
            f"{size} bytes; ONNX files have at most {LARGEST_BYTES}, and larger weights in files beside them",
            path=path,
        )
    _check_bytes(size, path)


def _check_bytes(size: int, path: Path) -> None:
    free = psutil.virtual_memory().available
    if size * MEMORY_MULTIPLE > free:
        raise DataError(
            f"{size} bytes with its weights would need {MEMORY_MULTIPLE} times as much "
            f"memory, and {free} bytes are free",
            path=path,
        )


def _is_text(message: Any) -> bool:
    """Whether every string of a message is valid text; parsing does not check that."""
    for descriptor, value in message.ListFields():
        if descriptor.type not in (descriptor.TYPE_STRING, descriptor.TYPE_MESSAGE):
            continue
        is_single = isinstance(value, (str, bytes)) or hasattr(value, "ListFields")
        for item in [value] if is_single else value:
            if isinstance(item, bytes) or (hasattr(item, "ListFields") and not _is_text(item)):
                return False
    return True


def _check_external(model: onnx.ModelProto, path: Path) -> None:
    """Check the weights in other files. load_model has checked their locations, but not those of functions.

    Raises:
        DataError: a function has such weights, one is not within its file, or all are too large for the memory.
    """
    if any(
        attribute.t.data_location == TensorProto.EXTERNAL
        for node in nodes_within(_function_nodes(model))
        for attribute in node.attribute
    ):
        raise DataError("a function of its own keeps numbers in another file", path=path)
    folder = path.resolve().parent
    lengths = [_span(tensor, folder, path)[2] for tensor in _external(model)]
    _check_bytes(path.stat().st_size + sum(lengths), path)


def _external(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor whose numbers lie in another file, and are not read yet."""
    for tensor in tensors_of(model):
        if tensor.data_location == TensorProto.EXTERNAL and not is_held(tensor):
            yield tensor


def _digest(model: onnx.ModelProto, path: Path) -> str:
    """The SHA-256 of the file, followed by those of the files beside it that it names, in order of name."""
    names = {
        entry.value
        for tensor in _external(model)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    digest = _sha256(path)
    for name in sorted(names):
        digest.update(_sha256(path.resolve().parent / name).digest())
    return digest.hexdigest()


def _sha256(path: Path) -> hashlib._Hash:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest


def _load_external(model: onnx.ModelProto, path: Path) -> list[Array]:
    """Load weights from other files. Returns those that are held."""
    folder, held = path.resolve().parent, []
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL or tensor.data_type not in _READ_AS_IS:
            continue
        file, start, length = _span(tensor, folder, path)
        if length >= HELD_BYTES:
            kind, size = helper.tensor_dtype_to_np_dtype(tensor.data_type), math.prod(tensor.dims)
            if length != size * kind.itemsize:
                raise DataError(
                    f"weight '{tensor.name}': {length} bytes are no {list(tensor.dims)} of {kind}",
                    path=path,
                )
            held.append(np.fromfile(file, kind, size, offset=start).reshape(tensor.dims))
            tensor.CopyFrom(hold(tensor.name, held[-1], tensor.data_type))
    for tensor in _external(model):
        try:
            load_external_data_for_tensor(tensor, str(folder))
        except Exception as error:  # its own checks raise what they like
            raise DataError(f"weights in other files: {_one_line(error)}", path=path) from None
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]
    return held


def _span(tensor: onnx.TensorProto, folder: Path, path: Path) -> tuple[Path, int, int]:
    """Where an external weight lies: the file, its first byte in it, and the number of its bytes."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    file = folder / entries["location"]
    file_bytes = file.stat().st_size
    try:
        start = int(entries.get("offset", 0))
        length = int(entries.get("length", file_bytes - start))
    except ValueError:
        start, length = -1, 0
    if min(start, length) < 0 or start + length > file_bytes:
        raise DataError(
            f"weight '{tensor.name}' is not within '{entries['location']}' ({file_bytes} bytes)",
            path=path,
        )
    return file, start, length


def _hold(model: onnx.ModelProto, path: Path) -> list[Array]:
    """Take large weights out of the model. Returns them.

    Raises:
        DataError: the numbers of a tensor do not fit its shape.
    """

    def read(tensor: onnx.TensorProto) -> Array:
        try:
            return array_of(tensor)
        except Exception as error:  # NumPy's and protobuf's own
            raise DataError(f"weight '{tensor.name}': {_one_line(error)}", path=path) from None

    held = []
    for tensor in model.graph.initializer:
        array = read(tensor)
        if array.nbytes >= HELD_BYTES and tensor.data_type in _ELEMENTS and not is_held(tensor):
            held.append(array)
            tensor.CopyFrom(hold(tensor.name, array, tensor.data_type))
    for tensor in tensors_of(model):
        read(tensor)
    return held


def _open_negative_sizes(graph: onnx.GraphProto) -> None:
    """Leave sizes open that are written as -1, as some exporters write the batch."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_value < 0:
                axis.ClearField("value")


def _check_opset(model: onnx.ModelProto, path: Path) -> None:
    newest, opset = defs.onnx_opset_version(), _opset(model)
    if not opset:
        raise DataError("names no operator set; not a valid ONNX model", path=path)
    if not OLDEST_OPSET <= opset <= newest:
        raise UnsupportedError(
            f"has operator set {opset}; {OLDEST_OPSET} to {newest} can be read: export it "
            "again with one of those, or convert it with onnx.version_converter",
            path=path,
        )


def _check_operators(model: onnx.ModelProto, path: Path) -> None:
    own_functions = {(function.domain, function.name) for function in model.functions}
    for node in nodes_within([*model.graph.node, *_function_nodes(model)]):
        name = f"node '{node.name or ', '.join(filter(None, node.output))}'"
        domain = _domain(node.domain)
        if (node.domain, node.op_type) in own_functions:
            continue
        operator = f"{domain}::{node.op_type}" if domain else node.op_type
        if domain not in _DOMAINS or not defs.has(node.op_type, domain):
            raise UnsupportedError(
                f"{name} is {operator}, which is no operator of ONNX, so that only its "
                "maker knows what it computes; export the model in ONNX's own operators",
                path=path,
            )
        if node.op_type in _RANDOM:
            raise UnsupportedError(
                f"{name} ({operator}) draws random numbers; export the model for inference",
                path=path,
            )
        # ONNX Runtime accepts such a file, and crashes when it runs it.
        if node.op_type == "Split" and "" in node.output:
            raise DataError(
                f"{name} ({operator}) has a part without a name; name every one", path=path
            )


def _function_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes of the model's own functions."""
    return [node for function in model.functions for node in function.node]


def nodes_within(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Every node, and the nodes of graphs inside nodes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from nodes_within(inner.node)


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor that the model holds."""
    nodes = list(nodes_within([*model.graph.node, *_function_nodes(model)]))
    attributes = [attribute for node in nodes for attribute in node.attribute]
    graphs = [graph for attribute in attributes for graph in (attribute.g, *attribute.graphs)]
    for graph in (model.graph, *graphs):
        yield from graph.initializer
    for attribute in attributes:
        if attribute.type == onnx.AttributeProto.TENSOR:
            yield attribute.t
        yield from attribute.tensors


def _opset(model: onnx.ModelProto) -> int:
    return next((entry.version for entry in model.opset_import if entry.domain in _DOMAINS[:2]), 0)


def _port(value: onnx.ValueInfoProto) -> Port:
    kind = value.type.tensor_type
    shape: tuple[int | str | None, ...] | None = None
    if kind.HasField("shape"):
        shape = tuple(
            axis.dim_value if axis.dim_value > 0 else (axis.dim_param or None)
            for axis in kind.shape.dim
        )
    return Port(value.name, kind.elem_type, shape)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:300] + "..."
