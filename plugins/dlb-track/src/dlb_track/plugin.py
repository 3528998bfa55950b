"""The forms of ``dlb results export``, imported when one is written: this module is loaded at every command."""

from __future__ import annotations

from collections.abc import Mapping

from dlb_worker import hookimpl


@hookimpl
def dlb_exports() -> Mapping[str, str]:
    return {
        "tensorboard": "dlb_track.in_tensorboard:export",
        "mlflow": "dlb_track.in_mlflow:export",
        "wandb": "dlb_track.in_wandb:export",
        "model-card": "dlb_track.model_card:export",
    }
