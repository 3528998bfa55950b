"""ONNX operators as plain loops in float64: slow, short, and independent of what is tested."""

from __future__ import annotations

import math

import numpy as np


def positions(size, kernel, stride, before, after, dilation=1, ceil=False):
    """First element of every window along one axis."""
    span = size + before + after - dilation * (kernel - 1) - 1
    count = (math.ceil if ceil else math.floor)(span / stride) + 1
    starts = [index * stride - before for index in range(count)]
    return [start for start in starts if start < size] if ceil else starts


def conv(x, w, b, stride, pads, dilation, groups):
    n, _, height, width = x.shape
    o, depth, kh, kw = w.shape
    rows = positions(height, kh, stride[0], pads[0], pads[2], dilation[0])
    columns = positions(width, kw, stride[1], pads[1], pads[3], dilation[1])
    y = np.zeros((n, o, len(rows), len(columns)))
    for s in range(n):
        for k in range(o):
            first = k // (o // groups) * depth
            for i, top in enumerate(rows):
                for j, left in enumerate(columns):
                    total = 0.0 if b is None else b[k]
                    for d in range(depth):
                        for u in range(kh):
                            for v in range(kw):
                                p, q = top + u * dilation[0], left + v * dilation[1]
                                if 0 <= p < height and 0 <= q < width:
                                    total += x[s, first + d, p, q] * w[k, d, u, v]
                    y[s, k, i, j] = total
    return y


def conv_transpose(x, w, b, stride, pads, dilation, groups, size):
    n, c, height, width = x.shape
    _, depth, kh, kw = w.shape
    y = np.zeros((n, depth * groups, *size))
    for s in range(n):
        for d in range(c):
            for p in range(height):
                for q in range(width):
                    for u in range(kh):
                        for v in range(kw):
                            i = p * stride[0] + u * dilation[0] - pads[0]
                            j = q * stride[1] + v * dilation[1] - pads[1]
                            if 0 <= i < size[0] and 0 <= j < size[1]:
                                first = d // (c // groups) * depth
                                y[s, first : first + depth, i, j] += x[s, d, p, q] * w[d, :, u, v]
    return y if b is None else y + b[:, None, None]


def pool(x, kernel, stride, pads, ceil, average, include):
    n, c, height, width = x.shape
    rows = positions(height, kernel[0], stride[0], pads[0], pads[2], ceil=ceil)
    columns = positions(width, kernel[1], stride[1], pads[1], pads[3], ceil=ceil)
    y = np.zeros((n, c, len(rows), len(columns)))
    for s in range(n):
        for k in range(c):
            for i, top in enumerate(rows):
                for j, left in enumerate(columns):
                    held, counted = [], 0
                    for p in range(top, top + kernel[0]):
                        for q in range(left, left + kernel[1]):
                            if 0 <= p < height and 0 <= q < width:
                                held.append(x[s, k, p, q])
                            counted += p < height + pads[2] and q < width + pads[3]
                    divisor = counted if include else len(held)
                    y[s, k, i, j] = sum(held) / divisor if average else max(held)
    return y


def lrn(x, size, alpha, beta, bias):
    y = np.zeros(x.shape)
    for c in range(x.shape[1]):
        total = 0.0
        for k in range(c - math.floor((size - 1) / 2), c + math.ceil((size - 1) / 2) + 1):
            if 0 <= k < x.shape[1]:
                total = total + x[:, k] ** 2
        y[:, c] = x[:, c] / (bias + alpha / size * total) ** beta
    return y


def batch_norm(x, scale, bias, mean, variance, epsilon, momentum, training):
    y, running = np.zeros(x.shape), [mean.copy(), variance.copy()]
    for c in range(x.shape[1]):
        m, v = mean[c], variance[c]
        if training:
            values = x[:, c].ravel()
            m = math.fsum(values) / len(values)
            v = math.fsum((values - m) ** 2) / len(values)
            running[0][c] = momentum * mean[c] + (1 - momentum) * m
            running[1][c] = momentum * variance[c] + (1 - momentum) * v
        y[:, c] = (x[:, c] - m) / math.sqrt(v + epsilon) * scale[c] + bias[c]
    return y, *running


def lstm(x, w, r, b):
    """x [N, T, F], gates iofc, to hidden states [N, T, H]."""

    def gate(value):
        return 1 / (1 + math.exp(-value))

    n, steps, _ = x.shape
    size = r.shape[1]
    y = np.zeros((n, steps, size))
    for s in range(n):
        h, c = np.zeros(size), np.zeros(size)
        for t in range(steps):
            given = [float(w[k] @ x[s, t] + r[k] @ h + b[k]) for k in range(4 * size)]
            new_h, new_c = np.zeros(size), np.zeros(size)
            for k in range(size):
                i, o, f, g = given[k::size]
                new_c[k] = gate(f) * c[k] + gate(i) * math.tanh(g)
                new_h[k] = gate(o) * math.tanh(new_c[k])
            h, c = new_h, new_c
            y[s, t] = h
    return y


def gru(x, w, r, b, last):
    """x [N, T, F], gates zrh, to hidden states [N, T, H]; b [2, 3H] where the reset gate acts last."""

    def gate(value):
        return 1 / (1 + math.exp(-value))

    n, steps, _ = x.shape
    size = r.shape[1]
    input_bias, other_bias = b if last else (b, np.zeros(3 * size))
    y = np.zeros((n, steps, size))
    for s in range(n):
        h = np.zeros(size)
        for t in range(steps):
            given = [float(w[k] @ x[s, t] + input_bias[k]) for k in range(3 * size)]
            z, q = (
                [gate(given[k] + float(r[k] @ h + other_bias[k])) for k in range(a, a + size)]
                for a in (0, size)
            )
            new = np.zeros(size)
            for k in range(size):
                row = 2 * size + k
                if last:
                    inner = q[k] * float(r[row] @ h + other_bias[row])
                else:
                    inner = sum(float(r[row][j]) * q[j] * h[j] for j in range(size))
                new[k] = (1 - z[k]) * math.tanh(given[row] + inner) + z[k] * h[k]
            h = new
            y[s, t] = h
    return y


def rnn(x, w, r, b, function):
    """x [N, T, F] to hidden states [N, T, H]."""
    n, steps, _ = x.shape
    y = np.zeros((n, steps, len(r)))
    for s in range(n):
        h = np.zeros(len(r))
        for t in range(steps):
            h = np.array([function(float(w[k] @ x[s, t] + r[k] @ h + b[k])) for k in range(len(r))])
            y[s, t] = h
    return y


def cross_entropy(scores, labels, smoothing=0.0):
    """scores [..., classes], labels [...]: minus the mean log-softmax at the labels, each of which
    a class has a share of."""
    losses = []
    for row, label in zip(scores.reshape(-1, scores.shape[-1]), labels.ravel()):
        top = max(row)
        total = top + math.log(math.fsum(math.exp(z - top) for z in row))
        for z in row:
            losses.append(smoothing / len(row) * (total - z))
        losses.append((1 - smoothing) * (total - row[label]))
    return math.fsum(losses) / labels.size
