"""An adapter behind ONNX's own backend interface: a model in, its outputs out.

The model is imported into layers as ``dlb run model.onnx`` does it. The adapter builds and runs it in
its worker process. One process serves every model of a backend.
"""

from __future__ import annotations

import hashlib
import unittest
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter
from onnx.backend.base import Backend, BackendRep

from dlb.adapters import AdapterEnvironment, find_adapters
from dlb.capabilities import Capabilities, capabilities_of, check_capabilities
from dlb.catalogue import import_onnx
from dlb.errors import RequestError, UnsupportedError, WorkerError
from dlb.provenance import free_cores
from dlb.scratch import scratch_folder
from dlb.supervision.group import Group, Launch, worker_group
from dlb.supervision.remote import RemoteModel, start
from dlb_graph.arguments import checked
from dlb_graph.files.model_file import OLDEST_OPSET
from dlb_graph.files.read import ImportedModel
from dlb_graph.layers import Embedding
from dlb_graph.rewriting.nominal import fix_input_shapes
from dlb_graph.truth.evaluate import evaluate

__all__ = ["NotOffered", "onnx_backend"]

Array = npt.NDArray[Any]

#: The dtype in which an output of each element type is computed. Truths and integers are real numbers there.
_COMPUTED_IN: Mapping[int, str] = {
    **dict.fromkeys((TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16), "float32"),
    TensorProto.DOUBLE: "float64",
    TensorProto.BOOL: "float32",
    **dict.fromkeys((TensorProto.INT8, TensorProto.UINT8), "float32"),
    **dict.fromkeys((TensorProto.INT16, TensorProto.INT32, TensorProto.INT64), "float64"),
    **dict.fromkeys((TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64), "float64"),
}
_MAIN = ("", "ai.onnx")


class NotOffered(UnsupportedError, unittest.SkipTest):
    """A part of a model that no layer represents, or that the adapter cannot build.

    It is a ``SkipTest`` too, so that ONNX's test runner counts the test as skipped. The runner counts
    its own ``BackendIsNotSupposedToImplementIt`` as passed.
    """


@checked
def onnx_backend(
    adapter: str,
    *,
    device: Literal["cpu", "cuda"] = "cpu",
    threads: int | None = None,
    dtype: Literal["float32", "float64"] | None = None,
) -> type[Backend]:
    """An adapter as an ``onnx.backend.base.Backend``, such as ``onnx.backend.test.BackendTest`` takes.

    The worker process starts with the first model. It ends with this process, or with
    ``backend.worker.close()``.

    Args:
        adapter: the adapter's name.
        device: ``cpu`` or ``cuda``; the backend supports this one alone.
        threads: threads of the worker; by default, all available cores.
        dtype: ``float32`` or ``float64``, in which models compute. By default it depends on the type of
            a model's output: of truths and small integers too, float32 is exact. Outputs keep the dtype that
            the model declares.

    Raises:
        dlb.errors.RequestError: there is no such adapter, or ``dtype`` is another one.
    """
    (environment,) = find_adapters([adapter])
    name = "".join(part.capitalize() for part in adapter.replace("_", "-").split("-"))
    worker = _Worker(environment, device, free_cores() if threads is None else threads, dtype)
    return type(f"{name}Backend", (_AdapterBackend,), {"worker": worker})


