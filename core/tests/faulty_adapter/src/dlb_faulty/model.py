"""The example's model, wrong in the one way that ``DLB_FAULT`` names."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from dlb_example.model import ExampleModel

from dlb_faulty.faults import KIND, strike

#: The fault strikes at this step.
STEP = 5


class FaultyModel(ExampleModel):
    steps = 0

    def __del__(self) -> None:
        if KIND == "release-raise":
            raise OSError("could not give the memory back")

    def weights(self) -> Any:
        found = super().weights()
        if KIND == "objects":
            found["fc1.weight"] = np.array([object()])
        if KIND == "renamed-weight":
            found["fc1.kernel"] = found.pop("fc1.weight")
        return found

    def load_weights(self, weights: Any) -> None:
        super().load_weights(weights)
        if KIND == "wrong-weights":
            one = self.values["fc1.weight"]
            one[0, 0] = np.nextafter(one[0, 0], np.inf, dtype=one.dtype)
        if KIND == "transposed":
            self.values["fc1.weight"] = self.values["fc1.weight"].T.reshape(32, -1)

    def forward(self, inputs: Any, **how: Any) -> Any:
        strike("forward")
        found = super().forward(inputs, **how)
        if KIND == "wrong-forward":
            found = {name: value * (1 + 1e-6) for name, value in found.items()}
        if KIND == "missing-layer":
            del found["relu1" if "relu1" in found else "fc2"]
        if KIND == "fewer-rows" and not how.get("layers"):
            found = {name: value[:-1] for name, value in found.items()}
        if KIND == "wrong-shape":
            found = {name: value[:, None] for name, value in found.items()}
        return found

    def factors(self, samples: int, training: bool) -> Any:
        found = super().factors(samples, training)
        if KIND == "unscaled-dropout" and training and not self.masks:
            found = {name: (array != 0).astype(array.dtype) for name, array in found.items()}
        return found

    def gradients(self, inputs: Any, labels: Any) -> Any:
        strike("gradients")
        found = super().gradients(inputs, labels)
        changed = dict(found.parameters)
        if KIND == "wrong-gradient":
            changed["fc2.weight"] = changed["fc2.weight"] * (1 + 1e-4)
        if KIND == "summed-gradient":
            changed = {name: array * len(labels) for name, array in changed.items()}
        if KIND == "nan-gradient":
            changed["fc1.bias"] = changed["fc1.bias"] * np.nan
        if KIND == "missing-gradient":
            del changed["fc1.bias"]
        if KIND == "extra-gradient":
            changed["fc3.bias"] = np.zeros(3)
        return dataclasses.replace(found, parameters=changed)

    def train_step(self, inputs: Any, labels: Any) -> Any:
        self.steps += 1
        if self.steps == STEP or KIND == "slow":
            strike("train")
        if KIND == "wrong-update":
            self.velocity = {}
        loss = super().train_step(inputs, labels)
        if KIND == "nan-loss" and self.steps >= STEP:
            self.values["fc1.bias"][:] = np.nan
            return np.float64(np.nan)
        return loss
