"""A whole adapter on one page: NumPy as a framework, softmax regression as its only model.

dlb-worker carries the rest: the connection, the calls, the timed loop. To try it, install dlb-worker
and this module with the entry point ``numpy = "numpy_adapter:adapter"`` in the group ``dlb`` into any
Python from 3.6 on, then run ``dlb env add numpy PYTHON``.
"""

import numpy as np

from dlb_worker import Adapter
from dlb_worker.batches import from_memory, prefetched
from dlb_worker.contract import FrameworkFacts, Gradients
from dlb_worker.layers import Layer
from dlb_worker.native import BuiltModel
from dlb_worker.parameters import NativeParameter, location


class Softmax(BuiltModel):
    """One linear layer, flattened input or not. A native parameter is its name in ``self.values``."""

    def __init__(self, request):
        self.dtype, self.values = request.dtype, {}
        self.nodes = request.workload.model.nodes
        self.parameters = [
            NativeParameter(each.name, node.name, role, True, (each.name,))
            for node in self.nodes
            for role, each in node.parameters.items()
        ]
        self.load_weights(request.weights)

    def read(self, native):
        return self.values[native].copy()

    def write(self, native, array):
        self.values[native] = array

    def slots(self, native):
        return {}

    def forward(self, inputs, *, training=False, layers=()):
        values, value = {}, np.asarray(inputs, self.dtype)
        for node in self.nodes:
            value = LAYERS[node.kind].build(node)(self.values, value)
            values[node.name] = value
        return {name: values[name] for name in [*layers, self.nodes[-1].name]}

    def gradients(self, inputs, labels):
        flat, (logits,) = inputs.reshape(len(inputs), -1), self.forward(inputs).values()
        shifted = logits - logits.max(axis=1, keepdims=True)
        logarithm = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        rows = np.arange(len(labels))
        error = np.exp(logarithm)
        error[rows, labels] -= 1
        error /= np.asarray(len(labels), self.dtype)
        found = {"weight": error.T.dot(flat), "bias": error.sum(axis=0)}
        last = self.nodes[-1].name
        back = error.dot(self.values[last + ".weight"]).reshape(inputs.shape)
        gradient = {each.name: found[each.role] for each in self.parameters}
        return Gradients(-logarithm[rows, labels].mean(), gradient, back)

    def set_learning_rate(self, learning_rate):
        self.rate = learning_rate

    def train_step(self, inputs, labels):
        found = self.gradients(inputs, labels)
        for name, gradient in found.parameters.items():
            self.values[name] = self.values[name] - np.asarray(self.rate, self.dtype) * gradient
        return found.loss


def linear(node):
    weight, bias = node.name + ".weight", node.name + ".bias"
    return lambda values, x: x.dot(values[weight].T) + values.get(bias, 0)


LAYERS = {
    "flatten": Layer("native: reshape", lambda node: lambda values, x: x.reshape(len(x), -1)),
    "linear": Layer("composed", linear, {"weight": location("weight"), "bias": location("bias")}),
}


class NumPyAdapter(Adapter):
    name, title, distribution, framework = "numpy", "NumPy", "dlb-numpy", ("numpy",)
    contract, layers, optimizers = (2, 0), LAYERS, {"sgd": "composed: without momentum"}

    def start(self, request):
        return FrameworkFacts(version=np.__version__, threads=1, device="cpu")

    def build_model(self, request, **variant):
        return Softmax(request)

    def load_data(self, request):
        return from_memory(request) if request.input_mode == "memory" else prefetched(request)


adapter = NumPyAdapter()
