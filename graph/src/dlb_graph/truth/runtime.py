"""Runs exported models in ONNX Runtime, on the CPU."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Union

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dlb_graph.errors import DataError, DlbError, RequestError, UnsupportedError
from dlb_graph.layers.numbers import Array
from dlb_graph.regular_files import open_regular

__all__ = ["load_model", "open_session", "run_in_parts", "run_model"]

Model = Union[str, Path, bytes]

#: The prefix of ONNX Runtime's messages: its error code and the source location.
_ORIGIN = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : |/\S+:\d+ .*?\)(?: const)? (?=[A-Z])")


def run_model(
    model: Model,
    inputs: Mapping[str, Array],
    *,
    weights: Mapping[str, Array] | None = None,
    threads: int = 0,
) -> list[Array]:
    """The outputs of a model, in its order, for one batch.

    If the model fixes its batch size at fewer samples, as CNTK's exporter does, the batch runs in
    parts.

    Args:
        model: path of a .onnx file, or its content.
        inputs: arrays by input name, with the dtypes that the model declares.
        weights: the same for inputs that are no part of a batch.
        threads: within an operator. 1 makes the order of sums deterministic; 0 lets ONNX Runtime
            decide.

    Raises:
        DataError: no such file, not an ONNX model, or weights outside the model's folder.
        UnsupportedError: this ONNX Runtime lacks an operator or operator set of the model.
        RequestError: inputs are missing, unknown, or have the wrong dtype or shape.
    """
    session = open_session(model, threads=threads)
    weights = weights or {}
    read = [value for value in session.get_inputs() if value.name not in weights]
    input_names = [value.name for value in read]
    if set(input_names) != set(inputs):
        raise RequestError(
            f"the model reads {', '.join(input_names) or 'nothing'}, "
            f"but the caller passed {', '.join(inputs) or 'nothing'}"
        )

    def run(batch: Mapping[str, Array]) -> list[Array]:
        feeds = {name: np.asarray(value) for name, value in {**weights, **batch}.items()}
        try:
            outputs = session.run(None, feeds)
        except Exception as error:  # ONNX Runtime's exceptions have no other common base
            raise _as_error(error, model) from error
        return [np.asarray(value) for value in outputs]

    return run_in_parts(run, inputs, [value.shape[0] for value in read if value.shape])


def run_in_parts(
    run: Callable[[Mapping[str, Array]], list[Array]],
    inputs: Mapping[str, Array],
    fixed: Sequence[Any],
) -> list[Array]:
    """The outputs of a model for a batch that may be a multiple of the model's fixed batch size.

    Args:
        run: computes the model's outputs for a batch of its size.
        inputs: arrays [batch, ...] by name.
        fixed: the first axis of each input as the model declares it: a number, or anything else if
            the axis is free.
    """
    sizes = {len(value) for value in inputs.values() if np.ndim(value)}
    part_size = fixed[0] if len(set(fixed)) == 1 and isinstance(fixed[0], int) else 0
    if len(sizes) != 1 or not 0 < part_size < min(sizes) or min(sizes) % part_size:
        return run(inputs)
    part_outputs = [
        run({name: value[start : start + part_size] for name, value in inputs.items()})
        for start in range(0, min(sizes), part_size)
    ]
    return [np.concatenate(outputs) for outputs in zip(*part_outputs)]


def open_session(model: Model, *, threads: int = 0, optimised: bool = True) -> Any:
    """An ``onnxruntime.InferenceSession`` on the CPU.

    Args:
        optimised: whether it may compute constants at once, and join operators.

    Raises:
        DataError, UnsupportedError: as :func:`run_model`.
    """
    # Its telemetry library writes to the folders for temporary files and caches as soon as it is imported.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # type: ignore[import-untyped, unused-ignore]

    content = model if isinstance(model, bytes) else str(model)
    loaded = load_model(model)
    if any(map(_is_refused_lrn, loaded.graph.node)):
        loaded = loaded if isinstance(model, bytes) else onnx.load(str(model))
        content = _without_refused_lrns(loaded).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if threads:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(
            content,
            options,
            providers=["CPUExecutionProvider"],
            # Otherwise it prints before it raises, and standard output may be a JSON document.
            enable_fallback=0,
        )
    except Exception as error:
        raise _as_error(error, model) from error


def _is_refused_lrn(node: onnx.NodeProto) -> bool:
    """Whether ONNX Runtime refuses a node that ONNX defines: its LRN needs alpha and beta above 0."""
    return node.op_type == "LRN" and any(
        attribute.name in ("alpha", "beta") and attribute.f == 0 for attribute in node.attribute
    )


def _without_refused_lrns(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with each LRN whose alpha or beta is 0 as what it is: a division by one number."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for node in result.graph.node:
        if _is_refused_lrn(node):
            attributes = {"beta": 0.75, "bias": 1.0}
            attributes.update((attribute.name, attribute.f) for attribute in node.attribute)
            divisor = np.asarray(attributes["bias"] ** attributes["beta"], np.float32)
            name = f"{node.output[0]}/divisor"
            result.graph.initializer.append(numpy_helper.from_array(divisor, name))
            node.CopyFrom(helper.make_node("Div", [node.input[0], name], node.output))
    return result


def load_model(model: Model) -> onnx.ModelProto:
    """The model as written; weights in other files stay there.

    Raises:
        DataError: no such file, not an ONNX model, or weights outside the model's folder.
    """
    try:
        if isinstance(model, bytes):
            content = model
        else:
            with open_regular(Path(model)) as file:
                content = file.read()
    except OSError as error:
        raise DataError(
            f"{error.strerror or error}; give the path of a .onnx file", path=_path(model)
        ) from None
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except Exception:  # the location of protobuf's DecodeError depends on its version
        raise DataError("not an ONNX model", path=_path(model)) from None
    if not proto.graph.node:
        raise DataError("not an ONNX model, or one with no operators", path=_path(model))
    for tensor in _tensors(proto.graph):
        _check_location(tensor, model)
    return proto


def _check_location(tensor: onnx.TensorProto, model: Model) -> None:
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    locations = [entry.value for entry in tensor.external_data if entry.key == "location"]
    if isinstance(model, bytes):
        raise DataError(f"weight '{tensor.name}' is kept in another file; give the model's path")
    folder = Path(model).resolve().parent
    for location in locations or [""]:
        path_parts = (*PurePosixPath(location).parts, *PureWindowsPath(location).parts)
        absolute = PurePosixPath(location).is_absolute() or PureWindowsPath(location).is_absolute()
        try:
            inside = folder in (folder / location).resolve().parents
            is_file = (folder / location).is_file()
        except (OSError, RuntimeError, ValueError):  # a name too long, a circle of links, a NUL
            inside = is_file = False
        if not location or absolute or ".." in path_parts or not inside:
            raise DataError(
                f"weight '{tensor.name}' is kept outside the model's folder, at '{location}'",
                path=_path(model),
            )
        if not is_file:
            raise DataError(
                f"weight '{tensor.name}' is kept in '{location}', which is not a file in the "
                "model's folder; put that file next to the model, or export it again",
                path=_path(model),
            )


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Every tensor that the graph and its subgraphs hold."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


def _as_error(error: Exception, model: Model) -> DlbError:
    """An exception of ONNX Runtime as a DlbError, in one line."""
    text = _ORIGIN.sub("", " ".join(str(error).split()))
    text = text if len(text) <= 300 else text[:300] + "..."
    name = type(error).__name__
    unsupported_phrases = ("opset", "no op registered", "not a registered function")
    if name == "NotImplemented" or any(phrase in text.lower() for phrase in unsupported_phrases):
        return UnsupportedError(f"ONNX Runtime cannot run the model: {text}", path=_path(model))
    if name == "InvalidArgument":
        return RequestError(text, path=_path(model))
    return DataError(f"ONNX Runtime refuses the model: {text}", path=_path(model))


def _path(model: Model) -> str:
    return "" if isinstance(model, bytes) else str(model)
