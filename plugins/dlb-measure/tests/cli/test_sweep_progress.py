"""The time that a sweep still needs, and ratios of cells with steps of different sizes."""

from __future__ import annotations

import time

import msgspec
import pytest

from dlb.failure import Failure
from dlb.record import Options
from dlb_measure.cli.sweep_progress import Lines, TimeLeft, duration
from dlb_measure.estimate import Estimate, total_seconds
from dlb_measure.measure import _all_disturbed, _is_settled, _needs
from dlb_measure.plan import Plan
from dlb_measure.results.between import pairs
from dlb_measure.results.compared import batches_differ, cell_names, compared_cells
from dlb_measure.results.measurement import Cell, Measurement, TrialResult
from dlb_measure.schedule import Trial
from dlb_measure.tables.measurements import measurement_lines, measurement_table


def estimated(run: float, trial: float) -> Estimate:
    return Estimate(False, run, trial, 20, 20, 0.01, 2**30, False)


def test_what_is_left_is_corrected_by_what_the_parts_before_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    plan = Plan(rounds=2)
    estimates = [estimated(10, 1), estimated(10, 1), estimated(10, 4)]
    left = TimeLeft(estimates, plan, [2, 1])
    # Rounds of three trials of 1 s, and of two of 4 s.
    assert left.seconds(0) == 30 + 6 + 16
    left.begin()
    now = 20.0  # twice as long as expected
    left.run_ended(0, None)
    assert left.seconds(1) == 2 * 20 + 6 + 16
    left.skip([1])
    left.begin()
    now += 0.5
    left.trials_ended(0, 1)
    assert left.seconds(0, 1, 6) == 2 * 10 + (5 * 1 + 16) / 2
    assert left.seconds(2, 3, 4) == 2 * 10 + 4 / 2


def test_trials_side_by_side_end_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    lines = Lines(["torch", "tf"], TimeLeft([estimated(0, 10)] * 2, Plan(rounds=3), [2]))
    lines.left.skip([0, 1])
    for number in (0, 3, 6):
        lines.trial(0, number, 9)
        now += 60
    said = capsys.readouterr().err.splitlines()
    assert [line.rpartition("; ")[2] for line in said] == [
        "about 2 min left",  # as estimated: 9 of 10 s
        "about 2 min left",
        "about 60 s left",
    ]


