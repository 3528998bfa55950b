"""Augmentation: what is drawn is the same for ever, and what is cut is what NumPy would pad and cut."""

from __future__ import annotations

import hashlib
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dlb.data.augmentation import CropBox, crop_box, draw_crops, draw_resized_crops
from dlb.data.batches import draw_sample_schedule, sample_order
from dlb_graph.workload import Augmentation
from dlb_worker.crops import cut

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


# --- parts that are resized -------------------------------------------------------------------

INCEPTION = Augmentation(area=(0.08, 1.0))
GOLDEN_PARTS = "543d3db9a71ed0a249ad7e21d7af7dfce7de0006823c49b6c56ffe002c91283c"


def some_parts(count: int, height: int, width: int, of: Augmentation = INCEPTION) -> list[CropBox]:
    drawn = draw_resized_crops(np.arange(count)[None], count, 0)
    return [crop_box(row, height, width, of) for row in drawn[0]]


def test_what_parts_are_drawn_never_changes() -> None:
    drawn = draw_resized_crops(sample_order(SAMPLES, 7, 20, 3), SAMPLES, 3)
    assert drawn.shape == (20, 7, 22) and drawn.dtype == np.uint32
    parts = [astuple(crop_box(row, 375, 500, INCEPTION)) for row in drawn.reshape(-1, 22)]
    assert hashlib.sha256(repr(parts).encode()).hexdigest() == GOLDEN_PARTS


def test_a_sample_draws_the_same_part_in_any_batch_and_place() -> None:
    found = {}
    for batch in (1, 7):
        order = sample_order(SAMPLES, batch, 2 * (SAMPLES // batch), 0)
        drawn = draw_resized_crops(order, SAMPLES, 0)[SAMPLES // batch :]
        rows = drawn.reshape(-1, 22).tolist()
        found[batch] = dict(zip(order[SAMPLES // batch :].ravel().tolist(), rows))
    assert len(found[7]) == 49
    assert all(found[1][sample] == drawn for sample, drawn in found[7].items())


def test_areas_and_aspects_are_even() -> None:
    """As Szegedy et al. say of areas; an aspect and its inverse are as likely."""
    parts = some_parts(4000, 1000, 1000, Augmentation(area=(0.2, 0.6)))
    areas = np.array([part.height * part.width for part in parts]) / 1e6
    aspects = np.log([part.width / part.height for part in parts])
    for values, low, high in ((areas, 0.2, 0.6), (aspects, np.log(3 / 4), np.log(4 / 3))):
        even = (np.arange(4000) + 0.5) / 4000
        # Kolmogorov and Smirnov's distance: 0.031 is its 99.9% quantile for 4,000.
        assert np.abs((np.sort(values) - low) / (high - low) - even).max() < 0.031


def test_every_place_of_a_part_is_as_likely() -> None:
    of = Augmentation(area=(1 / 4, 1 / 4), aspect=(1.0, 1.0))
    parts = some_parts(8100, 16, 16, of)
    assert {(part.height, part.width) for part in parts} == {(8, 8)}
    places = np.bincount([part.top * 9 + part.left for part in parts], minlength=81)
    assert len(places) == 81 and abs(places - 100).max() < 50


@given(
    st.integers(0, 2**32 - 1),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)).map(sorted),
    st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)).map(sorted),
)
def test_a_part_is_inside_and_as_a_careful_reader_would_compute_it(
    seed: int, size: tuple[int, int], area: list[float], aspect: list[float]
) -> None:
    of = Augmentation(area=tuple(area), aspect=tuple(aspect))  # type: ignore[arg-type]
    drawn = np.random.default_rng(seed).integers(0, 2**32, 22, dtype=np.uint32)
    found = crop_box(drawn, *size, of)
    assert 0 <= found.top <= size[0] - found.height and found.height >= 1
    assert 0 <= found.left <= size[1] - found.width and found.width >= 1
    shares = drawn / 2**32
    for share, ratio in zip(shares[:20:2], shares[1:20:2]):
        covered = (area[0] + share * (area[1] - area[0])) * size[0] * size[1]
        by = np.exp(np.log(aspect[0]) + ratio * (np.log(aspect[1]) - np.log(aspect[0])))
        exact = np.sqrt(covered / by), np.sqrt(covered * by)
        assume(all(abs(side % 1 - 0.5) > 1e-9 for side in exact))  # no tie of rounding
        high, wide = (round(float(side)) for side in exact)
        if 0 < high <= size[0] and 0 < wide <= size[1]:
            assert (found.height, found.width) == (high, wide)
            assert found.top == int(shares[20] * (size[0] - high + 1))
            assert found.left == int(shares[21] * (size[1] - wide + 1))
            return
    assert (found.height, found.width) == (
        min(size[0], max(1, round(size[1] / aspect[0]))),
        min(size[1], max(1, round(size[0] * aspect[1]))),
    )
    assert (found.top, found.left) == (
        (size[0] - found.height) // 2,
        (size[1] - found.width) // 2,
    )


def test_where_parts_are_resized_every_visit_is_a_sample() -> None:
    both = Augmentation(area=(0.5, 1.0), flip=True)
    sample_schedule = draw_sample_schedule(both, 10, 4, 6, 0)
    order = sample_order(10, 4, 6, 0)
    np.testing.assert_array_equal(sample_schedule.samples[sample_schedule.order], order)
    assert sample_schedule.order.tolist() == np.arange(24).reshape(6, 4).tolist()
    assert sample_schedule.resized_crops is not None and sample_schedule.crops is not None
    np.testing.assert_array_equal(
        sample_schedule.resized_crops.reshape(6, 4, 22), draw_resized_crops(order, 10, 0)
    )
    np.testing.assert_array_equal(sample_schedule.crops, draw_crops(order, 10, 0, both))
    assert draw_sample_schedule(INCEPTION, 10, 4, 6, 0).crops is None
