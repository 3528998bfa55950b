"""Equal layers, one after another, and as slices of stacked parameters."""

import torch
from torch import nn
from torch.func import functional_call, stack_module_state


class Separate(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.out(x)


class Stacked(nn.Module):
    """As JAX's scan keeps them: [layers, in, out]."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(3, 8, 8) / 3)
        self.bias = nn.Parameter(torch.randn(3, 8))
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        for kernel, bias in zip(self.kernel, self.bias):
            x = torch.tanh(x @ kernel + bias)
        return self.out(x)


class States(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Linear(8, 8) for _ in range(3)]
        states, _ = stack_module_state(layers)
        self.stack = nn.ParameterDict({name: nn.Parameter(each) for name, each in states.items()})
        self.one = (layers[0],)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        for place in range(3):
            state = {name: each[place] for name, each in self.stack.items()}
            x = torch.tanh(functional_call(self.one[0], state, x))
        return self.out(x)


def make():
    return Separate()


def stacked():
    return Stacked()


def states():
    return States()
