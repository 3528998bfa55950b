"""The sentence that answers: who is faster, by how much, what would have been found, and what is not proven."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from dlb.proof.certificate import ProofStatus
from dlb_measure.ratios import Ratio, power_of, ratio_of, rounds_to_find
from dlb_measure.verdict import Standing, Verdict, verdict_line

BASELINE = Standing("PyTorch", "proven", 0.04)
PAIRS = [0.99, 1.05, 0.97, 1.02, 1.0]


def other(
    ratio: Ratio | None, word: str | None, name: str = "TensorFlow", proof: ProofStatus = "proven"
) -> Standing:
    seconds = None if ratio is None else 0.04 * ratio.ratio
    return Standing(name, proof, seconds, ratio, word, "worker 0 died")  # type: ignore[arg-type]


def said(*others: Standing, baseline: Standing = BASELINE, quick: bool = False) -> str:
    return verdict_line(Verdict(baseline, others, 0.01, Ratio(1.06, 0.8, 1.3, 5), quick=quick))


FASTER = other(Ratio(0.7, 0.672, 0.741, 5, 0.04), "faster")


def test_one_that_is_faster_or_slower_takes_so_much_of_the_time() -> None:
    assert said(FASTER) == "TensorFlow takes 0.70 of PyTorch's time (0.67 to 0.74); both proven."
    slower = other(Ratio(1.41, 1.35, 1.5, 5, 0.04), "slower")
    assert said(slower) == "TensorFlow takes 1.41 times PyTorch's time (1.35 to 1.50); both proven."


def test_several_come_the_fastest_first() -> None:
    slow = other(Ratio(6.05, 3.52, 10.4, 5, 0.3), "slower", "Chainer")
    same = other(Ratio(1.001, 0.995, 1.006, 5, 0.01), "same", "MXNet")
    assert said(slow, same, FASTER) == (
        "Fastest first, in PyTorch's time: TensorFlow 0.70 (0.67 to 0.74), PyTorch 1, "
        "MXNet 1.001 (0.995 to 1.006; the same), Chainer 6.05 (3.52 to 10.40); all proven."
    )


def test_a_title_is_the_sentence_without_intervals_and_reasons() -> None:
    slow = other(Ratio(6.05, 3.52, 10.4, 5, 0.3), "slower", "Chainer")
    unclear = other(ratio_of(PAIRS, [1.0] * 5), "unclear", "MXNet")
    missing = other(None, None, "Theano", "deviates")
    for others, title in (
        ([FASTER], "TensorFlow takes 0.70 of PyTorch's time; both proven"),
        ([unclear], "MXNet and PyTorch cannot be told apart; both proven"),
        (
            [slow, unclear, FASTER, missing],
            "Not proven: Theano (deviates). Not measured: Theano. Fastest first, in PyTorch's time: "
            "TensorFlow 0.70, PyTorch 1, MXNet 1.006 (cannot be told apart), Chainer 6.05",
        ),
    ):
        verdict = Verdict(BASELINE, others, 0.01, Ratio(1.06, 0.8, 1.3, 5), trials=6, disturbed=4)
        assert verdict_line(verdict, short=True) == title
        pieces = re.split(r"[. ,;:()]+", title)
        line = verdict_line(verdict)
        assert [word for word in pieces if word not in line] == [], (
            "no other words than the sentence's"
        )


def test_what_cannot_be_told_apart_has_its_power() -> None:
    ratio = ratio_of(PAIRS, [1.0] * 5)
    line = said(other(ratio, "unclear"))
    rounds = rounds_to_find(ratio.spread, 0.03, 0.9)
    assert line == (
        f"TensorFlow and PyTorch cannot be told apart (0.969 to 1.044); a difference of 3% would have been "
        f"found with {ratio.power(0.03):.0%}, and takes {rounds} rounds to be found with 90%; both proven."
    )


def test_a_difference_no_larger_than_that_to_itself_is_explained() -> None:
    line = said(other(Ratio(1.04, 1.02, 1.06, 5, 0.02), "unclear"))
    assert "a framework next to itself differed by 6.0%" in line


def test_one_round_says_little() -> None:
    line = said(other(ratio_of([0.7], [1.0]), "unclear"))
    assert (
        line
        == "TensorFlow took 0.70 of PyTorch's time in one round, which says little; both proven."
    )


@pytest.mark.parametrize("proof", ["deviates", "diverged", "unproven"])
def test_what_is_not_proven_comes_first(proof: ProofStatus) -> None:
    line = said(other(FASTER.ratio, "faster", proof=proof))
    assert (
        line
        == f"Not proven: TensorFlow ({proof}). TensorFlow takes 0.70 of PyTorch's time (0.67 to 0.74)."
    )


def test_what_was_not_measured_comes_first() -> None:
    line = said(other(None, None, "Chainer"), FASTER)
    assert line.startswith(
        "Not measured: Chainer (worker 0 died). TensorFlow takes 0.70 of PyTorch's"
    )
    nothing = said(other(None, None), baseline=Standing("PyTorch", "proven", None, reason="hung"))
    assert nothing == (
        "Not measured: PyTorch (hung) and TensorFlow (worker 0 died). Nothing is compared; both proven."
    )


def test_a_quick_run_says_so_and_what_it_left_out() -> None:
    open_ones = other(FASTER.ratio, "faster", proof="unproven")
    line = said(open_ones, baseline=Standing("PyTorch", "unproven", 0.04), quick=True)
    assert line.startswith("Quick, and not proven beyond weights, ") and "; both" not in line
    assert said(FASTER, quick=True).startswith("Quick: TensorFlow takes 0.70 of")
    assert said(other(FASTER.ratio, "faster", proof="deviates"), quick=True).startswith(
        "Quick: Not proven: TensorFlow (deviates). "
    )


def test_a_machine_that_was_busy_is_said_first() -> None:
    verdict = Verdict(BASELINE, [FASTER], 0.01, trials=6, disturbed=4)
    assert verdict_line(verdict).startswith(
        "Other work used the cores in 4 of 6 processes. TensorF"
    )
    assert verdict_line(replace(verdict, disturbed=3)).startswith("TensorFlow takes 0.70")


def test_threads_that_waited_for_cores_leave_every_word_unclear() -> None:
    waited = replace(FASTER, word="unclear", oversubscribed=True)
    line = verdict_line(Verdict(BASELINE, [waited], 0.01, trials=15, disturbed=15))
    assert line == (
        "Other work used the cores in 15 of 15 processes. TensorFlow and PyTorch cannot be told apart (0.67 "
        "to 0.74); threads waited for cores: wait for the other work to end, or measure with --threads 1; both "
        "proven."
    )


def test_terminals_obey_nothing_of_a_name() -> None:
    assert "\x1b" not in said(other(FASTER.ratio, "faster", "Tensor\x1b[31mFlow"))


@pytest.mark.parametrize(("rounds", "difference"), [(5, 0.03), (10, 0.1), (20, 0.03)])
def test_the_power_is_how_often_a_difference_is_found(rounds: int, difference: float) -> None:
    generator = np.random.default_rng(rounds)
    runs, spread = 4000, 0.057
    found = 0
    for _ in range(runs):
        own = np.exp(math.log1p(difference) + spread * generator.standard_normal(rounds))
        ratio = ratio_of(list(own), [1.0] * rounds)
        found += not ratio.low <= 1 <= ratio.high
    power = power_of(rounds, spread, difference)
    assert abs(found / runs - power) < 4 * math.sqrt(power * (1 - power) / runs)


def test_the_rounds_it_takes_are_the_fewest() -> None:
    rounds = rounds_to_find(0.057, 0.03, 0.9)
    assert power_of(rounds, 0.057, 0.03) >= 0.9 > power_of(rounds - 1, 0.057, 0.03)
    assert rounds == 42
    assert rounds_to_find(5.0, 0.03, 0.9, most=1000) == 1000
