"""Sequences of several lengths, packed; ``not_packed`` reads on where a sequence has ended."""

from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


class Net(nn.Module):
    def __init__(self, packs=True):
        super().__init__()
        self.packs = packs
        self.embed = nn.Embedding(20, 6)
        self.rnn = nn.GRU(6, 5, batch_first=True)
        self.out = nn.Linear(5, 2)

    def forward(self, tokens, lengths):
        x = self.embed(tokens)
        if self.packs:
            x = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return self.out(self.rnn(x)[1][-1])


def make():
    return Net()


def not_packed():
    return Net(packs=False)