class _Worker:
    """The process of a backend, started on first use, and again after it failed."""

    def __init__(
        self, environment: AdapterEnvironment, device: str, threads: int, dtype: str | None
    ) -> None:
        self.environment = environment
        self.device = device
        self.threads = threads
        self.dtype = dtype
        self._group: Group | None = None
        self._open = ExitStack()
        self._unused: list[RemoteModel] = []
        weakref.finalize(self, self._open.close)

    def build(self, owner: object, imported: ImportedModel, dtype: str, batch: int) -> RemoteModel:
        """Build a model, which is dropped after its owner was collected.

        Raises:
            UnsupportedError: the adapter cannot build it.
            WorkerError: the process failed; the next model starts another.
        """
        if self._group is None:
            self._group, self._capabilities = self._start()
        try:
            while self._unused:
                model = self._unused.pop()
                if self.holds(model):
                    model.drop()
            check_capabilities(
                self._capabilities, imported.workload, dtype=dtype, device=self.device
            )
            model = RemoteModel(
                self._group, imported.workload, imported.weights, dtype=dtype, batch_size=batch
            )
        except WorkerError:
            self.close()
            raise
        # A finaliser can run in the middle of a call: it only queues the model.
        weakref.finalize(owner, self._unused.append, model).atexit = False
        return model

    def forward(self, model: RemoteModel, inputs: Array) -> Array:
        """The value of the last layer; errors as :meth:`build`."""
        try:
            return model.forward(inputs)[model.last]
        except WorkerError:
            self.close()
            raise

    def holds(self, model: RemoteModel) -> bool:
        """Whether the process that a model was built in still runs."""
        return model.group is self._group

    def close(self) -> None:
        """End the process; the next :meth:`build` starts another."""
        self._group = None
        self._unused.clear()
        self._open.close()

    def _start(self) -> tuple[Group, Capabilities]:
        folder = self._open.enter_context(scratch_folder())
        launch = Launch(
            self.environment.adapter,
            self.environment.python,
            folder,
            threads=self.threads,
            device=self.device,
        )
        group = self._open.enter_context(worker_group(launch))
        start(group, threads=self.threads, device=self.device, seed=0)
        return group, capabilities_of(group.call("describe")[0], self.environment.adapter)


class _AdapterBackend(Backend):
    """Base of the backends; each has its own ``worker``."""

    worker: _Worker

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the model can be imported. With several inputs, only :meth:`run` can decide."""
        try:
            cls.prepare(model, device, **kwargs)
        except NotOffered:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> BackendRep:
        """The model, ready to run.

        Raises:
            NotOffered: the model is not supported; the message names the part.
        """
        if not cls.supports_device(device):
            raise NotOffered(f"this backend runs on {cls.worker.device}, not on {device}")
        return _Prepared(cls.worker, model)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of a model of this node alone.

        Args:
            outputs_info: dtype and shape of each output; by default, float32 and any shape.
        """
        open_shapes = [(np.dtype(np.float32), None) for _ in node.output]
        graph = helper.make_graph(
            [node],
            "node",
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), np.shape(array)
                )
                for name, array in zip([name for name in node.input if name], inputs)
            ],
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)
                for name, (dtype, shape) in zip(node.output, outputs_info or open_shapes)
            ],
        )
        opset = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        return tuple(cls.prepare(model, device).run(inputs))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0].lower() == cls.worker.device


