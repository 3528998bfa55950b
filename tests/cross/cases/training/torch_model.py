"""A classifier with its own training program; weight decay is added to the gradient."""

import torch
import torch.nn.functional as F
from torch import nn


def make():
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Dropout(0.1), nn.Linear(9, 3))


def train(model, optimizer):
    def step(batch):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch["x"]), batch["y"])
        loss.backward()
        optimizer.step()
        return loss

    return step


def momentum(model):
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


def decay(model):
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01))


def adam(model):
    return train(model, torch.optim.Adam(model.parameters(), lr=0.01))
