"""LeNet-5 in torch as its users write it, with nothing of dlb."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LeNet5(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.fc1 = nn.Linear(64 * 7 * 7, 512)
        self.fc2 = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Native:
    """Training from memory: weights by canonical name, inputs [N, 1, 28, 28], labels [N]."""

    def __init__(
        self,
        weights: dict[str, np.ndarray],
        batch_size: int,
        learning_rate: float,
        momentum: float,
        inputs: np.ndarray,
        labels: np.ndarray,
    ) -> None:
        self.model = LeNet5()
        self.model.load_state_dict({name: torch.tensor(each) for name, each in weights.items()})
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=learning_rate, momentum=momentum
        )
        self.inputs, self.labels = torch.tensor(inputs), torch.tensor(labels)

    def batches(self, order: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
        """The samples of each row of the order."""
        for row in torch.tensor(order):
            yield self.inputs[row], self.labels[row]

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """One update; the mean loss."""
        loss = F.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def synchronise(self) -> None:
        """Operators on a CPU return when they are done."""
