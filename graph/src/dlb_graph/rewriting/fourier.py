"""ONNX DFT and STFT as compositions: the product with a matrix, and a convolution with one for each step.

Each row of the matrix is the transform of a 1 in one place.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dlb_graph.layers.numbers import Array
from dlb_graph.rewriting.node_writer import NodeWriter

__all__ = ["LARGEST_MATRIX", "dft", "stft"]

#: More numbers than this are no matrix.
LARGEST_MATRIX = 1 << 24
#: The first operator set in which DFT reads its axis.
_AXIS_IS_INPUT = 20


def dft(write: NodeWriter) -> bool:
    """The discrete Fourier transform along an axis of real or complex numbers."""
    value = write.input(0)
    sizes = write.shapes.get(value)
    if sizes is None:
        return False
    if write.opset < _AXIS_IS_INPUT:
        axis = int(write.attributes.get("axis", 1))
    else:
        axis = int(_number(write, 2, -2))
    rank, axis = len(sizes), axis % len(sizes)
    inverse, onesided = (bool(write.attributes.get(name, 0)) for name in ("inverse", "onesided"))
    usual = 2 * (sizes[axis] - 1) if inverse and onesided else sizes[axis]
    length, count = int(_number(write, 1, usual)), sizes[axis] * sizes[-1]
    if axis == rank - 1 or not 0 < count * 2 * length <= LARGEST_MATRIX:
        return False
    read = np.eye(count).reshape(count, sizes[axis], sizes[-1])
    matrix = _transformed(read, length, inverse=inverse, onesided=onesided)
    order = [*(place for place in range(rank - 1) if place != axis), axis, rank - 1]
    outer = (0,) * (rank - 2)
    rows = write.add(
        "Reshape", write.add("Transpose", value, perm=order), write.shape(*outer, count)
    )
    product = write.add("MatMul", rows, write.tensor(matrix.reshape(count, -1)))
    shaped = write.add("Reshape", product, write.shape(*outer, *matrix.shape[1:]))
    return write.end(write.add("Transpose", shaped, perm=np.argsort(order).tolist()))


def stft(write: NodeWriter) -> bool:
    """Fourier transforms of parts of a real signal, a step apart, each times a window."""
    sizes, step = write.shapes.get(write.input(0)), write.constant(1)
    window = write.constant(2) if write.input(2) else None
    length = int(_number(write, 3, 0 if window is None else len(window)))
    fits = len(sizes or ()) == 3 and sizes[-1] == 1 and step is not None  # type: ignore[index]
    if (
        not fits
        or step < 1
        or (write.input(2) and window is None)
        or not 0 < length**2 <= LARGEST_MATRIX
    ):
        return False
    weights = np.ones(length) if window is None else window.astype(np.float64)
    if weights.shape != (length,):
        return False
    onesided = bool(write.attributes.get("onesided", 1))
    read = np.diag(weights).reshape(length, length, 1)
    matrix = _transformed(read, length, inverse=False, onesided=onesided)
    bins = matrix.shape[1]
    kernel = matrix.transpose(1, 2, 0).reshape(2 * bins, 1, length)
    signal = write.add("Reshape", write.input(0), write.shape(0, 1, -1))
    spectrum = write.add("Conv", signal, write.tensor(kernel), strides=[int(step)])
    frames = write.add("Transpose", spectrum, perm=[0, 2, 1])
    return write.end(write.add("Reshape", frames, write.shape(0, 0, bins, 2)))


def _number(write: NodeWriter, place: int, usual: int) -> int:
    """A constant of one number; the usual one if it is left out.

    Raises:
        TypeError: the graph computes it.
    """
    return usual if not write.input(place) else int(np.ravel(write.constant(place))[0])


def _transformed(
    values: Array, length: int, *, inverse: bool, onesided: bool
) -> npt.NDArray[np.float64]:
    """Transforms of [count, places, 1 or 2], [count, places, 1 or 2]: 2 are a complex number."""
    numbers = values[..., 0] + (1j * values[..., 1] if values.shape[-1] == 2 else 0)
    if inverse and onesided:
        return np.fft.irfft(numbers, n=length)[..., None]
    transform = (np.fft.ifft if inverse else np.fft.fft)(numbers, n=length)
    if onesided:
        transform = transform[..., : length // 2 + 1]
    return np.stack((transform.real, transform.imag), axis=-1)
