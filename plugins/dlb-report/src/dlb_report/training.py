"""The section about loss and accuracy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dlb.report.plain import finite, number_text
from dlb.report.table import Table
from dlb_measure.results.targets import target_cells
from dlb_measure.tables.targets import common_target, targets_table
from dlb_report.blocks import Block, Heading, Plot, Shown, data_of
from dlb_report.chosen import Results, heading_of_runs
from dlb_report.curves import Curve, curves_chart
from dlb_report.scales import thinned
from dlb_report.sources import Array, Run

__all__ = ["training_section"]

#: Times to an accuracy that differ by less count as the same.
_MARGIN = 0.01
_SECONDS = "seconds of steps and of waiting"


def training_section(results: Results) -> Iterator[Block]:
    """Loss and accuracy by step and by second, and the time to an accuracy that every run reached."""
    yield from _target(results)
    for number, runs in enumerate(results.commands, 1):
        trained = [run for run in runs if run.record.quality is not None]
        if not trained:
            continue
        yield heading_of_runs(runs)
        yield from _training(results, trained, number)


def _target(results: Results) -> Iterator[Block]:
    records = sorted(
        (run.record for run in results.runs if _is_sound(run)), key=lambda record: record.started
    )
    target = common_target(records)
    if target is None:
        return
    cells = target_cells(records, target)
    adapters = {cell.adapter for cell in cells}
    baseline = results.baseline if results.baseline in adapters else ""
    table = targets_table(cells, target, baseline, _MARGIN)
    rows = [
        [cell.adapter, run.seed, run.step, run.seconds, run.accuracy, run.proof]
        for cell in cells
        for run in cell.runs
    ]
    yield Heading(
        "Time to an accuracy",
        "The highest whole percent that every run reached in a test; seconds of steps with their waiting. "
        "dlb results target has any other.",
    )
    names = ["adapter", "seed", "step", "seconds", "last_accuracy", "proof"]
    yield Shown(table, data_of("target", names, rows))


def _is_sound(run: Run) -> bool:
    """Whether the numbers of a run's tests are finite; records may come from strangers."""
    tests = () if run.record.quality is None else run.record.quality.tests
    numbers = [value for each in tests for value in (each.step, each.seconds)]
    numbers += [each.accuracy for each in tests if each.accuracy is not None]
    return all(finite(value) is not None for value in numbers)


def _training(results: Results, runs: list[Run], number: int) -> Iterator[Block]:
    by_step, by_second, tested, accuracy, accuracy_by_second = [], [], [], [], []
    points, rows = [], []
    for run in runs:
        quality, timing = run.record.quality, run.record.timing
        assert quality is not None
        title = results.title(run)
        style = results.looks.of(title)
        losses = np.array([np.nan if each is None else each for each in quality.losses], np.float64)
        steps = np.arange(1, len(losses) + 1, dtype=np.float64)
        seconds = _seconds(timing, len(losses))
        by_step.append(Curve(title, style, steps, losses))
        if seconds is not None:
            by_second.append(Curve(title, style, seconds, losses))
        tests = [
            each
            for each in quality.tests
            if each.accuracy is None or finite(each.accuracy) is not None
        ]
        if tests:
            at = np.array([each.step for each in tests], np.float64)
            after = np.array([each.seconds for each in tests], np.float64)
            test_losses = [np.nan if each.loss is None else each.loss for each in tests]
            tested.append(Curve(title, style, at, np.array(test_losses, np.float64), True))
            if all(each.accuracy is not None for each in tests):
                right = np.array([(each.accuracy or 0.0) * 100 for each in tests], np.float64)
                accuracy.append(Curve(title, style, at, right, True))
                accuracy_by_second.append(Curve(title, style, after, right, True))
        for place in thinned(losses, results.points):
            moment = None if seconds is None else float(seconds[place])
            points.append([title, "loss", int(place) + 1, moment, float(losses[place]), None])
        points += [
            [title, "test", each.step, each.seconds, each.loss, each.accuracy] for each in tests
        ]
        at_end = quality.test_accuracy
        rows.append(
            [
                title,
                f"{len(losses):,}",
                number_text(losses[0]) if len(losses) else "-",
                number_text(losses[-1]) if len(losses) else "-",
                str(len(tests)),
                number_text(quality.test_loss),
                "-" if at_end is None else number_text(at_end * 100, 3) + "%",
            ]
        )
    wanted = (
        ("loss", "Training loss by step", by_step, "step", "loss"),
        ("loss-by-second", "Training loss by second", by_second, _SECONDS, "loss"),
        ("test-loss", "Test loss by step", tested, "step", "loss"),
        ("accuracy", "Test accuracy by step", accuracy, "step", "%"),
        ("accuracy-by-second", "Test accuracy by second", accuracy_by_second, _SECONDS, "%"),
    )
    charts = [
        curves_chart(f"{name}-{number}", title, curves, x_title, y_title, results.points)
        for name, title, curves, x_title, y_title in wanted
    ]
    columns = ["name", "steps", "first loss", "last loss", "tests"]
    columns += ["test loss at the end", "test accuracy at the end"]
    table = Table(columns, rows, "Quality", right=columns[1:])
    names = ["name", "kind", "step", "seconds", "loss", "accuracy"]
    yield Plot(
        [each for each in charts if each is not None],
        table,
        data_of(f"training-{number}", names, points),
    )


def _seconds(timing: Any, steps: int) -> Array | None:
    """Seconds of training after each step; None if the series do not fit."""
    if timing is None or len(timing.step_seconds) != steps or len(timing.data_seconds) != steps:
        return None
    with np.errstate(all="ignore"):
        each = np.array(timing.step_seconds) + np.array(timing.data_seconds)
        found = np.cumsum(np.nan_to_num(each, posinf=0.0, neginf=0.0))
    return found if np.isfinite(found).all() and (found >= 0).all() else None
