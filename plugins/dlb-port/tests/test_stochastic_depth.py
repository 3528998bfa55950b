"""What a layer drops, as its values in several passes show."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dlb_port.stochastic_depth import UNSEEN, dropped_samples
from dlb_worker.contract import Dropout, LayerCall

SAMPLES = 8
Layer = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def of_samples(rate: float, share: float | None = None, scaled: bool = True) -> Layer:
    def layer(x: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        kept = draw.random((len(x), 1)) >= (rate if share is None else share)
        return x * kept / (1 - rate if scaled else 1)

    return layer


def of_batches(rate: float) -> Layer:
    return lambda x, draw: x * (draw.random() >= rate) / (1 - rate)


def of_elements(rate: float) -> Layer:
    return lambda x, draw: x * (draw.random(x.shape) >= rate) / (1 - rate)


LAYERS: dict[str, tuple[Layer, Dropout | None]] = {
    "samples": (of_samples(0.25), Dropout(0.25, "samples")),
    "few samples": (of_samples(0.04), Dropout(0.04, "samples")),
    "most samples": (of_samples(0.9), Dropout(0.9, "samples")),
    "whole batches": (of_batches(0.25), Dropout(0.25, "whole batches")),
    "as many as should be kept": (of_samples(0.25, 0.75), Dropout(0.25, UNSEEN[1])),
    "nearly none": (of_samples(0.001, 0.0), Dropout(0.001, UNSEEN[2])),
    "elements": (of_elements(0.25), None),
    "nothing": (of_samples(0.0), None),
    "a scale": (lambda x, draw: x * 2, None),
    "less of all": (lambda x, draw: x / 2, None),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_dropped_is_seen(name: str, seed: int) -> None:
    layer, expected = LAYERS[name]
    draw, x = np.random.default_rng(seed), np.random.default_rng(9).standard_normal((SAMPLES, 3))

    def passes_of(names: Sequence[str], *, training: bool = True) -> list[LayerCall]:
        return [LayerCall(each, x, layer(x, draw) if training else x) for each in names]

    found = dropped_samples(passes_of, ["it"])
    if name == "a scale":  # as one that was never seen to drop any
        assert found == {"it": Dropout(0.5, UNSEEN[1])}
    else:
        assert found == ({"it": expected} if expected else {})


def test_samples_that_are_not_scaled_have_no_rate() -> None:
    draw, x = np.random.default_rng(0), np.ones((SAMPLES, 3))
    layer = of_samples(0.25, scaled=False)

    def passes_of(names: Sequence[str], *, training: bool = True) -> list[LayerCall]:
        return [LayerCall(each, x, layer(x, draw) if training else x) for each in names]

    assert dropped_samples(passes_of, ["it"])["it"].of == UNSEEN[0]


def test_what_is_no_identity_in_evaluation_mode_is_no_such_layer() -> None:
    draw, x = np.random.default_rng(0), np.ones((SAMPLES, 3))
    layer = of_samples(0.25)

    def passes_of(names: Sequence[str], *, training: bool = True) -> list[LayerCall]:
        return [LayerCall(each, x, layer(x, draw)) for each in names]

    assert not dropped_samples(passes_of, ["it"])
