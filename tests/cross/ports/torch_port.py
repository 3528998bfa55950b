"""The models as a user of PyTorch writes them, and each with one error."""

import torch
import torch.nn.functional as F
from torch import nn


class Image(nn.Module):
    def __init__(self, epsilon=1e-5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8, eps=epsilon)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.fc1 = nn.Linear(16 * 4 * 4, 20)
        self.fc2 = nn.Linear(20, 10)

    def forward(self, x):
        x = F.max_pool2d(self.activate(self.bn1(self.conv1(x))), 2)
        x = F.relu(self.convolve(x)).flatten(1)
        return self.fc2(torch.tanh(self.fc1(x)))

    def activate(self, x):
        return F.relu(x)

    def convolve(self, x):
        return self.conv2(x)


class KeptVariance(nn.BatchNorm2d):
    """Takes the momentum of the running variance for the part that is kept."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        before = self.running_var.clone()
        y = super().forward(x)
        batch = (self.running_var - (1 - self.momentum) * before) / self.momentum
        # Backward refuses what it read and was changed since; .data is not counted.
        self.running_var.data.copy_(self.momentum * before + (1 - self.momentum) * batch)
        return y


class Padding(Image):
    def __init__(self):
        super().__init__()
        self.conv2.padding = (0, 0)

    def convolve(self, x):
        return self.conv2(F.pad(x, (0, 1, 0, 1)))


class Activation(Image):
    def activate(self, x):
        return F.elu(x)


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.lstm = nn.LSTM(8, 12, batch_first=True)
        self.out = nn.Linear(12, 4)

    def forward(self, tokens):
        sequence, _ = self.lstm(self.embed(tokens))
        return self.out(sequence[:, -1])


class TextStepsFirst(nn.Module):
    """The same by torch's default order of axes."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.lstm = nn.LSTM(8, 12)
        self.out = nn.Linear(12, 4)

    def forward(self, tokens):
        return self.out(self.lstm(self.embed(tokens))[1][0][-1])


class HandLSTM(nn.Module):
    order = (0, 1, 2, 3)

    def __init__(self):
        super().__init__()
        self.x2h = nn.Linear(6, 20)
        self.h2h = nn.Linear(5, 20, bias=False)

    def forward(self, x):
        hidden = cell = x.new_zeros(len(x), 5)
        for step in range(x.shape[1]):
            gates = (self.x2h(x[:, step]) + self.h2h(hidden)).chunk(4, dim=1)
            i, f, g, o = (gates[place] for place in self.order)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
        return hidden


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = HandLSTM()
        self.out = nn.Linear(5, 3)

    def forward(self, x):
        return self.out(self.lstm(x))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(6, 5, batch_first=True)
        self.rnn = nn.RNN(5, 4, batch_first=True)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.rnn(self.gru(x)[0])[0])


def gated():
    return Gated()


def encoder(norm_first=True):
    """torch's own layer, in evaluation as one fused operator where nothing looks on."""
    return nn.Sequential(
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first),
        nn.Linear(8, 3),
    )


def post_norm():
    return encoder(norm_first=False)


class Attends(nn.Module):
    """Steps first, without biases."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, bias=False)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.attention(x, x, x, need_weights=False)[0].transpose(0, 1))


def attends():
    return Attends()


def image():
    return Image()


def epsilon():
    return Image(epsilon=1e-3)


def variance():
    model = Image()
    model.bn1 = KeptVariance(8)
    return model


def padding():
    return Padding()


def activation():
    return Activation()


def text():
    return Text()


def text_steps():
    return TextStepsFirst()


def cell():
    return Cell()


def gates():
    model = Cell()
    model.lstm.order = (0, 2, 1, 3)
    return model
