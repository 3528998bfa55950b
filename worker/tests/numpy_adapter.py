"""Softmax regression in NumPy: the smallest adapter that answers every call."""

import time

import numpy as np

from dlb_worker import Adapter, UnsupportedError
from dlb_worker.batches import from_memory, prefetched
from dlb_worker.contract import Clock, FrameworkFacts, Gradients
from dlb_worker.layers import Layer, native_parameters
from dlb_worker.model import Input, Loss, Model, Node, Optimizer, Parameter, Workload
from dlb_worker.native import BuiltModel
from dlb_worker.parameters import location
from dlb_worker.updates import slots, updated


class Held:
    """A parameter of this framework, [in, out] for a weight."""

    def __init__(self, shape):
        self.array = np.zeros(shape)
        self.state = {}


class Dense:
    def __init__(self, node):
        self.weight = Held((node.input_shape[-1], node.out_features))
        self.bias = Held((node.out_features,))


def transposed(array):
    return array.T


LAYERS = {
    "linear": Layer(
        "native",
        Dense,
        {"weight": location("weight", transposed, transposed), "bias": location("bias")},
    )
}


class Regression(BuiltModel):
    def __init__(self, request):
        self.dtype = request.dtype
        (self.node,) = request.workload.model.nodes
        self.optimizer = request.workload.optimizer
        self.layer = LAYERS["linear"].build(self.node)
        self.parameters = native_parameters(request.workload.model, LAYERS, lambda node: self.layer)
        self.load_weights(request.weights)
        self.rate, self.steps, self.rates = 0.0, 0, []

    def read(self, native):
        return native.array.astype(self.dtype)

    def write(self, native, array):
        native.array = array.copy()

    def slots(self, native):
        return dict(native.state)

    def forward(self, inputs, training=False, layers=()):
        return {self.node.name: inputs.dot(self.layer.weight.array) + self.layer.bias.array}

    def gradients(self, inputs, labels):
        logits = self.forward(inputs)[self.node.name]
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        loss = -np.log(shares[np.arange(len(labels)), labels]).mean()
        shares[np.arange(len(labels)), labels] -= 1
        shares /= len(labels)
        own = {id(self.layer.weight): inputs.T.dot(shares), id(self.layer.bias): shares.sum(0)}
        return Gradients(
            loss=loss,
            parameters=self.gather(lambda native: own[id(native)]),
            inputs=shares.dot(self.layer.weight.array.T),
        )

    def set_learning_rate(self, learning_rate):
        self.rate = learning_rate
        self.rates.append(learning_rate)

    def train_step(self, inputs, labels):
        found = self.gradients(inputs, labels)
        self.steps += 1
        for each in self.parameters:
            (native,) = each.natives
            (gradient,) = each.mapping.to_native(found.parameters[each.name])
            state = native.state or {
                slot: np.zeros(gradient.shape) for slot in slots(self.optimizer)
            }
            native.array, native.state = updated(
                self.optimizer, native.array, gradient, state, self.rate, self.steps, np.sqrt
            )
        return Loss32(found.loss)


class Loss32:
    """A loss that is ready a while after its step returned, as on a device."""

    def __init__(self, value):
        self.value, self.ready = value, time.perf_counter() + DEVICE_SECONDS

    def __float__(self):
        return float(self.value)


DEVICE_SECONDS = 0.02


def wait(result):
    """Until the device has finished; before a step there is nothing to wait for."""
    if result is not None:
        time.sleep(max(0.0, result.ready - time.perf_counter()))


class NumpyAdapter(Adapter):
    name = "numpy"
    title = "NumPy"
    distribution = "dlb-numpy"
    framework = ("numpy",)
    contract = (2, 0)
    layers = LAYERS
    optimizers = {"sgd": "composed", "adam": "composed"}
    variants = {"layout": ("rows", "columns")}

    def start(self, request):
        if request.device != "cpu":
            raise UnsupportedError("NumPy has no device " + request.device)
        return FrameworkFacts(np.__version__, request.threads, "cpu")

    def build_model(self, request, layout):
        self.layout = layout
        return Regression(request)

    def load_data(self, request):
        return (prefetched if request.input_mode == "pipeline" else from_memory)(request)

    def clock(self, device):
        return Clock(wait)


adapter = NumpyAdapter()


def workload(kind="sgd", **numbers):
    """Softmax regression from 4 numbers to 3 classes."""
    attributes = {
        "sgd": {
            "learning_rate": 0.1,
            "momentum": 0.0,
            "nesterov": False,
            "weight_decay": 0.0,
            "clip_norm": 0.0,
        },
        "adam": {
            "learning_rate": 0.01,
            "beta1": 0.9,
            "beta2": 0.999,
            "epsilon": 1e-8,
            "weight_decay": 0.0,
            "clip_norm": 0.0,
        },
    }[kind]
    attributes.update(numbers)
    scores = Node(
        "scores",
        "linear",
        {"out_features": 3, "bias": True, "tied_to": ""},
        ("input",),
        ((4,),),
        (3,),
        {
            "weight": Parameter("scores.weight", (3, 4), True),
            "bias": Parameter("scores.bias", (3,), True),
        },
    )
    return Workload(
        "softmax",
        Model(Input("input", (4,), "real"), (scores,)),
        Loss("softmax_cross_entropy", {"label_smoothing": 0.0}),
        Optimizer(kind, attributes),
    )


def weights(seed=0):
    random = np.random.RandomState(seed)
    return {
        "scores.weight": random.standard_normal((3, 4)).astype(np.float32),
        "scores.bias": random.standard_normal(3).astype(np.float32),
    }
