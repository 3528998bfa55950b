"""Augmentation: what is drawn is the same for ever, and what is cut is what NumPy would pad and cut."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlb.data.augmentation import cut, draw_crops
from dlb.data.batches import sample_order
from dlb.workload import Augmentation

BOTH = Augmentation(pad=4, flip=True)
SAMPLES = 50
GOLDEN_FIRST = [[4, 0, 1], [3, 1, 1], [0, 4, 1]]
GOLDEN = "de7a08d71c35963c7c839a2de6be8d0011dc199baf8e4b8c3c6027c5c5407df2"


def drawn(batch: int, steps: int, seed: int = 0, of: Augmentation = BOTH) -> np.ndarray:
    return draw_crops(sample_order(SAMPLES, batch, steps, seed), SAMPLES, seed, of)


def by_sample(batch: int, epoch: int, seed: int = 0) -> dict[int, list[int]]:
    """What each sample drew in an epoch."""
    each = SAMPLES // batch
    rows = slice(epoch * each, (epoch + 1) * each)
    order = sample_order(SAMPLES, batch, (epoch + 1) * each, seed)
    crops = draw_crops(order, SAMPLES, seed, BOTH)
    samples, found = order[rows].ravel().tolist(), crops[rows].reshape(-1, 3).tolist()
    return dict(zip(samples, found))


def test_what_is_drawn_never_changes() -> None:
    """Records are repeated by it."""
    crops = drawn(batch=7, steps=20, seed=3)
    assert crops.dtype == np.int32 and crops.shape == (20, 7, 3)
    assert crops[0, :3].tolist() == GOLDEN_FIRST
    assert hashlib.sha256(crops.astype("<i4").tobytes()).hexdigest() == GOLDEN


def test_a_sample_draws_the_same_in_any_batch_and_place() -> None:
    alone, together = by_sample(1, 2), by_sample(7, 2)
    # A batch of 7 leaves one sample of 50 out.
    assert len(alone) == 50 and len(together) == 49
    assert all(alone[sample] == crop for sample, crop in together.items())


def test_more_steps_draw_the_same_first() -> None:
    np.testing.assert_array_equal(drawn(7, 40)[:11], drawn(7, 11))


def test_epochs_and_seeds_draw_anew() -> None:
    first = by_sample(1, 0)
    for other in (by_sample(1, 1), by_sample(1, 0, seed=1)):
        assert sum(other[sample] == first[sample] for sample in first) < 10


def test_every_place_is_as_likely() -> None:
    crops = draw_crops(np.arange(81_000)[None], 81_000, 0, BOTH).reshape(-1, 3)
    places = np.bincount((crops[:, 0] + 4) * 9 + crops[:, 1] + 4, minlength=81)
    # 1,000 each; five standard deviations.
    assert len(places) == 81 and abs(places - 1000).max() < 160
    assert abs(int(crops[:, 2].sum()) - 40_500) < 720


@pytest.mark.parametrize(
    ("of", "still"),
    [
        (Augmentation(pad=4), [2]),
        (Augmentation(flip=True), [0, 1]),
    ],
    ids=["no flip", "no crop"],
)
def test_what_is_not_asked_for_is_not_drawn(of: Augmentation, still: list[int]) -> None:
    crops, both = drawn(10, 20, of=of), drawn(10, 20)
    moved = [column for column in range(3) if column not in still]
    assert not crops[..., still].any()
    np.testing.assert_array_equal(crops[..., moved], both[..., moved])


@given(
    st.tuples(*[st.integers(1, 6)] * 4),
    st.integers(0, 5),
    st.integers(0, 2**32 - 1),
    st.sampled_from([np.uint8, np.float32, np.float64]),
)
def test_cutting_is_padding_and_slicing(
    shape: tuple[int, ...], pad: int, seed: int, dtype: type
) -> None:
    draw = np.random.default_rng(seed)
    images = draw.integers(1, 256, shape).astype(dtype)
    places, mirrored = draw.integers(-pad, pad + 1, (shape[0], 2)), draw.integers(0, 2, shape[0])
    crops = np.column_stack([places, mirrored]).astype(np.int32)
    found = cut(images, crops)
    padded = np.pad(images, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    for number, (top, left, flip) in enumerate(crops):
        window = padded[number, :, top + pad :, left + pad :][:, : shape[2], : shape[3]]
        np.testing.assert_array_equal(found[number], window[..., ::-1] if flip else window)
    assert found.dtype == images.dtype and found.flags.c_contiguous
    assert not np.shares_memory(found, images)
