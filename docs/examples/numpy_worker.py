"""A worker without dlb-core, in Python 3.6 and NumPy: the protocol of ../protocol.md, and no more.

Its "framework" is NumPy, its only model softmax regression (flatten, linear) with plain SGD. To
try it, put it as ``dlb/worker.py`` beside an empty ``dlb/__init__.py`` on the path of an interpreter
without dlb-core, and tell dlb of that interpreter: ``dlb env add numpy PYTHON``.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
import traceback

import numpy as np


class UnsupportedError(Exception):
    pass


class Model:
    def __init__(self, workload, weights, dtype):
        nodes = workload["model"]["nodes"]
        kinds = [node["layer"]["type"] for node in nodes]
        optimizer, schedule = workload["optimizer"], workload.get("schedule", {"type": "constant"})
        if kinds != ["flatten", "linear"]:
            raise UnsupportedError("only flatten and linear are known, not " + ", ".join(kinds))
        # Fields at their default are left out, so what is not there is 0 or false.
        options = [optimizer.get(name) for name in ("momentum", "nesterov", "weight_decay")]
        if optimizer["type"] != "sgd" or any(options) or schedule["type"] != "constant":
            raise UnsupportedError("only plain SGD at a constant rate is known")
        self.flat, self.last = (node["name"] for node in nodes)
        self.dtype, self.rate = dtype, optimizer["learning_rate"]
        self.weight = weights[self.last + ".weight"].astype(dtype)
        bias = weights.get(self.last + ".bias")
        self.bias = np.zeros(len(self.weight), dtype) if bias is None else bias.astype(dtype)
        self.names = [self.last + ".weight"] + ([] if bias is None else [self.last + ".bias"])

    def weights(self):
        return dict(zip(self.names, (self.weight, self.bias)))

    def forward(self, inputs):
        flat = inputs.astype(self.dtype).reshape(len(inputs), -1)
        return {self.flat: flat, self.last: flat.dot(self.weight.T) + self.bias}

    def gradients(self, inputs, labels):
        values = self.forward(inputs)
        shifted = values[self.last] - values[self.last].max(axis=1, keepdims=True)
        logarithm = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        rows = np.arange(len(labels))
        error = np.exp(logarithm)
        error[rows, labels] -= 1
        error /= len(labels)
        parameters = dict(zip(self.names, (error.T.dot(values[self.flat]), error.sum(axis=0))))
        return -logarithm[rows, labels].mean(), parameters, error.dot(self.weight)

    def step(self, inputs, labels):
        loss, gradients, _ = self.gradients(inputs, labels)
        for name, array in self.weights().items():
            array -= self.rate * gradients[name]
        return loss


# --- the calls -----------------------------------------------------------------------------------


def read(path):
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def write(path, arrays):
    with open(path, "wb") as file:
        np.savez(file, **arrays)


class Calls:
    def __init__(self, progress):
        self.progress, self.models = progress, []

    def describe(self):
        adapter = {"name": "numpy", "title": "NumPy", "deviations": []}
        adapter["framework_version"] = np.__version__
        return {"adapters": [adapter], "strategies": [], "plugins": [], "broken": []}

    def start(self, framework, threads, device, seed, strategy, workers):
        if device != "cpu" or strategy:
            raise UnsupportedError("one worker on the CPU is all there is")
        facts = {"framework": "NumPy", "version": np.__version__, "threads": 1, "device": "cpu"}
        return dict(facts, build={}, python=sys.version.split()[0], packages={})

    def build(self, workload, weights, dtype, batch_size):
        self.models.append(Model(workload, read(weights), dtype))
        return {"model": len(self.models) - 1}

    def drop(self, model):
        self.models[model] = None
        return {}

    def weights(self, model, to):
        write(to, self.models[model].weights())
        return {}

    def forward(self, model, inputs, to, training, layers):
        held = self.models[model]
        values = held.forward(read(inputs)["inputs"])
        write(to, {name: values[name] for name in {held.last} | set(layers)})
        return {}

    def gradients(self, model, inputs, to):
        given = read(inputs)
        loss, parameters, of_inputs = self.models[model].gradients(given["inputs"], given["labels"])
        arrays = {"parameters/" + name: array for name, array in parameters.items()}
        arrays.update(loss=np.asarray(loss), inputs=of_inputs.reshape(given["inputs"].shape))
        write(to, arrays)
        return {}

    def train(self, model, data, order, via, first_step, observe, to):
        arrays, rows, held = read(data), read(order)["order"], self.models[model]
        waited, took, losses = np.zeros((3, len(rows)))
        began, cpu, told = time.perf_counter(), time.process_time(), 0.0
        for step, row in enumerate(rows):
            asked = time.perf_counter()
            inputs, labels = arrays["inputs"][row], arrays["labels"][row]
            started = time.perf_counter()
            losses[step] = held.step(inputs, labels)
            now = time.perf_counter()
            waited[step], took[step] = started - asked, now - started
            if now - told > 0.2 or step + 1 == len(rows):
                self.progress(step=step + 1, loss=losses[step])
                told = now
        write(to, {"step_seconds": took, "data_seconds": waited, "losses": losses})
        facts = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
        return dict(facts, busy_threads=1, memory_bytes=0, observed={})

    def predict(self, model, data, batch_size, to):
        held = self.models[model]
        write(to, {"logits": held.forward(read(data)["inputs"])[held.last]})
        return {}

    def export(self, model, to):
        raise UnsupportedError("NumPy has no ONNX exporter")

    def leave(self):
        return {}


# --- the connection ------------------------------------------------------------------------------


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host, _, port = os.environ["DLB_SUPERVISOR"].rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.settimeout(None)
    lock, waiting = threading.Lock(), threading.Semaphore(0)
    messages = []

    def send(**message):
        with lock:
            connection.sendall(json.dumps(message).encode() + b"\n")

    def listen():
        for line in connection.makefile("rb"):
            messages.append(json.loads(line.decode()))
            waiting.release()
        os._exit(0)  # nobody waits for us any more

    def stay_alive():
        while True:
            time.sleep(1.0)
            send(event="alive")

    rank = int(os.environ.get("DLB_RANK", "0"))
    send(hello=1, token=os.environ["DLB_TOKEN"], role="worker", rank=rank, pid=os.getpid())
    for work in (listen, stay_alive):
        threading.Thread(target=work, daemon=True).start()
    calls = Calls(lambda **event: send(event="progress", **event))
    while True:
        waiting.acquire()
        message = messages.pop(0)
        if message["call"] == "end":
            send(id=message["id"], result={})
            os._exit(0)
        try:
            answer = {"result": getattr(calls, message["call"])(**message["arguments"])}
        except UnsupportedError as error:
            answer = {"error": {"kind": "unsupported", "message": str(error), "traceback": ""}}
        except Exception as error:
            text, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
            answer = {"error": {"kind": "raised", "message": text, "traceback": trace}}
        send(id=message["id"], **answer)


if __name__ == "__main__":
    main()
