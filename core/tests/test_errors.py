"""Errors have fields, and one line is composed from them."""

from __future__ import annotations

import pytest

from dlb.errors import DlbError, UnsupportedError, WorkerDied, WorkerRaised
from dlb.failure import Failure, failure_of

#: An error, its line, and its line where the adapter and the path are shown already.
LINES = [
    (DlbError("it broke"), "it broke", "it broke"),
    (DlbError("it broke", adapter="torch"), "torch: it broke", "it broke"),
    (DlbError("no file", path="a.onnx"), "a.onnx: no file", "no file"),
    (
        WorkerDied("worker 0 ended", adapter="tf", log="/tmp/worker-0.log"),
        "tf: worker 0 ended; output: /tmp/worker-0.log",
        "worker 0 ended; output: /tmp/worker-0.log",
    ),
    (UnsupportedError("no conv", adapter="tf", layer="conv1"), "tf: no conv", "no conv"),
]


@pytest.mark.parametrize(("error", "line", "detail"), LINES, ids=[line for _, line, _ in LINES])
def test_a_line_is_composed_from_fields(error: DlbError, line: str, detail: str) -> None:
    assert str(error) == line and error.detail == detail


def test_a_field_that_changes_changes_the_line() -> None:
    error = WorkerDied("worker 0 ended", log="/scratch/worker-0.log")
    error.log = "/results/torch-worker-0.log"
    assert str(error) == "worker 0 ended; output: /results/torch-worker-0.log"


def test_a_failure_holds_the_fields() -> None:
    error = WorkerRaised("ValueError: a\nb", "Traceback", adapter="torch", log="x.log", layer="fc")
    failure = failure_of(error)
    assert failure == Failure(
        kind="WorkerRaised", message="ValueError: a b", adapter="torch", log="x.log", layer="fc"
    )
    assert failure.line == "ValueError: a b; output: x.log"
    assert error.remote_traceback == "Traceback"


def test_a_derived_error_is_called_what_its_parent_is() -> None:
    class NotOffered(UnsupportedError):
        pass

    assert failure_of(NotOffered("no")).kind == "UnsupportedError"
