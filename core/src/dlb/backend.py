"""An adapter as ONNX's own backend interface has it: a model in, its outputs out.

A model is read into layers as ``dlb run model.onnx`` reads it, built by the adapter in its worker
process, and asked for its values. One process serves every model of a backend.
"""

from __future__ import annotations

import hashlib
import tempfile
import unittest
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
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
from dlb.imported import Imported, import_file
from dlb.proof.files.read import OLDEST_OPSET
from dlb.proof.files.runs import fix_input_shapes
from dlb.provenance import available_cores
from dlb.supervision.group import Group, Launch, worker_group
from dlb.supervision.remote import RemoteModel, start

__all__ = ["NotOffered", "onnx_backend"]

Array = npt.NDArray[Any]

_PRECISIONS = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}
_MAIN = ("", "ai.onnx")


class NotOffered(UnsupportedError, unittest.SkipTest):
    """What of a model no layer means, or an adapter cannot build.

    A ``SkipTest`` as well, so that ONNX's test runner counts it as skipped. (Its own
    ``BackendIsNotSupposedToImplementIt`` it would count as passed.)
    """


def onnx_backend(
    adapter: str, *, device: str = "cpu", threads: int | None = None, dtype: str | None = None
) -> type[Backend]:
    """An adapter as an ``onnx.backend.base.Backend``, for ``onnx.backend.test.BackendTest`` say.

    Its process starts with the first model and ends with this one, or with
    ``backend.worker.close()``.

    Args:
        adapter: its name.
        device: ``cpu`` or ``cuda``, which is then the only one that is supported.
        threads: of the worker; the cores there are when left out.
        dtype: ``float32`` or ``float64``, what models compute in; each in the type of its output
            when left out. Outputs are of their own type either way.

    Raises:
        dlb.errors.RequestError: there is no such adapter, or dtype is another.
    """
    if dtype not in (None, *_PRECISIONS.values()):
        raise RequestError(f"a backend computes in float32 or float64, not in {dtype}")
    (environment,) = find_adapters([adapter])
    name = "".join(part.capitalize() for part in adapter.replace("_", "-").split("-"))
    worker = _Worker(environment, device, available_cores() if threads is None else threads, dtype)
    return type(f"{name}Backend", (_AdapterBackend,), {"worker": worker})


class _Worker:
    """The process of a backend, started when it is needed, and again when it has failed."""

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

    def build(self, owner: object, imported: Imported, dtype: str, batch: int) -> RemoteModel:
        """Build a model, which is dropped when its owner has gone.

        Raises:
            UnsupportedError: the adapter cannot.
            WorkerError: the process failed; the next model has another.
        """
        if self._group is None:
            self._group, self._known = self._started()
        try:
            while self._unused:
                model = self._unused.pop()
                if self.holds(model):
                    model.drop()
            check_capabilities(self._known, imported.workload, dtype=dtype, device=self.device)
            model = RemoteModel(
                self._group, imported.workload, imported.weights, dtype=dtype, batch_size=batch
            )
        except WorkerError:
            self.close()
            raise
        # A finaliser runs at any time, in the middle of a call too: it only leaves a note.
        weakref.finalize(owner, self._unused.append, model).atexit = False
        return model

    def forward(self, model: RemoteModel, inputs: Array) -> Array:
        """The logits; errors as :meth:`build`."""
        try:
            return model.forward(inputs)[model.last]
        except WorkerError:
            self.close()
            raise

    def holds(self, model: RemoteModel) -> bool:
        """Whether the process that a model was built in still runs."""
        return model.group is self._group

    def close(self) -> None:
        """End the process; another starts when a model is built again."""
        self._group = None
        self._unused.clear()
        self._open.close()

    def _started(self) -> tuple[Group, Capabilities]:
        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="dlb-"))
        launch = Launch(
            self.environment.adapter,
            self.environment.python,
            Path(folder),
            threads=self.threads,
            device=self.device,
        )
        group = self._open.enter_context(worker_group(launch))
        start(group, threads=self.threads, device=self.device, seed=0)
        return group, capabilities_of(group.call("describe")[0], self.environment.adapter)


class _AdapterBackend(Backend):
    """Base of the backends; ``worker`` is each one's own."""

    worker: _Worker

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the model's layers can be read. Of several inputs only running it tells."""
        try:
            cls.prepare(model, device, **kwargs)
        except NotOffered:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> BackendRep:
        """The model, ready to be run.

        Raises:
            NotOffered: it is not covered; the message says what of it.
        """
        if not cls.supports_device(device):
            raise NotOffered(f"this backend is of {cls.worker.device}, not of {device}")
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
        """A model of this node alone, run.

        Args:
            outputs_info: type and shape of each output; float32 and open when left out.
        """
        open_shapes = [(np.dtype(np.float32), None) for _ in node.output]
        graph = helper.make_graph(
            [node],
            "node",
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(np.asarray(each).dtype), np.shape(each)
                )
                for name, each in zip([name for name in node.input if name], inputs)
            ],
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kind), shape)
                for name, (kind, shape) in zip(node.output, outputs_info or open_shapes)
            ],
        )
        opset = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        return tuple(cls.prepare(model, device).run(inputs))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0].lower() == cls.worker.device