@pytest.mark.parametrize(
    ("plan", "seconds"),
    [
        (None, 30),
        (Plan(rounds=2), 30 + 2 * (3 + 1.5)),
        (Plan(rounds=100, budget_seconds=60), 90),
    ],
)
def test_a_round_has_every_cell_once_and_one_twice(plan: Plan | None, seconds: float) -> None:
    assert total_seconds([estimated(10, 1), estimated(20, 2)], plan) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.1, "1 s"), (89.4, "89 s"), (91, "2 min"), (5399, "90 min"), (7200, "2.0 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def measured(sizes: tuple[int, ...], medians: tuple[float, ...]) -> Measurement:
    """Cells of these batch sizes, each with steps of these seconds in two rounds."""
    options = [
        Options(
            batch_size=size, steps=20, warmup=2, threads=1, device="cpu", dtype="float32", seed=0,
            input="pipeline",
        )
        for size in sizes
    ]  # fmt: skip
    cells = [
        Cell(
            adapter="torch", framework="PyTorch", workload_name="mlp", workload_hash="", options=each,
            proof="proven", record="", varied={"batch_size": each.batch_size},
        )
        for each in options
    ]  # fmt: skip
    trials = [
        TrialResult(
            round=number, cell=cell, again=False, hash_seed=0, padding=0, attempt=0, started="",
            median=median * (1 + number / 100),
        )
        for number in range(2)
        for cell, median in enumerate(medians)
    ]  # fmt: skip
    return Measurement(
        format=1, name="m", key="", started="", seed=0, order="interleaved", rounds=2, pilot=None,
        precision=None, budget_seconds=None, margin=0.01, steady="found", cells=tuple(cells),
        trials=tuple(trials),
    )  # fmt: skip


def test_cells_with_other_batches_are_compared_by_the_time_of_a_sample() -> None:
    measurement = measured((32, 64), (0.010, 0.015))
    assert batches_differ(measurement)
    first, second = compared_cells(measurement)
    assert first.ratio is None and second.ratio is not None
    assert second.ratio.ratio == pytest.approx(0.75)
    assert second.seconds == pytest.approx(0.015 * (1.0 * 1.01) ** 0.5)
    assert cell_names(measurement) == ["torch (batch_size=32)", "torch (batch_size=64)"]
    alike = measured((32, 32), (0.010, 0.015))
    ratio = compared_cells(alike)[1].ratio
    assert not batches_differ(alike) and ratio is not None and ratio.ratio == pytest.approx(1.5)


def test_a_trial_that_did_not_start_is_not_measured_and_takes_no_proof_away() -> None:
    measurement = measured((32, 32), (0.010, 0.015))
    failure = Failure(kind="WorkerError", message="worker 0 never reported within 60 s")
    lost = [
        msgspec.structs.replace(trial, median=None, failure=failure, checks={})
        for trial in measurement.trials
        if trial.cell == 1
    ]
    good = [
        msgspec.structs.replace(trial, checks={"audit, steps": "passed"})
        for trial in measurement.trials
        if trial.cell == 0
    ]
    measurement = msgspec.structs.replace(measurement, trials=(*good, *lost))
    rows = measurement_table(measurement).rows
    assert [row[-1] for row in rows] == ["proven", "proven"]
    assert rows[1][5:8] == ["-", "", "not measured"]
    assert any(
        line.endswith("not measured: worker 0 never reported within 60 s")
        for line in measurement_lines(measurement)
    )
    assert any(
        line.startswith("Only 20 steps of each process") for line in measurement_lines(measurement)
    )
    wrong = msgspec.structs.replace(lost[0], checks={"weights float32": "failed"})
    measurement = msgspec.structs.replace(measurement, trials=(*good, wrong))
    assert [row[-1] for row in measurement_table(measurement).rows] == ["proven", "unproven"]


def test_a_measurement_is_a_line_and_a_table() -> None:
    measurement = measured((32, 64), (0.010, 0.015))
    assert repr(measurement) == (
        "<Measurement Not proven: torch (batch_size=32) (unproven) and torch (batch_size=64) (unproven). torch "
        "(batch_size=64) takes 0.75 of torch (batch_size=32)'s time of a sample (0.75 to 0.75).>"
    )
    page = measurement._repr_html_()
    assert page.count("<tr>") == 3 and "0.750 to 0.750" in page
    lost = msgspec.structs.replace(measurement, trials=measurement.trials[::2])
    assert "(unproven). Not measured: torch (batch_size=64) (rounds ended before). torch" in repr(
        lost
    )
    assert repr(lost).endswith(" takes 10.05 ms a step.>")
    assert "Nothing is compared" in repr(msgspec.structs.replace(measurement, trials=()))


@pytest.mark.parametrize(
    ("threads", "other_cores", "disturbed", "word"),
    [
        (2, 1.0, 3, "unclear"),
        (2, 1.0, 2, "unclear"),
        (2, 1.0, 1, "slower"),  # in one of three rounds
        (2, 0.3, 3, "slower"),  # most steps were not touched
        (1, 1.4, 3, "slower"),  # no thread waits for another
    ],
)
def test_what_threads_waited_for_is_not_settled(
    threads: int, other_cores: float, disturbed: int, word: str
) -> None:
    measurement = measured((32, 32), (0.010, 0.015))
    cells = [
        msgspec.structs.replace(
            cell, options=msgspec.structs.replace(cell.options, threads=threads)
        )
        for cell in measurement.cells
    ]
    # The other cell is not disturbed: either is enough.
    trials = [
        msgspec.structs.replace(
            trial,
            round=number,
            other_cores=other_cores,
            disturbed=trial.cell == 0 and number < disturbed,
        )
        for number in range(3)
        for trial in measurement.trials[:2]
    ]
    measurement = msgspec.structs.replace(
        measurement, cells=tuple(cells), trials=tuple(trials), rounds=5, until="settled",
        machine={"available_cores": 2},
    )  # fmt: skip
    found = compared_cells(measurement)[1]
    assert (found.word, found.oversubscribed) == (word, word == "unclear")
    assert _is_settled(measurement) == (word == "slower")
    assert ("threads waited for cores" in repr(measurement)) == (word == "unclear")
    # Next to another measurement too.
    beside = next(pair.word for pair in pairs(measurement, measurement))
    assert beside == ("unclear" if word == "unclear" else "same")


def test_a_round_that_other_work_disturbed_throughout_is_not_repeated() -> None:
    measurement = measured((32, 32), (0.010, 0.015))
    round_0 = [Trial(0, cell, False, 0, 0) for cell in range(2)]

    def disturbed(*cells: int) -> Measurement:
        trials = [
            msgspec.structs.replace(trial, disturbed=trial.round == 0 and trial.cell in cells)
            for trial in measurement.trials
        ]
        return msgspec.structs.replace(measurement, trials=tuple(trials))

    one, both = disturbed(1), disturbed(0, 1)
    assert [_needs(one, trial, 0) for trial in round_0] == [True, True]
    assert [_needs(one, trial, 1) for trial in round_0] == [False, True]
    assert not _all_disturbed(one, round_0)
    assert _all_disturbed(both, round_0)
    assert not _all_disturbed(both, [Trial(1, 0, False, 0, 0)])
