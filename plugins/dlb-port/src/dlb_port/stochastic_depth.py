"""Layers of unknown types that drop samples in training: stochastic depth (Huang et al., arXiv:1603.09382).

What such a layer drops is seen from what it makes of its input in several passes, and how often.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb_graph.comparing.distance import same_bits
from dlb_worker.contract import Dropout, LayerCall

__all__ = ["UNSEEN", "dropped_samples", "is_identity"]

Array = npt.NDArray[Any]
#: What is dropped where no rate is seen: samples that are not scaled, of which only how many passes dropped is
#: seen; as many as scales do not say; and in passes that dropped all or none, perhaps whole batches.
UNSEEN = ("samples, not scaled", "samples, not as often as scaled", "samples or whole batches")
#: Passes in training mode until each layer dropped some samples of a batch and not others. A rate of 1% drops
#: none of 512 in one of 170 models.
_PASSES = 64
#: Least samples whose fates say how often some are dropped, and the deviations by which that may be off.
_SAMPLES, _DEVIATIONS = 128, 5.0


def dropped_samples(
    passes_of: Callable[..., list[LayerCall]], layers: Sequence[str]
) -> dict[str, Dropout]:
    """What each of some layers drops, if it drops samples, scales the others alike, and is else the identity.

    Args:
        passes_of: the calls of some layers in another pass, with values; ``training=False`` in evaluation.
    """
    calls = defaultdict[str, list[LayerCall]](list)
    for call in passes_of(layers):
        calls[call.layer].append(call)
    # One that dropped every sample says nothing of the others.
    drops = [name for name in layers if calls[name] and all(map(_fates, calls[name]))]
    drops = [name for name in drops if not all(map(is_identity, calls[name]))]
    kept = passes_of(drops, training=False) if drops else []
    drops = [
        name for name in drops if all(is_identity(call) for call in kept if call.layer == name)
    ]
    for _ in range(_PASSES if drops else 0):
        found = {name: _dropped(calls[name]) for name in drops}
        if all(each is None or each.of not in UNSEEN[1:] for each in found.values()) and all(
            len(calls[name]) * len(calls[name][0].inputs) >= _SAMPLES  # type: ignore[arg-type]
            for name in drops
        ):
            break
        for call in passes_of(drops):
            calls[call.layer].append(call)
    found = {name: _dropped(calls[name]) for name in drops}
    return {name: dropout for name, dropout in found.items() if dropout}


def is_identity(call: LayerCall) -> bool:
    """Whether a call returned its first input."""
    read, made = call.inputs, call.output
    return read is not None and made is not None and same_bits(read, made)


def _fates(call: LayerCall) -> tuple[Array, float] | None:
    """Which samples that are not all zeros were kept, and what these are scaled by; 0 if none was kept."""
    read, made = call.inputs, call.output
    if call.dropout or read is None or made is None or read.shape != made.shape:
        return None
    if read.dtype.kind != "f" or not read.ndim or not read.size:
        return None
    read, made = (array.reshape(len(array), -1) for array in (read, made))
    some, kept = (np.asarray(array.any(axis=1)) for array in (read, made))
    if not some.any() or (kept & ~some).any():
        return None
    if not kept.any():
        return kept[some], 0.0
    largest = np.abs(read[kept]).argmax()
    scale = float(made[kept].flat[largest] / read[kept].flat[largest])
    return (kept[some], scale) if np.allclose(made[kept], scale * read[kept]) else None


def _dropped(calls: Sequence[LayerCall]) -> Dropout | None:
    """What a layer drops, as several of its calls show; None if that is no samples."""
    fates = [fate for fate in map(_fates, calls) if fate is not None]
    scales = [scale for _, scale in fates if scale]
    if len(fates) < len(calls) or not scales or not np.allclose(scales, scales[0]) or scales[0] < 1:
        return None
    dropped = 1 - float(np.concatenate([kept for kept, _ in fates]).mean())
    if scales[0] == 1:
        return Dropout(dropped, UNSEEN[0]) if dropped else None
    rate = round(1 - 1 / scales[0], 6)
    mixed = any(kept.any() and not kept.all() for kept, _ in fates)
    whole = not mixed and dropped > 0 and min(len(kept) for kept, _ in fates) > 1
    draws = len(fates) if whole else sum(len(kept) for kept, _ in fates)
    if abs(dropped - rate) > _DEVIATIONS * math.sqrt(rate * (1 - rate) / draws):
        return Dropout(rate, UNSEEN[1])
    return Dropout(rate, "samples" if mixed else "whole batches" if whole else UNSEEN[2])