class _Prepared(BackendRep):
    """A model that is run.

    The first input is what the layers read. What else is fed is what they hold as weights: it is
    bound as initialisers are, and the model is read and built anew when it changes, or a size does.
    """

    def __init__(self, worker: _Worker, model: onnx.ModelProto) -> None:
        self.worker = worker
        self.model = _of_known_operators(model)
        held = {tensor.name for tensor in model.graph.initializer}
        self.inputs = [value for value in self.model.graph.input if value.name not in held]
        if not self.inputs:
            raise NotOffered("it has 0 inputs (none); a workload has one")
        for each in (*self.inputs, *self.model.graph.output):
            if not each.type.HasField("tensor_type"):
                raise NotOffered(f"'{each.name}' is no tensor")
        for output in self.model.graph.output:
            kind = output.type.tensor_type.elem_type
            if kind not in _PRECISIONS:
                called = TensorProto.DataType.Name(kind).lower()
                raise NotOffered(
                    f"output '{output.name}' is {called}; models compute in float32 or float64"
                )
        self.told = _PRECISIONS[self.model.graph.output[0].type.tensor_type.elem_type]
        self.dtype = worker.dtype or self.told
        self._read: tuple[bytes, Imported] | None = None
        self._built: RemoteModel | None = None
        sizes = [dim.dim_value for dim in self.inputs[0].type.tensor_type.shape.dim]
        if len(self.inputs) == 1 and sizes and min(sizes) > 0:
            self._imported([np.zeros(sizes, np.int8)])

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The model's output for its inputs, in the order of the graph's.

        Raises:
            NotOffered: the model is not covered; the message says what of it.
        """
        given = [np.asarray(each) for each in inputs]
        if len(given) != len(self.inputs):
            raise RequestError(f"the model reads {len(self.inputs)} inputs; given: {len(given)}")
        imported = self._imported(given)
        if self._built is None or not self.worker.holds(self._built):
            self._built = self._build(imported, len(given[0]))
        arrangement, read = imported.arrangement, imported.workload.model.input
        first = given[0].transpose(arrangement.axes)
        first = first.astype("int64" if read.kind == "index" else self.dtype)
        value = self.worker.forward(self._built, first).ravel()[arrangement.places]
        if arrangement.after is not None:
            name = arrangement.after.graph.input[0].name
            (value,) = evaluate(arrangement.after, {name: value}).values()
        return (value.astype(self.told),)

    def _imported(self, given: Sequence[Array]) -> Imported:
        """What the model is with inputs of these sizes, all but the first bound.

        Raises:
            NotOffered: it is not covered.
        """
        names = [value.name for value in self.inputs]
        model = fix_input_shapes(self.model, {names[0]: given[0]})
        model.graph.initializer.extend(
            numpy_helper.from_array(each, name) for name, each in zip(names[1:], given[1:])
        )
        kept = [value for value in model.graph.input if value.name not in names[1:]]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        written = model.SerializeToString(deterministic=True)
        known = hashlib.sha256(written).digest()
        if self._read is None or self._read[0] != known:
            with tempfile.TemporaryDirectory(prefix="dlb-") as folder:
                path = Path(folder) / "model.onnx"
                path.write_bytes(written)
                try:
                    self._read = known, import_file(path, any_output=True)
                except (RequestError, UnsupportedError) as error:
                    raise NotOffered(error.detail) from None
            self._built = None
        return self._read[1]

    def _build(self, imported: Imported, batch: int) -> RemoteModel:
        try:
            return self.worker.build(self, imported, self.dtype, batch)
        except UnsupportedError as error:
            raise NotOffered(str(error)) from None


def _of_known_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, brought to the oldest operator set that is read if its own is older."""
    opset = next((each.version for each in model.opset_import if each.domain in _MAIN), 0)
    if not 0 < opset < OLDEST_OPSET:
        return model
    try:
        return version_converter.convert_version(model, OLDEST_OPSET)
    except Exception as error:  # the converter raises whatever its parts do
        text = " ".join(str(error).split())
        raise NotOffered(
            f"operator set {opset} cannot be converted to {OLDEST_OPSET}: {text}"
        ) from None
