"""The difference of two losses, without the digits that subtracting them loses."""

from __future__ import annotations

import numpy as np
import pytest

from dlb.proof.reference import loss_difference
from dlb.workload import SoftmaxCrossEntropy


def loss(
    logits: np.ndarray, labels: np.ndarray, smoothing: float = 0.0, weights: tuple[float, ...] = ()
) -> np.longdouble:
    """Softmax cross-entropy as it is defined, in extended precision."""
    wide = logits.astype(np.longdouble)
    logs = np.log(np.exp(wide - wide.max(-1, keepdims=True)).sum(-1)) + wide.max(-1)
    hit = np.take_along_axis(wide, labels[..., None], -1)[..., 0]
    factors = np.array(weights)[labels] if weights else 1.0
    return (factors * (logs - (1 - smoothing) * hit - smoothing * wide.mean(-1))).mean()


@pytest.mark.parametrize("shape", [(5, 10), (3, 4, 7)])
@pytest.mark.parametrize("apart", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_it_is_the_difference_of_the_losses(
    shape: tuple[int, ...], apart: float, smoothing: float
) -> None:
    generator = np.random.default_rng(7)
    one = generator.standard_normal(shape)
    other = one + apart * generator.standard_normal(shape)
    labels = generator.integers(0, shape[-1], shape[:-1])
    expected = float(loss(one, labels, smoothing) - loss(other, labels, smoothing))
    found = loss_difference(one, other, labels, SoftmaxCrossEntropy(label_smoothing=smoothing))
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", [(5, 10), (3, 4, 7)])
def test_class_weights_multiply_each_sample(shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(7)
    one, other = generator.standard_normal((2, *shape))
    labels = generator.integers(0, shape[-1], shape[:-1])
    by = SoftmaxCrossEntropy(
        label_smoothing=0.1, class_weights=(0.0, 2.0, *[0.5] * (shape[-1] - 2))
    )
    apart = [float(loss(each, labels, 0.1, by.class_weights)) for each in (one, other)]
    assert loss_difference(one, other, labels, by) == pytest.approx(apart[0] - apart[1], rel=1e-9)


def test_small_logits_keep_their_digits() -> None:
    """Two losses near log(10) that are 1e-16 apart cannot be subtracted in float64."""
    generator = np.random.default_rng(8)
    one = 1e-12 * generator.standard_normal((6, 10))
    other = one + 1e-16 * generator.standard_normal((6, 10))
    labels = generator.integers(0, 10, 6)
    apart = one - other
    # To first order, with equal shares: the mean of what is apart, less that of the label.
    expected = (apart.mean(-1) - np.take_along_axis(apart, labels[:, None], -1)[:, 0]).mean()
    assert loss_difference(one, other, labels) == pytest.approx(expected, rel=1e-6)