class _Prepared(BackendRep):
    """A model that runs: one for each of its outputs, since layers compute one."""

    def __init__(self, worker: _Worker, model: onnx.ModelProto) -> None:
        self.worker = worker
        model = _convert_to_oldest_opset(model)
        initializers = {tensor.name for tensor in model.graph.initializer}
        self.inputs = [value for value in model.graph.input if value.name not in initializers]
        if not self.inputs:
            raise NotOffered("it has 0 inputs (none); a workload has one")
        for value in (*self.inputs, *model.graph.output):
            if not value.type.HasField("tensor_type"):
                raise NotOffered(f"'{value.name}' is not a tensor")
        for output in model.graph.output:
            element_type = output.type.tensor_type.elem_type
            if element_type not in _COMPUTED_IN:
                type_name = TensorProto.DataType.Name(element_type).lower()
                raise NotOffered(f"output '{output.name}' is {type_name}, which no layer computes")
        self.outputs = [
            _Output(worker, model, self.inputs, output) for output in model.graph.output
        ]
        sizes = [dim.dim_value for dim in self.inputs[0].type.tensor_type.shape.dim]
        if len(self.inputs) == 1 and sizes and min(sizes) > 0:
            for one in self.outputs:
                one.read([np.zeros(sizes, np.int8)])

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The model's outputs for ``inputs``, which are in the order of the graph's inputs.

        Raises:
            NotOffered: the model is not supported; the message names the part.
        """
        arrays = [np.asarray(array) for array in inputs]
        if len(arrays) != len(self.inputs):
            raise RequestError(f"the model reads {len(self.inputs)} inputs; given: {len(arrays)}")
        return tuple(output.run(arrays) for output in self.outputs)


@dataclass(frozen=True)
class _Read:
    """A model as layers, and what of its inputs they read.

    Attributes:
        names: of the inputs, whose numbers are joined if there are several.
        alone: whether all numbers of an input are one sample's.
    """

    imported: ImportedModel
    names: tuple[str, ...]
    alone: bool


class _Output:
    """One output of a model.

    The layers read the first input. Every other input becomes a weight, as an initializer does; where no
    layers compute that, all inputs are read as one. Where samples are no first axis, all numbers are one
    sample's. The model is imported and built again when an input that is a weight, or a size, changes.
    """

    def __init__(
        self,
        worker: _Worker,
        model: onnx.ModelProto,
        inputs: Sequence[onnx.ValueInfoProto],
        output: onnx.ValueInfoProto,
    ) -> None:
        self.worker = worker
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        del self.model.graph.output[:]
        self.model.graph.output.append(output)
        self.names = tuple(value.name for value in inputs)
        element_type = output.type.tensor_type.elem_type
        self.output_dtype = helper.tensor_dtype_to_np_dtype(element_type)
        self.dtype = worker.dtype or _COMPUTED_IN[element_type]
        #: The SHA-256 of the model with its inputs bound, and what was imported from it, by how it was read.
        self._imported: dict[
            tuple[tuple[str, ...], bool], tuple[bytes, ImportedModel | NotOffered]
        ] = {}
        self._built: tuple[ImportedModel, RemoteModel] | None = None

    def run(self, arrays: Sequence[Array]) -> Array:
        """The output for the model's inputs."""
        read = self.read(arrays)
        layout, model_input = read.imported.layout, read.imported.workload.model.input
        first = _joined(read, dict(zip(self.names, arrays))).transpose(layout.axes)
        first = first.astype("int64" if model_input.kind == "index" else self.dtype)
        if model_input.kind == "index":
            _check_indices(read.imported, first)
        if (
            self._built is None
            or self._built[0] is not read.imported
            or not self.worker.holds(self._built[1])
        ):
            self._built = read.imported, self._build(read.imported, len(first))
        value = self.worker.forward(self._built[1], first).ravel()[layout.index_map]
        if layout.postprocessing is not None:
            name = layout.postprocessing.graph.input[0].name
            (value,) = evaluate(layout.postprocessing, {name: value}).values()
        whole = self.output_dtype.kind in "biu"
        return (np.rint(value) if whole else value).astype(self.output_dtype)

    def read(self, arrays: Sequence[Array]) -> _Read:
        """Import the model for inputs of these sizes, in the first way in which layers compute it.

        Raises:
            NotOffered: the model is not supported.
        """
        refused = None
        # Without a batch, all numbers are one sample's.
        for alone in (False, True) if arrays[0].ndim > 1 else (True,):
            for kept in dict.fromkeys((self.names[:1], self._together(arrays, alone))):
                try:
                    imported = self._import(arrays, kept, alone)
                except NotOffered as reason:
                    refused = refused or reason
                    continue
                return _Read(imported, _names_read(imported, kept), alone)
        assert refused is not None
        raise refused

    def _together(self, arrays: Sequence[Array], alone: bool) -> tuple[str, ...]:
        """The inputs that may be read as one: of one type, and of one batch if they have any."""
        first = arrays[0]
        return tuple(
            name
            for name, array in zip(self.names, arrays)
            if array.dtype == first.dtype
            and (alone or (array.ndim > 0 and len(array) == len(first)))
        )

    def _import(self, arrays: Sequence[Array], kept: tuple[str, ...], alone: bool) -> ImportedModel:
        """Import the model with some inputs kept, and all others bound."""
        by_name = dict(zip(self.names, arrays))
        model = fix_input_shapes(self.model, {name: by_name[name] for name in kept})
        bound = [name for name in self.names if name not in kept]
        model.graph.initializer.extend(numpy_helper.from_array(by_name[x], x) for x in bound)
        unbound = [value for value in model.graph.input if value.name not in bound]
        del model.graph.input[:]
        model.graph.input.extend(unbound)
        if alone:
            _as_one_sample(model, {name: by_name[name].shape for name in kept})
        content = model.SerializeToString(deterministic=True)
        digest, way = hashlib.sha256(content).digest(), (kept, alone)
        if way not in self._imported or self._imported[way][0] != digest:
            found: ImportedModel | NotOffered
            with scratch_folder() as folder:
                path = folder / "model.onnx"
                path.write_bytes(content)
                try:
                    found = import_onnx(path, any_output=True)
                except (RequestError, UnsupportedError) as error:
                    found = NotOffered(error.detail)
            self._imported[way] = digest, found
        imported = self._imported[way][1]
        if isinstance(imported, NotOffered):
            raise imported
        return imported

    def _build(self, imported: ImportedModel, batch: int) -> RemoteModel:
        try:
            return self.worker.build(self, imported, self.dtype, batch)
        except UnsupportedError as error:
            raise NotOffered(str(error)) from None


