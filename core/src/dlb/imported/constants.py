"""Constants that are values of their own, such as queries that a network learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb.imported.importer import Importer
from dlb.imported.layers import unsupported
from dlb.imported.samples_first import SamplesFirst, repeated
from dlb.imported.views import of_a_sample
from dlb.workload.layers import Pad, Reshape, Slice
from dlb.workload.primitives import Shift

__all__ = ["constant_value"]

Array = npt.NDArray[Any]


def constant_value(
    importer: Importer, node: onnx.NodeProto, numbers: Array, beside: SamplesFirst
) -> SamplesFirst:
    """A constant as a value of every sample: zeros, to which trained numbers are added.

    Args:
        numbers: of the file's axes, with a size of 1 or of the batch along that of ``beside``'s samples.
        beside: a value with as many axes, which the zeros are made of.

    Raises:
        UnsupportedNode: the axes are others, or the numbers differ between samples.
    """
    batch, rank = beside.shape[0], len(beside.shape)
    if beside.rows or numbers.ndim != rank:
        raise unsupported(
            node, f"reads a constant {list(numbers.shape)} beside {list(beside.shape)}"
        )
    ordered = numbers.transpose(beside.axes)
    trained = of_a_sample(ordered)
    if len(ordered) not in (1, batch) or trained is None:
        raise unsupported(node, "its constant differs between samples")
    ones = (1,) * (rank - 1)
    # A zero that is put before a number of the value: not 0 times the number, which may be infinite.
    name = _sliced(importer, node, beside.layer, ones, batch)
    name = importer.add(node, Reshape(shape=(1,)), [name], (batch, 1))
    name = importer.add(node, Pad(pads=(1, 0)), [name], (batch, 2))
    name = _sliced(importer, node, name, (1,), batch)
    name = importer.add(node, Reshape(shape=ones), [name], (batch, *ones))
    shape = (batch, *ordered.shape[1:])
    name = repeated(importer, node, SamplesFirst(name, (batch, *ones), beside.axes), shape)
    weights = {"bias": np.ascontiguousarray(trained)}
    name = importer.add(node, Shift(sizes=trained.shape), [name], shape, weights)
    return SamplesFirst(name, shape, beside.axes)


def _sliced(
    importer: Importer, node: onnx.NodeProto, name: str, ones: tuple[int, ...], batch: int
) -> str:
    """The first number of each sample."""
    first = Slice(starts=(0,) * len(ones), ends=ones, steps=ones)
    return importer.add(node, first, [name], (batch, *ones))
