"""Memory of models that are done with: a proof builds a dozen, one after another."""

from __future__ import annotations

from .memory_alone import LARGE, MORE
from .processes import run_python
from .subject import Adapter


def test_models_that_trained_give_their_memory_back(
    adapter: Adapter, adapter_names: tuple[str, str]
) -> None:
    """In a process of its own, where nothing else takes any."""
    adapter.require(LARGE)
    grown = run_python(["-m", f"{__package__}.memory_alone", *adapter_names])
    # Of models that stay there would be more weights than there were models.
    assert grown < MORE / 2, (
        f"after {MORE} more models were trained and dropped, the process had grown by {grown:.1f} "
        "times a model's weights: something still refers to them"
    )
