"""Trials that are alive side by side: one works at any time, each pass in the reverse order."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dlb.execution.turns import Blocks, Turns


def test_passes_are_reversed_and_whoever_ends_is_left_out() -> None:
    turns, seen, working = Turns(3), list[int](), threading.Lock()

    def run(place: int) -> None:
        with turns.taken(place):
            for _ in range(2 if place == 1 else 4):
                assert working.acquire(blocking=False)
                seen.append(place)
                working.release()
                turns.pause(place)

    with ThreadPoolExecutor(3) as pool:
        for ended in [pool.submit(run, place) for place in range(3)]:
            ended.result(timeout=60)
    assert seen == [0, 1, 2, 2, 1, 0, 0, 2, 2, 0]


def test_all_that_wait_are_woken_when_they_are_stopped() -> None:
    turns = Turns(2)

    def wait() -> None:
        with turns.taken(1):
            pass

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        turns.stop()
        with pytest.raises(KeyboardInterrupt):
            waiting.result(timeout=60)


def test_blocks_end_where_they_say() -> None:
    blocks = Blocks((3, 6, 10))
    assert [blocks.next(done) for done in (0, 2, 3, 9, 10)] == [3, 3, 6, 10, None]
    assert Blocks().next(0) is None
