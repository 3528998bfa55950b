"""The check of native dropout: what is dropout passes, and what is nearly dropout does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dlb.proof.checks.dropout import check_dropout
from dlb.proof.engine import Check
from dlb.proof.findings.workload import FewElements
from dlb.report.sentences import describe
from dlb_graph.workload import Dropout, Input, Linear, Model, Node
from dlb_graph.workload.initial import proof_masks

RATE = 0.3
MODEL = Model(
    input=Input(shape=(6, 20)),
    nodes=(
        Node(name="drop", layer=Dropout(rate=RATE)),
        Node(name="fc", layer=Linear(out_features=3)),
    ),
)
Drop = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def judged(drop: Drop, still: Drop = lambda x, random: x, samples: int = 40, seed: int = 0):
    random = np.random.default_rng(seed)
    x = random.standard_normal((samples, 6, 20))
    x[:, :, ::7] = 0
    passes = [{"input": x, "drop": how(x.copy(), random)} for how in (drop, drop, still)]
    return check_dropout(Check.of("dropout", "example"), MODEL, *passes, {"drop": "Dropout(p=0.3)"})


def right(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return x * (random.random(x.shape) >= RATE) / (1 - RATE)


def at_rate(rate: float) -> Drop:
    return lambda x, random: x * (random.random(x.shape) >= rate) / (1 - RATE)


def over(*shape: int | None) -> Drop:
    """One draw for all elements along some axes."""

    def drop(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
        drawn = random.random([size or full for size, full in zip(shape, x.shape)])
        return x * (drawn >= RATE) / (1 - RATE)

    return drop


def one_too_large(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    found = right(x, random)
    found[np.unravel_index(np.argmin(np.where(found == 0, np.inf, abs(found))), x.shape)] *= (
        1 + 1e-9
    )
    return found


def not_a_number(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    found = right(x, random)
    found[0, 0, 1] = np.nan
    return found


#: What is wrong, and a word of what is said.
WRONG: dict[str, tuple[Drop, str]] = {
    "not scaled": (lambda x, random: right(x, random) * (1 - RATE), "are 1 times their"),
    "scaled by another rate": (lambda x, random: right(x, random) * 0.7 / 0.3, "3.333 times their"),
    "one element of many": (one_too_large, "neither 0 nor"),
    "rounded to float32": (lambda x, random: right(x, random).astype(np.float32), "neither 0 nor"),
    "not a number": (not_a_number, "neither 0 nor"),
    "nothing dropped": (lambda x, random: x / (1 - RATE), "dropped 0 of the time"),
    "everything dropped": (lambda x, random: 0 * x, "dropped 1 of the time"),
    "rate for its complement": (at_rate(1 - RATE), "dropped"),
    "a rate a little off": (at_rate(RATE + 0.06), "dropped"),
    "the same at each pass": (lambda x, _: right(x, np.random.default_rng(3)), "two passes"),
    "one draw for all samples": (over(1, None, None), "neighbouring samples"),
    "one draw for a channel": (over(None, None, 1), "along axis 2"),
    "one draw for a place": (over(None, 1, None), "along axis 1"),
    "another shape": (lambda x, random: right(x, random)[:, None], "another shape"),
}


@pytest.mark.parametrize("seed", range(20))
def test_dropout_passes(seed: int) -> None:
    result = judged(right, seed=seed)
    assert result.verdict == "passed" and result.findings == ()
    assert result.worst is not None and result.worst.relative_l2 <= 1e-15


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_dropout_fails(name: str) -> None:
    drop, words = WRONG[name]
    result = judged(drop)
    assert result.verdict == "failed"
    (finding,) = result.findings
    assert finding.layer is not None
    assert (finding.layer.name, finding.layer.kind) == ("drop", "dropout")
    assert finding.layer.attributes == {"rate": 0.3} and finding.layer.built == "Dropout(p=0.3)"
    assert words in describe(result)
    assert "drop, dropout(rate=0.3); in example: Dropout(p=0.3)" in describe(result)


def test_what_drops_in_evaluation_fails() -> None:
    result = judged(right, still=right)
    assert result.verdict == "failed" and "evaluation is not the identity" in describe(result)


def test_too_few_elements_tell_nothing() -> None:
    for samples, verdict in ((0, "not run"), (1, "passed")):
        result = judged(right, samples=samples)
        assert result.verdict == verdict
    few = judged(right, samples=0)
    assert [finding.cause for finding in few.findings] == [FewElements(layers=("drop",))]
    assert "too few elements reach drop" in describe(few)


def test_masks_are_of_the_rate_and_each_layers_own() -> None:
    nodes = (*MODEL.nodes[:1], Node(name="other", layer=Dropout(rate=RATE)))
    model = Model(input=MODEL.input, nodes=(*nodes, Node(name="none", layer=Dropout(rate=0.0))))
    masks = proof_masks(model, 0, 64)
    assert set(masks) == {"drop", "other"}
    assert not np.array_equal(masks["drop"], masks["other"])
    for mask in masks.values():
        assert mask.shape == (64, 6, 20) and set(np.unique(mask)) == {0, 1}
        assert abs((mask == 0).mean() - RATE) < 0.03
    again, others = proof_masks(model, 0, 64), proof_masks(model, 1, 64)
    assert np.array_equal(masks["drop"], again["drop"])
    assert not np.array_equal(masks["drop"], others["drop"])
    # Of more rows, the first are the same.
    assert np.array_equal(proof_masks(model, 0, 99)["drop"][:64], masks["drop"])
