"""Trials that are alive side by side: one works at any time, each pass in the reverse order."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dlb.execution.turns import Blocks
from dlb_measure.turns import Turns


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


def test_those_that_start_together_wait_for_each_other_before_their_first_block() -> None:
    turns, seen, started = Turns(3, together=True), list[str](), threading.Barrier(3)

    def run(place: int) -> None:
        with turns.taken(place):
            started.wait(timeout=60)  # all are here at once
            turns.pause(place)
            seen.append(f"{place} first")
            turns.pause(place)
            seen.append(f"{place} second")

    def fail() -> None:
        with turns.taken(2):
            started.wait(timeout=60)

    with ThreadPoolExecutor(3) as pool:
        pending = [pool.submit(run, 0), pool.submit(run, 1), pool.submit(fail)]
        for ended in pending:
            ended.result(timeout=60)
    assert seen == ["0 first", "1 first", "1 second", "0 second"]


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
