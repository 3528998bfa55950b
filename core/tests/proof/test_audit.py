"""The audit's own arithmetic: chances, batches, losses and the verdict about changes."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

from dlb.execution.audit import Audit
from dlb.proof.checks.audit import (
    AuditedStep,
    JudgedStep,
    Replay,
    chance,
    check_batches,
    check_losses,
    check_steps,
    steps_needed,
)
from dlb.proof.checks.tested import DrawnTest, check_tests, draw_samples
from dlb.proof.engine import Check
from dlb.proof.findings import Figure
from dlb.proof.findings.audit import (
    BatchDiffers,
    LogitsDiffer,
    LossDiffers,
    StateChanged,
    StepDiffers,
    StepsAudited,
    TooFewJudged,
)
from dlb.proof.findings.audit import WorkersApart as Apart
from dlb.report.sentences import describe
from dlb.supervision.remote import Draw, Taken, write_arrays
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.truth.evaluate import evaluate
from dlb_graph.workload import BatchNorm, Input, Linear, Model, Node, parameter_shapes

INPUTS = np.arange(24, dtype=np.float32).reshape(4, 6)
LABELS = np.array([0, 1, 2, 3])
STEPS_CHECK = Check.of("audit, steps", "torch")
COVERAGE = StepsAudited(steps=10, audited=2, judged=2, replayed=0, rare=10, chance=0.2)


@pytest.mark.parametrize("steps", [60, 300, 5000])
def test_a_rare_fault_is_found_with_the_probability_that_is_promised(steps: int) -> None:
    judged = steps_needed()
    assert chance(steps, judged) >= 0.99
    # Against drawing itself.
    generator = np.random.default_rng(0)
    faulty = max(1, round(steps / 10))
    found = [(generator.choice(steps, 10, replace=False) < faulty).any() for _ in range(4000)]
    assert np.mean(found) == pytest.approx(chance(steps, 10), abs=0.03)


def test_all_steps_find_everything() -> None:
    assert chance(30, 30) == 1.0 and chance(30, 0) == 0.0


def audited(tmp_path: Path, step: int = 0, **arrays: np.ndarray) -> AuditedStep:
    path = tmp_path / f"{step}-{len(list(tmp_path.iterdir()))}.npz"
    given = {"inputs": INPUTS, "labels": LABELS, "after/w": np.zeros(3), **arrays}
    write_arrays(path, given)
    return AuditedStep(step, (path,), Draw(None, 0), (0.0,))


def batches(*steps: AuditedStep, end: object = ()) -> tuple[str, list[object]]:
    result = check_batches(
        Check.of("audit, batches", "torch"),
        steps,
        lambda step: (INPUTS, LABELS),
        end,
        [len(INPUTS) // len(steps[0].paths)] * len(steps[0].paths),
    )  # type: ignore[arg-type]
    assert describe(result) or result.verdict == "passed"
    return result.verdict, [finding.cause for finding in result.findings]


def test_the_right_batch_passes_whatever_its_integers_are(tmp_path: Path) -> None:
    for labels in (LABELS, LABELS.astype(np.int32), LABELS.astype(np.float32)):
        assert batches(audited(tmp_path, labels=labels)) == ("passed", [])


def test_a_batch_that_differs_is_told_by_what_differs(tmp_path: Path) -> None:
    other = INPUTS.copy()
    other[2] += 1
    verdict, (cause,) = batches(audited(tmp_path), audited(tmp_path, 4, inputs=other))
    assert verdict == "failed" and isinstance(cause, BatchDiffers)
    assert (cause.step, cause.steps, cause.part, cause.samples) == (4, 1, "inputs", 1)


def test_rounding_of_a_batch_is_a_difference(tmp_path: Path) -> None:
    verdict, _ = batches(audited(tmp_path, inputs=np.nextafter(INPUTS, np.float32(99))))
    assert verdict == "failed"


def test_a_batch_of_another_size_is_told_by_its_shape(tmp_path: Path) -> None:
    short = audited(tmp_path, inputs=INPUTS[:3], labels=LABELS[:3])
    _, (first, second) = batches(short)
    assert isinstance(first, BatchDiffers) and first.samples is None and first.found == (3, 6)
    assert isinstance(second, BatchDiffers) and second.part == "labels"


def test_workers_must_hold_the_same_weights(tmp_path: Path) -> None:
    paths = []
    for rank, weights in enumerate((np.zeros(3), np.ones(3))):
        part = slice(2 * rank, 2 * rank + 2)
        step = audited(tmp_path, inputs=INPUTS[part], labels=LABELS[part], **{"after/w": weights})
        paths += step.paths
    both = AuditedStep(3, tuple(paths), Draw(None, 0), (0.0, 0.0))
    same = [{"w": np.zeros(3)}, {"w": np.zeros(3)}]
    verdict, (cause,) = batches(both, end=same)
    assert verdict == "failed" and isinstance(cause, Apart)
    assert cause.step == 3 and cause.tensors == ("w",)
    assert batches(both) == ("passed", []), "where nothing says that they must"
    differ = [{"w": np.zeros(3)}, {"w": np.ones(3)}]
    assert batches(audited(tmp_path), end=differ)[0] == "failed"


def judged(step: int, distance: float | None, loss: float = 1.0) -> JudgedStep:
    figures = (
        Figure(tensor="a", relative_l2=distance, largest=distance),
        Figure(tensor="b", relative_l2=1e-7, largest=1e-7),
    )
    return JudgedStep(
        step=step,
        figures=figures,
        allowed={"a": 1e-4, "b": 1e-6},
        loss=loss,
        true_loss=1.0,
        loss_allowed=1e-5,
        nothing=False,
    )


def test_changes_within_their_tolerance_pass() -> None:
    result = check_steps(STEPS_CHECK, [judged(0, 5e-5), judged(3, 2e-5)], COVERAGE)
    assert result.verdict == "passed"
    assert result.worst is not None and (result.worst.tensor, result.tolerance) == ("a", 1e-4)


@pytest.mark.parametrize("distance", [2e-4, None, math.inf, math.nan])
def test_a_change_past_its_tolerance_fails_at_its_first_step(distance: float | None) -> None:
    if distance is not None and not math.isfinite(distance):
        distance = None
    steps = [judged(0, 5e-5), judged(7, distance), judged(3, distance)]
    result = check_steps(STEPS_CHECK, steps, COVERAGE)
    cause = result.findings[0].cause
    assert result.verdict == "failed" and isinstance(cause, StepDiffers)
    assert (cause.step, cause.steps) == (3, 2)
    assert "step 4 and 1 more changed a" in describe(result)


def test_a_change_between_two_steps_fails_and_names_them() -> None:
    changed = {32: ("conv.weight", "optimizer/conv.weight.velocity"), 40: ("conv.weight",)}
    result = check_steps(STEPS_CHECK, [judged(0, 5e-5)], COVERAGE, changed)
    cause = result.findings[0].cause
    assert result.verdict == "failed" and isinstance(cause, StateChanged)
    assert "between step 32 and 33, and before 1 more, 'conv.weight' and 'opt" in describe(result)
    result = check_steps(STEPS_CHECK, [judged(0, 5e-5)], COVERAGE, {}, {8: ("norm.mean",)})
    text = "between step 8 and 9 'norm.mean' changed while the model was tested"
    assert result.verdict == "failed" and text in describe(result)


@pytest.mark.parametrize(("count", "verdict"), [(2, "not run"), (19, "not run"), (20, "passed")])
def test_a_run_of_which_most_audited_steps_were_not_judged_is_not_proven(
    count: int, verdict: str
) -> None:
    coverage = msgspec.structs.replace(COVERAGE, steps=300, audited=40, judged=count)
    steps = [judged(step, 5e-5) for step in range(count)]
    result = check_steps(STEPS_CHECK, steps, coverage)
    assert result.verdict == verdict
    if verdict == "not run":
        assert isinstance(result.findings[0].cause, TooFewJudged)
        assert f"{count} of 40 audited steps" in describe(result)
    wrong = [*steps[:-1], judged(count, 2e-4)]
    assert check_steps(STEPS_CHECK, wrong, coverage).verdict == "failed"


@pytest.mark.parametrize(
    ("again", "loose", "excused"),
    [(5e-5, 2.5e-3, True), (5e-3, 2.5e-3, False), (5e-5, 1e-4, False)],
)
def test_a_kink_excuses_no_more_than_crossing_it_makes(
    again: float, loose: float, excused: bool
) -> None:
    """``again``: what the kernels of the run say; ``loose``: what perturbed weights allow."""
    failed = judged(0, 2e-3)
    at_kinks = dataclasses.replace(failed, allowed={"a": loose, "b": 1e-6})
    found = failed.unless_explained(judged(0, again), at_kinks)
    assert found.wrong is not excused
    other_loss = dataclasses.replace(failed, loss=1.1)
    assert other_loss.unless_explained(judged(0, again), at_kinks).wrong


def test_a_step_that_rounding_hides_tells_nothing() -> None:
    step = judged(0, 5e-5)
    assert step.tells
    assert not dataclasses.replace(step, allowed={"a": 0.7, "b": 1e-6}).tells
    assert not dataclasses.replace(step, allowed={}).tells


def test_a_worker_that_cannot_compare_what_is_between_steps_is_said() -> None:
    result = check_steps(STEPS_CHECK, [judged(0, 5e-5)], COVERAGE)
    assert "what changes between steps was not looked for" in describe(result)
    looked = msgspec.structs.replace(COVERAGE, joined=2)
    assert "looked for" not in describe(check_steps(STEPS_CHECK, [judged(0, 5e-5)], looked))


def test_no_step_is_no_pass() -> None:
    assert check_steps(STEPS_CHECK, [], COVERAGE).verdict != "passed"


@pytest.mark.parametrize("told", [1.001, math.nan, math.inf])
def test_a_loss_that_is_not_the_batchs_fails(told: float) -> None:
    steps = [judged(0, 1e-5), judged(5, 1e-5, told)]
    result = check_losses(Check.of("audit, losses", "torch"), steps, Replay(), np.ones(10))
    cause = result.findings[0].cause
    assert result.verdict == "failed" and isinstance(cause, LossDiffers)
    assert cause.step == 5 and describe(result)


def test_a_loss_that_a_replay_does_not_have_fails() -> None:
    losses = np.array([1.0, 0.9, 0.85, 0.7])
    replay = Replay([1.0, 0.9, 0.8], [1e-5, 1e-5, 1e-5])
    result = check_losses(Check.of("audit, losses", "torch"), [judged(0, 1e-5)], replay, losses)
    cause = result.findings[0].cause
    assert isinstance(cause, LossDiffers) and cause.replayed
    assert (cause.step, cause.told, cause.expected) == (2, 0.85, 0.8)


#: 100 steps of 10 ms in calls of 10, of which every second is of one audited step; what a worker says of
#: each step, and whether dlb's clock can have seen that.
TOLD: list[tuple[str, float, bool]] = [
    ("right", 1e-2, True),
    ("waiting", 9e-3, True),
    ("half", 5e-3, False),
    ("nothing", 1e-9, False),
    ("twice", 2e-2, False),
    ("rate of its clock", 1.01e-2, True),
    ("largest number", 1e9, False),
]


@pytest.mark.parametrize(("told", "right"), [each[1:] for each in TOLD], ids=[w for w, *_ in TOLD])
def test_steps_take_the_time_that_passed(told: float, right: bool) -> None:
    taken = [Taken(first, 9, 0.092) for first in range(0, 100, 10)]
    # An audit does more than its step.
    taken += [Taken(first + 9, 1, 1.0, audited=True) for first in range(0, 100, 10)]
    audit = Audit(100, taken=tuple(taken))
    assert (audit.unaccounted(np.full(100, told)) is None) == right


def test_of_time_between_short_steps_nobody_knows() -> None:
    """The calls of a small model take longer than its steps; so do plugins that see each step."""
    short = Audit(100, taken=(Taken(0, 100, 0.02),))
    assert short.unaccounted(np.full(100, 1e-5)) is None
    seen = Audit(100, taken=(Taken(0, 100, 100.0),), observed=True)
    assert seen.unaccounted(np.full(100, 1e-5)) is None
    assert seen.unaccounted(np.full(100, 2.0)) is not None


def test_one_call_cannot_lend_its_time_to_another() -> None:
    audit = Audit(20, taken=(Taken(0, 10, 1.0), Taken(10, 10, 0.1)))
    told = np.full(20, 0.05)
    assert audit.unaccounted(told) == (pytest.approx(0.5), 0.1)


def test_of_workers_that_go_on_by_themselves_the_slowest_accounts_for_the_time() -> None:
    audit = Audit(2, taken=(Taken(0, 1, 10.0), Taken(1, 1, 10.0)))
    first, second = np.array([10.0, 5.0]), np.array([5.0, 10.0])
    assert audit.unaccounted(first) == (15.0, 20.0)
    assert audit.unaccounted(first, np.stack([first, second])) is None
    assert audit.unaccounted(first, np.stack([first, first])) == (15.0, 20.0)


@pytest.mark.parametrize(("count", "batch"), [(512, 64), (100, 32), (5, 8), (10_000, 16), (70, 1)])
def test_samples_of_a_test_come_from_as_many_batches_as_there_are(count: int, batch: int) -> None:
    rows = draw_samples(count, batch, 64, random.Random(1))
    assert len({*rows}) == len(rows) == min(64, count) and set(rows) <= {*range(count)}
    last = (count - 1) // batch
    batches = {row // batch for row in rows}
    assert last in batches and len(batches) >= min(63, last + 1)


MODEL = Model(
    input=Input(shape=(6,)),
    nodes=(
        Node(name="hidden", layer=Linear(out_features=5)),
        Node(name="norm", layer=BatchNorm()),
        Node(name="logits", layer=Linear(out_features=3)),
    ),
)


def judged_logits(change: str = "", dtype: str = "float32") -> tuple[str, list[object]]:
    """The verdict about a test of 48 samples in batches of 16."""
    generator = np.random.default_rng(3)
    weights = {
        name: np.abs(generator.standard_normal(shape)).astype(np.float32) + np.float32(0.1)
        for name, shape in parameter_shapes(MODEL).items()
    }
    x = generator.standard_normal((48, 6)).astype(dtype)
    training = canonical_graph(MODEL, weights, dtype=dtype, training=True)
    graph = canonical_graph(MODEL, weights, dtype=dtype)
    batches = [x[:16], x[16:32], x[32:]]
    logits = [evaluate(graph, {"input": each})["logits"] for each in batches]
    if change == "cached":
        logits = [logits[0]] * 3
    if change == "training":
        logits = [evaluate(training, {"input": each})["logits"] for each in batches]
    if change == "one":
        logits[1] = logits[1] * np.float32(1.001)
    if change == "infinite":
        logits[2] = logits[2] * np.inf
    test = DrawnTest(40, weights, np.concatenate(logits), 16)
    canonical = canonical_graph(MODEL, {name: array * 0 for name, array in weights.items()})
    check = Check.of("audit, test", "torch")
    result = check_tests(check, canonical, x, [test], 20, random.Random(5))
    assert describe(result)
    return result.verdict, [finding.cause for finding in result.findings]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_logits_of_the_model_pass(dtype: str) -> None:
    assert judged_logits(dtype=dtype)[0] == "passed"


@pytest.mark.parametrize(
    ("change", "batch", "batches"),
    [("cached", 1, 2), ("training", 0, 3), ("one", 1, 1), ("infinite", 2, 1)],
)
def test_other_logits_fail_and_name_their_batch(change: str, batch: int, batches: int) -> None:
    verdict, (cause, _) = judged_logits(change)
    assert verdict == "failed" and isinstance(cause, LogitsDiffer)
    assert (cause.step, cause.batch, cause.batches) == (40, batch, batches)
