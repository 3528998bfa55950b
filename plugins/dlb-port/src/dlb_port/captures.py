"""The file of a capture: a user's model as a reference that need not run where its port does.

It is a `safetensors <https://github.com/huggingface/safetensors>`_ file. Its arrays are the inputs and what the
model computed; the entry ``dlb`` of its metadata is the JSON document :class:`Capture`, which names them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.errors import DataError, RequestError
from dlb_graph.regular_files import temporary_file
from dlb_port.recording import Answers, RecordedModel, fingerprint

__all__ = ["FORMAT", "Capture", "CaptureFile", "Recording", "read_capture", "write_capture"]

Array = npt.NDArray[Any]
FORMAT = 2
#: The entry of the metadata that holds the document.
_ENTRY = "dlb"
#: dtypes that inputs and answers may have.
_DTYPES = frozenset(("bool", "float32", "float64", "int64", "int32", "float16", "uint8", "int8"))

#: A name is a folder's and a file's, too.
_Name = Annotated[str, msgspec.Meta(pattern=r"^[^\W_][\w.-]*\Z", max_length=80)]
_Word = Annotated[str, msgspec.Meta(max_length=300)]
#: The letters of axes, of which an array has no more.
_Layout = Annotated[str, msgspec.Meta(max_length=32)]


class Capture(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What a capture holds, beside its arrays.

    Attributes:
        format: version of the document's format.
        made: time, ISO 8601, UTC; ``core``: dlb-core's version.
        name, adapter, framework, factory: what the model is called; what made it.
        features: features of the adapter.
        seed: seed of weights, cotangents and perturbations.
        further: whether :func:`~dlb_port.inputs.further_inputs` are compared, too.
        input_layout, output_layouts: layouts of inputs and outputs; "" is canonical.
        leave: parameters that are not carried.
        inputs: every input [batch, ...] in canonical layout: its array, by name.
        trainer: the model's own training program, ``package.module:function``; "" if there is none.
        batches: the batches of that program [steps, batch, ...]: arrays by name.
        models: what was recorded, by dtype: ``float64`` and ``float32``.
        drawn: what is not trained, and what another call of the factory makes otherwise: its arrays by name.
    """

    format: int
    made: str
    core: str
    name: _Name
    adapter: _Word
    framework: _Word
    factory: _Word
    features: tuple[str, ...]
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    further: bool
    input_layout: _Layout
    output_layouts: _Layout | tuple[_Layout, ...]
    leave: tuple[str, ...]
    inputs: dict[str, str]
    trainer: str
    batches: dict[str, str]
    models: dict[str, Answers]
    drawn: dict[str, str] = {}


@dataclass
class Recording:
    """Arrays that are kept, each once.

    Attributes:
        arrays: by name.
    """

    arrays: dict[str, Array] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def keep(self, array: Array) -> str:
        """Keep an array, and return its name."""
        known = fingerprint(array)
        if known not in self._names:
            self._names[known] = str(len(self._names))
            self.arrays[self._names[known]] = np.array(array, order="C")
        return self._names[known]

    def keep_all(self, arrays: Mapping[str, Array]) -> dict[str, str]:
        """Keep several arrays."""
        return {name: self.keep(array) for name, array in arrays.items()}


@dataclass(frozen=True)
class CaptureFile:
    """A capture that was read. Its arrays stay in the file until they are asked for.

    Attributes:
        path: the file.
        capture: the document.
    """

    path: Path
    capture: Capture
    _opened: Any

    def array(self, name: str) -> Array:
        """An array.

        Raises:
            DataError: the file has none of that name.
        """
        try:
            found: Array = self._opened.get_tensor(name)
        except Exception as error:  # safetensors' own, which has no other base
            raise DataError(f"a damaged capture: {_one_line(error)}", path=self.path) from None
        if found.dtype.name not in _DTYPES:
            raise DataError(f"a damaged capture: '{name}' is {found.dtype}", path=self.path)
        return found

    def arrays(self, names: Mapping[str, str]) -> dict[str, Array]:
        """Several arrays."""
        return {name: self.array(kept) for name, kept in names.items()}

    def model(self, dtype: str) -> RecordedModel:
        """The recorded model in a dtype.

        Raises:
            RequestError: it was not recorded in that dtype.
        """
        if dtype not in self.capture.models:
            raise RequestError(f"the capture has no answers in {dtype}", path=self.path)
        return RecordedModel(self.capture.name, dtype, self.capture.models[dtype], self.array)


def write_capture(path: Path, capture: Capture, recording: Recording) -> None:
    """Write a capture completely, or leave the old file unchanged.

    Raises:
        RequestError: the file cannot be written.
    """
    from safetensors.numpy import save_file

    metadata = {_ENTRY: msgspec.json.encode(capture).decode()}
    try:
        with temporary_file(path) as temporary:
            save_file(recording.arrays, temporary, metadata)
    except OSError as error:
        raise RequestError(
            f"the capture cannot be written: {error.strerror or error}", path=path
        ) from None


@contextmanager
def read_capture(path: Path) -> Iterator[CaptureFile]:
    """Open a capture.

    Raises:
        DataError: the file cannot be read, or is not a capture.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise DataError("no such file; write one with: dlb capture", path=path)
    with contextlib.ExitStack() as stack:
        try:
            opened = stack.enter_context(safe_open(os.fspath(path), framework="np"))
            metadata = opened.metadata() or {}
        except (SafetensorError, OSError, ValueError) as error:
            raise DataError(f"not a capture: {_one_line(error)}", path=path) from None
        if _ENTRY not in metadata:
            raise DataError("not a capture; write one with: dlb capture", path=path)
        yield CaptureFile(path, _decoded(metadata[_ENTRY], path), opened)


def _decoded(document: str, path: Path) -> Capture:
    try:
        version = msgspec.json.decode(document, type=_Versioned).format
        if version != FORMAT:
            raise DataError(
                f"a capture of format {version}; this dlb reads format {FORMAT}; "
                "make it again with: dlb capture",
                path=path,
            )
        return msgspec.json.decode(document, type=Capture)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DataError(f"not a capture: {error}", path=path) from None


class _Versioned(msgspec.Struct):
    format: int


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
