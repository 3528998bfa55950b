"""Blocks of steps of trials that alternate."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dlb_measure.measure import _block_ends, _count_blocks


@pytest.mark.parametrize(
    ("cells", "blocks"),
    [
        ([(300, 0.01), (30, 0.1)], 6),  # of five steps at least, and as many in each cell
        ([(1000, 0.01), (2000, 0.004)], 160),  # 50 milliseconds of the faster
        ([(600, 0.001), (600, 0.002)], 30),
        ([(3, 0.1), (300, 0.1)], 1),
    ],
)
def test_every_cell_has_as_many_blocks(cells: list[tuple[int, float]], blocks: int) -> None:
    records = [SimpleNamespace(timing=SimpleNamespace(median=seconds)) for _, seconds in cells]
    described = [SimpleNamespace(options=SimpleNamespace(steps=steps)) for steps, _ in cells]
    assert _count_blocks(records, described) == blocks  # type: ignore[arg-type]
    for steps, _ in cells:
        ends = _block_ends(steps, blocks)
        assert len(ends) == blocks and ends[-1] == steps and sorted(set(ends)) == list(ends)
