"""An adapter behind ONNX's own backend interface: a model in, its outputs out.

The model is imported into layers as ``dlb run model.onnx`` does it. The adapter builds and runs it in
its worker process. One process serves every model of a backend.
"""

from __future__ import annotations

import hashlib
import unittest
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter
from onnx.backend.base import Backend, BackendRep

from dlb.adapters import AdapterEnvironment, find_adapters
from dlb.capabilities import Capabilities, capabilities_of, check_capabilities
from dlb.errors import RequestError, UnsupportedError, WorkerError
from dlb.graph.evaluate import evaluate
from dlb.graph.nominal import fix_input_shapes
from dlb.imported import ImportedModel, import_file
from dlb.proof.files.read import OLDEST_OPSET
from dlb.provenance import available_cores
from dlb.scratch import scratch_folder
from dlb.supervision.group import Group, Launch, worker_group
from dlb.supervision.remote import RemoteModel, start

__all__ = ["NotOffered", "onnx_backend"]

Array = npt.NDArray[Any]

_PRECISIONS = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}
_MAIN = ("", "ai.onnx")


class NotOffered(UnsupportedError, unittest.SkipTest):
    """A part of a model that no layer represents, or that the adapter cannot build.

    It is a ``SkipTest`` too, so that ONNX's test runner counts the test as skipped. The runner counts
    its own ``BackendIsNotSupposedToImplementIt`` as passed.
    """


def onnx_backend(
    adapter: str, *, device: str = "cpu", threads: int | None = None, dtype: str | None = None
) -> type[Backend]:
    """An adapter as an ``onnx.backend.base.Backend``, such as ``onnx.backend.test.BackendTest`` takes.

    The worker process starts with the first model. It ends with this process, or with
    ``backend.worker.close()``.

    Args:
        adapter: the adapter's name.
        device: ``cpu`` or ``cuda``; the backend supports this one alone.
        threads: threads of the worker; by default, all available cores.
        dtype: ``float32`` or ``float64``, in which models compute. By default, a model computes in
            the dtype of its first output. Outputs keep the dtype that the model declares.

    Raises:
        dlb.errors.RequestError: there is no such adapter, or ``dtype`` is another one.
    """
    if dtype not in (None, *_PRECISIONS.values()):
        raise RequestError(f"a backend computes in float32 or float64, not in {dtype}")
    (environment,) = find_adapters([adapter])
    name = "".join(part.capitalize() for part in adapter.replace("_", "-").split("-"))
    worker = _Worker(environment, device, available_cores() if threads is None else threads, dtype)
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
    """A model that runs.

    The layers read the first input. Every other input becomes a weight, as an initializer does; where no
    layers compute that, all inputs are read as one. The model is imported and built again when an input that
    is a weight, or a size, changes.
    """

    def __init__(self, worker: _Worker, model: onnx.ModelProto) -> None:
        self.worker = worker
        self.model = _convert_to_oldest_opset(model)
        initializers = {tensor.name for tensor in model.graph.initializer}
        self.inputs = [value for value in self.model.graph.input if value.name not in initializers]
        if not self.inputs:
            raise NotOffered("it has 0 inputs (none); a workload has one")
        for value in (*self.inputs, *self.model.graph.output):
            if not value.type.HasField("tensor_type"):
                raise NotOffered(f"'{value.name}' is not a tensor")
        for output in self.model.graph.output:
            element_type = output.type.tensor_type.elem_type
            if element_type not in _PRECISIONS:
                type_name = TensorProto.DataType.Name(element_type).lower()
                raise NotOffered(
                    f"output '{output.name}' is {type_name}; models compute in float32 or float64"
                )
        self.output_dtype = _PRECISIONS[self.model.graph.output[0].type.tensor_type.elem_type]
        self.dtype = worker.dtype or self.output_dtype
        #: The SHA-256 of the model with its inputs bound, and what was imported from it.
        self._last_import: tuple[bytes, ImportedModel] | None = None
        self._built: RemoteModel | None = None
        sizes = [dim.dim_value for dim in self.inputs[0].type.tensor_type.shape.dim]
        if len(self.inputs) == 1 and sizes and min(sizes) > 0:
            self._import([np.zeros(sizes, np.int8)])

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The model's output for ``inputs``, which are in the order of the graph's inputs.

        Raises:
            NotOffered: the model is not supported; the message names the part.
        """
        arrays = [np.asarray(array) for array in inputs]
        if len(arrays) != len(self.inputs):
            raise RequestError(f"the model reads {len(self.inputs)} inputs; given: {len(arrays)}")
        imported = self._import(arrays)
        if self._built is None or not self.worker.holds(self._built):
            self._built = self._build(imported, len(arrays[0]))
        layout, model_input = imported.layout, imported.workload.model.input
        first = self._input(imported, arrays).transpose(layout.axes)
        first = first.astype("int64" if model_input.kind == "index" else self.dtype)
        value = self.worker.forward(self._built, first).ravel()[layout.index_map]
        if layout.postprocessing is not None:
            name = layout.postprocessing.graph.input[0].name
            (value,) = evaluate(layout.postprocessing, {name: value}).values()
        return (value.astype(self.output_dtype),)

    def _input(self, imported: ImportedModel, arrays: Sequence[Array]) -> Array:
        """What the layers read."""
        by_name = {value.name: array for value, array in zip(self.inputs, arrays)}
        joined = [name for cause in imported.read_as for name, _ in cause.joined]
        if not joined:
            return arrays[0]
        flat = [by_name[name].reshape(len(by_name[name]), -1) for name in joined]
        return np.concatenate(flat, axis=1)

    def _import(self, arrays: Sequence[Array]) -> ImportedModel:
        """Import the model for inputs of these sizes, with all inputs but the first bound, or joined.

        Raises:
            NotOffered: the model is not supported.
        """
        names = [value.name for value in self.inputs]
        whole = fix_input_shapes(self.model, dict(zip(names, arrays)))
        try:
            return self._import_model(self._bound(names, arrays))
        except NotOffered as refused:
            if len(arrays) == 1:
                raise
            try:
                imported = self._import_model(whole)
            except NotOffered:
                raise refused from None
            if not any(cause.joined for cause in imported.read_as):
                raise refused from None
            return imported

    def _bound(self, names: Sequence[str], arrays: Sequence[Array]) -> onnx.ModelProto:
        """The model with all inputs but the first as initializers."""
        model = fix_input_shapes(self.model, {names[0]: arrays[0]})
        model.graph.initializer.extend(
            numpy_helper.from_array(array, name) for name, array in zip(names[1:], arrays[1:])
        )
        unbound = [value for value in model.graph.input if value.name not in names[1:]]
        del model.graph.input[:]
        model.graph.input.extend(unbound)
        return model

    def _import_model(self, model: onnx.ModelProto) -> ImportedModel:
        content = model.SerializeToString(deterministic=True)
        digest = hashlib.sha256(content).digest()
        if self._last_import is None or self._last_import[0] != digest:
            with scratch_folder() as folder:
                path = folder / "model.onnx"
                path.write_bytes(content)
                try:
                    self._last_import = digest, import_file(path, any_output=True)
                except (RequestError, UnsupportedError) as error:
                    raise NotOffered(error.detail) from None
            self._built = None
        return self._last_import[1]

    def _build(self, imported: ImportedModel, batch: int) -> RemoteModel:
        try:
            return self.worker.build(self, imported, self.dtype, batch)
        except UnsupportedError as error:
            raise NotOffered(str(error)) from None


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