def _check_indices(imported: ImportedModel, indices: Array) -> None:
    """Refuse indices that no table has.

    Raises:
        NotOffered: one is below 0, or not below the rows of a table.
    """
    layers = [node.layer for node in imported.workload.model.nodes]
    rows = min((layer.entries for layer in layers if isinstance(layer, Embedding)), default=0)
    if indices.size and not 0 <= indices.min() <= indices.max() < rows:
        raise NotOffered(
            f"indices are from {indices.min()} to {indices.max()}, and a table has {rows} rows"
        )


def _names_read(imported: ImportedModel, kept: Sequence[str]) -> tuple[str, ...]:
    """Which of the inputs that were kept the layers read, in the order in which they are joined."""
    given = {**{_sample_of(name): name for name in kept}, **dict(zip(kept, kept))}
    joined = [given[name] for cause in imported.read_as for name, _ in cause.joined]
    dropped = {given.get(name) for cause in imported.read_as for name in cause.dropped}
    return tuple(joined or [name for name in kept if name not in dropped])


def _joined(read: _Read, arrays: Mapping[str, Array]) -> Array:
    """What the layers read: one input, or the numbers of several, one after the other."""
    found = [arrays[name] for name in read.names]
    if read.alone:
        found = [array.reshape(1, *(array.shape or (1,))) for array in found]
    if len(found) == 1:
        return found[0]
    return np.concatenate([array.reshape(len(array), -1) for array in found], axis=1)


def _sample_of(name: str) -> str:
    """The input that has an axis more than the named one."""
    return f"{name}/sample"


def _as_one_sample(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Give inputs an axis of one sample, which the first nodes take away again."""
    graph = model.graph
    nodes = []
    for value in graph.input:
        if value.name not in shapes:
            continue
        shape, inner = shapes[value.name], value.name
        whole, sizes = _sample_of(inner), f"{inner}/shape"
        nodes.append(helper.make_node("Reshape", [whole, sizes], [inner]))
        graph.initializer.append(numpy_helper.from_array(np.array(shape, np.int64), sizes))
        value.name = whole
        del value.type.tensor_type.shape.dim[:]
        for size in (1, *(shape or (1,))):
            value.type.tensor_type.shape.dim.add().dim_value = size
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])


def _convert_to_oldest_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model; one of an older operator set is converted to the oldest that dlb reads."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in _MAIN), 0)
    if not 0 < opset < OLDEST_OPSET:
        return model
    try:
        return version_converter.convert_version(model, OLDEST_OPSET)
    except Exception as error:  # the converter raises errors of any type
        text = " ".join(str(error).split())
        raise NotOffered(
            f"operator set {opset} cannot be converted to {OLDEST_OPSET}: {text}"
        ) from None
