"""Computing in a thread beside what is computed already."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from dlb import threads


@pytest.fixture(params=[1, 2], ids=["one core", "two cores"])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(threads, "available_cores", lambda: request.param)
    return int(request.param)


def test_both_results_come_in_their_order(cores: int) -> None:
    assert threads.together(lambda: 1, lambda: 2) == (1, 2)


def test_two_functions_run_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available_cores", lambda: 2)
    met = threading.Barrier(2, timeout=20)
    assert len(threads.together(met.wait, met.wait)) == 2


def test_items_keep_their_order(cores: int) -> None:
    assert list(threads.ahead(iter(range(5)))) == [0, 1, 2, 3, 4]


def test_an_item_is_computed_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available_cores", lambda: 2)
    second = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        second.set()
        yield 2

    ahead = threads.ahead(items())
    assert next(ahead) == 1
    assert second.wait(20)
    assert list(ahead) == [2]


def test_an_error_comes_where_it_was_made(cores: int) -> None:
    def items() -> Iterator[float]:
        yield 1.0
        raise ValueError("the second")

    ahead = threads.ahead(items())
    assert next(ahead) == 1.0
    with pytest.raises(ValueError, match="the second"):
        next(ahead)
    with pytest.raises(ZeroDivisionError):
        threads.together(lambda: 1 / 0, lambda: 1)
    with pytest.raises(ZeroDivisionError):
        threads.together(lambda: 1, lambda: 1 / 0)


def test_items_that_are_not_used_up_leave_no_thread(cores: int) -> None:
    before = threading.active_count()
    ahead = threads.ahead(iter(range(9)))
    next(ahead)
    ahead.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_overflow_is_treated_as_where_it_was_asked_for(cores: int) -> None:
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        threads.together(lambda: 0, lambda: np.exp(np.float64(1e4)))
    with np.errstate(over="ignore"):
        assert np.isinf(threads.together(lambda: 0, lambda: np.exp(np.float64(1e4)))[1])


@pytest.mark.parametrize(("at_once", "most"), [(1, 4), (2, 4), (4, 2), (16, 1)])
def test_products_get_the_threads_that_are_left(
    at_once: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "available_cores", lambda: 8)
    blas = ThreadpoolController().select(user_api="blas")
    before = [each["num_threads"] for each in blas.info()]
    with threads.limited_products(at_once):
        within = [each["num_threads"] for each in blas.info()]
    assert within and max(within) <= min(most, *before)
    assert [each["num_threads"] for each in blas.info()] == before


def test_fewer_threads_that_were_asked_for_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available_cores", lambda: 8)
    blas = ThreadpoolController().select(user_api="blas")
    with threadpool_limits(1, user_api="blas"), threads.limited_products(1):
        assert {each["num_threads"] for each in blas.info()} == {1}
